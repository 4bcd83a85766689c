"""A CUDA device made of host memory: mpi4py takes its arrays as those of a GPU, and its kernels run late.

A kernel is only put in a queue; it takes effect at the next ``synchronize``. So MPI, a clock or a caller that does not
wait for the device sees old data, as on a real one, but every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce as fold
from typing import Any

import numpy as np

from ringbench.runtime.arrays import HALVES, NumpyBackend, check_layout, fused_code, numpy_dtype

#: The operations, spelled out once more.
KERNELS: dict[str, Callable[..., object]] = {
    "sum": np.add,
    "average": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
}

Host = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Flags:
    """Say how an array lies in memory; there are no read-only arrays on a device."""

    c_contiguous: bool


class CudaArray:
    """Look like an array on a GPU: NumPy refuses it, MPI finds it by ``__cuda_array_interface__``."""

    __array_ufunc__ = None

    def __init__(self, backend: FakeCudaBackend, memory: Host) -> None:
        self.backend, self.memory = backend, memory

    def __array__(self, *arguments: object, **options: object) -> Host:
        raise TypeError("an array on the device is not converted by accident; use to_host")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.memory.ctypes.data, False),
            "strides": None if self.flags.c_contiguous else self.strides,
            "version": 3,
        }

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.memory.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.memory.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.memory.strides)

    @property
    def size(self) -> int:
        return self.memory.size

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    @property
    def flags(self) -> Flags:
        return Flags(c_contiguous=self.memory.flags.c_contiguous)

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, key: Any) -> CudaArray:
        """Return a view; a single element would be a copy to the host, which nothing here should ask for."""
        view = self.memory[key]
        if not isinstance(view, np.ndarray) or (view.size and not np.shares_memory(view, self.memory)):
            raise TypeError(f"{key!r} is no view of an array on the device")
        return CudaArray(self.backend, view)

    def __setitem__(self, key: Any, value: CudaArray | int) -> None:
        """Start a kernel that fills a part with a number or with another array of the device."""
        if isinstance(value, CudaArray):
            self.backend.copy(self[key], value)
        else:
            view = self.memory[key]
            self.backend.launch("fill", lambda: view.fill(value))

    def reshape(self, shape: int) -> CudaArray:
        if not self.flags.c_contiguous:
            raise ValueError("reshape would copy")
        return CudaArray(self.backend, self.memory.reshape(shape))


class FakeCudaBackend:
    """Record every kernel and every synchronisation in ``events``; hold kernels back until the latter."""

    device = "fakecuda"
    asynchronous = True

    def __init__(self, visible: int = 1) -> None:
        self.visible, self.current = visible, 0
        self.nccl_module: Any = None
        self.threads = 0
        self.current_stream = 7
        self.events: list[str] = []
        self.pending: list[Callable[[], object]] = []

    def launch(self, name: str, kernel: Callable[[], object]) -> None:
        self.events.append(name)
        self.pending.append(kernel)

    def owns(self, array: object) -> bool:
        return isinstance(array, CudaArray)

    def empty(self, count: int, dtype: str) -> CudaArray:
        """Allocate, filled with bytes that are NaN as floats and no small number as integers (True as bool)."""
        memory = NumpyBackend().empty(count, dtype)
        memory.view(np.uint8).fill(1 if dtype == "bool" else 0xFF)
        return CudaArray(self, memory)

    def extent(self, array: CudaArray) -> tuple[int, int]:
        return array.memory.ctypes.data, array.nbytes

    def check(self, array: CudaArray, *, writable: bool) -> None:
        check_layout(array.flags, array.shape, array.strides, writable=writable)

    def flat(self, array: CudaArray) -> CudaArray:
        return array.reshape(-1)

    def kernel(self, op: str) -> Callable[..., object]:
        """Return what queues the operation under its name."""
        function = KERNELS[op]

        def reduce(one: CudaArray, other: CudaArray, out: CudaArray) -> None:
            a, b, c = _memories(one, other, out)
            self.launch(op, lambda: function(a, b, out=c))

        reduce.__name__ = op
        return reduce

    def copy(self, dest: CudaArray, source: CudaArray) -> None:
        to, of = _memories(dest, source)
        self.launch("copy", lambda: np.copyto(to, of))

    def divide(self, array: CudaArray, divisor: int) -> None:
        (memory,) = _memories(array)
        parts = (memory.real, memory.imag) if memory.dtype.kind == "c" else (memory,)

        def kernel() -> None:
            for part in parts:
                np.divide(part, part.dtype.type(divisor), out=part)

        self.launch("divide", kernel)

    def fused(self, op: str, dtype: str, terms: int, divisor: int | None) -> Callable[..., object] | None:
        """Return one kernel where CuPy's backend has one; it computes as that says."""
        if fused_code(op, dtype, terms, divisor) is None:
            return None
        function: Any = KERNELS[op]
        wide = "float32" if dtype in HALVES else dtype

        def reduce(*arrays: CudaArray) -> None:
            *operands, out = _memories(*arrays)

            def kernel() -> None:
                total = fold(lambda one, other: function(one, other).astype(out.dtype), operands)
                out[...] = total if divisor is None else total.astype(wide) / np.dtype(wide).type(divisor)

            self.launch(op, kernel)

        reduce.__name__ = op
        return reduce

    def pinned(self, count: int, dtype: str) -> Host:
        memory: Host = NumpyBackend().empty(count, dtype)
        memory.view(np.uint8).fill(1 if dtype == "bool" else 0xFF)
        return memory

    def copy_out(self, dest: Host, source: CudaArray) -> None:
        """Queue the copy, as one to page-locked memory is."""
        (of,) = _memories(source)
        self.launch("copy_out", lambda: np.copyto(dest, of))

    def copy_in(self, dest: CudaArray, source: Host) -> None:
        (to,) = _memories(dest)
        self.launch("copy_in", lambda: np.copyto(to, source))

    def seconds(self, call: Callable[[], object], repeats: int) -> float:
        for _ in range(repeats):
            call()
        self.synchronize()
        return 1e-6

    def devices(self) -> int:
        return self.visible

    def use(self, index: int) -> dict[str, Any]:
        self.current = index
        return {"device": index, "pci": f"0000:{index:02x}:00.0", "name": "a fake", "uuid": f"{index:032x}"}

    def enter_thread(self) -> None:
        self.threads += 1

    def nccl(self) -> Any:
        if self.nccl_module is None:
            raise ValueError("there is no fake of NCCL")
        return self.nccl_module

    def stream(self) -> int:
        return self.current_stream

    def check_dtype(self, dtype: str) -> None:
        numpy_dtype(dtype)

    def synchronize(self) -> None:
        """Let all kernels take effect, in the order of their start."""
        self.events.append("synchronize")
        kernels, self.pending = self.pending, []
        for kernel in kernels:
            kernel()

    def to_host(self, array: CudaArray) -> Host:
        """Copy to the host; waits for the kernels, as a copy on their stream does."""
        (memory,) = _memories(array)
        self.synchronize()
        self.events[-1] = "to_host"
        return np.array(memory)

    def from_host(self, array: Host) -> CudaArray:
        self.events.append("from_host")
        return CudaArray(self, array.copy())


def _memories(*arrays: CudaArray) -> list[Host]:
    """Return the memory of arrays of the device; raise where one is of the host, or where sizes differ."""
    for array in arrays:
        if not isinstance(array, CudaArray):
            raise TypeError(f"a kernel takes arrays of the device, not a {type(array).__name__}")
        if (array.size, array.dtype) != (arrays[0].size, arrays[0].dtype):
            raise ValueError(f"{array.size} {array.dtype} beside {arrays[0].size} {arrays[0].dtype}")
    return [array.memory for array in arrays]

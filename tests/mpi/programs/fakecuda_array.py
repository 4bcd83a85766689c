"""A device that is none: host memory behind ``__cuda_array_interface__``, and kernels that run when they must.

A kernel of a real device may run at any time between its start and the next synchronisation. Here it runs at the last
moment, so that whoever forgets to synchronise reads what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringbench.runtime.arrays import PAGE, check_layout

Host = np.ndarray[Any, np.dtype[Any]]


class Stream:
    """Hold kernels that were started and have not run, and a list of what happened."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.events: list[str] = []

    def start(self, kernel: Callable[[], object]) -> None:
        self.events.append("kernel")
        self.waiting.append(kernel)

    def synchronize(self) -> None:
        self.events.append("synchronize")
        self.drain()

    def drain(self) -> None:
        """Run what waits, without a word."""
        kernels, self.waiting = self.waiting, []
        for kernel in kernels:
            kernel()


class FakeCudaArray:
    """Look like an array of a device to mpi4py, and like CuPy's to ringbench: no buffer protocol, no ``__array__``."""

    def __init__(self, host: Host, stream: Stream) -> None:
        self.host, self.stream = host, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self.host.__array_interface__
        return {name: interface[name] for name in ("shape", "typestr", "data", "strides")} | {"version": 3}

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.host.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.host.strides

    @property
    def size(self) -> int:
        return self.host.size

    @property
    def nbytes(self) -> int:
        return self.host.nbytes

    def reshape(self, *shape: int) -> FakeCudaArray:
        return FakeCudaArray(self.host.reshape(*shape), self.stream)

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, key: Any) -> FakeCudaArray:
        return FakeCudaArray(self.host[key], self.stream)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise TypeError("host memory must be brought to the device first")
        source = value.host if isinstance(value, FakeCudaArray) else value
        dest = self.host[key]
        self.stream.start(lambda: np.copyto(dest, source, casting="unsafe"))


class FakeCudaBackend:
    """Do for these arrays what CupyBackend does for CuPy's."""

    device = "fake"
    asynchronous = True

    def __init__(self) -> None:
        self.stream = Stream()

    def owns(self, array: object) -> bool:
        return isinstance(array, FakeCudaArray)

    def empty(self, count: int, dtype: str) -> FakeCudaArray:
        nbytes = count * np.dtype(dtype).itemsize
        memory = np.full(nbytes + PAGE, 0xA5, dtype=np.uint8)
        start = -memory.ctypes.data % PAGE
        return FakeCudaArray(memory[start : start + nbytes].view(dtype), self.stream)

    def extent(self, array: FakeCudaArray) -> tuple[int, int]:
        return array.host.ctypes.data, array.nbytes

    def check(self, array: FakeCudaArray, *, writable: bool) -> None:
        check_layout(array.host.flags, array.shape, array.strides, writable=writable)

    def flat(self, array: FakeCudaArray) -> FakeCudaArray:
        return array.reshape(-1)

    def add(self, one: FakeCudaArray, other: FakeCudaArray, out: FakeCudaArray) -> None:
        self.stream.start(lambda: np.add(one.host, other.host, out.host))

    def copy(self, dest: FakeCudaArray, source: FakeCudaArray) -> None:
        self.stream.start(lambda: np.copyto(dest.host, source.host))

    def divide(self, array: FakeCudaArray, divisor: int) -> None:
        self.stream.start(lambda: np.divide(array.host, array.dtype.type(divisor), array.host))

    def synchronize(self) -> None:
        self.stream.synchronize()

    def to_host(self, array: FakeCudaArray) -> Host:
        self.stream.drain()
        return array.host.copy()

    def from_host(self, array: Host) -> FakeCudaArray:
        return FakeCudaArray(array.copy(), self.stream)

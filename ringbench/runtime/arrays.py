"""Arrays of every kind, seen through one table of functions; the only module that knows NumPy from CuPy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = Any  # numpy.ndarray, cupy.ndarray, or what a registered backend owns

PAGE = 4096

#: The functions behind the operations. Each result is rounded to the dtype, of float16 and bfloat16 too; integers wrap
#: around; the least and the greatest of NaN and a number are NaN.
UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "average": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
}


def _minimum(one: Array, other: Array, out: Array) -> object:
    return np.minimum(one, other, out=out)  # NumPy 2.4 wants it named, lest one thinks of the least of three


def _maximum(one: Array, other: Array, out: Array) -> object:
    return np.maximum(one, other, out=out)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        kind: np.dtype[Any] = np.dtype(import_module("ml_dtypes").bfloat16)
        return kind
    return np.dtype(name)


class Backend(Protocol):
    """Do to arrays of one kind what collectives need.

    Kernels of a backend with ``asynchronous`` set may still run when they return: ``synchronize`` must come before MPI
    or the clock sees their result.
    """

    device: str
    asynchronous: bool

    def owns(self, array: object) -> bool:
        """Say whether the array is of this kind."""

    def empty(self, count: int, dtype: str) -> Array:
        """Allocate a contiguous array that starts on a page."""

    def extent(self, array: Array) -> tuple[int, int]:
        """Return the address and the bytes of a contiguous array."""

    def check(self, array: Array, *, writable: bool) -> None:
        """Raise ValueError where the array is not contiguous in C order, or may not be written."""

    def flat(self, array: Array) -> Array:
        """Return a one-dimensional view of a contiguous array."""

    def kernel(self, op: str) -> Callable[..., object]:
        """Return ``kernel(one, other, out)``, which reduces ``one`` and ``other`` into ``out``."""

    @property
    def copy(self) -> Callable[..., object]:
        """Return ``copy(dest, source)``."""

    def divide(self, array: Array, divisor: int) -> object:
        """Divide an array in place."""

    def fused(self, op: str, dtype: str, terms: int, divisor: int | None) -> Callable[..., object] | None:
        """Return ``kernel(first, second, ..., out)``, which reduces so many arrays in their order, and divides.

        The bits are those of one operation after the other. None where nothing is saved by it.
        """

    def synchronize(self) -> object:
        """Wait until all kernels started on the current stream are done."""

    def seconds(self, call: Callable[[], object], repeats: int) -> float:
        """Return how long a call takes on the device, the mean of so many in a row."""

    def pinned(self, count: int, dtype: str) -> np.ndarray[Any, Any]:
        """Allocate an array of the host to and from which this backend's arrays are copied."""

    def copy_out(self, dest: np.ndarray[Any, Any], source: Array) -> object:
        """Copy an array into one that is ``pinned``, as a kernel of the current stream."""

    def copy_in(self, dest: Array, source: np.ndarray[Any, Any]) -> object:
        """Copy an array that is ``pinned`` into one of this backend, as a kernel of the current stream."""

    def devices(self) -> int:
        """Count the devices that this process sees, without touching any; 0 where arrays are in host memory."""

    def use(self, index: int) -> dict[str, Any]:
        """Have all arrays from now on be on this device; return what it is: name, PCI address, bytes, driver."""

    def enter_thread(self) -> None:
        """Have the calling thread use the device that ``use`` chose: each thread has a current device of its own."""

    def nccl(self) -> Any:
        """Return the module ``cupy.cuda.nccl``, or what stands for it; raise ValueError where there is none."""

    def stream(self) -> int:
        """Return the address of the current stream."""

    def check_dtype(self, dtype: str) -> None:
        """Raise ValueError where there are no arrays of the dtype, without touching a device."""

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Return the array, or a copy of it, in host memory."""

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Return the array, or a copy of it, where this backend's arrays are."""


def check_layout(flags: Any, shape: object, strides: object, *, writable: bool) -> None:
    """Raise ValueError, with shape and strides, where an array cannot be a buffer as it is."""
    if not flags.c_contiguous:
        raise ValueError(f"the array of shape {shape} and strides {strides} is not contiguous in C order")
    if writable and not getattr(flags, "writeable", True):
        raise ValueError(f"the array of shape {shape} that takes the result is read-only")


class NumpyBackend:
    """Host memory."""

    device = "cpu"
    asynchronous = False
    copy: Callable[..., object] = staticmethod(np.copyto)

    def owns(self, array: object) -> bool:
        """Say whether the array is a NumPy array."""
        return isinstance(array, np.ndarray)

    def empty(self, count: int, dtype: str) -> Array:
        """Allocate on a page boundary: alignment alone moves MPI_Allreduce by 2.5 times at 64 KiB."""
        kind = numpy_dtype(dtype)
        nbytes = count * kind.itemsize
        memory = np.empty(nbytes + PAGE, dtype=np.uint8)
        start = -memory.ctypes.data % PAGE
        return memory[start : start + nbytes].view(kind)

    def extent(self, array: Array) -> tuple[int, int]:
        """Return the address and the bytes."""
        return array.ctypes.data, array.nbytes

    def check(self, array: Array, *, writable: bool) -> None:
        """Check NumPy's own flags."""
        check_layout(array.flags, array.shape, array.strides, writable=writable)

    def flat(self, array: Array) -> Array:
        """Return a view; of a matrix too, which stays two-dimensional whatever the shape asked for."""
        return np.asarray(array).reshape(-1)

    def kernel(self, op: str) -> Callable[..., object]:
        """Return the ufunc itself where it takes ``out`` in third place: a call around it costs each small step."""
        if op == "min":
            return _minimum
        return _maximum if op == "max" else UFUNCS[op]

    def divide(self, array: Array, divisor: int) -> object:
        """Divide in place, correctly rounded (a product with 1/N would not be, nor is a complex quotient)."""
        parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
        if parts.dtype.itemsize == 2:  # which may not hold the divisor; in float32 nothing is rounded twice
            parts[...] = (parts.astype(np.float32) / np.float32(divisor)).astype(parts.dtype)
            return parts
        return np.divide(parts, parts.dtype.type(divisor), parts)

    def fused(self, op: str, dtype: str, terms: int, divisor: int | None) -> None:
        """Return None: a call costs little here, and one pass over memory is what NumPy cannot do."""

    def synchronize(self) -> None:
        """Do nothing: NumPy is done when it returns."""

    def seconds(self, call: Callable[[], object], repeats: int) -> float:
        """Return the mean by the host's clock."""
        start = perf_counter()
        for _ in range(repeats):
            call()
        return (perf_counter() - start) / repeats

    def pinned(self, count: int, dtype: str) -> np.ndarray[Any, Any]:
        """Allocate as always: all memory here is the host's."""
        array: np.ndarray[Any, Any] = self.empty(count, dtype)
        return array

    copy_out: Callable[..., object] = staticmethod(np.copyto)
    copy_in: Callable[..., object] = staticmethod(np.copyto)

    def devices(self) -> int:
        """Return 0."""
        return 0

    def use(self, index: int) -> dict[str, Any]:
        """Raise ValueError: the host is no device."""
        raise ValueError(f"device {index}: arrays of the cpu are on none")

    def enter_thread(self) -> None:
        """Do nothing: memory of the host is every thread's."""

    def nccl(self) -> Any:
        """Raise ValueError: NCCL knows no arrays of the host."""
        raise ValueError("NCCL takes arrays of a GPU alone")

    def stream(self) -> int:
        """Return 0."""
        return 0

    def check_dtype(self, dtype: str) -> None:
        """Raise ValueError for what NumPy does not know, of bfloat16 without ml_dtypes."""
        try:
            numpy_dtype(dtype)
        except (TypeError, ImportError) as error:
            raise ValueError(f"dtype {dtype!r}: {error}") from None

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return np.asarray(array)

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Return the array itself."""
        return array


#: What is added in float32.
HALVES = ("float16", "bfloat16")

#: The operators of the reductions that are worth a kernel of their own.
_OPERATORS = {"sum": "+", "average": "+", "prod": "*"}


def fused_code(op: str, dtype: str, terms: int, divisor: int | None) -> tuple[str, str, str, str] | None:
    """Return what CuPy's ElementwiseKernel takes for a reduction of several arrays: inputs, output, code and name.

    None where the kernels that there are do it in as many launches, or the operation has no operator. Elements of two
    bytes are added and divided in float32, and each result is rounded, as it is between two kernels: ranks whose
    additions fall into kernels in other ways, or that are sent the sum, must have the same bits.
    """
    if op not in _OPERATORS or (divisor is not None and dtype.startswith("complex")):
        return None
    if terms + (divisor is not None) < 3 and dtype not in HALVES:
        return None
    wide = "float" if dtype in HALVES else "T"
    names = [f"a{number}" for number in range(terms)]
    lines = [f"{wide} s = ({wide})a0;", *(f"s = ({wide})(T)(s {_OPERATORS[op]} ({wide}){name});" for name in names[1:])]
    if divisor is not None:
        lines.append(f"s = s / ({wide}){divisor};")
    divided = "" if divisor is None else f"_by_{divisor}"
    inputs = ", ".join(f"T {name}" for name in names)
    return inputs, "T out", " ".join([*lines, "out = (T)s;"]), f"ringbench_{op}_{terms}{divided}_{dtype}"


class CupyBackend:
    """Memory of the current CUDA device; CuPy is imported when the first array of it is met.

    Kernels go to CuPy's current stream, and nothing else of the device is ever waited for.
    """

    device = "cuda"
    asynchronous = True

    def __init__(self) -> None:
        self._module: Any = None
        self._index: int | None = None
        self._kernels: dict[tuple[str, str, int, int | None], Any] = {}

    @property
    def cupy(self) -> Any:
        """Return CuPy; raise ValueError where it, its driver or a device is missing."""
        if self._module is None:
            try:
                module = import_module("cupy")
            except ImportError as error:
                first = str(error).strip().partition("\n")[0]
                if getattr(error, "name", None) == "cupy":
                    first = "CuPy is not installed (extra cuda12 or cuda13)"
                raise ValueError(f"device 'cuda': {first}") from None
            try:
                devices = module.cuda.runtime.getDeviceCount()
            except Exception as error:
                raise ValueError(f"device 'cuda': no CUDA device can be used ({error})") from None
            if not devices:
                raise ValueError("device 'cuda': no CUDA device is visible")
            self._module = module
        return self._module

    def owns(self, array: object) -> bool:
        """Say whether the array is CuPy's, without importing it."""
        return type(array).__module__.partition(".")[0] == "cupy"

    def empty(self, count: int, dtype: str) -> Array:
        """Allocate from the default pool, whose blocks start at multiples of 512 bytes."""
        self.check_dtype(dtype)
        return self.cupy.empty(count, dtype=numpy_dtype(dtype))

    def extent(self, array: Array) -> tuple[int, int]:
        """Return the device address and the bytes."""
        return int(array.data.ptr), int(array.nbytes)

    def check(self, array: Array, *, writable: bool) -> None:
        """Check the layout; CuPy has no read-only arrays."""
        check_layout(array.flags, array.shape, array.strides, writable=writable)

    def flat(self, array: Array) -> Array:
        """Return a view."""
        return array.reshape(-1)

    def kernel(self, op: str) -> Callable[..., object]:
        """Return what starts the operation on the current stream."""
        function = getattr(self.cupy, UFUNCS[op].__name__)
        return lambda one, other, out: function(one, other, out=out)

    def copy(self, dest: Array, source: Array) -> object:
        """Start the copy on the current stream."""
        return self.cupy.copyto(dest, source)

    def divide(self, array: Array, divisor: int) -> object:
        """Start the division on the current stream."""
        own = self.fused("average", array.dtype.name, 1, divisor) if array.dtype.itemsize == 2 else None
        if own is not None:  # the dtype may not hold the divisor
            return own(array, array)
        parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
        return self.cupy.divide(parts, parts.dtype.type(divisor), parts)

    def fused(self, op: str, dtype: str, terms: int, divisor: int | None) -> Callable[..., object] | None:
        """Return a kernel that is compiled at its first call, which no measurement counts."""
        key = op, dtype, terms, divisor
        if key not in self._kernels:
            code = fused_code(*key)
            self._kernels[key] = None if code is None else self.cupy.ElementwiseKernel(*code)
        found: Callable[..., object] | None = self._kernels[key]
        return found

    def synchronize(self) -> object:
        """Wait for the current stream."""
        return self.cupy.cuda.get_current_stream().synchronize()

    def seconds(self, call: Callable[[], object], repeats: int) -> float:
        """Return the mean between two events on the current stream: the host's part of a launch is hidden."""
        cuda = self.cupy.cuda
        start, end = cuda.Event(), cuda.Event()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(start, end)) * 1e-3 / repeats

    def pinned(self, count: int, dtype: str) -> np.ndarray[Any, Any]:
        """Allocate page-locked memory, which alone is copied while the host goes on."""
        kind = numpy_dtype(dtype)
        memory = self.cupy.cuda.alloc_pinned_memory(max(1, count * kind.itemsize))
        return np.frombuffer(memory, kind, count)

    def copy_out(self, dest: np.ndarray[Any, Any], source: Array) -> object:
        """Start the copy on the current stream."""
        return self._copy(dest.ctypes.data, int(source.data.ptr), dest.nbytes, "memcpyDeviceToHost")

    def copy_in(self, dest: Array, source: np.ndarray[Any, Any]) -> object:
        """Start the copy on the current stream."""
        return self._copy(int(dest.data.ptr), source.ctypes.data, source.nbytes, "memcpyHostToDevice")

    def _copy(self, dest: int, source: int, nbytes: int, kind: str) -> object:
        cuda = self.cupy.cuda
        return cuda.runtime.memcpyAsync(
            dest, source, nbytes, getattr(cuda.runtime, kind), cuda.get_current_stream().ptr
        )

    def devices(self) -> int:
        """Ask the driver, which makes no context: nothing is taken of a device's memory."""
        return int(self.cupy.cuda.runtime.getDeviceCount())

    def use(self, index: int) -> dict[str, Any]:
        """Make the device current for this thread, and say what it is."""
        cuda = self.cupy.cuda
        cuda.Device(index).use()
        self._index = index
        properties = cuda.runtime.getDeviceProperties(index)
        name, uuid = properties["name"], properties.get("uuid", b"")
        return {
            "device": index,
            "pci": cuda.runtime.deviceGetPCIBusId(index),
            "name": name.decode(errors="replace") if isinstance(name, bytes) else str(name),
            "uuid": uuid.hex() if isinstance(uuid, bytes) else str(uuid),
            "nbytes": int(properties["totalGlobalMem"]),
            "driver": int(cuda.runtime.driverGetVersion()),
            "runtime": int(cuda.runtime.runtimeGetVersion()),
            "cupy": str(self.cupy.__version__),
        }

    def enter_thread(self) -> None:
        """Make the device current for this thread too, where one was chosen."""
        if self._index is not None:
            self.cupy.cuda.Device(self._index).use()

    def nccl(self) -> Any:
        """Return CuPy's module; raise ValueError where CuPy does not find the library."""
        module = self.cupy.cuda.nccl
        if not module.available:
            raise ValueError("CuPy does not find NCCL (pip install nvidia-nccl-cu12 or nvidia-nccl-cu13)")
        return module

    def stream(self) -> int:
        """Return CuPy's current stream."""
        return int(self.cupy.cuda.get_current_stream().ptr)

    def check_dtype(self, dtype: str) -> None:
        """Raise ValueError for bfloat16 before CuPy 14."""
        version = str(self.cupy.__version__)
        if dtype == "bfloat16" and int(version.partition(".")[0]) < 14:
            raise ValueError(f"dtype 'bfloat16': CuPy {version} has none, 14 does")

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy to the host; waits for the current stream."""
        return np.asarray(self.cupy.asnumpy(array))

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Copy to the device."""
        return self.cupy.asarray(array)


BACKENDS: list[Backend] = [NumpyBackend(), CupyBackend()]


def register_backend(backend: Backend) -> None:
    """Add a kind of array; it is asked before the built-in ones."""
    BACKENDS.insert(0, backend)


def backend_of(array: object) -> Backend:
    """Return the backend that owns an array; raise ValueError naming the type where none does."""
    for backend in BACKENDS:
        if backend.owns(array):
            return backend
    kind = type(array)
    raise ValueError(f"{kind.__module__}.{kind.__qualname__} is no array that ringbench knows (NumPy or CuPy)")


def backend_for(device: str) -> Backend:
    """Return the backend of a device named on the command line; raise ValueError naming the known ones."""
    for backend in reversed(BACKENDS):
        if backend.device == device:
            return backend
    raise ValueError(f"unknown device {device!r}; known: {', '.join(backend.device for backend in BACKENDS)}")

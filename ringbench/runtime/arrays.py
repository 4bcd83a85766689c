"""Arrays of every kind, seen through one table of functions; the only module that knows NumPy from CuPy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
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

    def synchronize(self) -> object:
        """Wait until all kernels started on the current stream are done."""

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

    def synchronize(self) -> None:
        """Do nothing: NumPy is done when it returns."""

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return np.asarray(array)

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Return the array itself."""
        return array


class CupyBackend:
    """Memory of the current CUDA device; CuPy is imported when the first array of it is met."""

    device = "cuda"
    asynchronous = True

    def __init__(self) -> None:
        self._module: Any = None

    @property
    def cupy(self) -> Any:
        """Return CuPy; raise ValueError where it, its driver or a device is missing."""
        if self._module is None:
            try:
                module = import_module("cupy")
            except ImportError:
                raise ValueError("device 'cuda': CuPy is not installed (extra cuda12 or cuda13)") from None
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
        """Allocate from the default pool, whose blocks start on a page; raise ValueError for bfloat16."""
        if dtype == "bfloat16":
            raise ValueError("dtype 'bfloat16': CuPy has none")
        return self.cupy.empty(count, dtype=dtype)

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
        parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
        return self.cupy.divide(parts, parts.dtype.type(divisor), parts)

    def synchronize(self) -> object:
        """Wait for the current stream."""
        return self.cupy.cuda.get_current_stream().synchronize()

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

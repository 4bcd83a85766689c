from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakecuda import FakeCudaBackend

from ringbench.runtime import arrays
from ringbench.runtime.arrays import (
    PAGE,
    UFUNCS,
    CupyBackend,
    NumpyBackend,
    backend_for,
    backend_of,
    numpy_dtype,
    register_backend,
)
from ringbench.runtime.demands import ITEMSIZE, OPS, check_types

HOST = NumpyBackend()
DTYPES = list(ITEMSIZE)


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BACKENDS", [NumpyBackend(), CupyBackend()])


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_starts_on_a_page(dtype: str) -> None:
    kept = [HOST.empty(count, dtype) for count in (0, 1, 2, 1023, 4096, 100_003)]
    assert [array.size for array in kept] == [0, 1, 2, 1023, 4096, 100_003]
    for array in kept:
        assert (array.dtype, array.dtype.name) == (numpy_dtype(dtype), dtype)
        assert array.dtype.itemsize == ITEMSIZE[dtype]
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.size == 0 or array.ctypes.data % PAGE == 0
        array[...] = 1


def test_extent_is_address_and_bytes() -> None:
    array = np.zeros(10)
    assert HOST.extent(array[2:5]) == (array.ctypes.data + 16, 24)


SQUARE = np.zeros((2, 3))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(8)[::2],
        SQUARE[:, 1],
        np.zeros(4)[::-1],
        np.zeros((2, 3), order="F"),
        SQUARE.T,
        np.zeros((4, 4))[:2, :2],
    ],
    ids=["every other", "column", "reversed", "Fortran order", "transposed", "corner"],
)
def test_case_7_what_is_not_contiguous_is_refused_with_shape_and_strides(array: Any) -> None:
    for writable in (True, False):
        with pytest.raises(ValueError, match="not contiguous in C order") as caught:
            HOST.check(array, writable=writable)
        assert f"shape {array.shape} and strides {array.strides}" in str(caught.value)


@pytest.mark.parametrize(
    "array", [np.zeros(8)[2:5], SQUARE, SQUARE[1], np.zeros(1)[::-1], np.zeros(0), np.zeros((3, 0, 2)), np.zeros(())]
)
def test_what_is_contiguous_is_taken_and_seen_as_a_vector(array: Any) -> None:
    HOST.check(array, writable=True)
    flat = HOST.flat(array)
    assert flat.shape == (array.size,)
    assert not array.size or np.shares_memory(flat, array)


def test_a_matrix_becomes_a_vector_too() -> None:
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    flat = HOST.flat(matrix)
    flat[3] = 9
    assert flat.shape == (4,)
    assert matrix[1, 1] == 9


def test_case_8_a_read_only_array_gives_but_does_not_take() -> None:
    array = np.zeros((2, 2))
    array.flags.writeable = False
    HOST.check(array, writable=False)
    with pytest.raises(ValueError, match=r"shape \(2, 2\) that takes the result is read-only"):
        HOST.check(array, writable=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_division_is_rounded_once(dtype: str) -> None:
    values = np.arange(1, 2000, dtype=dtype)
    array = values.copy()
    HOST.divide(array, 3)
    wide = values.astype(np.longdouble) / 3
    assert array.dtype == values.dtype
    assert np.array_equal(array, wide.astype(dtype))
    assert not np.array_equal(array, values * values.dtype.type(1 / 3))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_complex_division_is_rounded_once_in_either_part(dtype: str) -> None:
    values = (np.arange(1, 2000) + 1j * np.arange(3001, 5000)).astype(dtype)
    array = values.copy()
    HOST.divide(array, 7)
    kind = array.real.dtype
    for part, of in ((array.real, values.real), (array.imag, values.imag)):
        assert np.array_equal(part, (of.astype(np.longdouble) / 7).astype(kind))
    array = np.array([complex(np.inf, 1), 4 + 8j], dtype=dtype)
    HOST.divide(array, 4)
    assert array.tolist() == [complex(np.inf, 0.25), 1 + 2j]


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if "float" in dtype])
def test_a_division_keeps_the_dtype(dtype: str) -> None:
    array = HOST.empty(3, dtype)
    array[...] = [1, 2, 6]
    before = array.ctypes.data
    HOST.divide(array, 4)
    assert (array.tolist(), array.dtype.name, array.ctypes.data) == ([0.25, 0.5, 1.5], dtype, before)


def test_kernels_of_the_host_write_where_they_are_told() -> None:
    one, other, out = np.ones(3), np.full(3, 2.0), np.zeros(3)
    HOST.kernel("sum")(one, other, out)
    assert (one.tolist(), other.tolist(), out.tolist()) == ([1] * 3, [2] * 3, [3] * 3)
    HOST.copy(one, out)
    assert one.tolist() == [3, 3, 3]
    assert HOST.to_host(out) is out
    assert HOST.from_host(out) is out


@pytest.mark.parametrize("op", OPS)
def test_a_kernel_may_write_over_what_it_reads(op: str) -> None:
    """As a sum in place does, and one whose left side arrived."""
    kernel, kind = HOST.kernel(op), bool if op[0] == "l" else float
    for at in (0, 1):
        both = [np.array([0, 1, 0, 1], dtype=kind), np.array([0, 0, 1, 1], dtype=kind)]
        separate = np.empty(4, dtype=kind)
        kernel(both[0], both[1], separate)
        kernel(both[0], both[1], both[at])
        assert both[at].tolist() == separate.tolist()


RIGHT = {
    "sum": [5, -1, 0],
    "average": [5, -1, 0],  # whoever averages divides later, and once
    "prod": [6, -6, -9],
    "min": [2, -3, -3],
    "max": [3, 2, 3],
    "land": [1, 1, 1],
    "lor": [1, 1, 1],
}


def taken(op: str, dtype: str) -> bool:
    try:
        check_types("allreduce", op, dtype)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op in OPS for dtype in DTYPES if taken(op, dtype)])
def test_what_a_kernel_gives(op: str, dtype: str) -> None:
    right = RIGHT[op]
    one, other, out = (HOST.empty(3, dtype) for _ in range(3))
    one[...], other[...] = ([2, 2, 3], [3, 3, 3]) if dtype in ("uint8", "bool") else ([2, 2, -3], [3, -3, 3])
    if dtype == "uint8":
        right = {"sum": [5, 5, 6], "prod": [6, 6, 9], "min": [2, 2, 3], "max": [3, 3, 3]}.get(op, right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HOST.kernel(op)(one, other, out)
    assert out.tolist() == right
    assert out.dtype.name == dtype


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64"])
@pytest.mark.parametrize(("op", "right"), [("land", [0, 0, 0, 1]), ("lor", [0, 1, 1, 1])])
def test_truth_is_what_is_not_zero_and_comes_out_as_one(dtype: str, op: str, right: list[int]) -> None:
    one, other, out = (HOST.empty(4, dtype) for _ in range(3))
    one[...], other[...] = [0, 5, 0, 6], [0, 0, 7, 8]
    HOST.kernel(op)(one, other, out)
    assert out.tolist() == right


@pytest.mark.parametrize(
    ("dtype", "op", "one", "other", "right"),
    [
        ("int8", "sum", 100, 100, -56),
        ("int8", "sum", -128, -1, 127),
        ("int8", "prod", 16, 16, 0),
        ("uint8", "sum", 200, 100, 44),
        ("int16", "sum", 32767, 1, -32768),
        ("int32", "sum", 2**31 - 1, 1, -(2**31)),
        ("int64", "sum", 2**63 - 1, 1, -(2**63)),
        ("int64", "prod", 2**62, 4, 0),
    ],
)
def test_whole_numbers_wrap_around(dtype: str, op: str, one: int, other: int, right: int) -> None:
    a, b = np.array([one, one], dtype=dtype), np.array([other, other], dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HOST.kernel(op)(a, b, a)
    assert a.tolist() == [right, right]


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if "float" in dtype])
@pytest.mark.parametrize("op", ["min", "max"])
def test_the_least_and_the_greatest_of_nan_are_nan(dtype: str, op: str) -> None:
    one, other, out = (HOST.empty(3, dtype) for _ in range(3))
    one[...], other[...] = [np.nan, 1, np.nan], [1, np.nan, np.nan]
    with np.errstate(invalid="ignore"):
        HOST.kernel(op)(one, other, out)
    assert np.isnan(out).all()
    one[...], other[...] = [np.inf, -np.inf, 1], [1, 1, 2]
    HOST.kernel(op)(one, other, out)
    assert out.tolist() == ([1, -np.inf, 1] if op == "min" else [np.inf, 1, 2])


def in_turn(op: str, dtype: str, values: list[float]) -> float:
    """Reduce one after the other, as a chain of ranks would."""
    parts = [np.array([value, value], dtype=numpy_dtype(dtype)) for value in values]
    with np.errstate(over="ignore"):
        for part in parts[1:]:
            HOST.kernel(op)(parts[0], part, parts[0])
    return float(parts[0][0])


def test_case_9_two_bytes_are_rounded_at_each_step() -> None:
    """No wider sum is kept: what a rank sends on has the dtype, and so has the result of every kernel."""
    assert in_turn("sum", "float16", [2048, 1, 1]) == 2048
    assert in_turn("sum", "float16", [1, 1, 2048]) == 2050
    assert in_turn("prod", "float16", [2.0**-14, 2.0**-14, 2.0**14]) == 0
    assert in_turn("sum", "float16", [60000, 60000, -60000]) == np.inf


def test_bfloat16_is_rounded_at_each_step_too() -> None:
    assert in_turn("sum", "bfloat16", [256, 1, 1]) == 256
    assert in_turn("sum", "bfloat16", [1, 1, 256]) == 258


@pytest.mark.parametrize(("op", "right"), [("sum", 4 + 8j), ("prod", -7 - 24j)])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_case_10_complex_numbers_add_and_multiply(op: str, right: complex, dtype: str) -> None:
    total = np.full(2, 1 + 2j, dtype=dtype)
    for _ in range(3):
        HOST.kernel(op)(total, np.full(2, 1 + 2j, dtype=dtype), total)
    assert total.tolist() == [right, right]


def test_the_kernels_that_cost_nothing_extra_are_numpys_own() -> None:
    for op in OPS:
        assert (HOST.kernel(op) is UFUNCS[op]) == (op not in ("min", "max"))


# Which backend.


def test_each_kind_of_array_has_its_backend() -> None:
    assert backend_of(np.zeros(2)).device == "cpu"
    assert backend_for("cpu").device == "cpu"
    assert backend_for("cuda").device == "cuda"


@pytest.mark.parametrize(("thing", "name"), [([1.0], "builtins.list"), (None, "NoneType"), (np.float64(1), "float64")])
def test_what_is_no_array_is_named_by_its_type(thing: object, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is no array that ringbench knows"):
        backend_of(thing)


def test_an_unknown_device_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^unknown device 'tpu'; known: cpu, cuda$"):
        backend_for("tpu")


def test_a_registered_backend_is_found_and_comes_first() -> None:
    device = FakeCudaBackend()
    register_backend(device)
    assert backend_for("fakecuda") is device
    assert backend_of(device.empty(2, "float32")) is device
    assert backend_of(np.zeros(2)).device == "cpu"
    with pytest.raises(ValueError, match="known: fakecuda, cpu, cuda"):
        backend_for("tpu")


# CuPy, which is not here.


def stand_in(monkeypatch: pytest.MonkeyPatch, devices: object) -> ModuleType:
    def count() -> object:
        if isinstance(devices, Exception):
            raise devices
        return devices

    module = ModuleType("cupy")
    vars(module)["cuda"] = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=count))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_without_cupy_the_device_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match=r"^device 'cuda': CuPy is not installed \(extra cuda12 or cuda13\)$"):
        CupyBackend().empty(1, "float32")


@pytest.mark.parametrize(
    ("devices", "message"), [(0, "no CUDA device is visible"), (RuntimeError("driver too old"), "driver too old")]
)
def test_without_a_device_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, devices: object, message: str) -> None:
    stand_in(monkeypatch, devices)
    with pytest.raises(ValueError, match=f"device 'cuda': .*{message}"):
        CupyBackend().empty(1, "float32")


def test_an_array_of_cupy_is_known_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    array = type("ndarray", (), {"__module__": "cupy.core"})()
    other = type("ndarray", (), {"__module__": "cupyx"})()
    assert backend_of(array).device == "cuda"
    assert not CupyBackend().owns(other)
    assert "cupy" not in sys.modules


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Put a CuPy in place that writes down what it is asked for."""
    module, said = stand_in(monkeypatch, 1), list[tuple[Any, ...]]()

    def noting(name: str) -> Callable[..., None]:
        return lambda *given, **named: said.append((name, *given, *named.items()))

    for name in ("add", "multiply", "minimum", "maximum", "logical_and", "logical_or", "copyto", "divide"):
        vars(module)[name] = noting(name)
    vars(module)["cuda"].get_current_stream = lambda: SimpleNamespace(synchronize=noting("synchronize"))
    return said


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("sum", "add"),
        ("average", "add"),
        ("prod", "multiply"),
        ("min", "minimum"),
        ("max", "maximum"),
        ("land", "logical_and"),
        ("lor", "logical_or"),
    ],
)
def test_cupy_reduces_as_numpy_does(cupy: list[tuple[Any, ...]], op: str, name: str) -> None:
    CupyBackend().kernel(op)(1, 2, 3)
    assert cupy == [(name, 1, 2, ("out", 3))]
    assert UFUNCS[op].__name__ == name


def test_cupy_gets_what_numpy_would_get(cupy: list[tuple[Any, ...]]) -> None:
    backend, array = CupyBackend(), np.ones(2, dtype="float32")
    backend.copy("to", "of")
    backend.divide(array, 4)
    backend.synchronize()
    assert cupy[0] == ("copyto", "to", "of")
    name, one, divisor, out = cupy[1]
    assert (name, one is array, out is array, divisor, divisor.dtype) == ("divide", True, True, 4, array.dtype)
    assert cupy[2:] == [("synchronize",)]


def test_cupy_divides_the_parts_of_complex_numbers(cupy: list[tuple[Any, ...]]) -> None:
    array = np.full(3, 1 + 2j, dtype="complex64")
    CupyBackend().divide(array, 4)
    ((_, parts, divisor, out),) = cupy
    assert parts is out
    assert np.shares_memory(parts, array)
    assert (parts.tolist(), parts.dtype.name, divisor.dtype.name) == ([1, 2] * 3, "float32", "float32")

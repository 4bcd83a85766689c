from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakecuda import FakeCudaBackend

from ringbench.runtime import arrays
from ringbench.runtime.arrays import PAGE, CupyBackend, NumpyBackend, backend_for, backend_of, register_backend

HOST = NumpyBackend()


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BACKENDS", [NumpyBackend(), CupyBackend()])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_memory_starts_on_a_page(dtype: str) -> None:
    kept = [HOST.empty(count, dtype) for count in (0, 1, 2, 1023, 4096, 100_003)]
    assert [array.size for array in kept] == [0, 1, 2, 1023, 4096, 100_003]
    for array in kept:
        assert array.dtype == np.dtype(dtype)
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


def test_kernels_of_the_host_write_where_they_are_told() -> None:
    one, other, out = np.ones(3), np.full(3, 2.0), np.zeros(3)
    HOST.add(one, other, out)
    assert out.tolist() == [3, 3, 3]
    HOST.copy(one, out)
    assert one.tolist() == [3, 3, 3]
    assert HOST.to_host(out) is out
    assert HOST.from_host(out) is out


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


def test_cupy_gets_what_numpy_would_get(monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = stand_in(monkeypatch, 1), list[tuple[Any, ...]]()
    for name in ("add", "copyto", "divide"):
        vars(module)[name] = lambda *arguments, name=name: said.append((name, *arguments))
    stream = SimpleNamespace(synchronize=lambda: said.append(("synchronize",)))
    vars(module)["cuda"].get_current_stream = lambda: stream
    backend, array = CupyBackend(), np.ones(2, dtype="float32")
    backend.add(1, 2, 3)
    backend.copy("to", "of")
    backend.divide(array, 4)
    backend.synchronize()
    assert said[:2] == [("add", 1, 2, 3), ("copyto", "to", "of")]
    name, one, divisor, out = said[2]
    assert (name, one is array, out is array, divisor, divisor.dtype) == ("divide", True, True, 4, array.dtype)
    assert said[3:] == [("synchronize",)]

"""What the backend of CuPy asks CuPy for; CuPy itself is not here."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ringbench.runtime.arrays import CupyBackend, fused_code


class Cupy:
    """Write down what is asked for."""

    def __init__(self, version: str = "14.2.0") -> None:
        self.said: list[tuple[Any, ...]] = []
        self.module = module = ModuleType("cupy")
        values = vars(module)
        values["__version__"] = version
        values["ElementwiseKernel"] = self._kernel
        values["empty"] = lambda count, dtype: np.empty(count, dtype)
        runtime = SimpleNamespace(
            getDeviceCount=lambda: 4,
            getDeviceProperties=lambda index: {"name": b"A GPU", "uuid": b"\x01\x02", "totalGlobalMem": 2**34},
            deviceGetPCIBusId=lambda index: f"0000:1{index}:00.0",
            driverGetVersion=lambda: 13000,
            runtimeGetVersion=lambda: 13010,
            memcpyAsync=self._noting("memcpyAsync"),
            memcpyDeviceToHost=2,
            memcpyHostToDevice=1,
        )
        stream = SimpleNamespace(ptr=77, synchronize=self._noting("synchronize"))
        values["cuda"] = SimpleNamespace(
            runtime=runtime,
            Device=lambda index: SimpleNamespace(use=lambda: self.said.append(("use", index))),
            get_current_stream=lambda: stream,
            Event=self._event,
            get_elapsed_time=lambda start, end: 6.0,
            alloc_pinned_memory=bytearray,
            nccl=SimpleNamespace(available=False),
        )

    def _noting(self, name: str) -> Any:
        return lambda *given: self.said.append((name, *given))

    def _kernel(self, *code: str) -> Any:
        self.said.append(("compile", code[-1]))
        return self._noting(code[-1])

    def _event(self) -> Any:
        return SimpleNamespace(record=self._noting("record"), synchronize=self._noting("wait for event"))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    found = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", found.module)
    return found


def test_additions_on_one_block_are_one_kernel_and_so_is_the_division() -> None:
    inputs, output, code, name = fused_code("average", "float32", 3, 4) or ("", "", "", "")
    assert (inputs, output, name) == ("T a0, T a1, T a2", "T out", "ringbench_average_3_by_4_float32")
    assert code == "T s = (T)a0; s = (T)(T)(s + (T)a1); s = (T)(T)(s + (T)a2); s = s / (T)4; out = (T)s;"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_bytes_are_added_in_float32_and_rounded_after_each_addition(dtype: str) -> None:
    _, _, code, _ = fused_code("sum", dtype, 2, 3) or ("", "", "", "")
    assert code == "float s = (float)a0; s = (float)(T)(s + (float)a1); s = s / (float)3; out = (T)s;"


@pytest.mark.parametrize(
    ("op", "dtype", "terms", "divisor"),
    [("max", "float32", 5, None), ("lor", "bool", 3, None), ("sum", "float32", 2, None), ("sum", "complex64", 3, 2)],
)
def test_what_saves_no_launch_has_no_kernel(op: str, dtype: str, terms: int, divisor: int | None) -> None:
    assert fused_code(op, dtype, terms, divisor) is None


def test_a_kernel_is_compiled_once(cupy: Cupy) -> None:
    backend = CupyBackend()
    for _ in range(2):
        kernel = backend.fused("sum", "float32", 3, None)
        assert kernel is not None
        kernel("a", "b", "c", "out")
    assert backend.fused("max", "float32", 3, None) is None
    call = ("ringbench_sum_3_float32", "a", "b", "c", "out")
    assert cupy.said == [("compile", "ringbench_sum_3_float32"), call, call]


def test_halves_are_divided_in_float32(cupy: Cupy) -> None:
    array = np.ones(3, np.float16)
    CupyBackend().divide(array, 3)
    assert [entry[0] for entry in cupy.said] == ["compile", "ringbench_average_1_by_3_float16"]
    assert cupy.said[1][1] is cupy.said[1][2] is array


def test_copies_to_and_from_the_host_are_on_the_current_stream(cupy: Cupy) -> None:
    backend = CupyBackend()
    host = backend.pinned(5, "float32")
    there = SimpleNamespace(data=SimpleNamespace(ptr=4096))
    assert (host.size, host.dtype.name, host.flags.writeable) == (5, "float32", True)
    assert backend.pinned(0, "float32").size == 0
    backend.copy_out(host, there)
    backend.copy_in(there, host)
    assert cupy.said == [
        ("memcpyAsync", host.ctypes.data, 4096, 20, 2, 77),
        ("memcpyAsync", 4096, host.ctypes.data, 20, 1, 77),
    ]


def test_time_is_taken_between_two_events(cupy: Cupy) -> None:
    assert CupyBackend().seconds(lambda: cupy.said.append(("call",)), 3) == pytest.approx(2e-3)
    assert cupy.said == [("record",), ("call",), ("call",), ("call",), ("record",), ("wait for event",)]


def test_the_chosen_device_is_every_threads(cupy: Cupy) -> None:
    backend = CupyBackend()
    assert backend.devices() == 4
    backend.enter_thread()
    assert cupy.said == []
    facts = backend.use(2)
    assert (facts["device"], facts["pci"], facts["name"], facts["uuid"]) == (2, "0000:12:00.0", "A GPU", "0102")
    backend.enter_thread()
    assert cupy.said == [("use", 2), ("use", 2)]


def test_nccl_that_is_not_found_is_told(cupy: Cupy) -> None:
    backend = CupyBackend()
    with pytest.raises(ValueError, match="CuPy does not find NCCL"):
        backend.nccl()
    module = SimpleNamespace(available=True)
    vars(cupy.module)["cuda"].nccl = module
    assert backend.nccl() is module
    assert backend.stream() == 77


def test_bfloat16_needs_cupy_14(cupy: Cupy) -> None:
    CupyBackend().check_dtype("bfloat16")
    vars(cupy.module)["__version__"] = "13.6.0"
    with pytest.raises(ValueError, match=r"^dtype 'bfloat16': CuPy 13.6.0 has none, 14 does$"):
        CupyBackend().check_dtype("bfloat16")
    CupyBackend().check_dtype("float16")

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mpi4py
import pytest

mpi4py.rc(initialize=False)  # its constants are enough

from ringbench.cli import devices  # noqa: E402
from ringbench.records.ddp_settings import DdpSettings  # noqa: E402
from ringbench.records.settings import Settings  # noqa: E402
from ringbench.runtime.awareness import Said, Trial  # noqa: E402
from ringbench.runtime.devices import device_of, device_warnings, devices_line  # noqa: E402
from ringbench.runtime.ranks import hosts_line  # noqa: E402


@pytest.mark.parametrize(
    ("local_rank", "visible", "device"), [(0, 4, 0), (3, 4, 3), (3, 1, 0), (0, 1, 0), (5, 4, 1), (2, 8, 2)]
)
def test_ranks_of_a_node_take_one_device_each_and_turns_where_there_are_too_few(
    local_rank: int, visible: int, device: int
) -> None:
    assert device_of(local_rank, visible) == device


def test_a_rank_that_sees_no_device_is_named() -> None:
    with pytest.raises(ValueError, match="local rank 2: sees no device"):
        device_of(2, 0)


def entry(rank: int, host: str = "a", pci: str = "0000:17:00.0", uuid: str = "1", device: int = 0) -> dict[str, Any]:
    return {"rank": rank, "host": host, "pci": pci, "uuid": uuid, "device": device, "name": "GPU"}


def test_a_device_is_told_by_its_address_and_not_by_its_number() -> None:
    one_each = [entry(0), entry(1, pci="0000:31:00.0", uuid="2"), entry(2, host="b")]
    assert device_warnings(one_each) == ((), [])
    names, (line,) = device_warnings([*one_each, entry(3, device=1)])
    assert names == ("shared device",)
    assert line.startswith("a: ranks 0,3 share the device at 0000:17:00.0; start one rank for each GPU")


def test_parts_of_a_device_are_devices() -> None:
    assert device_warnings([entry(0, uuid="1"), entry(1, uuid="2")]) == ((), [])


def test_no_device_is_no_warning() -> None:
    assert device_warnings([]) == ((), [])


def test_the_table_is_a_line() -> None:
    shown = devices_line([entry(0), entry(1, host="b", device=2)])
    assert shown == "0: a 0 (0000:17:00.0, GPU); 1: b 2 (0000:17:00.0, GPU)"


@pytest.mark.parametrize(
    ("settings", "tried"),
    [
        (Settings(device="cuda", algorithms=("ring",)), True),
        (Settings(device="cuda", algorithms=("ring",), staging="host"), False),
        (Settings(algorithms=("ring",)), False),
        (Settings(device="cuda", algorithms=("nccl",)), False),
        (Settings(device="cuda", algorithms=("nccl", "ring")), True),
        (DdpSettings(device="cuda", algorithms=("nccl",), engines=("blocking", "none")), False),
        (DdpSettings(device="cuda", algorithms=("nccl",), engines=("iallreduce",)), True),
    ],
)
def test_what_gives_the_library_arrays_of_a_device_is_tried(settings: Settings | DdpSettings, tried: bool) -> None:
    assert devices.needs_trial(settings) is tried


@pytest.mark.parametrize(
    ("engines", "refused"),
    [(("blocking",), False), (("blocking", "iallreduce"), True), (("iallreduce_progress",), True)],
)
def test_engines_of_the_library_need_its_reductions(
    monkeypatch: pytest.MonkeyPatch, engines: tuple[str, ...], refused: bool
) -> None:
    job = hosts_line([{"host": "a", "mpi_library": "MPICH Version: 5.0.2"}])
    trial = Trial(text=f"{job}\nSendrecv works with arrays of device cuda\n", status=-11)
    monkeypatch.setattr(devices, "try_by_singleton", lambda environ: trial)
    monkeypatch.setattr(devices, "ask_library", lambda comm: Said(name="MPICH", supported=None, answers=()))
    comm = SimpleNamespace(Get_rank=lambda: 0, bcast=lambda value, root: value)
    found = devices.refuse_run(comm, DdpSettings(device="cuda", algorithms=("ring",), engines=engines), False)
    assert (found is not None) is refused
    assert found is None or found.startswith("device 'cuda': Allreduce of MPICH does not take arrays of a device")

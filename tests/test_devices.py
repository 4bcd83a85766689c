from __future__ import annotations

from typing import Any

import pytest

from ringbench.runtime.devices import device_of, device_warnings, devices_line


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

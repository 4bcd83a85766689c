"""Which rank uses which device: one each where that can be, and a table of who has what."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from mpi4py import MPI

from ringbench.records.guards import GUARDS
from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import Backend

SHARED = "shared device"


def device_of(local_rank: int, visible: int) -> int:
    """Return the device of the rank with this number on its node, out of those that it sees.

    A launcher that shows each rank one device has chosen already: it is device 0 then. Where a rank sees fewer than
    there are ranks on the node, they take turns.
    """
    if visible < 1:
        raise ValueError(f"local rank {local_rank}: sees no device")
    return local_rank % visible


def bind_devices(comm: Any, backend: Backend) -> list[dict[str, Any]]:
    """Make a device current on each rank; return for each what it is and who sees it. Collective.

    Nothing where arrays are in host memory. Raises the same ValueError on all ranks where one has no device.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        local, own, error = node.Get_rank(), dict[str, Any](), None
    finally:
        node.Free()
    try:
        visible = backend.devices()
        if backend.device != "cpu":
            own = backend.use(device_of(local, visible))
    except Exception as problem:  # CuPy's errors, of a driver or of a device that is taken, are of many kinds
        error = str(problem) if isinstance(problem, ValueError) else f"device {backend.device!r}: {problem}"
    agree(comm, None if error is None else error.strip().partition("\n")[0])
    who = {"host": socket.gethostname(), "local_rank": local, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    table: list[dict[str, Any]] = comm.allgather({**who, **own} if own else None)
    return [] if backend.device == "cpu" else [{"rank": rank, **entry} for rank, entry in enumerate(table)]


def device_warnings(table: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[str]]:
    """Return the warning that rows must carry where ranks share a device, and a line for each such device.

    A device is told by host, PCI address and the identifier of the device, which parts of one device (MIG) have each.
    """
    places: dict[tuple[Any, ...], list[int]] = {}
    for entry in table:
        places.setdefault((entry["host"], entry["pci"], entry["uuid"]), []).append(entry["rank"])
    crowded = {place: ranks for place, ranks in places.items() if len(ranks) > 1}
    lines = [
        f"{host}: ranks {','.join(map(str, ranks))} share the device at {pci}; {GUARDS[SHARED].advice}"
        for (host, pci, _), ranks in crowded.items()
    ]
    return (SHARED,) if crowded else (), lines


def devices_line(table: Sequence[Mapping[str, Any]]) -> str:
    """Return a line that says which rank is on which device: host, number, PCI address, name."""
    shown = [f"{entry['rank']}: {entry['host']} {entry['device']} ({entry['pci']}, {entry['name']})" for entry in table]
    return "; ".join(shown)

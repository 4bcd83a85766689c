"""Arrays of a device whose kernels run late: right results, and a wait before every message that follows a kernel."""

from __future__ import annotations

import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from battery import Battery, battery
from mpi4py import MPI
from refusals import Refusals
from vectors import OUT, PLACEMENTS, Case, Recording

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.settings import Settings
from ringbench.runtime import worker
from ringbench.runtime.arrays import register_backend
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import algorithms
from ringbench.schedule.semantics import COLLECTIVES

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fakecuda import CudaArray, FakeCudaBackend

COUNTS = (0, 1, 5, 301)
KERNELS = ("sum", "average", "prod", "max", "copy", "divide", "fill")
MESSAGES = ("Sendrecv", "Allreduce", "Reduce_scatter", "Allgather", "Allgatherv", "Bcast", "Reduce", "Alltoall")


def of_messages(collective: str) -> list[str]:
    return [algorithm.name for algorithm in algorithms(collective) if algorithm.shared is None]


def on_device(array: Any, backend: FakeCudaBackend) -> Any:
    return array if array is MPI.IN_PLACE else CudaArray(backend, array)


def order(events: list[str]) -> str | None:
    """Return what is wrong with the order of kernels, waits and messages, None where all is right."""
    if "synchronize" not in events:
        return "the caller's kernels are not waited for"
    running = True  # the caller's kernels, in the same stream
    for before, event in pairwise(["start", *events]):
        if event in KERNELS:
            running = True
        elif event == "synchronize":
            if before not in ("start", *KERNELS):
                return f"waits in vain after {before}"
            running = False
        elif event not in MESSAGES:
            return f"{event} is neither kernel nor message"
        elif running:
            return f"{event} while a kernel may run"
    return "ends while a kernel may run" if running else None


def results(tests: Battery, backend: FakeCudaBackend) -> None:
    events = backend.events
    for collective in COLLECTIVES:
        for name in [*of_messages(collective), "mpi"]:
            for count in COUNTS:
                ways = (
                    ("float32", "sum"),
                    ("int64", "sum"),
                    ("float64", "average"),
                    ("float16", "prod"),
                    ("uint8", "max"),
                )
                for dtype, op in ways if COLLECTIVES[collective].reduces else ways[:2]:
                    for placement in PLACEMENTS:
                        for segment in (0, 64):
                            case = Case(collective, tests.rank, tests.nranks, count, dtype, op, placement)
                            recv = on_device(case.recvbuf, backend)
                            send = recv if case.sendbuf is case.recvbuf else on_device(case.sendbuf, backend)
                            proxy = Recording(tests.comm, events)
                            run = plan(collective, name, proxy, send, recv, op, segment)
                            what = f"{collective} {name}, {count} {dtype}, {op}, {placement}, segment {segment}"
                            for salt in (1, 2):
                                backend.launch("fill", partial(case.fill, salt))
                                events.clear()
                                run()
                                fault, found = case.fault(salt), order(events)
                                tests.check(fault is None, f"{what}: {fault}")
                                tests.check(found is None, f"{what}: {found}: {events[:40]}")
                                tests.check(not backend.pending, f"{what}: kernels that have not run")
                            if name == "ring" and collective == "allreduce" and count == 301 and not segment:
                                # One addition and one wait for each reduced block, and none while blocks go round.
                                steps = tests.nranks - 1
                                kernels = sum(event in KERNELS for event in events)
                                waits = events.count("synchronize")
                                tests.check(kernels == steps + (op == "average"), f"{what}: {kernels} kernels")
                                tests.check(waits == 1 + steps, f"{what}: {waits} waits")
                                tests.check(events.count("Sendrecv") == 2 * steps, f"{what}: {events}")


def rules(tests: Battery) -> None:
    """The judge of the order must see what it is there for."""
    good = ["synchronize", "Sendrecv", "sum", "synchronize", "Sendrecv", "copy", "divide", "synchronize"]
    tests.check(order(good) is None, f"{order(good)}")
    for gone in (0, 3, 7):
        tests.check(order(good[:gone] + good[gone + 1 :]) is not None, f"nothing is missed without event {gone}")
    tests.check(order([*good, "synchronize"]) is not None, "a wait in vain passes")


def forgotten(tests: Battery) -> None:
    """A backend that claims to be done when it returns gives wrong results: the fake does what it is there for."""

    class Hasty(FakeCudaBackend):
        asynchronous = False

        def owns(self, array: object) -> bool:
            return isinstance(array, CudaArray) and array.backend is self

    hasty = Hasty()
    register_backend(hasty)
    case = Case("allreduce", tests.rank, tests.nranks, 1000, "float32", "sum", OUT)
    case.fill(1)
    plan("allreduce", "ring", tests.comm, on_device(case.sendbuf, hasty), on_device(case.recvbuf, hasty))()
    hasty.synchronize()
    tests.check(case.fault(1) is not None, "right without any wait")


def refused(tests: Battery, backend: FakeCudaBackend) -> None:
    refuse = Refusals(tests)
    host = np.ones(10)

    def device(array: Any) -> Any:
        return CudaArray(backend, array)

    refuse.everywhere("host into device", host, device(np.ones(10)), "ndarray", "CudaArray")
    refuse.everywhere("device into host", device(np.ones(10)), host, "ndarray", "CudaArray")
    refuse.everywhere("strided", device(np.ones(20)[::2]), device(np.ones(10)), "not contiguous")
    refuse.everywhere("overlap", device(host[:6]), device(host[4:]), "overlap by 16 bytes")
    refuse.everywhere("bool", MPI.IN_PLACE, device(np.ones(3, dtype=bool)), "lor", "land")
    for name in ("shared_memory", "shared_copy"):
        refuse.everywhere(name, MPI.IN_PLACE, device(np.ones(3)), "fakecuda has none", algorithm=name)
    last = tests.rank == tests.nranks - 1
    mine = device(host) if last else host
    refuse.everywhere("device on one rank", MPI.IN_PLACE, mine, "device 'cpu' on rank 0", "'fakecuda' on rank")


def measured(tests: Battery) -> None:
    """The whole way of a measurement: buffers, checks, samples."""
    for collective in COLLECTIVES:
        names = (*of_messages(collective), "mpi")
        settings = Settings(
            collective=collective,
            algorithms=names,
            sizes=(4 * tests.nranks, 4000 * tests.nranks),
            device="fakecuda",
            placement="both",
            max_samples=8,
            limit=True,
        )
        rows = list(worker.measure(tests.comm, settings))
        tests.check(len(rows) == 4 * len(names), f"{collective}: {len(rows)} rows")
        for row in rows:
            tests.check(row.wrong == 0, f"{collective} {row.algorithm}, {row.nbytes} B: {row.wrong_detail}")
            tests.check(row.device == "fakecuda" and len(row.samples_s) == 8, f"{row.device}: {row.samples_s}")


if __name__ == "__main__":
    backend = FakeCudaBackend()
    register_backend(backend)
    with battery(least=1000) as tests:
        rules(tests)
        results(tests, backend)
        refused(tests, backend)
        measured(tests)
        forgotten(tests)

"""Arrays of a device whose kernels run late: right results, and a wait before every message that follows a kernel."""

from __future__ import annotations

import sys
from functools import partial
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
from ringbench.runtime.arrays import NumpyBackend, register_backend
from ringbench.runtime.devices import bind_devices, device_warnings, devices_line
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import algorithms
from ringbench.schedule.semantics import COLLECTIVES

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fakecuda import CudaArray, FakeCudaBackend
from fakenccl import FakeNccl

COUNTS = (0, 1, 5, 301)

#: NCCL's calls, by collective.
NCCL = {
    "allreduce": "allReduce",
    "reduce_scatter": "reduceScatter",
    "allgather": "allGather",
    "bcast": "broadcast",
    "reduce": "reduce",
}
KERNELS = ("sum", "average", "prod", "max", "copy", "divide", "fill", "copy_out", "copy_in", *NCCL.values())
MESSAGES = ("Sendrecv", "Allreduce", "Reduce_scatter", "Allgather", "Allgatherv", "Bcast", "Reduce", "Alltoall")


def of_messages(collective: str) -> list[str]:
    return [algorithm.name for algorithm in algorithms(collective) if algorithm.shared is None]


def on_device(array: Any, backend: FakeCudaBackend) -> Any:
    return array if array is MPI.IN_PLACE else CudaArray(backend, array)


def order(events: list[str]) -> str | None:
    """Return what is wrong with the order of kernels and waits, None where all is right.

    Whether a wait is missing before a message is told by the result: the fake's kernels take effect at waits alone.
    """
    if "synchronize" not in events:
        return "the caller's kernels are not waited for"
    running = True  # the caller's kernels, in the same stream
    for event in events:
        if event in KERNELS:
            running = True
        elif event == "synchronize":
            if not running:
                return "waits in vain"
            running = False
        elif event not in MESSAGES:
            return f"{event} is neither kernel nor message"
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
                        for segment, staged in ((0, False), (64, False), (64, True))[: 2 + (count == 301)]:
                            case = Case(collective, tests.rank, tests.nranks, count, dtype, op, placement)
                            recv = on_device(case.recvbuf, backend)
                            send = recv if case.sendbuf is case.recvbuf else on_device(case.sendbuf, backend)
                            proxy = Recording(tests.comm, events)
                            run = plan(collective, name, proxy, send, recv, op, segment, staged=staged)
                            what = f"{collective} {name}, {count} {dtype}, {op}, {placement}, {segment}, {staged}"
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
                                tests.check(kernels == steps, f"{what}: {kernels} kernels")  # the last divides too
                                tests.check(waits == 1 + steps, f"{what}: {waits} waits")
                                tests.check(events.count("Sendrecv") == 2 * steps, f"{what}: {events}")


def rules(tests: Battery) -> None:
    """The judge of the order must see what it is there for."""
    good = ["synchronize", "Sendrecv", "sum", "Sendrecv", "synchronize", "Sendrecv", "copy", "divide", "synchronize"]
    tests.check(order(good) is None, f"{order(good)}")
    for bad in (good[:-1], [*good, "synchronize"], [*good, "print"], ["Sendrecv"]):
        tests.check(order(bad) is not None, f"{bad} passes")


def each_wait(tests: Battery, backend: FakeCudaBackend) -> None:
    """Leave out one wait of one rank after the other: through MPI, each time some rank's result is wrong.

    What goes through the host twice is the same both times, and nobody sees that it was not waited for: of the staged
    plans so many must be missed as there are ranks.
    """
    for name in ("ring", "naive", "recursive_doubling", "rabenseifner", "mpi"):
        for staged in (False, True):
            case = Case("allreduce", tests.rank, tests.nranks, 301, "float32", "sum", OUT)
            send, recv = on_device(case.sendbuf, backend), on_device(case.recvbuf, backend)
            run = plan("allreduce", name, tests.comm, send, recv, staged=staged)
            waits = [at for at, (call, _) in enumerate(run.calls) if call == backend.synchronize]
            missed = 0
            for rank, own in enumerate(tests.comm.allgather(len(waits))):
                for number in range(own):
                    backend.launch("fill", partial(case.fill, 1 + number))
                    left_out = waits[number] if rank == tests.rank else None
                    for at, (call, arguments) in enumerate(run.calls):
                        if at != left_out:
                            call(*arguments)
                    wrong = case.fault(1 + number) is not None  # seen as it is, before anything is waited for
                    backend.synchronize()
                    seen = any(tests.comm.allgather(wrong or case.fault(1 + number) is not None))
                    what = f"{name}, staged {staged}: nobody misses wait {number} of rank {rank}"
                    tests.check(seen or staged, what)
                    missed += seen
            tests.check(missed >= tests.nranks, f"{name}, staged {staged}: {missed} waits are missed")


def by_nccl(tests: Battery, backend: FakeCudaBackend) -> None:
    """NCCL's plans: one communicator for all, no wait but the last, and of many in a row the last alone."""
    backend.nccl_module = module = FakeNccl(backend)
    try:
        for collective, own in NCCL.items():
            for dtype, op in (("float32", "sum"), ("float64", "average"), ("int32", "max"), ("float16", "prod")):
                if not COLLECTIVES[collective].reduces and op != "sum":
                    continue
                for placement in PLACEMENTS:
                    case = Case(collective, tests.rank, tests.nranks, 12 * tests.nranks, dtype, op, placement)
                    recv = on_device(case.recvbuf, backend)
                    send = recv if case.sendbuf is case.recvbuf else on_device(case.sendbuf, backend)
                    run = plan(collective, "nccl", tests.comm, send, recv, op)
                    backend.current_stream += 1  # the stand-in asserts that it gets the stream of the call
                    what = f"nccl {collective} {dtype} {op} {placement}"
                    for salt in (1, 2):
                        backend.launch("fill", partial(case.fill, salt))
                        backend.events.clear()
                        run()
                        tests.check(case.fault(salt) is None, f"{what}: {case.fault(salt)}")
                        tests.check(backend.events[0] == own, f"{what}: {backend.events}")
                        tests.check(backend.events.count("synchronize") == 1, f"{what}: {backend.events}")
        tests.check(module.made == 1, f"{module.made} communicators")
        backend.events.clear()
        run.repeated(5)()
        tests.check(backend.events.count("reduce") == 5, f"{backend.events}")
        tests.check(backend.events.count("synchronize") == 1, f"{backend.events}")
        odd = on_device(np.zeros(12 * tests.nranks + 1, np.float32), backend)
        if tests.nranks > 1:
            tests.refused(
                "unequal blocks", "no", call=lambda: plan("reduce_scatter", "nccl", tests.comm, MPI.IN_PLACE, odd)
            )
        tests.refused("alltoall", "nccl", call=lambda: plan("alltoall", "nccl", tests.comm, MPI.IN_PLACE, odd[:0]))
        host = np.zeros(4)
        tests.refused("host", "--device cuda", call=lambda: plan("allreduce", "nccl", tests.comm, host, host))
        another = tests.comm.Dup()
        module.refuses = "NCCL_ERROR_INVALID_USAGE"
        tests.refused(
            "shared device", "INVALID_USAGE", call=lambda: plan("allreduce", "nccl", another, MPI.IN_PLACE, odd)
        )
        another.Free()
    finally:
        backend.nccl_module = None


def whole(tests: Battery, backend: FakeCudaBackend) -> None:
    """Messages of a device are not cut unless asked for; those of the host are, as ever."""
    count = 2 * tests.nranks * DEFAULT_SEGMENT // 4
    for array, longest in (
        (on_device(np.zeros(count, np.float32), backend), 2 * DEFAULT_SEGMENT),
        (np.zeros(count, np.float32), DEFAULT_SEGMENT),
    ):
        run = plan("allreduce", "ring", tests.comm, MPI.IN_PLACE, array)
        sent = [arguments[0][1] * 4 for call, arguments in run.calls if call == tests.comm.Sendrecv]
        tests.check(all(nbytes == longest for nbytes in sent), f"{type(array).__name__}: messages of {set(sent)} bytes")
        tests.check(bool(sent) == (tests.nranks > 1), f"{len(sent)} messages")


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
        for staging in ("none", "host"):
            measured_so(tests, collective, names, staging)


def measured_so(tests: Battery, collective: str, names: tuple[str, ...], staging: str) -> None:
    settings = Settings(
        collective=collective,
        algorithms=names,
        sizes=(4 * tests.nranks, 4000 * tests.nranks),
        device="fakecuda",
        placement="both",
        max_samples=8,
        limit=True,
        staging=staging,
    )
    rows = list(worker.measure(tests.comm, settings))
    tests.check(len(rows) == 4 * len(names), f"{collective}: {len(rows)} rows")
    for row in rows:
        tests.check(row.wrong == 0, f"{collective} {row.algorithm}, {row.nbytes} B: {row.wrong_detail}")
        tests.check(row.transfer == {"none": "cuda-aware", "host": "staged"}[staging], row.transfer)
        tests.check(row.device == "fakecuda" and len(row.samples_s) == 8, f"{row.device}: {row.samples_s}")


def bound(tests: Battery) -> None:
    """One device a rank where there are enough, turns where there are not, and a table that says so."""
    for visible in (1, 2, 8):
        backend = FakeCudaBackend(visible)
        table = bind_devices(tests.comm, backend)
        devices = [entry["device"] for entry in table]
        tests.check(devices == [rank % visible for rank in range(tests.nranks)], f"{visible}: {devices}")
        tests.check(backend.current == devices[tests.rank], f"{backend.current}")
        names, lines = device_warnings(table)
        tests.check(bool(names) == bool(lines) == (tests.nranks > visible), f"{visible}: {lines}")
        tests.check(f"{tests.rank}: " in devices_line(table), devices_line(table))
    tests.refused("no device", "sees no device", call=lambda: bind_devices(tests.comm, FakeCudaBackend(0)))
    tests.check(bind_devices(tests.comm, NumpyBackend()) == [], "the host is a device")


if __name__ == "__main__":
    backend = FakeCudaBackend()
    register_backend(backend)
    with battery(least=1000) as tests:
        rules(tests)
        results(tests, backend)
        each_wait(tests, backend)
        by_nccl(tests, backend)
        whole(tests, backend)
        bound(tests)
        refused(tests, backend)
        measured(tests)
        forgotten(tests)

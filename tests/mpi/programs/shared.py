"""Memory that the ranks of a node share: vectors, what is refused, when it is freed, and results under load."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from battery import Battery, battery
from mpi4py import MPI

import ringbench
from ringbench.records.settings import Settings
from ringbench.runtime import windows, worker
from ringbench.runtime.gate import Gate
from ringbench.runtime.windows import empty_shared, known_node, place_of
from ringbench.schedule.blocks import block_offset
from ringbench.schedule.registry import algorithms
from ringbench.schedule.semantics import COLLECTIVES

ITERATIONS = int(os.environ.get("RINGBENCH_TEST_ITERATIONS", "300"))


def alive() -> int:
    return len(windows._WINDOWS)


def vectors(tests: Battery) -> None:
    """Page-aligned, of any type and length, apart from each other, and seen by the others."""
    for count in (0, 1, 1025, 40_000):
        for dtype in ("float32", "int8", "complex128", "bool", np.dtype(np.int64)):
            mine = empty_shared(tests.comm, count + tests.rank, dtype)
            tests.check(mine.size == count + tests.rank, f"{mine.size} elements of {count + tests.rank}")
            tests.check(mine.dtype == np.dtype(dtype), f"{mine.dtype}, not {dtype}")
            tests.check(
                not mine.size or mine.ctypes.data % 4096 == 0, f"starts {mine.ctypes.data % 4096} bytes behind a page"
            )
            mine[...] = 1
            tests.comm.Barrier()
            tests.check((mine == 1).all(), "another rank wrote here")
            place = place_of(mine)
            tests.check(not mine.nbytes or place is not None, "not found by its address")
            tests.check(place_of(np.zeros(3)) is None, "private memory is taken for shared")
            if place is not None:
                inner = place_of(mine[1:].reshape(-1)) if mine.size > 1 else place
                tests.check(inner is not None and inner.window == place.window, "a part of it is not found")


def freed_when_all_have_dropped(tests: Battery) -> None:
    """Whoever drops first, at the next call of ours, and not before the last view of it on the last rank is gone."""
    gc.collect()
    node = known_node(tests.comm)
    if node is not None:
        node.collect()
    before = alive()
    for first in range(tests.nranks):
        vector: Any = empty_shared(tests.comm, 1000)
        part: Any = vector[10:20].reshape(2, 5)
        tests.check(alive() == before + 1, f"{alive() - before} windows more, not 1")
        if tests.rank == first:
            vector = part = None
        else:
            vector = None
        empty_shared(tests.comm, 1)  # the others still have a part
        tests.check(alive() == before + 1 + (tests.nranks > 1), f"{alive() - before} windows while some have a part")
        if part is not None:
            part[...] = 7  # must not be a fault
        part = None
        ringbench.plan("allreduce", "ring", tests.comm, MPI.IN_PLACE, np.zeros(3))
        tests.check(alive() == before, f"{alive() - before} windows more when all have dropped theirs")


def freed_with_plans(tests: Battery) -> None:
    """A plan keeps the memory of all that it reaches into; thousands of set-ups leave nothing behind."""
    before = alive()
    vector: Any = empty_shared(tests.comm, 5, "float64")
    run = ringbench.plan("allreduce", "shared_memory", tests.comm, MPI.IN_PLACE, vector)
    vector[...] = 1
    if tests.rank == 0:
        vector = None
    empty_shared(tests.comm, 1)
    run()
    tests.check(vector is None or (vector == tests.nranks).all(), f"{vector} after others dropped theirs")
    vector = run = None
    private = np.zeros(9)
    for _ in range(300):
        copied = ringbench.plan("allreduce", "shared_copy", tests.comm, MPI.IN_PLACE, private, chunks=2)
    private[...] = 2.0**tests.rank
    copied()
    tests.check((private == 2**tests.nranks - 1).all(), f"after 300 set-ups: {private}")
    del copied
    known = known_node(tests.comm)
    if known is not None:
        known.collect()
    tests.check(alive() == before, f"{alive() - before} windows are left")


def freed_with_communicators(tests: Battery) -> None:
    """MPICH has some 2000 communicators, and windows have one each."""
    gc.collect()
    windows.node_of(tests.comm).collect()
    before = alive()
    for number in range(40):
        other = tests.comm.Dup()
        vector = empty_shared(other, 3, "float64")
        vector[...] = number
        ringbench.plan("allreduce", "shared_memory", other, MPI.IN_PLACE, vector)()
        tests.check((vector == number * tests.nranks).all(), f"{vector} on a duplicate")
        if number == 0:
            kept = vector
        del vector
        other.Free()
    tests.check(alive() == before + 1, f"{alive() - before} windows after their communicators, where one is used")
    kept[...] = 1


def refused(tests: Battery) -> None:
    for count in (-1, 2.5, True, None):
        tests.refused(f"count {count}", "count", call=lambda count=count: empty_shared(tests.comm, count))  # type: ignore[misc]
    tests.refused("no type", "float3", call=lambda: empty_shared(tests.comm, 1, "float3"))
    tests.refused("objects", "references", call=lambda: empty_shared(tests.comm, 1, object))
    tests.refused(
        "one rank asks for nonsense",
        "count -1",
        call=lambda: empty_shared(tests.comm, -1 if tests.rank == tests.nranks - 1 else 1),
    )
    tests.usable("after refusals")
    if tests.nranks > 1:
        apart = tests.comm.Dup()
        windows.node_of(apart).groups = tuple((rank,) for rank in range(tests.nranks))
        words = f"the {tests.nranks} ranks share no memory: each is on a node of its own"
        tests.refused("nodes of one rank", words, call=lambda: empty_shared(apart, 1))
        apart.Free()
    huge = 2**50
    words = ("MiB is needed", "has room for") if tests.nranks > 1 else ("cannot be had",)  # no file for one rank
    text = tests.refused("more than there is", *words, call=lambda: empty_shared(tests.comm, huge))
    tests.check(f"{4 * huge * tests.nranks / 2**20:.0f}" in text, text)
    if tests.nranks == 1:
        return
    private, shared = np.zeros(4), empty_shared(tests.comm, 4, "float64")
    for send, recv, named in (
        (MPI.IN_PLACE, private, "recvbuf"),
        (private, shared, "sendbuf"),
        (shared, private, "recvbuf"),
        (private.copy(), private, "sendbuf and recvbuf"),
    ):
        tests.refused(
            f"{named} in private memory",
            named,
            "ringbench.empty_shared",
            call=lambda send=send, recv=recv: ringbench.plan("allreduce", "shared_memory", tests.comm, send, recv),  # type: ignore[misc]
        )
    tests.refused(
        "private on one rank",
        "recvbuf not in shared memory",
        call=lambda: ringbench.plan(
            "allreduce", "shared_memory", tests.comm, MPI.IN_PLACE, shared if tests.rank else private
        ),
    )
    tests.usable("after refused plans")


def rows_without_room(tests: Battery) -> None:
    """Where there is no room, a row says so, and what needs none is measured all the same."""
    if tests.nranks == 1:
        return
    real = windows.room_in
    windows.room_in = lambda folder: 8192
    settings = Settings(algorithms=("shared_memory", "ring"), sizes=(40_000,), max_samples=3, min_samples=3)
    try:
        shared, ring = worker.measure(tests.comm, settings)
    finally:
        windows.room_in = real
    tests.check("has room for 8.0 KiB, but a window of" in str(shared.reason), f"{shared.reason}")
    tests.check(shared.memory == "shared" and not shared.samples_s, f"{shared}")
    tests.check(ring.memory == "private" and len(ring.samples_s) == 3 and ring.wrong == 0, f"{ring}")
    (there,) = worker.measure(tests.comm, replace(settings, algorithms=("mpi",), memory="shared"))
    tests.check(there.memory == "shared" and there.wrong == 0, f"{there.memory} {there.wrong_detail}")


def no_room_for_a_barrier(tests: Battery) -> None:
    """What a plan makes besides vectors is refused by all ranks too, and so is the first look at where windows lie."""
    if tests.nranks == 1:
        return
    full, new = tests.comm.Dup(), tests.comm.Dup()
    vector = empty_shared(full, 100)
    call = lambda: ringbench.plan("allreduce", "shared_memory", full, MPI.IN_PLACE, vector)  # noqa: E731
    real = windows.room_in
    windows.room_in = lambda folder: 512
    try:
        tests.refused("no room for a barrier", "has room for 0.5 KiB, but a window of", call=call)
        tests.refused("no room to look", "a window needs 64.0 KiB at least", call=lambda: empty_shared(new, 5))
    finally:
        windows.room_in = real
    call()()
    empty_shared(new, 5)
    made = call()
    full.Free()
    try:
        made()
    except RuntimeError as error:
        tests.check("was freed" in str(error), str(error))
    else:
        tests.check(False, "a plan passed a barrier that went with its communicator")
    new.Free()


def hierarchies(tests: Battery) -> None:
    """They use shared memory inside nodes where all buffers are in it, and say so; groups may be any."""
    layouts = {
        2: [((0, 1),), ((0,), (1,))],
        3: [((0, 2), (1,))],
        4: [((0, 1), (2, 3)), ((0, 3), (1, 2)), ((0,), (1, 2, 3))],
        8: [((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 2), (1, 3), (4, 6), (5, 7))],
    }
    for groups in layouts.get(tests.nranks, []):
        for name in ("hierarchical", "hierarchical_leaders"):
            for op in ("sum", "average"):
                for out in (False, True):
                    mine, got = (empty_shared(tests.comm, 1003, "float64") for _ in range(2))
                    send = mine if out else MPI.IN_PLACE
                    run = ringbench.plan(
                        "allreduce", name, tests.comm, send, got, op, groups=groups, outer="rabenseifner"
                    )
                    for salt in range(3):
                        (mine if out else got)[...] = (salt + 1) * 2.0**tests.rank
                        run()
                        right = (salt + 1) * (2**tests.nranks - 1) / (tests.nranks if op == "average" else 1)
                        where = f"{name} over {groups}, {op}, {'out of' if out else 'in'} place"
                        tests.check((got == right).all(), f"{where}: {got[:3]}, not {right}")
                    tests.check("shared memory inside" in str(run.remark), f"{where}: {run.remark}")
                    forced = ringbench.plan("allreduce", name, tests.comm, send, got, op, groups=groups, inner="ring")
                    tests.check("shared memory" not in str(forced.remark), f"{where}, ring: {forced.remark}")
    alone = empty_shared(MPI.COMM_SELF, 5, "float64")  # shared, but with nobody
    for array in (np.ones(5), alone):
        run = ringbench.plan("allreduce", "hierarchical", tests.comm, MPI.IN_PLACE, array)
        wanted = tests.nranks == 1 and array is alone
        tests.check(("shared memory" in str(run.remark)) == wanted, f"memory of this rank's own: {run.remark}")


def loaded_plans(tests: Battery) -> list[tuple[Any, Any, int, Any]]:
    """Return all that share memory, in place: algorithm, vector, root, plan."""
    plans: list[tuple[Any, Any, int, Any]] = []
    half = max(1, tests.nranks // 2)
    groups = tuple(tuple(range(first, min(first + half, tests.nranks))) for first in range(0, tests.nranks, half))
    for algorithm in algorithms():
        reaching = algorithm.given(inner="shared_memory").shared
        if reaching is None:
            continue
        for count in (tests.nranks, 999):
            make = empty_shared if reaching == "work" else lambda comm, count, dtype: np.empty(count, dtype)
            vector = make(tests.comm, count, "float64")
            root = tests.nranks - 1 if COLLECTIVES[algorithm.collective].rooted else 0
            run = ringbench.plan(
                *(algorithm.collective, algorithm.name, tests.comm, MPI.IN_PLACE, vector),
                root=root,
                chunks=2,
                groups=groups,
            )
            plans.append((algorithm, vector, root, run))
    return plans


def under_load(tests: Battery) -> None:
    """Data that change at every call, ranks that come late in turns, and no call may see those of another."""
    random = np.random.default_rng(tests.rank)
    plans = loaded_plans(tests)
    tests.check(len({algorithm.title for algorithm, *_ in plans}) == 12, f"{len(plans)} plans")
    wrong = 0
    for iteration in range(ITERATIONS):
        for algorithm, vector, root, run in plans:
            if random.random() < 0.05:
                os.sched_yield()
            base = np.arange(vector.size) % 5 + iteration
            own = slice(*(block_offset(vector.size, tests.nranks, tests.rank + more) for more in (0, 1)))
            seen, right = slice(None), base * (tests.nranks * (tests.nranks + 1) // 2)
            vector[...] = base * (tests.rank + 1)
            if algorithm.collective == "allgather":
                vector[...], right = -1, base
                vector[own] = base[own]
            elif algorithm.collective == "bcast":
                vector[...], right = base if tests.rank == root else -1, base
            elif algorithm.collective == "reduce_scatter":
                seen, right = slice(own.stop - own.start), right[own]
            elif algorithm.collective == "reduce" and tests.rank != root:
                seen, right = slice(0), right[:0]
            run()
            if not np.array_equal(vector[seen], right):
                wrong += 1
                tests.check(wrong > 3, f"{algorithm.title}, iteration {iteration}: {vector[seen][:4]}, not {right[:4]}")
            vector[...] = -2  # at once: whoever still reads would see it
    tests.check(not wrong, f"{wrong} of {ITERATIONS * len(plans)} calls were wrong")


def who_waits_moves_messages(tests: Battery) -> None:
    """A rank that stands at a barrier still has a message to give, for which the others wait before they come."""
    if tests.nranks < 2:
        return
    node = windows.node_of(tests.comm)
    meet = node.gate(tuple(range(tests.nranks))).passing(())
    big = np.zeros(2**20)  # no library sends as much before somebody asks for it
    for _ in range(20):
        if tests.rank == 0:
            big[...] = 5
            request = tests.comm.Isend(big, 1, 3)
            meet()
            request.Wait()
        else:
            if tests.rank == 1:
                tests.comm.Recv(big, 0, 3)
            meet()
        tests.check((big == 5).all() or tests.rank > 1, "a message was lost")


def closed_gates(tests: Battery) -> None:
    gate = Gate(tests.comm)
    meet = gate.passing(())
    for _ in range(1000):  # many times round the numbers
        meet()
    tests.comm.Barrier()
    gate.close()
    try:
        meet()
    except RuntimeError:  # MPI's exceptions are such
        tests.check(True, "")
    else:
        tests.check(False, "a closed barrier was passed")


if __name__ == "__main__":
    with battery() as tests:
        if sys.argv[1:] == ["load"]:
            under_load(tests)
        else:
            vectors(tests)
            freed_when_all_have_dropped(tests)
            freed_with_plans(tests)
            closed_gates(tests)
            who_waits_moves_messages(tests)
            refused(tests)
            rows_without_room(tests)
            no_room_for_a_barrier(tests)
            hierarchies(tests)
            under_load(tests)
            freed_with_communicators(tests)

"""Every algorithm of every collective, and the library's own, against answers known beforehand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from battery import Battery, battery
from mpi4py import MPI
from vectors import DTYPES, KINDS, OUT, PLACEMENTS, REDUCING, ROOTED, Case, Recording, placed

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.settings import Settings
from ringbench.runtime import worker
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.runtime.plan import plan
from ringbench.runtime.vendor import reducible_type
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import algorithm_named, algorithms
from ringbench.schedule.semantics import COLLECTIVES

FEW = tuple(range(18))
MANY = (1000, 2003, 4096)
#: The full product would take minutes: each case takes so many of the kinds and segments, others the next time.
TURNS = {1: 12, 2: 12, 3: 4, 4: 2}


def names(collective: str) -> list[str]:
    return [algorithm.name for algorithm in algorithms(collective)] + ["mpi"]


def segments(count: int) -> tuple[int, int, int]:
    """Return uncut, cut as small as is bearable (one float64, two float32, or uneven), and the default."""
    return (0, 16 if count < 100 else 1000, DEFAULT_SEGMENT)


def counts(nranks: int) -> tuple[int, ...]:
    """Return all small counts and some large ones; with many ranks those around the number of ranks, and fewer."""
    if nranks <= 4:
        return FEW + MANY
    return (0, 1, nranks - 1, nranks, nranks + 1, 2 * nranks + 1, 2003)


def products(tests: Battery) -> None:
    """Run every collective, algorithm, count and placement, with kinds, segments, roots and chunks in turns."""
    number = 0
    for collective in COLLECTIVES:
        kinds = KINDS if collective in REDUCING else tuple((dtype, "sum") for dtype in DTYPES if dtype != "bool")
        pairs = list(itertools.product(names(collective), PLACEMENTS))
        for count in counts(tests.nranks):
            combined = [(kind, segment) for kind in kinds for segment in segments(count)]
            chosen = pairs if tests.nranks <= 4 else pairs[count % 3 :: 3] + pairs[(count + 1) % 3 :: 6]
            for name, placement in chosen:
                windows = name != "mpi" and algorithm_named(collective, name).shared is not None  # made for each case
                for _ in range(1 if windows else TURNS.get(tests.nranks, 1)):
                    number += 7  # prime to their number, so that every pair meets every combination in time
                    (dtype, op), segment = combined[number % len(combined)]
                    one(tests, collective, name, count, dtype, op, placement, segment, number)


def one(
    tests: Battery,
    collective: str,
    name: str,
    count: int,
    dtype: str,
    op: str,
    placement: str,
    segment: int,
    number: int = 0,
) -> None:
    """Run one plan twice, with other data each time."""
    root = number % tests.nranks if collective in ROOTED else 0
    needs = (tests.comm, name)
    case = Case(collective, tests.rank, tests.nranks, count, dtype, op, placement, root, needs=needs)
    where = f"{collective} {name}, {count} {dtype}, {op}, {placement}, segment {segment}, root {root}"

    def make() -> Any:
        chunks = 1 + number % 5
        return plan(collective, name, tests.comm, case.sendbuf, case.recvbuf, op, segment, root=root, chunks=chunks)

    if name == "mpi" and collective in REDUCING and dtype in ("float16", "bfloat16") and not reducible(dtype):
        tests.refused(where, "no reduction of", dtype, call=make)
        return
    planned = make()
    tests.check(planned.in_place == (placement != OUT), f"in_place is {planned.in_place} for {placement}")
    for salt in (0, 1):
        case.fill(salt)
        planned()
        fault = case.fault(salt)
        tests.check(fault is None, f"{where}, run {salt}: {fault}")


def reducible(dtype: str) -> bool:
    try:
        reducible_type(dtype)
    except ValueError:
        return False
    return True


def case_4(tests: Battery) -> None:
    """Hierarchies over any nodes, with any algorithm between them; uneven nodes are done by leaders, and said so."""
    layouts: dict[int, list[tuple[tuple[int, ...], ...]]] = {
        3: [((0,), (1,), (2,)), ((0, 2), (1,)), ((0, 1, 2),)],
        4: [((0, 1, 2), (3,)), ((0, 2), (1, 3)), ((0, 1), (2, 3)), ((0,), (1,), (2,), (3,)), ((3, 0), (2, 1))],
        5: [((0, 1), (2, 3), (4,)), ((4, 1, 0), (2, 3))],
        8: [((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 2, 4, 6), (1, 3, 5, 7)), ((0, 1), (2, 3), (4, 5), (6, 7))],
    }
    outers = ("ring", "naive", "parameter_server", "rabenseifner", "recursive_doubling", "double_binary_tree", "swing")
    for groups in layouts.get(tests.nranks, []):
        uneven = len(set(map(len, groups))) > 1
        for name in ("hierarchical", "hierarchical_leaders"):
            for outer in outers:
                for op in ("sum", "average"):
                    for count, send in ((1, False), (7, True), (1000, False)):
                        mine = np.full(count, 2.0**tests.rank)
                        got = np.empty(count) if send else mine
                        run = plan("allreduce", name, tests.comm, mine, got, op, groups=groups, outer=outer, chunks=3)
                        run()
                        right = (2**tests.nranks - 1) / (tests.nranks if op == "average" else 1)
                        where = f"{name} over {groups}, {outer}, {op}, {count} elements"
                        tests.check((got == right).all(), f"{where}: {got[:3]}, not {right}")
                        remark = str(run.remark)
                        tests.check(f"{len(groups)} node" in remark and outer in remark, f"{where}: {remark}")
                        sizes = " and ".join(map(str, sorted(set(map(len, groups)))))
                        tests.check(f"node{'s'[: len(groups) > 1]} of {sizes}, {outer}" in remark, f"{where}: {remark}")
                        said = "unlike size" in remark
                        tests.check(said == (uneven and name == "hierarchical"), f"{where}: {remark}")
    if tests.nranks == 4:
        for groups, words in (((0, 1), (2,)), "each of the ranks 0 to 3 once"), (((0, 1), (1, 2, 3)), "once"):
            tests.refused(
                f"groups {groups}",
                words,
                call=lambda groups=groups: plan(  # type: ignore[misc]
                    "allreduce", "hierarchical", tests.comm, MPI.IN_PLACE, np.zeros(3), groups=groups
                ),
            )


def case_13(tests: Battery) -> None:
    """Set-ups leave no communicator behind: MPICH has some 2000 of them."""
    vector = np.full(3, 2.0**tests.rank)
    for _ in range(5000):
        run = plan("allreduce", "hierarchical", tests.comm, MPI.IN_PLACE, vector)
    run()
    tests.check((vector == 2**tests.nranks - 1).all(), f"after 5000 set-ups: {vector}")


def case_9_and_overflow(tests: Battery) -> None:
    """float16 is rounded at each addition, whatever the order; sums of integers wrap around in all of our own."""
    brought = (2048.0, 1.0, 1.0)
    for name in names("allreduce"):
        half = np.full(3, brought[tests.rank % 3] if tests.rank < 3 else 0, dtype=np.float16)
        half = placed(tests.comm, "allreduce", name, half)
        if name != "mpi" or reducible("float16"):
            plan("allreduce", name, tests.comm, MPI.IN_PLACE, half)()
            tests.check(set(half.tolist()) <= {2048.0, 2050.0}, f"float16, {name}: {half}")
        if name != "mpi":
            small = placed(tests.comm, "allreduce", name, np.full(5, 100, dtype=np.int8))
            plan("allreduce", name, tests.comm, MPI.IN_PLACE, small)()
            right = np.int64(100 * tests.nranks).astype(np.int8)
            tests.check((small == right).all(), f"int8, {name}: {small}, not {right}")


def raised_on_one_rank(tests: Battery) -> None:
    """Whatever goes wrong on the last rank alone is heard on all, and the communicator is of use afterwards."""
    last = tests.rank == tests.nranks - 1

    def choose(*case: object) -> str:
        return {True: "ring"}[not last]

    odd: list[tuple[str, dict[str, Any]]] = [
        ("KeyError", {"algorithm": "auto", "choose": choose}),
        ("op", {"op": (lambda: None) if last else "sum"}),
        ("groups", {"algorithm": "hierarchical", "groups": ((0, float("inf")),) if last else None}),
        ("chunks -3", {"chunks": -3 if last else None}),
        ("root", {"root": [0] if last else 0}),
    ]
    for word, options in odd:
        options = {"algorithm": "ring"} | options
        tests.refused(
            f"{word} on one rank",
            word,
            call=lambda options=options: plan(  # type: ignore[misc]
                "allreduce", options.pop("algorithm"), tests.comm, MPI.IN_PLACE, np.zeros(4), **options
            ),
        )
    tests.usable("after what was raised on one rank")


def chosen(tests: Battery) -> None:
    """What ``auto`` stands for is the same on all ranks, and said."""
    vector = np.full(4, 2.0**tests.rank)
    run = plan("allreduce", "auto", tests.comm, MPI.IN_PLACE, vector)
    run()
    tests.check((vector == 2**tests.nranks - 1).all(), f"auto: {vector}")
    tests.check(
        run.algorithm == "recursive_doubling" and run.remark == "recursive_doubling chosen by rule",
        f"{run.algorithm} {run.remark}",
    )
    named = plan("allreduce", "auto", tests.comm, MPI.IN_PLACE, vector, choose=lambda *case: "swing")
    tests.check(named.algorithm == "swing", f"chose {named.algorithm}")
    tests.check(named.remark == "swing chosen by a run", f"{named.remark}")
    if tests.nranks > 1:
        tests.refused(
            "unlike choices",
            "chosen algorithm",
            call=lambda: plan(
                "allreduce",
                "auto",
                tests.comm,
                MPI.IN_PLACE,
                vector,
                choose=lambda *case: "swing" if tests.rank else "ring",
            ),
        )


def cases_1_to_3(tests: Battery) -> None:
    """Rank r brings 2**r everywhere: the sum is 2**N - 1 and every missing bit names a rank."""
    for count in (1, 3, 4, 10):
        for name in (*names("allreduce"), "auto"):
            mine = placed(tests.comm, "allreduce", name, np.full(count, 2.0**tests.rank))
            got = placed(tests.comm, "allreduce", name, np.zeros(count))
            plan("allreduce", name, tests.comm, mine, got)()
            tests.check((got == 2**tests.nranks - 1).all(), f"{name}, {count} elements: {got}")


def shapes(tests: Battery) -> None:
    """Contiguous arrays of any shape are vectors; what is only read may be read-only."""
    for send_shape, recv_shape in (((2, 3), (2, 3)), ((3, 5, 2), (5, 6)), ((4,), (2, 2)), ((), (1,))):
        for name in names("allreduce"):
            mine = placed(tests.comm, "allreduce", name, np.full(send_shape, 2**tests.rank, dtype=np.int64))
            mine.setflags(write=False)
            got = placed(tests.comm, "allreduce", name, np.zeros(recv_shape, dtype=np.int64))
            plan("allreduce", name, tests.comm, mine, got)()
            tests.check((got == 2**tests.nranks - 1).all(), f"{name}, {send_shape} into {recv_shape}: {got}")
            tests.check((mine == 2**tests.rank).all(), f"{name}: a read-only input changed")
    for name in names("allreduce"):
        part = placed(tests.comm, "allreduce", name, np.zeros((4, 3)))  # rows of a matrix are contiguous
        part[1:3] = 2.0**tests.rank
        plan("allreduce", name, tests.comm, MPI.IN_PLACE, part[1:3])()
        tests.check(
            (part[1:3] == 2**tests.nranks - 1).all() and not part[[0, 3]].any(), f"{name}, rows 1 and 2: {part}"
        )


def random_input(rank: int, count: int, dtype: str) -> Any:
    return np.random.default_rng((7, rank)).standard_normal(count).astype(dtype)


def bits(tests: Battery) -> None:
    """CASE 15: the same bits on all ranks and in all repeats, and the sum within (N-1) * eps * sum |x|."""
    count = 1003
    for dtype in ("float32", "float64"):
        inputs = [random_input(rank, count, dtype) for rank in range(tests.nranks)]
        exact = np.array([math.fsum(column) for column in np.array(inputs, dtype=np.float64).T])
        bound = (tests.nranks - 1) * np.finfo(dtype).eps * np.abs(inputs).astype(np.float64).sum(axis=0)
        if tests.nranks > 2:  # with these data the order of additions shows
            forwards, backwards = sum(inputs[1:], inputs[0]), sum(inputs[-2::-1], inputs[-1])
            tests.check((forwards != backwards).any(), "the data cannot tell one order of additions from another")
        for name in names("allreduce"):
            promised = name != "mpi" and algorithm_named("allreduce", name).identical_bits
            for op in ("sum", "average"):
                wanted, slack = (exact, bound) if op == "sum" else (exact / tests.nranks, bound / tests.nranks)
                slack = slack + np.finfo(dtype).eps * np.abs(wanted)  # the last rounding, of the quotient or the sum
                seen = set()
                for placement in (True, False):
                    got = placed(tests.comm, "allreduce", name, np.zeros(count, dtype))
                    mine = placed(tests.comm, "allreduce", name, inputs[tests.rank].copy())
                    run = plan("allreduce", name, tests.comm, MPI.IN_PLACE if placement else mine, got, op)
                    repeats = set()
                    for _ in range(3):
                        got[...] = mine if placement else 0
                        run()
                        repeats.add(got.tobytes())
                    where = f"{name} {op} {dtype}, {'in' if placement else 'out of'} place"
                    worst = float((np.abs(got.astype(np.float64) - wanted) / slack).max())
                    tests.check(worst <= 1, f"{where}: off by {worst:.2f} times the bound")
                    if promised:
                        tests.check(len(repeats) == 1, f"{where}: other bits in another repeat")
                        everyone = tests.comm.allgather(got.tobytes())
                        tests.check(len(set(everyone)) == 1, f"{where}: other bits on another rank")
                    seen |= repeats
                if promised:
                    tests.check(len(seen) == 1, f"{name} {op} {dtype}: other bits in place than out of place")


def case_14(tests: Battery) -> None:
    """Sums that cancel: 1e8, 1 and -1e8 lose the 1 in some order, which the bound of 47.7 allows."""
    brought = (1e8, 1.0, -1e8)
    bound = 2 * np.finfo(np.float32).eps * sum(map(abs, brought))
    tests.check(abs(bound - 47.7) < 0.05, f"the bound is {bound}")
    for name in names("allreduce"):
        got = placed(tests.comm, "allreduce", name, np.full(3, brought[tests.rank], dtype=np.float32))
        plan("allreduce", name, tests.comm, MPI.IN_PLACE, got)()
        tests.check((np.abs(got - 1) <= bound).all(), f"{name}: {got}")
        if name == "ring":
            tests.check(got.tolist() == [0, 0, 1], f"the ring gives {got}")


def bytes_sent(tests: Battery) -> None:
    """What a plan says it sends is what Sendrecv sends, what cost() counts and, for the ring, the closed form."""
    nranks = tests.nranks
    counts = (*FEW, nranks * 100, 1000) if nranks <= 4 else (1, nranks - 1, 2 * nranks + 1, nranks * 100)
    for collective in COLLECTIVES:
        for algorithm in algorithms(collective):
            for count in counts:
                for placement, segment in ((OUT, 0), (PLACEMENTS[2], 64)):
                    needs = (tests.comm, algorithm.name)
                    case = Case(collective, tests.rank, nranks, count, "float32", "sum", placement, needs=needs)
                    proxy = Recording(tests.comm)
                    run = plan(collective, algorithm.name, proxy, case.sendbuf, case.recvbuf, "sum", segment, chunks=4)
                    case.fill(0)
                    run()
                    where = f"{collective} {algorithm.name}, {count} elements, segment {segment}"
                    counted = cost(algorithm, nranks, case.count)
                    tests.check(run.bytes_sent == sum(proxy.sent), f"{where}: {run.bytes_sent}, not {sum(proxy.sent)}")
                    tests.check(
                        run.bytes_sent == 4 * counted.sent[tests.rank],
                        f"{where}: {run.bytes_sent} bytes, cost says {counted.sent[tests.rank]} elements",
                    )
                    if segment:
                        tests.check(proxy.longest <= segment, f"{where}: a message of {proxy.longest} bytes")
                    everyone = tests.comm.allgather(run.bytes_sent)
                    tests.check(sum(everyone) == 4 * sum(counted.sent), f"{where}: {everyone} against {counted.sent}")
                    if case.count % algorithm.blocks(nranks) == 0:
                        closed = algorithm.sent(nranks) * case.count * 4 if nranks > 1 else Fraction(0)
                        tests.check(
                            max(everyone) == closed, f"{where}: the busiest sends {max(everyone)}, not {closed}"
                        )
                    if algorithm.name == "ring" and count % nranks == 0:
                        rounds = 2 * (nranks - 1) if collective == "allreduce" else nranks - 1
                        ring = Fraction(rounds, nranks) * count * 4
                        tests.check(max(everyone) == ring, f"{where}: {max(everyone)}, not {ring}")


class Watched:
    """Stand for a plan, and note how large the values get."""

    def __init__(self, inner: Any, result: Any, values: list[float]) -> None:
        self.inner, self.result, self.values = inner, result, values

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self) -> None:
        self.inner()
        self.values.append(float(np.abs(self.result).max()))


def case_12(tests: Battery) -> None:
    """In place a sum grows at every call; measured 200 times it does not, because the input is restored."""
    if tests.nranks == 2:
        grows = np.ones(4, dtype=np.float32)
        run = plan("allreduce", "ring", tests.comm, MPI.IN_PLACE, grows)
        calls = 0
        with np.errstate(over="ignore"):
            while np.isfinite(grows).all() and calls < 1000:
                run()
                calls += 1
        tests.check(calls == 128, f"infinite at call {calls} where nothing restores the input")
    original, values = worker.plan, dict[str, list[float]]()

    def watched(collective: str, name: str, comm: Any, send: Any, recv: Any, *more: Any, **options: Any) -> Any:
        planned = original(collective, name, comm, send, recv, *more, **options)
        return Watched(planned, recv, values.setdefault(name, []))

    chosen = tuple(names("allreduce"))
    settings = Settings(algorithms=chosen, sizes=(400,), min_samples=200, max_samples=200, precision=1e-9)
    worker.plan = watched  # type: ignore[assignment]
    try:
        rows = list(worker.measure(tests.comm, settings))
    finally:
        worker.plan = original
    tests.check([row.algorithm for row in rows] == list(chosen), f"rows of {[row.algorithm for row in rows]}")
    for row in rows:
        seen = values[row.algorithm]
        tests.check(len(row.samples_s) == 200 and len(seen) > 200, f"{row.algorithm}: {len(seen)} calls")
        tests.check(max(seen) <= 251 * tests.nranks, f"{row.algorithm}: a value of {max(seen)} after {len(seen)} calls")
        tests.check(row.wrong == 0 and row.wrong_detail is None, f"{row.algorithm}: {row.wrong_detail}")
        free = row.algorithm == "mpi" or not algorithm_named("allreduce", row.algorithm).identical_bits
        tests.check(row.identical_bits is True or free, f"{row.algorithm}: bits differ")
        tests.check(all(time >= 0 for time in row.samples_s), f"{row.algorithm}: a negative time")


if __name__ == "__main__":
    with battery(least=1000) as tests:
        cases_1_to_3(tests)
        products(tests)
        shapes(tests)
        bits(tests)
        bytes_sent(tests)
        case_4(tests)
        case_9_and_overflow(tests)
        chosen(tests)
        if tests.nranks > 1:
            raised_on_one_rank(tests)
        if tests.nranks == 2:
            case_13(tests)
        if tests.nranks == 3:
            case_14(tests)
        if tests.nranks in (2, 3):
            case_12(tests)

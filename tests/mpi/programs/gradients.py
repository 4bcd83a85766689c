"""Gradients in buckets: right averages in every engine, the same bits in all, and errors that all ranks hear of."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import mpi4py
import numpy as np

if sys.argv[1:] in (["funneled"], ["serialized"]):
    mpi4py.rc.thread_level = sys.argv[1]

from battery import Battery, battery
from mpi4py import MPI

import ringbench
from ringbench.ddp import DataParallel, ShardedDataParallel
from ringbench.ddp.choices import CALLING, ENGINES, LIBRARYS_OWN
from ringbench.ddp.hooks import MakePlan, Piece, Stage
from ringbench.runtime import windows

SHAPES = {"first": (7, 5), "second": (300,), "third": (), "fourth": (40, 3), "fifth": (0,), "last": (1000,)}
REDUCING = [name for name in ENGINES if name != "none"]
#: Small enough for four buckets.
SMALL = {"bucket_bytes": 1500, "first_bucket_bytes": 100}


def model(dtype: str = "float64") -> dict[str, Any]:
    return {name: np.zeros(shape, dtype=dtype) for name, shape in SHAPES.items()}


def values(rank: int, step: int, dtype: str = "float64") -> dict[str, Any]:
    random = np.random.default_rng([rank, step])
    return {name: random.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}


def fill(averaged: DataParallel, brought: dict[str, Any], order: list[str]) -> None:
    for name in order:
        averaged.gradients[name][...] = brought[name]
        averaged.ready(name)
        averaged.poll()


def averages(tests: Battery) -> None:
    """Each engine gives the average, whatever the order on each rank, and all the same bits with the same algorithm."""
    bits: dict[str, dict[int, bytes]] = {}
    names = list(SHAPES)
    for engine in REDUCING:
        for algorithm in ("mpi",) if engine in LIBRARYS_OWN else ("ring", "recursive_doubling", "auto", "mpi"):
            with DataParallel(tests.comm, model(), engine=engine, algorithm=algorithm, **SMALL) as averaged:
                tests.check(len(averaged.buckets) == 4, f"{len(averaged.buckets)} buckets")
                for step in range(3):
                    turned = names[(tests.rank + step) % 6 :] + names[: (tests.rank + step) % 6]
                    order = turned if step else names[::-1]
                    fill(averaged, values(tests.rank, step), order)
                    averaged.finish()
                    for name, gradient in averaged.gradients.items():
                        right = sum(values(rank, step)[name] for rank in range(tests.nranks)) / tests.nranks
                        close = np.allclose(gradient, right, rtol=0, atol=1e-15 * 8)
                        tests.check(close, f"{engine} {algorithm}, step {step}: {name} is no average")
                    found = b"".join(one.vector.tobytes() for one in averaged.buckets)
                    tests.check(
                        len(set(tests.comm.allgather(found))) == 1, f"{engine} {algorithm}: unlike bits on ranks"
                    )
                    if (engine, algorithm) != ("poll", "mpi") and engine not in LIBRARYS_OWN:  # MPI's own differ
                        first = bits.setdefault(algorithm, {}).setdefault(step, found)
                        tests.check(found == first, f"{engine} {algorithm}, step {step}: other bits than blocking")
                for job in averaged.jobs:
                    times = (job.ready_s, job.begin_s, job.end_s)
                    tests.check(times == tuple(sorted(times)), f"{engine}: {job.name} at {times}")


def views(tests: Battery) -> None:
    """Gradients are views of the buckets' memory, which may come from the caller."""
    given: list[Any] = []

    def allocate(count: int, dtype: str) -> Any:
        given.append(np.full(count, 7, dtype=dtype))
        return given[-1]

    with DataParallel(tests.comm, model(), allocate=allocate, **SMALL) as averaged:
        for one in averaged.buckets:
            tests.check(any(one.vector is memory for memory in given), "memory is not the caller's")
        for name, gradient in averaged.gradients.items():
            inside = gradient.size == 0 or any(np.shares_memory(gradient, memory) for memory in given)
            tests.check(inside and gradient.shape == SHAPES[name], f"{name} is no view")
    tests.check(sum(memory.size for memory in given) == sum(np.zeros(shape).size for shape in SHAPES.values()), "bytes")


def cases(tests: Battery) -> None:
    """The small inputs with known answers, in every engine."""
    one, two = tests.rank == 0, tests.nranks == 2
    for engine in REDUCING:
        if two:
            pair = {"a": np.zeros(1), "b": np.zeros(1)}
            with DataParallel(tests.comm, pair, engine=engine, first_bucket_bytes=8, bucket_bytes=8) as averaged:
                # a and b are ready in unlike order.
                for name in "ab" if one else "ba":
                    averaged.gradients[name][...] = {"a": 1, "b": 10}[name] * (1 if one else 2)
                    averaged.ready(name)
                averaged.finish()
                found = [float(averaged.gradients[name][0]) for name in "ab"]
                tests.check(found == [1.5, 15.0], f"{engine}: {found}")
                # Without a gradient on one rank, which counts as zero; what was there before does not count.
                averaged.gradients["b"][...] = 1
                averaged.ready("b")
                if one:
                    averaged.gradients["a"][...] = 4
                    averaged.ready("a")
                averaged.finish()
                tests.check(float(averaged.gradients["a"][0]) == 2, f"{engine}: {averaged.gradients['a']}, not 2")
                # Two micro-batches.
                averaged.zero()
                for turn, value in enumerate((1, 3) if one else (2, 5)):
                    if turn == 0:
                        with averaged.no_sync():
                            averaged.gradients["a"][...] += value
                            averaged.ready("a")
                    else:
                        averaged.gradients["a"][...] += value
                        averaged.ready("a")
                averaged.finish()
                tests.check(float(averaged.gradients["a"][0]) == 5.5, f"{engine}: {averaged.gradients['a']}, not 5.5")
            with DataParallel(tests.comm, [np.zeros(2)], engine=engine) as averaged:
                averaged.gradients["0"][...] = (3, 4) if one else (0, 0)
                averaged.ready(0)
                averaged.finish()
                norm = averaged.clip_global_norm(1.0)
                clipped = averaged.gradients["0"].tolist()
                tests.check((norm, clipped) == (2.5, [1.5 * 0.4, 2 * 0.4]), f"{engine}: norm {norm}, {clipped}")
        if tests.nranks == 4:
            for op, right in (("average", 3.0), ("sum", 12.0)):
                with DataParallel(tests.comm, [np.zeros(5)], engine=engine, op=op) as averaged:
                    averaged.gradients["0"][...] = (1, 2, 3, 6)[tests.rank]
                    averaged.ready("0")
                    averaged.finish()
                    tests.check((averaged.gradients["0"] == right).all(), f"{engine}: {op} {averaged.gradients['0']}")


def accumulation(tests: Battery) -> None:
    """A step reduces each bucket once, however many parts were accumulated, also what only an earlier part touched."""
    counted: list[int] = []
    with DataParallel(tests.comm, model(), hook=Counting(counted), **SMALL) as averaged:
        for _ in range(2):
            averaged.zero()
            for at in range(3):
                if at < 2:
                    with averaged.no_sync():
                        averaged.gradients["first"][...] += 1
                        averaged.ready("first")
                else:
                    averaged.gradients["last"][...] += 1
                    averaged.ready("last")
            averaged.finish()
            tests.check((averaged.gradients["first"] == 2).all(), "what was accumulated is lost")
            tests.check((averaged.gradients["last"] == 1).all(), "the last part is lost")
    tests.check(sorted(counted) == sorted([*range(4), *range(4)]), f"reductions: {counted}")


class Counting:
    """A hook that notes each reduction: an all-reduce of a copy, between two pieces of local work."""

    name = "counting"

    def __init__(self, counted: list[int]) -> None:
        self.counted, self.buckets = counted, 0

    def stages(self, comm: object, vector: Any, pieces: tuple[Piece, ...], make_plan: MakePlan) -> tuple[Stage, ...]:
        number, self.buckets = self.buckets, self.buckets + 1
        copied, small = np.empty_like(vector), np.zeros(3, dtype=np.float32)

        def encode() -> None:
            self.counted.append(number)
            copied[...] = vector

        def decode() -> None:
            vector[...] = copied

        return (
            encode,
            make_plan("allreduce", small, small, "max"),
            lambda: None,
            make_plan("allreduce", copied, copied, "average"),
            decode,
        )

    def wire_bytes(self, pieces: tuple[Piece, ...], itemsize: int, nranks: int) -> int:
        return 0


class Gathering(Counting):
    """A hook with another collective before its all-reduce, which the algorithm may not know."""

    def __init__(self) -> None:
        super().__init__([])

    def stages(self, comm: Any, vector: Any, pieces: tuple[Piece, ...], make_plan: MakePlan) -> tuple[Stage, ...]:
        gathered = np.zeros(comm.Get_size())
        return (make_plan("allgather", np.ones(1), gathered), *super().stages(comm, vector, pieces, make_plan))


def in_windows(tests: Battery) -> None:
    """Buckets lie in shared memory where reductions reach into them: the bits of plans on such vectors, and few others.

    Without room an algorithm that can go on does, in private memory; all is freed when nobody has it any more.
    """
    comm, many = tests.comm, tests.nranks > 1
    node = windows.node_of(comm)
    gc.collect()
    node.collect()
    before = len(node.windows)
    for dtype in ("float32", "float64"):
        for algorithm in ("shared_memory", "hierarchical", "hierarchical_leaders"):
            found: dict[str, list[bytes]] = {}
            for engine in (*CALLING, "poll"):
                if (engine, algorithm) == ("poll", "shared_memory"):
                    continue
                with DataParallel(comm, model(dtype), engine=engine, algorithm=algorithm, **SMALL) as averaged:
                    there = [windows.place_of(one.vector) is not None for one in averaged.buckets]
                    tests.check(set(there) == {many and engine in CALLING}, f"{engine} {algorithm}: shared {there}")
                    for step in range(3):
                        fill(averaged, values(tests.rank, step, dtype), list(SHAPES)[:: 1 if step else -1])
                        averaged.finish()
                        found.setdefault(engine, []).extend(one.vector.tobytes() for one in averaged.buckets)
                        right = (
                            sum(values(rank, step, "float64")["last"] for rank in range(tests.nranks)) / tests.nranks
                        )
                        close = np.allclose(averaged.gradients["last"], right, rtol=0, atol=1e-5)
                        tests.check(close, f"{engine} {algorithm}, step {step}: no average")
                    names, sizes = (
                        [one.bucket.indices for one in averaged.buckets],
                        [len(one.vector) for one in averaged.buckets],
                    )
            tests.check(found["blocking"] == found["thread"], f"{algorithm} {dtype}: other bits in a thread")
            tests.check(
                len(set(comm.allgather(b"".join(found["blocking"])))) == 1, f"{algorithm}: unlike bits on ranks"
            )
            expected = []
            for step in range(3):
                brought = list(values(tests.rank, step, dtype).values())
                for indices, size in zip(names, sizes, strict=True):
                    vector = ringbench.empty_shared(comm, size, dtype)
                    vector[...] = np.concatenate([brought[index].reshape(-1) for index in indices])
                    ringbench.plan("allreduce", algorithm, comm, MPI.IN_PLACE, vector, "average")()
                    expected.append(vector.tobytes())
            tests.check(found["blocking"] == expected, f"{algorithm} {dtype}: other bits than a plan's")
            del vector, averaged
    if many:
        tests.refused(
            "a plan that cannot be started",
            "'poll' cannot wait, as algorithm 'shared_memory' must",
            call=lambda: DataParallel(comm, model(), engine="poll", algorithm="shared_memory"),
        )
        real = windows.room_in
        windows.room_in = lambda folder: 8192
        try:
            with DataParallel(comm, model(), algorithm="hierarchical") as averaged:
                there = [windows.place_of(one.vector) for one in averaged.buckets]
                tests.check(set(there) == {None}, f"{there} where there is no room")
            tests.refused(
                "no room",
                "has room for 8.0 KiB",
                call=lambda: DataParallel(comm, model(), algorithm="shared_memory"),
            )
        finally:
            windows.room_in = real
        del averaged
    held = len(windows._WINDOWS), len(windows._NODES)
    with DataParallel(comm, model(), algorithm="shared_copy", **SMALL) as averaged:
        fill(averaged, values(tests.rank, 0, "float32"), list(SHAPES))
        averaged.finish()
    gc.collect()
    tests.check((len(windows._WINDOWS), len(windows._NODES)) == held, "closed gradients hold windows of their plans")
    gc.collect()
    node.collect()
    tests.check(len(node.windows) == before, f"{len(node.windows) - before} windows are left")


def hooks(tests: Battery) -> None:
    """Stages run in order in every engine, also where a bucket has two collectives, one after the other."""
    for engine in REDUCING:
        counted: list[int] = []
        with DataParallel(tests.comm, model(), engine=engine, hook=Counting(counted), **SMALL) as averaged:
            for step in range(3):
                fill(averaged, values(tests.rank, step), list(SHAPES)[:: 1 if (tests.rank + step) % 2 else -1])
                averaged.finish()
                right = sum(values(rank, step)["last"] for rank in range(tests.nranks)) / tests.nranks
                close = np.allclose(averaged.gradients["last"], right, rtol=0, atol=1e-14)
                tests.check(close, f"{engine}: wrong behind a hook in step {step}")
        tests.check(counted == [0, 1, 2, 3] * 3, f"{engine}: reductions {counted}")
        if engine not in LIBRARYS_OWN:
            with DataParallel(
                tests.comm, model(), engine=engine, algorithm="bruck", hook=Gathering(), **SMALL
            ) as averaged:
                tests.check(averaged.algorithms == ("bruck", averaged.algorithms[-1]), f"{averaged.algorithms}")


def nothing(tests: Battery) -> None:
    """Without communication every rank keeps its own."""
    with DataParallel(tests.comm, model(), engine="none", **SMALL) as averaged:
        fill(averaged, values(tests.rank, 0), list(SHAPES))
        averaged.finish()
        for name, value in values(tests.rank, 0).items():
            tests.check((averaged.gradients[name] == value).all(), f"{name} was changed")


def sharded(tests: Battery) -> None:
    """Shards hold blocks of the same averages; after a step all ranks have all parameters; the norm is that of all."""
    start = values(99, 0)
    for engine in REDUCING:
        own = ("ring", "auto", *(("shared_memory",) if engine in CALLING else ()))
        for algorithm in ("mpi",) if engine in LIBRARYS_OWN else own:
            with ShardedDataParallel(tests.comm, start, engine=engine, algorithm=algorithm, **SMALL) as averaged:
                for step in range(2):
                    before = {name: value.copy() for name, value in averaged.parameters.items()}
                    fill(averaged, values(tests.rank, step), list(SHAPES))
                    averaged.finish()
                    norm = averaged.clip_global_norm(1e9)
                    for shard in averaged.shards:
                        shard.parameter -= 2 * shard.gradient
                    averaged.gather()
                    whole = 0.0
                    for name, value in averaged.parameters.items():
                        mean = sum(values(rank, step)[name] for rank in range(tests.nranks)) / tests.nranks
                        whole += float((mean * mean).sum())
                        close = np.allclose(value, before[name] - 2 * mean, rtol=0, atol=1e-14)
                        tests.check(close, f"{engine} {algorithm}, step {step}: {name}")
                    tests.check(abs(norm - whole**0.5) < 1e-12 * norm, f"{engine}: norm {norm}, not {whole**0.5}")
                    found = b"".join(value.tobytes() for value in averaged.parameters.values())
                    tests.check(len(set(tests.comm.allgather(found))) == 1, f"{engine}: unlike parameters on ranks")
                norms = set(tests.comm.allgather(norm))
                tests.check(len(norms) == 1, f"{engine}: norms {norms}")
    with_hook: Callable[[], object] = lambda: ShardedDataParallel(tests.comm, model(), hook=Counting([]))  # noqa: E731
    tests.refused("a sharded hook", "counting", call=with_hook)


def kinds(tests: Battery) -> None:
    """float32 and float16 share no bucket, and stay what they are."""
    mixed = {"a": np.zeros(3, np.float32), "b": np.zeros(4, np.float16), "c": np.zeros(5, np.float32)}
    with DataParallel(tests.comm, mixed, algorithm="ring") as averaged:
        tests.check(len(averaged.buckets) == 2, f"{len(averaged.buckets)} buckets")
        for name, gradient in averaged.gradients.items():
            tests.check(gradient.dtype == mixed[name].dtype, f"{name} is {gradient.dtype}")
            gradient[...] = 2**tests.rank
            averaged.ready(name)
        averaged.finish()
        right = (2**tests.nranks - 1) / tests.nranks
        for name, gradient in averaged.gradients.items():
            tests.check(np.allclose(gradient, right, rtol=1e-3), f"{name}: {gradient}, not {right}")


def refusals(tests: Battery) -> None:
    """What differs between ranks, or makes no sense on one of them, is said on all in the same words."""
    last = tests.rank == tests.nranks - 1
    wide, other = {"a": np.zeros(3), "b": np.zeros(4)}, {"a": np.zeros(3), "b": np.zeros(5)}
    if tests.nranks > 1:
        unlike: list[tuple[str, Any, dict[str, Any]]] = [
            ("(5,)", other if last else wide, {}),
            ("number of parameters", [np.zeros(1)] * (2 if last else 3), {}),
            ("float32", {"a": np.zeros(2, np.float32 if last else np.float64)}, {}),
            ("bucket_bytes", wide, {"bucket_bytes": 8 if last else 16}),
            ("engine", wide, {"engine": "thread" if last else "poll"}),
            ("algorithm", wide, {"algorithm": "ring" if last else "auto"}),
        ]
        for word, given, settings in unlike:
            tests.refused(word, word, call=lambda g=given, s=settings: DataParallel(tests.comm, g, **s))  # type: ignore[misc]
    odd: list[tuple[str, Any, dict[str, Any]]] = [
        ("'fast'", wide, {"engine": "fast" if last else "poll"}),
        ("no parameters", {}, {}),
        ("'max'", wide, {"op": "max"}),
        ("'ignore'", wide, {"unused": "ignore"}),
        ("first_bucket_bytes 0", wide, {"first_bucket_bytes": 0 if last else 1}),
        ("int64", {"a": np.zeros(2, np.int64)} if last else {"a": np.zeros(2)}, {}),
        ("'ring'", wide, {"engine": "iallreduce", "algorithm": "ring"}),
        ("'nonsense'", wide, {"algorithm": "nonsense"}),
        ("list", {"a": [1.0]} if last else wide, {}),
    ]
    for word, given, settings in odd:
        tests.refused(word, word, call=lambda g=given, s=settings: DataParallel(tests.comm, g, **s))  # type: ignore[misc]
    with DataParallel(tests.comm, wide) as averaged:
        tests.refused("unknown", "'c'", "a, b", call=lambda: averaged.ready("c"))
        averaged.ready("a")
        tests.refused("twice", "'a'", "no_sync", call=lambda: averaged.ready("a"))
        tests.refused("clip", "middle", call=lambda: averaged.clip_global_norm(1))
        tests.refused("close", "middle", call=averaged.close)
        with averaged.no_sync():
            tests.refused("finish", "no_sync", call=averaged.finish)
        averaged.finish()
        tests.refused("norm", "max_norm 0", call=lambda: averaged.clip_global_norm(0))
    tests.refused("finish", "close", call=averaged.finish)
    tests.usable("refusals")


def unused(tests: Battery) -> None:
    """A gradient that is missing on one rank is an error on all, where it is one; the next step is right."""
    last = tests.rank == tests.nranks - 1
    for engine in REDUCING:
        with DataParallel(tests.comm, model(), engine=engine, unused="error", **SMALL) as averaged:
            fill(averaged, values(tests.rank, 0), [name for name in SHAPES if name != "second" or not last])
            tests.refused(f"{engine}: unused", "'second'", f"rank {tests.nranks - 1}", "step 1", call=averaged.finish)
            fill(averaged, values(tests.rank, 1), list(SHAPES))
            averaged.finish()
            right = sum(values(rank, 1)["second"] for rank in range(tests.nranks)) / tests.nranks
            tests.check(np.allclose(averaged.gradients["second"], right), f"{engine}: wrong after an unused gradient")


def uneven(tests: Battery) -> None:
    """Where one rank makes a step less, all ranks say so: in that step, or when they close."""
    if tests.nranks == 1:
        return
    last = tests.rank == tests.nranks - 1
    for engine in REDUCING:
        for error in ("zero", "error"):
            averaged = DataParallel(tests.comm, model(), engine=engine, unused=error, **SMALL)
            for step in range(2):
                fill(averaged, values(tests.rank, step), list(SHAPES))
                averaged.finish()

            def end(averaged: DataParallel = averaged) -> None:
                if not last:
                    fill(averaged, values(tests.rank, 2), list(SHAPES))
                    averaged.finish()
                averaged.close()

            words = f"rank {tests.nranks - 1} closed after 2, rank 0 began another"
            tests.refused(f"{engine}: uneven", words, call=end)
            averaged.close()  # again does nothing
    tests.usable("uneven steps")


def threads(tests: Battery) -> None:
    """The thread alone calls MPI in a step, sleeps when there is nothing to do, and is gone after close."""
    before = threading.active_count()
    seen: list[int] = []

    class Where(Counting):
        def stages(
            self, comm: object, vector: Any, pieces: tuple[Piece, ...], make_plan: MakePlan
        ) -> tuple[Stage, ...]:
            return (*super().stages(comm, vector, pieces, make_plan), lambda: seen.append(threading.get_ident()))

    with DataParallel(tests.comm, model(), engine="thread", hook=Where([]), **SMALL) as averaged:
        fill(averaged, values(tests.rank, 0), list(SHAPES))
        averaged.finish()
        tests.check(len(set(seen)) == 1 and threading.get_ident() not in seen, f"threads {seen}")
        tests.check(threading.active_count() == before + 1, f"{threading.active_count()} threads")
    tests.check(threading.active_count() == before, f"{threading.active_count()} threads after close")


def set_ups(tests: Battery) -> None:
    """What is closed leaves no communicator behind: MPICH has some 2000 of them, and alone they are made fast."""
    for _ in range(2500 if tests.nranks == 1 else 0):
        DataParallel(tests.comm, [np.zeros(1)], check_steps=False).close()
    tests.usable("2500 set-ups")


def raising(tests: Battery) -> None:
    """What a stage raises in the thread comes out of finish on that rank, and again; nothing more is sent."""
    sent: list[int] = []

    class Broken(Counting):
        def stages(
            self, comm: object, vector: Any, pieces: tuple[Piece, ...], make_plan: MakePlan
        ) -> tuple[Stage, ...]:
            number, self.buckets = self.buckets, self.buckets + 1

            def fail() -> None:
                sent.append(number)
                if number == 1:
                    raise KeyError("broken")

            return (fail,)

    averaged = DataParallel(tests.comm, model(), engine="thread", hook=Broken([]), check_steps=False, **SMALL)
    for _ in range(2):
        fill(averaged, values(tests.rank, 0), list(SHAPES))
        try:
            averaged.finish()
        except KeyError as error:
            tests.check("broken" in str(error), str(error))
        else:
            tests.check(False, "finish() says nothing")
        averaged._restart()
    tests.check(sent == [0, 1], f"ran {sent}")


def failing(tests: Battery) -> None:
    """Fail in the thread of the last rank, while the others wait for its messages."""

    class Broken(Counting):
        def stages(
            self, comm: object, vector: Any, pieces: tuple[Piece, ...], make_plan: MakePlan
        ) -> tuple[Stage, ...]:
            return (fail, *super().stages(comm, vector, pieces, make_plan))

    def fail() -> None:
        if tests.rank == tests.nranks - 1:
            raise KeyError("broken")

    averaged = DataParallel(tests.comm, model(), engine="thread", hook=Broken([]), **SMALL)
    fill(averaged, values(tests.rank, 0), list(SHAPES))
    averaged.finish()


if __name__ == "__main__":
    if sys.argv[1:] == ["funneled"]:
        with battery() as tests:
            call = lambda: DataParallel(tests.comm, model(), engine="thread")  # noqa: E731
            tests.check(MPI.Query_thread() == MPI.THREAD_FUNNELED, f"thread level {MPI.Query_thread()}")
            tests.refused("thread", "'funneled'", "'serialized'", call=call)
            DataParallel(tests.comm, model(), engine="poll").close()
    elif sys.argv[1:] == ["serialized"]:
        with battery() as tests:
            tests.check(MPI.Query_thread() == MPI.THREAD_SERIALIZED, f"thread level {MPI.Query_thread()}")
            averages(tests)
    elif sys.argv[1:] == ["raise"]:
        with battery() as tests:
            failing(tests)
    else:
        with battery(least=50) as tests:
            for check in (
                averages, views, cases, accumulation, in_windows, hooks, nothing, sharded, kinds, refusals, unused,
                uneven, threads, set_ups, raising,
            ):  # fmt: skip
                check(tests)

"""Samples on clocks that are 1000 s apart from rank to rank and drift by 50 ppm: the same as on one clock."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from battery import Battery, battery

from ringbench.records.settings import SYNCS, Settings
from ringbench.runtime import worker
from ringbench.runtime.sync import RoundTime, alignment
from ringbench.runtime.timing import Contestant, nothing, run_rounds

SHIFT, DRIFT = 1000 * 10**9, 50e-6


class Recorded(RoundTime):
    """Keep the times that samples are made of."""

    def samples(self, starts: Any, ends: Any, late: Any) -> tuple[Any, Any]:
        self.starts, self.ends = starts, ends
        return super().samples(starts, ends, late)


class Sleepy:
    """Stand for a communicator on which the last rank sleeps after each third broadcast."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.calls, self.asleep = comm, 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def Bcast(self, *arguments: Any) -> None:  # noqa: N802
        self.comm.Bcast(*arguments)
        self.calls += 1
        if self.asleep and self.calls % 3 == 0 and self.comm.Get_rank() == self.comm.Get_size() - 1:
            time.sleep(0.03)


def shifted(rank: int, base: int) -> int:
    """Return what a rank's clock shows, ``base`` being when all of them started to drift."""
    raw = time.perf_counter_ns()
    return raw + rank * SHIFT + round(rank * DRIFT * (raw - base))


def raw_times(local: Any, rank: int, base: int) -> Any:
    """Return the true times at which a rank's clock showed ``local``."""
    since = local - base - rank * SHIFT
    return base + np.rint(since / (1 + rank * DRIFT)).astype(np.int64)


def samples_on_shifted_clocks(tests: Battery) -> None:
    comm, rank = tests.comm, tests.rank
    base = comm.bcast(time.perf_counter_ns(), root=0)
    ranks = Recorded(comm, partial(shifted, rank, base))
    for one in (contestant := Contestant(prepare=nothing, run=comm.Barrier), Contestant(prepare=nothing, run=nothing)):
        found = run_rounds(ranks, [one], 40)
        starts, ends = (raw_times(times, rank, base) for times in (ranks.starts, ranks.ends))
        first, last = comm.allreduce(-starts, op=_most), comm.allreduce(ends, op=_most)
        count = 40 - one.late
        tests.check(len(found) == count, f"{len(found)} samples of {count} rounds that count")
        truth = sorted(((first + last) * 1e-9).ravel().tolist())
        off = [min(abs(value - true) for true in truth) for value in found.ravel().tolist()]
        error = 2 * (ranks.error_s() or 0) + 2e-9 + 1e-4 * max(truth, default=0)
        tests.check(max(off, default=0) <= error, lambda: f"samples are off by {max(off)} s, more than {error} s")  # noqa: B023
    tests.check(contestant.own_s >= 0, "own time")
    for other, clock in enumerate(ranks.describe()):
        wrong = abs(clock["drift"] - other * DRIFT)
        tests.check(wrong <= clock["drift_error"] + 1e-6, f"rank {other}: drift {clock}")
        tests.check(other * 999 <= clock["offset_s"] <= other * 1001, f"rank {other}: offset {clock}")


def _most(one: Any, other: Any) -> Any:
    return np.maximum(one, other)


def late_rounds_do_not_count(tests: Battery) -> None:
    comm = Sleepy(tests.comm)
    ranks = RoundTime(comm)
    comm.asleep, comm.calls = True, 0
    one, other = (Contestant(prepare=nothing, run=tests.comm.Barrier) for _ in range(2))
    found = run_rounds(ranks, [one, other], 12)
    if tests.nranks > 1:  # of 24 starts 8 were missed, in at least 4 rounds
        tests.check(one.late >= 4, f"{one.late} rounds were late")
    tests.check(one.late == other.late == 12 - len(found), f"{one.late} and {other.late} of 12, {len(found)} kept")
    comm.asleep = False
    before = ranks.slack = 0  # a start that is over when it is fixed
    none = Contestant(prepare=nothing, run=nothing)
    found = run_rounds(ranks, [none], 10)
    tests.check((none.late, len(found)) == (10, 0), f"{none.late} late, {len(found)} kept")
    tests.check(none.own_s == 0, f"own time {none.own_s}")
    tests.check(ranks.slack > before, "the start is fixed no earlier next time")


def whole_measurements(tests: Battery) -> None:
    for sync in SYNCS:
        for order in ("interleaved", "blocked"):
            settings = Settings(
                algorithms=("ring", "mpi"), sizes=(64, 4096), sync=sync, order=order, min_samples=6, max_samples=12
            )
            rows = list(worker.measure(tests.comm, settings))
            tests.check(len(rows) == 4, f"{sync}: {len(rows)} rows")
            for row in rows:
                tests.check(row.wrong == 0, f"{sync}: {row}")
                tests.check(bool(row.samples_s) or row.late > 0, f"{sync}: {row}")
                tests.check(row.samples_s == () or min(row.samples_s) > 0, f"{sync}: {row}")
                tests.check((row.reason is None) == bool(row.samples_s), f"{sync}: {row}")
                tests.check((row.clock_error_s is not None) == (sync == "roundtime"), f"{sync}: {row}")
                tests.check(row.late == 0 or sync == "roundtime", f"{sync}: {row}")
                tests.check(row.stop in ("ci", "max", "budget"), f"{sync}: {row}")


def cold_buffers(tests: Battery) -> None:
    for placement in ("in", "out"):
        for collective in ("allreduce", "reduce_scatter", "allgather", "bcast"):
            settings = Settings(
                collective=collective,
                algorithms=("auto", "mpi"),
                sizes=(tests.nranks * 40,),
                buffers=3,
                placement=placement,
                min_samples=7,
                max_samples=7,
                warmup=2,
            )
            for row in worker.measure(tests.comm, settings):
                tests.check(row.wrong == 0, f"{collective}, 3 buffers: {row}")
                tests.check(row.buffers == 3 and len(row.samples_s) == 7, f"{collective}, 3 buffers: {row}")


def what_osu_and_imb_print(tests: Battery) -> None:
    """Given every rank's duration of every iteration, their figures follow from the same samples as the headline."""
    now = [0]
    durations = np.random.default_rng(1).integers(1_000, 1_000_000, size=(tests.nranks, 20))

    def run() -> None:
        now[0] += int(durations[tests.rank, len(ran)])
        ran.append(None)

    ran: list[None] = []
    ranks = alignment(tests.comm, "barrier", lambda: now[0])
    one = Contestant(prepare=nothing, run=run)
    found = run_rounds(ranks, [one], 20)[:, 0]
    means = tests.comm.allgather(one.own_s / len(found))  # what a row keeps
    seconds = durations * 1e-9
    tests.check(np.allclose(found, seconds.max(axis=0), rtol=0, atol=1e-12), "a sample is the slowest rank")
    osu = seconds.sum(axis=1) / 20  # osu_allreduce: each rank adds up and divides; then reduced over ranks
    for ours, theirs in zip(
        (sum(means) / len(means), min(means), max(means)), (osu.mean(), osu.min(), osu.max()), strict=True
    ):
        tests.check(abs(ours - theirs) < 1e-12, f"{ours} is not {theirs}")


def a_barrier_holds_until_all_are_there(tests: Battery) -> None:
    """Whoever leaves a barrier does so after the last has come to it."""
    base = tests.comm.bcast(time.perf_counter_ns(), root=0)
    for sync in ("barrier", "dissemination"):
        align = alignment(tests.comm, sync).align
        for turn in range(4 * tests.nranks):
            if turn % tests.nranks == tests.rank:
                time.sleep(0.002)
            came = time.perf_counter_ns() - base
            align()
            left = time.perf_counter_ns() - base
            last = max(tests.comm.allgather(came))
            tests.check(left >= last, f"{sync}: left {last - left} ns too early")


if __name__ == "__main__":
    with battery() as tests:
        samples_on_shifted_clocks(tests)
        late_rounds_do_not_count(tests)
        whole_measurements(tests)
        cold_buffers(tests)
        what_osu_and_imb_print(tests)
        a_barrier_holds_until_all_are_there(tests)

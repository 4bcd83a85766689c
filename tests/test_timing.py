from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import mpi4py
import numpy as np
import pytest

mpi4py.rc(initialize=False)  # its constants are enough

from mpi4py import MPI  # noqa: E402

from ringbench.records.settings import Settings  # noqa: E402
from ringbench.runtime import sync, timing  # noqa: E402
from ringbench.runtime.sync import Alignment  # noqa: E402
from ringbench.runtime.timing import Contestant, _decide, clock_tick, narrow, run_rounds, sample  # noqa: E402

CASE_20 = [43, 7, 7, 7, 8, 7, 7, 7, 7, 7]


class Clock:
    """Stand for the module ``time``: nothing moves it but what a test does."""

    def __init__(self, step: int = 0) -> None:
        self.now, self.step = 0, step

    def perf_counter_ns(self) -> int:
        self.now += self.step
        return self.now

    def perf_counter(self) -> float:
        return self.now * 1e-9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stand_in = Clock()
    monkeypatch.setattr(timing, "time", stand_in)
    monkeypatch.setattr(sync, "time", stand_in)
    return stand_in


class Comm:
    """Stand for a communicator of one rank, beside which another one takes ``slower`` ns longer each time."""

    def __init__(self, clock: Clock, *, rank: int = 0, slower: int = 0, said: Sequence[Any] = ()) -> None:
        self.clock, self.rank, self.slower, self.said = clock, rank, slower, iter(said)
        self.events: list[str] = []
        self.told: list[Any] = []

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Barrier(self) -> None:  # noqa: N802
        self.clock.now += 1_000_000
        self.events.append("barrier")

    def Allreduce(self, send: object, values: Any, op: object) -> None:  # noqa: N802
        assert (send, op) == (MPI.IN_PLACE, MPI.MAX)
        np.maximum(values, values + self.slower * 1e-9, out=values)

    def bcast(self, value: Any, root: int) -> Any:
        assert root == 0
        value = next(self.said) if self.rank else value
        self.told.append(value)
        return value


def contestant(comm: Comm, name: str, durations: Callable[[int], int]) -> Contestant:
    """Return one whose n-th run takes ``durations(n)`` ns."""
    runs: list[int] = []

    def prepare() -> None:
        comm.clock.now += 500_000
        comm.events.append(f"prepare {name}")

    def run() -> None:
        comm.clock.now += durations(len(runs))
        runs.append(0)
        comm.events.append(f"run {name}")

    return Contestant(prepare=prepare, run=run)


def steady(nanoseconds: int) -> Callable[[int], int]:
    return lambda n: nanoseconds


def noisy(n: int) -> int:
    return 100 + 900 * (n % 2)


# One round after the other.


def test_restoring_and_aligning_are_not_timed(clock: Clock) -> None:
    comm = Comm(clock)
    found = run_rounds(Alignment(comm), [contestant(comm, "a", steady(7)), contestant(comm, "b", steady(9))], 2)
    assert found.tolist() == [[7e-9, 9e-9]] * 2
    assert comm.events == ["prepare a", "barrier", "run a", "prepare b", "barrier", "run b"] * 2


def test_a_sample_is_the_maximum_over_ranks(clock: Clock) -> None:
    comm = Comm(clock, slower=30)
    assert run_rounds(Alignment(comm), [contestant(comm, "a", lambda n: 10 * n)], 3).tolist() == [
        [3e-8],
        [4e-8],
        [5e-8],
    ]


def test_times_are_whole_nanoseconds(clock: Clock) -> None:
    comm = Comm(clock)
    (sample_s,) = run_rounds(Alignment(comm), [contestant(comm, "a", steady(123_456_789))], 1)[0]
    assert sample_s == 0.123456789
    assert repr(float(sample_s)) == "0.123456789"


def order(clock: Clock, seed: str, rounds: int = 40) -> list[str]:
    comm = Comm(clock)
    names = "abc"
    run_rounds(Alignment(comm), [contestant(comm, name, steady(1)) for name in names], rounds, Random(seed))
    ran = [event.split()[1] for event in comm.events if event.startswith("run")]
    return ["".join(ran[i : i + 3]) for i in range(0, len(ran), 3)]


def test_each_round_runs_all_in_an_order_of_its_own(clock: Clock) -> None:
    found = order(clock, "x")
    assert {"".join(sorted(one)) for one in found} == {"abc"}
    assert len(set(found)) == 6


def test_the_order_is_the_same_on_all_ranks_and_another_for_another_seed(clock: Clock) -> None:
    assert order(clock, "x") == order(clock, "x") != order(clock, "y")


def test_a_column_belongs_to_its_contestant_whatever_the_order(clock: Clock) -> None:
    comm = Comm(clock)
    three = [contestant(comm, name, steady(1 + i)) for i, name in enumerate("abc")]
    assert run_rounds(Alignment(comm), three, 20, Random(1)).tolist() == [[1e-9, 2e-9, 3e-9]] * 20


# When it is enough.


def test_case_20_an_outlier_moves_no_median() -> None:
    assert not narrow(CASE_20, 0.14)  # from 7 to 8
    assert narrow(CASE_20, 0.15)
    assert narrow([7] * 99 + [700], 0.001)


@pytest.mark.parametrize("n", [1, 5])
def test_so_few_samples_have_no_interval(n: int) -> None:
    assert not narrow([7.0] * n, 0.5)
    assert narrow([7.0] * 6, 0.5)


def test_a_time_of_zero_is_as_narrow_as_it_gets() -> None:
    assert narrow([0.0] * 8, 0.05)


def decided(
    clock: Clock, *columns: Sequence[float], per_round: float = 1.0, deadline: float = 1e6, **changes: Any
) -> tuple[list[str | None], int]:
    active = [Contestant(prepare=lambda: None, run=lambda: None, samples_s=list(column)) for column in columns]
    return _decide(active, Settings(**{"min_samples": 8, **changes}), per_round, deadline)


WIDE = [1.0, 2.0] * 4


def test_each_contestant_is_judged_by_itself(clock: Clock) -> None:
    assert decided(clock, [7.0] * 8, WIDE, max_samples=100) == (["ci", None], 8)


def test_a_batch_is_as_long_as_all_before_it(clock: Clock) -> None:
    assert decided(clock, WIDE * 3, max_samples=1000) == ([None], 24)


def test_never_more_than_the_most_samples(clock: Clock) -> None:
    assert decided(clock, WIDE, max_samples=13) == ([None], 5)
    assert decided(clock, WIDE, max_samples=8)[0] == ["max"]
    assert decided(clock, [7.0] * 8, max_samples=8)[0] == ["ci"]


def test_never_more_than_the_budget_pays_for(clock: Clock) -> None:
    assert decided(clock, WIDE, per_round=2.0, deadline=6.5, max_samples=100) == ([None], 3)
    assert decided(clock, WIDE, per_round=2.0, deadline=1.9)[0] == ["budget"]
    clock.now = 10**10
    assert decided(clock, WIDE, [7.0] * 8, deadline=9.0)[0] == ["budget", "ci"]


def test_rounds_shorter_than_the_clock_are_no_division_by_zero(clock: Clock) -> None:
    assert decided(clock, WIDE, per_round=0.0, max_samples=100) == ([None], 8)


def take(clock: Clock, comm: Comm, *contestants: Contestant, deadline: float = 1e3, **changes: Any) -> list[int]:
    sample(Alignment(comm), contestants, Settings(**{"min_samples": 8, **changes}), deadline, "seed")
    return [len(one.samples_s) for one in contestants]


def test_sampling_ends_where_the_interval_is_narrow(clock: Clock) -> None:
    comm = Comm(clock)
    one = contestant(comm, "a", lambda n: 43 if n == 0 else 7)
    assert take(clock, comm, one) == [16]  # the interval of 8 reaches to the extremes, that of 16 does not
    assert one.stop == "ci"
    assert one.samples_s == [4.3e-8, *[7e-9] * 15]


def test_who_is_done_leaves_and_the_others_go_on_together(clock: Clock) -> None:
    comm = Comm(clock)
    calm, wild = contestant(comm, "calm", steady(7)), contestant(comm, "wild", noisy)
    assert take(clock, comm, calm, wild, max_samples=50) == [8, 50]
    assert (calm.stop, wild.stop) == ("ci", "max")
    assert [stops for stops, _ in comm.told] == [["ci", None], [None], [None], ["max"]]
    assert [batch for _, batch in comm.told][:3] == [8, 16, 18]
    assert comm.events.count("run calm") == 8


def test_the_ranks_own_durations_are_summed_over_the_samples_alone(clock: Clock) -> None:
    comm = Comm(clock, slower=5)
    one, other = contestant(comm, "a", steady(7)), contestant(comm, "b", noisy)
    run_rounds(Alignment(comm), [one, other], 3)  # a warm-up
    assert one.own_s == pytest.approx(3 * 7e-9)
    take(clock, comm, one, other, max_samples=50)
    assert one.own_s == pytest.approx(8 * 7e-9)
    assert sum(one.samples_s) == pytest.approx(8 * 12e-9)  # the other rank's
    assert other.own_s == pytest.approx(sum(other.samples_s) - 50 * 5e-9)


def test_in_blocks_each_runs_all_its_rounds_before_the_next(clock: Clock) -> None:
    comm = Comm(clock)
    three = [contestant(comm, name, steady(7)) for name in "abc"]
    values = run_rounds(Alignment(comm), three, 4, blocked=True)
    assert [event for event in comm.events if event.startswith("run")] == ["run a"] * 4 + ["run b"] * 4 + ["run c"] * 4
    assert comm.events.count("barrier") == 12
    assert values.shape == (4, 3)
    taken = Comm(clock)
    sample(
        Alignment(taken),
        [contestant(taken, name, steady(7)) for name in "ab"],
        Settings(order="blocked", min_samples=8),
        1e3,
        "seed",
    )
    runs = [event for event in taken.events if event.startswith("run")]
    assert runs == ["run a"] * 8 + ["run b"] * 8


def test_the_fewest_samples_are_taken_whatever_the_budget(clock: Clock) -> None:
    comm = Comm(clock)
    one, other = contestant(comm, "a", noisy), contestant(comm, "b", noisy)
    assert take(clock, comm, one, other, deadline=0.0, min_samples=11) == [11, 11]
    assert (one.stop, other.stop) == ("budget", "budget")


def test_the_fewest_are_never_more_than_the_most(clock: Clock) -> None:
    comm = Comm(clock)
    assert take(clock, comm, contestant(comm, "a", noisy), min_samples=12, max_samples=3) == [3]


def test_the_budget_ends_what_is_not_narrow_yet(clock: Clock) -> None:
    comm = Comm(clock)
    one = contestant(comm, "a", noisy)
    (taken,) = take(clock, comm, one, deadline=0.05)  # a round is 1.5 ms of this clock
    assert one.stop == "budget"
    assert 8 < taken < 1000
    assert clock.now <= 0.05e9 + 1_600_000


def test_the_other_ranks_do_as_rank_0_says(clock: Clock) -> None:
    comm = Comm(clock, rank=1, said=[([None, "ci"], 3), (["budget"], 1)])
    one, other = contestant(comm, "a", steady(7)), contestant(comm, "b", noisy)
    assert take(clock, comm, one, other) == [11, 8]
    assert (one.stop, other.stop) == ("budget", "ci")


def test_all_ranks_draw_the_same_order_from_the_seed(clock: Clock) -> None:
    runs = []
    for seed in ("x", "x", "y"):
        comm = Comm(clock)
        three = [contestant(comm, name, noisy) for name in "abc"]
        sample(Alignment(comm), three, Settings(max_samples=40), 1e3, seed)
        runs.append(comm.events)
    assert runs[0] == runs[1] != runs[2]


def test_nobody_to_sample_is_no_communication(clock: Clock) -> None:
    comm = Comm(clock)
    assert take(clock, comm) == []
    assert (comm.events, comm.told) == ([], [])


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_meanwhile(clock: Clock, enabled: bool) -> None:
    seen: list[bool] = []
    comm = Comm(clock)

    def run() -> None:
        seen.append(gc.isenabled())
        if len(seen) == 3:
            raise KeyboardInterrupt

    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyboardInterrupt):
            take(clock, comm, Contestant(prepare=lambda: None, run=run))
        after = gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
    assert (seen, after) == ([False] * 3, enabled)


def test_the_tick_is_the_smallest_step_of_the_clock(clock: Clock) -> None:
    clock.step = 3
    assert clock_tick() == pytest.approx(3e-9)

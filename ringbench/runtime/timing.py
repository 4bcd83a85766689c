"""How samples are taken: aligned ranks, interleaved order, one stopping rule that all ranks follow."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.records.settings import Settings
from ringbench.records.stats import median_interval


@dataclass(slots=True, kw_only=True)
class Contestant:
    """Hold one algorithm of a size: how to restore its input, how to run it, and what was seen.

    ``samples_s`` are maxima over ranks, in seconds; ``own_s`` is the sum of this rank's own durations over the same
    iterations. ``stop`` says which rule ended sampling.
    """

    prepare: Callable[[], None]
    run: Callable[[], None]
    samples_s: list[float] = field(default_factory=list)
    own_s: float = 0.0
    stop: str | None = None


def nothing() -> None:
    """Prepare nothing: for what leaves its input as it was."""


def clock_tick() -> float:
    """Return the smallest step, in seconds, by which the clock was seen to move."""
    clock = time.perf_counter_ns
    steps = set()
    for _ in range(1000):
        start = clock()
        while (now := clock()) == start:
            pass
        steps.add(now - start)
    return min(steps) * 1e-9


def run_round(comm: Any, contestants: Sequence[Contestant], order: Sequence[int], local: Any) -> None:
    """Run each contestant once, in the given order; write the local durations in seconds.

    The input is restored and the ranks are aligned by a barrier outside the timed part.
    """
    clock, barrier = time.perf_counter_ns, comm.Barrier
    for index in order:
        contestant = contestants[index]
        contestant.prepare()
        run = contestant.run
        barrier()
        start = clock()
        run()
        local[index] = (clock() - start) * 1e-9


def run_rounds(
    comm: Any, contestants: Sequence[Contestant], rounds: int, random: Random | None = None, *, blocked: bool = False
) -> Any:
    """Run some rounds, interleaved in random order if given one; return the maxima over ranks, a row for each round.

    ``blocked`` has each contestant run all its rounds one after the other, as loops over one algorithm do.
    """
    local = np.zeros((rounds, len(contestants)))
    order = list(range(len(contestants)))
    turns = [(number, order) for number in range(rounds)]
    if blocked:
        turns = [(number, [index]) for index in order for number in range(rounds)]
    for number, turn in turns:
        if random is not None:
            random.shuffle(turn)
        run_round(comm, contestants, turn, local[number])
    for contestant, own in zip(contestants, local.sum(axis=0).tolist(), strict=True):
        contestant.own_s += own
    comm.Allreduce(MPI.IN_PLACE, local, MPI.MAX)
    return local.round(9)


def sample(comm: Any, contestants: Sequence[Contestant], settings: Settings, deadline: float, seed: str) -> None:
    """Sample all contestants until each meets the stopping rule; ``deadline`` is on rank 0's ``time.perf_counter``.

    Rank 0 decides after each batch of rounds and tells the others, so that all take the same decision. A batch is as
    long as all before it together, or what the budget leaves.
    """
    random = Random(seed)  # the same order on all ranks
    active = list(contestants)
    for contestant in active:
        contestant.own_s = 0.0  # what the warm-up left there
    batch = settings.min_samples
    collecting = gc.isenabled()
    gc.disable()
    try:
        while active:
            start = time.perf_counter()
            values = run_rounds(comm, active, batch, random, blocked=settings.order == "blocked")
            for contestant, column in zip(active, values.T, strict=True):
                contestant.samples_s.extend(column.tolist())
            per_round = (time.perf_counter() - start) / batch
            decision = _decide(active, settings, per_round, deadline) if comm.Get_rank() == 0 else None
            stops, batch = comm.bcast(decision, root=0)
            for contestant, stop in zip(active, stops, strict=True):
                contestant.stop = stop
            active = [contestant for contestant in active if contestant.stop is None]
    finally:
        if collecting:
            gc.enable()


def _decide(
    active: Sequence[Contestant], settings: Settings, per_round: float, deadline: float
) -> tuple[list[str | None], int]:
    """Return which rule, if any, stops each contestant, and the number of rounds to run next."""
    taken = len(active[0].samples_s)
    affordable = int((deadline - time.perf_counter()) / max(per_round, 1e-9))
    stops: list[str | None] = []
    for contestant in active:
        if narrow(contestant.samples_s, settings.precision):
            stops.append("ci")
        elif taken >= settings.max_samples:
            stops.append("max")
        elif affordable < 1:
            stops.append("budget")
        else:
            stops.append(None)
    return stops, max(1, min(taken, settings.max_samples - taken, affordable))


def narrow(samples: Sequence[float], precision: float) -> bool:
    """Say whether the 95 % interval of the median is narrower than ``precision`` times the median."""
    middle, low, high = median_interval(samples)
    return low is not None and high is not None and high - low <= precision * middle

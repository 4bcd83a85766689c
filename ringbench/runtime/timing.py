"""How samples are taken: aligned ranks, interleaved order, one stopping rule that all ranks follow."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from ringbench.records.settings import Settings
from ringbench.records.stats import median_interval
from ringbench.runtime.sync import Alignment


@dataclass(slots=True, kw_only=True)
class Contestant:
    """Hold one algorithm of a size: how to restore its input, how to run it, and what was seen.

    ``samples_s`` are what the alignment of the ranks makes of their times, in seconds; ``own_s`` is the sum of this
    rank's own durations over the same iterations, ``late`` how many more do not count because a rank was late.
    ``stop`` says which rule ended sampling.
    """

    prepare: Callable[[], None]
    run: Callable[[], None]
    samples_s: list[float] = field(default_factory=list)
    own_s: float = 0.0
    late: int = 0
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


def run_round(
    aligned: Alignment, contestants: Sequence[Contestant], order: Sequence[int], starts: Any, ends: Any, late: Any
) -> None:
    """Run each contestant once, in the given order; write when it started and ended on this rank's clock, in ns.

    The input is restored and the ranks are aligned outside the timed part.
    """
    clock, align = aligned.clock, aligned.align
    for index in order:
        contestant = contestants[index]
        contestant.prepare()
        run = contestant.run
        late[index] = align() or 0
        start = clock()
        run()
        ends[index] = clock()
        starts[index] = start


def run_rounds(
    aligned: Alignment,
    contestants: Sequence[Contestant],
    rounds: int,
    random: Random | None = None,
    *,
    blocked: bool = False,
) -> Any:
    """Run some rounds, interleaved in random order if given one; return the samples, a row for each that counts.

    ``blocked`` has each contestant run all its rounds one after the other, as loops over one algorithm do. A round in
    which a rank was late for any contestant counts for none, so that rows stay pairs.
    """
    starts, ends, late = np.zeros((3, rounds, len(contestants)), np.int64)
    order = list(range(len(contestants)))
    turns = [(number, order) for number in range(rounds)]
    if blocked:
        turns = [(number, [index]) for index in order for number in range(rounds)]
    aligned.begin()
    for number, turn in turns:
        if random is not None:
            random.shuffle(turn)
        run_round(aligned, contestants, turn, starts[number], ends[number], late[number])
    ends = starts + (ends - starts) // aligned.calls
    samples, count = aligned.samples(starts, ends, late)
    own = ((ends - starts)[count] * 1e-9).sum(axis=0)
    for contestant, own_s in zip(contestants, own.tolist(), strict=True):
        contestant.own_s += own_s
        contestant.late += int(rounds - count.sum())
    return samples[count]


def sample(
    aligned: Alignment, contestants: Sequence[Contestant], settings: Settings, deadline: float, seed: str
) -> None:
    """Sample all contestants until each meets the stopping rule; ``deadline`` is on rank 0's ``time.perf_counter``.

    Rank 0 decides after each batch of rounds and tells the others, so that all take the same decision. A batch is as
    long as all before it together, or what the budget leaves.
    """
    random = Random(seed)  # the same order on all ranks
    comm, active = aligned.comm, list(contestants)
    for contestant in active:
        contestant.own_s, contestant.late = 0.0, 0  # what the warm-up left there
    batch = min(settings.min_samples, settings.max_samples)
    collecting = gc.isenabled()
    gc.disable()
    try:
        while active:
            start = time.perf_counter()
            values = run_rounds(aligned, active, batch, random, blocked=settings.order == "blocked")
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
    taken = len(active[0].samples_s) + active[0].late
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
    if not samples:
        return False
    middle, low, high = median_interval(samples)
    return low is not None and high is not None and high - low <= precision * middle

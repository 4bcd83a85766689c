"""Ranks that come late on purpose: to see who waits for them, and how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from ringbench.records.straggler import Straggler

#: A sleep ends some tenths of a ms late: what is shorter is waited for, and so is the end of what is longer.
SPUN_S = 1e-3


def pause(seconds: float) -> None:
    """Do nothing for so long, exact to some microseconds."""
    end = time.perf_counter() + seconds
    if seconds > 2 * SPUN_S:
        time.sleep(seconds - SPUN_S)
    while time.perf_counter() < end:
        pass


class Delays:
    """Tell how late this rank is, time after time; all ranks must ask equally often, so that they take turns.

    The jitter of each rank is drawn by a generator of its own, from a seed and its number: the same in every job.
    """

    def __init__(self, straggler: Straggler, rank: int, nranks: int, seed: str) -> None:
        straggler.check_ranks(nranks)
        self._straggler, self._rank, self._nranks = straggler, rank, nranks
        self._random = Random(f"{seed} {rank}")
        self._turn = 0

    def next(self, base_s: float) -> float:
        """Return the seconds by which this rank is late now, where what is disturbed takes ``base_s``."""
        one = self._straggler
        victim = self._turn % self._nranks if one.rank is None else one.rank
        self._turn += 1
        late = one.delay.of(base_s) if one.delay is not None and victim == self._rank else 0.0
        return late + (self._random.uniform(0.0, one.jitter.of(base_s)) if one.jitter is not None else 0.0)


class LateCall:
    """Make a call; from ``begin`` on late. ``late_s`` is how late all ``made`` calls were in sum."""

    __slots__ = ("_base_s", "_delays", "_run", "late_s", "made")

    def __init__(self, run: Callable[[], object], delays: Delays) -> None:
        self._run, self._delays = run, delays
        self._base_s: float | None = None
        self.late_s, self.made = 0.0, 0

    def begin(self, base_s: float) -> None:
        """Be late from now on; ``base_s`` is what shares of delays are of."""
        self._base_s = base_s

    def __call__(self) -> None:
        """Wait, and make the call."""
        if self._base_s is None:
            self._run()
            return
        seconds = self._delays.next(self._base_s)
        self.made += 1
        if seconds > 0:
            start = time.perf_counter()
            pause(seconds)
            self.late_s += time.perf_counter() - start
        self._run()

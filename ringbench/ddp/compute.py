"""How the layers of a workload pass their time: asleep, or at work on the device."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter, sleep
from typing import Protocol

from ringbench.runtime.arrays import backend_for

#: Elements of an operation that is repeated: in a CPU's cache, and long enough for NumPy to let other threads run.
ELEMENTS = 2**15

#: How often the operation is timed, and for how long each time.
TRIES, TRY_S = 9, 0.01

Poll = Callable[[], None]


class Compute(Protocol):
    """Let time pass as a layer's computing does."""

    def begin(self) -> None:
        """Start a step: what was owed before is over."""

    def run(self, seconds: float, poll: Poll) -> None:
        """Compute for so long, letting reductions go on now and then."""


class Sleep:
    """Sleep up to deadlines that follow each other, so that what one sleep takes too long, the next one is shorter.

    For machines with fewer cores than ranks: computing then costs no core.
    """

    def __init__(self, polls: int = 1) -> None:
        self._polls, self._deadline = polls, 0.0

    def begin(self) -> None:
        """Count deadlines from now on."""
        self._deadline = perf_counter()

    def run(self, seconds: float, poll: Poll) -> None:
        """Sleep until so much later than the last deadline."""
        for _ in range(self._polls):
            self._deadline += seconds / self._polls
            left = self._deadline - perf_counter()
            if left > 0:
                sleep(left)
            poll()


class Work:
    """Repeat an addition of known duration on the device, as often as fits; fractions are owed to the next layer.

    The duration is the median of several tries, made by all ranks at once: what a rank's core gives beside the others.
    """

    def __init__(self, device: str, polls: int = 1) -> None:
        self._polls, self._owed = polls, 0.0
        backend = backend_for(device)
        self._one, self._other = backend.empty(ELEMENTS, "float32"), backend.empty(ELEMENTS, "float32")
        self._one[...] = 0
        self._other[...] = 0
        self._add, self._synchronize = backend.kernel("sum"), backend.synchronize
        self.each_s = 1.0
        self.each_s = self._calibrate()

    def _calibrate(self) -> float:
        times = []
        for _ in range(TRIES):
            start, number = perf_counter(), 0
            while perf_counter() - start < TRY_S:
                self._repeat(16)
                number += 16
            times.append((perf_counter() - start) / number)
        return median(times)

    def _repeat(self, number: int) -> None:
        add, one, other = self._add, self._one, self._other
        for _ in range(number):
            add(one, other, one)
        self._synchronize()

    def begin(self) -> None:
        """Owe nothing."""
        self._owed = 0.0

    def run(self, seconds: float, poll: Poll) -> None:
        """Add so often that it takes about so long."""
        for _ in range(self._polls):
            self._owed += seconds / self._polls / self.each_s
            number = int(self._owed)
            self._owed -= number
            self._repeat(number)
            poll()


def compute_named(name: str, device: str, polls: int) -> Compute:
    """Return the way to compute: ``sleep`` or ``work``."""
    return Sleep(polls) if name == "sleep" else Work(device, polls)

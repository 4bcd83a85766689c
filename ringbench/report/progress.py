"""The lines that say how far a job is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ringbench.records.row import Row
from ringbench.records.settings import Settings
from ringbench.records.units import format_seconds, format_size


@dataclass(slots=True, kw_only=True)
class Progress:
    """Count finished cases, and what is left of the time budget.

    ``done`` cases of ``total`` were finished before; the budget of this job ends at ``end`` on the monotonic clock, and
    jobs after it may take ``after`` seconds more.
    """

    done: int
    total: int
    end: float
    after: float
    clock: Callable[[], float] = time.monotonic

    def line(self, row: Row) -> str:
        """Return the line of one more finished case."""
        self.done += 1
        middle, low, high = row.summary
        if row.wrong:
            result = f"WRONG ({row.wrong} elements; {row.wrong_detail})"
        elif middle is None:
            result = row.reason or "no samples"
        elif low is None or high is None:
            result = format_seconds(middle)
        else:
            result = f"{format_seconds(middle)} [{format_seconds(low)}, {format_seconds(high)}]"
        place = "in place" if row.in_place else "out of place"
        name = f"N={row.nranks} {row.collective} {row.algorithm} {format_size(row.nbytes)} {place}"
        return f"[{self.done}/{self.total}] {name}: {result}; {self._left()}"

    def current(self, settings: Settings, nranks: int, cases: int) -> str:
        """Return what is measured once so many cases of this job are finished: all algorithms of a size in turns.

        An empty text where none is left.
        """
        groups = settings.cells
        at = cases // len(settings.algorithms)
        if at >= len(groups):
            return ""
        nbytes, in_place = groups[at]
        place = "in place" if in_place else "out of place"
        name = f"N={nranks} {settings.collective} {format_size(nbytes)} {place}"
        return f"[{self.done}/{self.total}] {self._left()}; now {name}: {', '.join(settings.algorithms)}"

    def _left(self) -> str:
        return f"at most {max(0.0, self.end - self.clock()) + self.after:.0f} s of measuring left"

"""The cost of an added byte from additions that were timed by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ringbench.model.curve import FEWEST, Array, Reduction, Search
from ringbench.model.intervals import redraw
from ringbench.model.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Hold gamma [s/B] of one reduction, and what redrawn measurements say of it; None where none were drawn."""

    gamma: float
    drawn: Array | None


def timed_additions(points: Sequence[Point], resamples: int) -> dict[Reduction, Addition]:
    """Return the slope of the time of bare additions over their length; calling one costs something too.

    Nothing where those of one operation or type were not timed at three lengths.
    """
    adding: dict[Reduction, list[Point]] = defaultdict(list)
    for point in points:
        if point.reduced:
            adding[point.reduction].append(point)
    found = {}
    for reduction, members in sorted(adding.items()):
        if len({nbytes for point in members for _, nbytes, _ in point.additions}) < FEWEST:
            return {}
        found[reduction] = _slope(members, resamples)
    return found


def leave_time(timed: Mapping[Reduction, Addition], points: Iterable[Point]) -> bool:
    """Say whether timed additions are shorter than each collective that needs them.

    Where they are not, those inside are others than those that were timed, and come from cache for instance.
    """
    return all(
        point.reduced * timed[point.reduction].gamma < point.time_s for point in points if point.reduction in timed
    )


def _slope(points: Sequence[Point], resamples: int) -> Addition:
    # Algorithms that took turns share what was timed beside them.
    bare: dict[tuple[int, int, int], dict[int, float]] = {}
    rows = {}
    for point in points:
        for launch, nbytes, seconds in point.additions:
            cell = (point.row.nranks, point.row.nbytes, nbytes)
            bare.setdefault(cell, {})[launch] = seconds
            rows[cell] = point
    lines = [
        replace(
            rows[cell],
            time_s=float(np.median(list(launches.values()))),
            launches=tuple((launch, (seconds,)) for launch, seconds in launches.items()),
            messages=((float(cell[2]), 1.0),),
            reduced=0.0,
        )
        for cell, launches in bare.items()
    ]
    search = Search(lines)
    line = search.rivals(search.shapes[0])
    drawn = redraw(lines, line, resamples).betas[:, 0] if resamples else None
    return Addition(gamma=line[0][0].betas[0], drawn=drawn)

"""The cost of an added byte from additions that were timed by themselves, where messages do not tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ringbench.model.curve import FEWEST, FLOOR, Array, Curve, Reduction, Search, curve_from, solve
from ringbench.model.intervals import Redrawn, redraw
from ringbench.model.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Hold gamma [s/B] of one ``reduction``, and what redrawn measurements say of it; None where none were drawn."""

    reduction: Reduction
    gamma: float
    drawn: Array | None


def timed_addition(points: Sequence[Point], resamples: int) -> Addition | None:
    """Return the slope of the time of bare additions over their length; calling one costs something too.

    None where they were not measured at three lengths, or are of several operations or types: then no single cost is
    inside that of a byte moved.
    """
    adding = [point for point in points if point.reduced]
    lengths = {nbytes for point in adding for _, nbytes, _ in point.additions}
    if len(lengths) < FEWEST or len({point.reduction for point in adding}) > 1:
        return None
    # Algorithms that took turns share what was timed beside them.
    bare: dict[tuple[int, int, int], dict[int, float]] = {}
    rows = {}
    for point in adding:
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
    line = search.shapes[0]
    columns = search.columns(line)
    curve = curve_from(line, solve(columns, search.times)[0])
    drawn = redraw(lines, [(curve, columns, 1.0)], resamples).betas[:, 0] if resamples else None
    return Addition(reduction=adding[0].reduction, gamma=curve.betas[0], drawn=drawn)


def told_apart(
    curve: Curve, redrawn: Redrawn | None, addition: Addition, share: float, longest: float
) -> tuple[Curve, Redrawn | None] | None:
    """Return a curve and its redrawings with the additions taken out of the cost of a byte moved.

    ``share`` bytes are added for each byte moved, ``longest`` are those of the longest message. What the curve says of
    schedules with that share stays as it is. None where the additions would take longer than the steps do: then the
    steps' are others than those that were timed, and come from cache for instance.
    """
    betas = np.array(curve.betas) - share * addition.gamma
    ends = (*curve.shape.breaks, longest)
    if any(-beta * end > FLOOR * curve.step(end) for beta, end in zip(betas, ends, strict=True)):
        return None
    apart = replace(
        curve,
        shape=replace(curve.shape, reductions=(addition.reduction,)),
        betas=tuple(map(float, np.maximum(0.0, betas))),
        gammas=(addition.gamma,),
    )
    if redrawn is None or addition.drawn is None:
        return apart, redrawn
    costs = addition.drawn[:, None]
    return apart, replace(redrawn, betas=np.maximum(0.0, redrawn.betas - share * costs), gammas=costs)

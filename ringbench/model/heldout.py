"""How far a fit is off where it has not looked: one rank count, or one size, left out at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10
from statistics import fmean, median
from typing import Any

import numpy as np

from ringbench.model.curve import FEWEST, Search
from ringbench.model.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Hold points and the times [s] that the others predict of them; ``left`` says what was left out together."""

    left: str
    points: tuple[Point, ...]
    predicted_s: tuple[float, ...]

    @property
    def errors(self) -> list[float]:
        """Return the relative errors, positive where too long a time is predicted."""
        return [time / point.time_s - 1 for point, time in zip(self.points, self.predicted_s, strict=True)]

    @property
    def mape(self) -> float:
        """Return the mean absolute error as a fraction."""
        return fmean(map(abs, self.errors))

    @property
    def median(self) -> float:
        """Return the median absolute error as a fraction."""
        return median(map(abs, self.errors))

    @property
    def worst(self) -> tuple[float, Point]:
        """Return the largest error, with its sign, and where it is."""
        return max(zip(self.errors, self.points, strict=True), key=lambda pair: abs(pair[0]))

    @property
    def bias(self) -> dict[int, float]:
        """Return the mean signed error for each decade of the vector's size, by the bytes at which it begins."""
        decades: dict[int, list[float]] = defaultdict(list)
        for error, point in zip(self.errors, self.points, strict=True):
            decades[10 ** floor(log10(point.row.nbytes) + 1e-9)].append(error)
        return {decade: fmean(errors) for decade, errors in sorted(decades.items())}

    @property
    def regrets(self) -> list[tuple[float, Point]]:
        """Return by how much the algorithm with the least predicted time is slower than the best, cell by cell.

        Only cells count in which several algorithms were measured.
        """
        cells: dict[tuple[Any, ...], list[tuple[float, Point]]] = defaultdict(list)
        for point, time in zip(self.points, self.predicted_s, strict=True):
            row = point.row
            cells[row.collective, row.op, row.dtype, row.nranks, row.nbytes].append((time, point))
        found = []
        for members in cells.values():
            if len(members) > 1:
                chosen = min(members, key=lambda member: member[0])[1]
                found.append((chosen.time_s / min(point.time_s for _, point in members) - 1, chosen))
        return found


def hold_out(points: Sequence[Point], search: Search, left: str) -> HeldOut | None:
    """Predict the points of each value of ``left`` (``nranks`` or ``nbytes``) from a fit to all others.

    None where there are no two values, or the others have too few lengths of messages for a line.
    """
    values = np.array([getattr(point.row, left) for point in points])
    kept, predicted = [], []
    for value in np.unique(values):
        rest = values != value
        if search.has[rest].any(axis=0).sum() < FEWEST or rest.sum() < FEWEST:
            continue
        curve, _ = search.best(rest)
        for at in map(int, np.flatnonzero(~rest)):
            kept.append(points[at])
            predicted.append(curve.time(points[at].messages, points[at].reduced, points[at].reduction))
    return HeldOut(left=left, points=tuple(kept), predicted_s=tuple(predicted)) if kept else None


def median_error(held: Iterable[HeldOut | None]) -> float:
    """Return the median absolute error of all that was left out, 0 where nothing was."""
    return median([abs(error) for one in held if one is not None for error in one.errors] or [0.0])


def only(held: HeldOut | None, points: Iterable[Point]) -> HeldOut | None:
    """Return what was predicted of some points, None where one of them is missing."""
    if held is None:
        return None
    known = dict(zip(map(id, held.points), held.predicted_s, strict=True))
    chosen = tuple(points)
    if any(id(point) not in known for point in chosen):
        return None
    return HeldOut(left=held.left, points=chosen, predicted_s=tuple(known[id(point)] for point in chosen))


def instead(held: HeldOut | None, others: Iterable[HeldOut | None]) -> HeldOut | None:
    """Return the predictions with those of some points replaced."""
    if held is None:
        return None
    known = dict(zip(map(id, held.points), held.predicted_s, strict=True))
    for other in others:
        if other is not None:
            known |= dict(zip(map(id, other.points), other.predicted_s, strict=True))
    return HeldOut(left=held.left, points=held.points, predicted_s=tuple(known[id(one)] for one in held.points))

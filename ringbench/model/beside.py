"""Predictions of a fit beside what was measured of cells that it has not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ringbench.model.heldout import HeldOut
from ringbench.model.points import Point
from ringbench.model.predict import Prediction
from ringbench.records.row import Row

#: What a prediction and a measured cell share.
CELL = ("collective", "algorithm", "op", "dtype", "device", "in_place", "nranks", "nbytes")


def split_ranks(rows: Iterable[Row], ranks: Sequence[int]) -> tuple[list[Row], list[Row]]:
    """Part rows into those of some rank counts, to be fitted, and all others; raise ValueError where one has none."""
    rows = list(rows)
    known = sorted({row.nranks for row in rows})
    missing = [nranks for nranks in ranks if nranks not in known]
    if missing:
        raise ValueError(f"no rows on {missing[0]} ranks to fit; there are rows on {', '.join(map(str, known))}")
    return [row for row in rows if row.nranks in ranks], [row for row in rows if row.nranks not in ranks]


def beside(predictions: Sequence[Prediction], points: Iterable[Point]) -> tuple[list[Prediction], list[HeldOut]]:
    """Return the predictions with what was measured, and how far they are off for each device and placement.

    ``points`` are cells that were left out of the fit.
    """
    measured = {_cell(point.row): point for point in points}
    found, pairs = [], defaultdict(list)
    for one in predictions:
        point = measured.get(_cell(one))
        if point is not None:
            pairs[one.device, one.in_place].append((point, one.predicted_s))
            one = replace(one, measured_s=point.time_s, error=one.predicted_s / point.time_s - 1)
        found.append(one)
    held = []
    for members in pairs.values():
        cells, times = zip(*members, strict=True)
        held.append(HeldOut(left="nranks", points=cells, predicted_s=times))
    return found, held


def _cell(one: Prediction | Row) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in CELL)

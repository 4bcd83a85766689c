"""One line of the bandwidth table for each cell, whatever the number of launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from ringbench.model.resample import SEED, pooled_median, resampled
from ringbench.records.row import KEY, MANNER, Row
from ringbench.records.stats import NOISY, interval_ranks, launch_confidence


def table_cells(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the flat lines of the bandwidth table, launches of one cell pooled, in the order of first appearance.

    The median is that over launches of their medians; its 95 % interval comes from drawing launches, then the samples
    of each; ``launch_confidence`` says how much of that the number of launches allows. One launch keeps the
    order-statistic interval of its samples. Fewer than 6 samples in all have no interval.
    """
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cell = tuple(getattr(row, name) for name in (*KEY, *MANNER) if name != "launch")
        cells.setdefault(cell, []).append(row)
    return [_pooled(members) for members in cells.values()]


def _pooled(members: Sequence[Row]) -> dict[str, Any]:
    first = members[0]
    wrong = [row.wrong for row in members if row.wrong is not None]
    right = [row for row in members if row.samples_s]
    if len(members) == 1:
        return first.table_cell()
    if not right:
        return {**first.table_cell(), "launches": len(members), "wrong": sum(wrong) if wrong else None}
    launches = [row.samples_s for row in right]
    middle = pooled_median(launches)
    samples = sum(map(len, launches))
    low, high = None, None
    if interval_ranks(samples) is not None:  # a few means that another tool printed allow none
        low, high = map(float, np.percentile(resampled(launches, np.random.default_rng(SEED)), [2.5, 97.5]))
    warnings = dict.fromkeys(text for row in members for text in row.warnings if text != "noisy")
    if low is not None and high is not None and high - low > NOISY * middle:
        warnings["noisy"] = None
    shown = replace(right[0], samples_s=(middle,), wrong=sum(wrong) if wrong else None)
    averages = [row.rank_average for row in right if row.rank_average is not None]
    means = [mean for row in right for mean in row.rank_means_s]
    limits = [row.limit_s / row.summary[0] for row in right if row.limit_s and row.summary[0]]
    return {
        **shown.table_cell(),
        "ci_low_s": low,
        "ci_high_s": high,
        "min_s": min(map(min, launches)),
        "max_s": max(map(max, launches)),
        "osu_avg_s": median(averages) if averages else None,
        "osu_min_s": min(means, default=None),
        "osu_max_s": max(means, default=None),
        "samples": samples,
        "launches": len(members),
        "launch_confidence": launch_confidence(len(right)),
        "warnings": list(warnings),
        "stop": "+".join(sorted({row.stop for row in right if row.stop})) or None,
        "of_limit": median(limits) if limits and not any(wrong) else None,
    }

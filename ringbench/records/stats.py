"""The statistics every number goes through: median and its order-statistic interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

CONFIDENCE = 0.95

#: An interval wider than this share of the median is a warning.
NOISY = 0.10


@lru_cache(maxsize=4096)
def interval_ranks(n: int, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Return the 0-based order statistics that bound the median of ``n`` samples with ``confidence``.

    Distribution-free: the count of samples below the median is binomial(n, 1/2). The narrowest symmetric pair that
    holds at least ``confidence``; None where even the extremes do not (fewer than 6 samples at 95 %). David and
    Nagaraja, Order Statistics, 2003, section 7.1.
    """
    tail, inside = 0.0, None
    for low in range((n + 1) // 2):
        tail += math.exp(math.lgamma(n + 1) - math.lgamma(low + 1) - math.lgamma(n - low + 1) - n * math.log(2))
        if 1 - 2 * tail < confidence:
            break
        inside = low
    return None if inside is None else (inside, n - 1 - inside)


def median_interval(samples: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the median of the samples and the ends of its 95 % interval (None, None for fewer than 6 samples)."""
    ordered = sorted(samples)
    ranks = interval_ranks(len(ordered))
    if ranks is None:
        return median(ordered), None, None
    return median(ordered), ordered[ranks[0]], ordered[ranks[1]]


def launch_confidence(launches: int) -> float | None:
    """Return how surely the range of so many launches holds the median launch, 95 % at most; None for one.

    Whatever is drawn anew from a few launches stays within their range, which lies above the median, or below it,
    with probability 2^-launches each.
    """
    return None if launches < 2 else min(CONFIDENCE, 1 - 2.0 ** (1 - launches))

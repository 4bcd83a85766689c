"""What a row's own samples and result say against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from ringbench.records.row import Row
from ringbench.records.stats import NOISY
from ringbench.records.straggler import NOBODY

SHORT_TICKS = 100

#: Under roundtime: the share of a time that clocks may be off by, and the share of rounds that may be dropped.
CLOCKS, LATE = 0.05, 0.10

#: Fewer samples show neither two groups nor how the first differ from the rest.
FEWEST = 20

#: A drift is a shift of the median by this share, and one that chance makes in 1 of 100 calm cells (two-sided z).
DRIFT, DRIFT_Z, DRIFT_FEWEST = 0.05, 2.576, 16

#: Two groups: medians this far apart as a ratio, and this many times the wider interquartile range.
APART, SEPARATION, SMALLEST_SHARE = 1.10, 3.5, 0.10

#: The warm-up was too short where so many first samples lie above this share of the rest.
EARLY, EARLY_SHARE, EARLY_RATIO = 3, 0.90, 1.10


def row_warnings(row: Row, tick: float) -> tuple[str, ...]:
    """Return the names of the guards that a row's samples and result raise; ``tick`` is the clock's, in seconds."""
    middle, low, high = row.summary
    samples = row.samples_s
    raised = {
        "short": middle is not None and middle < SHORT_TICKS * tick,
        "noisy": bool(middle) and (low is None or high is None or high - low > NOISY * (middle or 0.0)),
        "clocks": bool(middle) and (row.clock_error_s or 0.0) > CLOCKS * (middle or 0.0),
        "late": row.late > LATE * (row.late + len(samples)),
        "drift": drifts(samples, tick),
        "bimodal": bimodal(samples, tick),
        "settling": settles(samples, tick),
        "disturbed": row.straggler != NOBODY,
        "bits differ": row.identical_bits is False,
        "wrong": bool(row.wrong),
    }
    return tuple(name for name, holds in raised.items() if holds)


def drifts(samples: Sequence[float], tick: float = 0.0) -> bool:
    """Say whether the second half of the samples differs from the first, in either direction.

    The medians must be 5 % apart, and a rank test (Mann-Whitney with the normal approximation, corrected for ties) must
    find the halves unlike at 1 %: the first keeps out what does not matter, the second what chance does. No
    distribution is assumed, and outliers count by their rank alone.
    """
    half = len(samples) // 2
    if len(samples) < DRIFT_FEWEST:
        return False
    first, second = samples[:half], samples[half:]
    shift = abs(median(second) - median(first))
    return shift > max(DRIFT * median(samples), 2 * tick) and abs(_rank_score(first, second)) > DRIFT_Z


def bimodal(samples: Sequence[float], tick: float = 0.0) -> bool:
    """Say whether the samples form two groups apart from each other, each with a tenth of them or more.

    Their logarithms are cut where the variance between the two groups is largest (Otsu 1979), after the outermost 5 %
    at each end were moved in, so that no outlier draws the cut to itself. The medians of the groups must be 10 % apart,
    and 3.5 times the larger interquartile range: halves of one normal distribution are 1.6 apart.
    """
    if len(samples) < FEWEST or min(samples) <= 0:
        return False
    ordered = sorted(samples)
    logs = [math.log(sample) for sample in ordered]
    cut = _largest_variance_between(logs)
    low, high = logs[:cut], logs[cut:]
    distance = median(high) - median(low)
    wider = max(_interquartile(low), _interquartile(high))
    ticks_apart = median(ordered[cut:]) - median(ordered[:cut]) > 2 * tick
    return ticks_apart and distance >= math.log(APART) and distance >= SEPARATION * wider


def settles(samples: Sequence[float], tick: float = 0.0) -> bool:
    """Say whether the first samples are slower than the rest: pages, caches or connections that the warm-up left.

    Each of the first three must lie above nine tenths of the others (by chance in 1 of 1000 calm cells), and their
    median 10 % above that of the others.
    """
    if len(samples) < FEWEST:
        return False
    first, rest = samples[:EARLY], sorted(samples[EARLY:])
    middle = median(rest)
    slower = median(first) - middle > max((EARLY_RATIO - 1) * middle, 2 * tick)
    return slower and min(first) > rest[int(EARLY_SHARE * len(rest))]


def _rank_score(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how many standard deviations the rank sum of the first lies from what chance expects."""
    every = sorted([*first, *second])
    rank: dict[float, float] = {}
    ties = 0
    start = 0
    while start < len(every):
        end = start
        while end < len(every) and every[end] == every[start]:
            end += 1
        rank[every[start]] = (start + 1 + end) / 2  # the mean of the ranks that the equal ones have together
        ties += (end - start) ** 3 - (end - start)
        start = end
    n = len(every)
    variance = len(first) * len(second) / 12 * (n + 1 - ties / (n * (n - 1)))
    expected = len(first) * (n + 1) / 2
    return (sum(rank[value] for value in first) - expected) / math.sqrt(variance) if variance > 0 else 0.0


def _largest_variance_between(ordered: Sequence[float]) -> int:
    """Return how many of the sorted values belong to the lower of two groups, neither of them too small."""
    n = len(ordered)
    least = max(3, math.ceil(SMALLEST_SHARE * n))
    end = n // 20
    moved = [min(max(value, ordered[end]), ordered[n - 1 - end]) for value in ordered]
    total, below = sum(moved), sum(moved[: least - 1])
    best, cut = -1.0, least
    for size in range(least, n - least + 1):
        below += moved[size - 1]
        between = (below / size - (total - below) / (n - size)) ** 2 * size * (n - size)
        if between > best:
            best, cut = between, size
    return cut


def _interquartile(ordered: Sequence[float]) -> float:
    return ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]

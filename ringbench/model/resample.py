"""The median over launches, and how far it would move if launches and samples were drawn anew."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
SEED = 20090101

Array = NDArray[np.float64]


def pooled_median(launches: Sequence[Sequence[float]]) -> float:
    """Return the median over launches of each launch's median."""
    return median(median(samples) for samples in launches)


def resampled(launches: Sequence[Sequence[float]], random: np.random.Generator) -> Array:
    """Return bootstrap replicates of the pooled median: launches drawn first, then the samples of each."""
    medians = np.empty((RESAMPLES, len(launches)))
    drawn = random.integers(len(launches), size=medians.shape)
    for launch, samples in enumerate(launches):
        hit = drawn == launch
        medians[hit] = resampled_medians(np.sort(samples), int(hit.sum()), random)
    replicates: Array = np.median(medians, axis=1)
    return replicates


def pooled_ratio(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Return the median over launches of the ratio of two algorithms' medians, each pair measured in one launch."""
    return median(median(one) / median(other) for one, other in pairs)


def resampled_ratios(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], random: np.random.Generator) -> Array:
    """Return bootstrap replicates of the pooled ratio: launches drawn first, then the samples of both sides.

    What makes a launch fast or slow as a whole, such as where its memory lies, drops out of a ratio within it.
    """
    ratios = np.empty((RESAMPLES, len(pairs)))
    drawn = random.integers(len(pairs), size=ratios.shape)
    for launch, sides in enumerate(pairs):
        hit = drawn == launch
        one, other = (resampled_medians(np.sort(side), int(hit.sum()), random) for side in sides)
        ratios[hit] = one / other
    replicates: Array = np.median(ratios, axis=1)
    return replicates


def resampled_medians(ordered: Array, replicates: int, random: np.random.Generator) -> Array:
    """Return the medians of ``replicates`` resamples of the ordered samples, without drawing the resamples.

    The middle of n uniform draws is beta distributed, and where n is even the next one above it is the least of the
    draws that remain; both point at samples by their rank. Same distribution, no n by 1000 array. David and Nagaraja,
    Order Statistics, 2003, section 2.
    """
    n = len(ordered)
    middle = (n + 1) // 2
    below = random.beta(middle, n - middle + 1, replicates)
    above = below if n % 2 else below + (1 - below) * random.beta(1, n - middle, replicates)
    picked = [ordered[np.minimum((place * n).astype(np.intp), n - 1)] for place in (below, above)]
    halfway: Array = (picked[0] + picked[1]) / 2
    return halfway

"""How far a fitted curve would move if launches and samples were drawn anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringbench.model.curve import Array, Curve, Reduction, curve_from, solve
from ringbench.model.points import Messages, Point
from ringbench.model.resample import SEED, resampled_medians

RESAMPLES = 1000

#: So many redrawn problems are reduced at once.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrawn:
    """Hold what each redrawing of the measurements would have given: a line for each, a column for each parameter.

    ``over`` says what was drawn: ``launches`` where some cell has several, else ``samples``.
    """

    alphas: Array
    betas: Array
    gammas: Array
    over: str

    def times(self, curve: Curve, messages: Messages, reduced: float, reduction: Reduction) -> Array:
        """Return the times that the redrawn curves say."""
        total: Array = np.zeros(len(self.alphas))
        for length, number in messages:
            at = curve.shape.segment(length)
            total += number * (self.alphas[:, at] + self.betas[:, at] * length)
        if reduction in curve.shape.reductions:
            total += reduced * self.gammas[:, curve.shape.reductions.index(reduction)]
        return total


def relative_errors(points: Sequence[Point], curve: Curve) -> Array:
    """Return what the curve says of each point, as a deviation from what was measured, by which it is divided."""
    return np.array([curve.time(one.messages, one.reduced, one.reduction) / one.time_s - 1 for one in points])


def scatter(points: Sequence[Point], curve: Curve) -> float:
    """Return the standard deviation of the points about the curve, as a fraction of the time."""
    free = max(1, len(points) - curve.shape.unknowns)
    return float(np.sqrt((relative_errors(points, curve) ** 2).sum() / free))


def redraw(points: Sequence[Point], curve: Curve, columns: Array, resamples: int = RESAMPLES) -> Redrawn:
    """Fit the shape of a curve again to measurements drawn anew; ``columns`` is its design.

    Where cells have several launches, launches are drawn (for all sizes of one rank count together, as one launch
    measures them all); otherwise samples are. Points scatter about a curve by more than launches and samples explain,
    since no curve is the whole truth: what is missing is added at random, its size as uncertain as the number of points
    leaves it.
    """
    random = np.random.default_rng(SEED)
    drawn = _deviations(points, random, resamples)
    free = max(1, len(points) - curve.shape.unknowns)
    missing = max(0.0, scatter(points, curve) ** 2 - float(drawn.var(axis=0).mean()))
    size = np.sqrt(missing * free / random.chisquare(free, resamples))
    drawn += random.normal(size=drawn.shape) * size[:, None]
    times = np.array([point.time_s for point in points])
    found = np.concatenate(
        [_solved(columns, times * np.exp(part)) for part in np.array_split(drawn, -(-resamples // _AT_ONCE))]
    )
    curves = [curve_from(curve.shape, line) for line in found]
    several = any(len(point.launches) > 1 for point in points)
    return Redrawn(
        alphas=np.maximum(0.0, [one.alphas for one in curves]),
        betas=np.array([one.betas for one in curves]),
        gammas=np.array([one.gammas for one in curves]).reshape(resamples, -1),
        over="launches" if several else "samples",
    )


def interval(values: Array, estimate: float) -> tuple[float, float]:
    """Return the 95 % interval of redrawn values, 0 where it reaches 0.

    Dividing by what was measured draws a fit to points that are too low. A redrawn fit does so once more: the interval
    is moved back by twice that. Efron 1982, the bias-corrected percentiles. The estimate is never outside.
    """
    low, middle, high = np.percentile(values, [2.5, 50, 97.5])
    bias = 2 * (middle - estimate) if low > 0 else 0.0
    return max(0.0, min(float(low - bias), estimate)), max(float(high - bias), estimate)


def _deviations(points: Sequence[Point], random: np.random.Generator, resamples: int) -> Array:
    """Return by how much the logarithm of each point's time deviates in each redrawing."""
    found = np.zeros((resamples, len(points)))
    launched: dict[int, list[int]] = defaultdict(list)
    for at, point in enumerate(points):
        if len(point.launches) > 1:
            launched[point.row.nranks].append(at)
        else:
            samples = np.sort(point.launches[0][1])
            found[:, at] = np.log(np.maximum(resampled_medians(samples, resamples, random), 1e-12) / point.time_s)
    for members in launched.values():
        ids = sorted({launch for at in members for launch, _ in points[at].launches})
        draws = random.integers(len(ids), size=(resamples, len(ids)))
        for at in members:
            own = {launch: float(np.log(np.median(samples))) for launch, samples in points[at].launches}
            medians = np.array([own.get(launch, np.nan) for launch in ids])
            picked = medians[draws]
            picked[np.isnan(picked).all(axis=1)] = np.log(points[at].time_s)
            middle = np.nanmedian(picked, axis=1) if len(own) < len(ids) else np.median(picked, axis=1)
            # The median of two is their mean, whose variance drawing from two halves; of more it is not too small.
            found[:, at] = (middle - np.log(points[at].time_s)) * (np.sqrt(2) if len(own) == 2 else 1.0)
    return found


def _solved(columns: Array, times: Array) -> Array:
    """Return the unknowns of each line of times, by a triangle of the problem's own size where none is at its bound."""
    relative = columns / times[:, :, None]
    scale = np.linalg.norm(relative, axis=1)
    scale[scale == 0] = 1.0
    relative /= scale[:, None, :]
    unit, triangle = np.linalg.qr(relative)
    right = unit.sum(axis=1)
    found = np.empty((len(times), columns.shape[1]))
    for at in range(len(times)):
        diagonal = np.abs(np.diag(triangle[at]))
        if diagonal.min() > 1e-9:
            free = np.linalg.solve(triangle[at], right[at])
            if free.min() >= 0:
                found[at] = free / scale[at]
                continue
        found[at] = solve(columns, times[at])[0]
    return found

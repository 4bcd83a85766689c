"""How far a fitted curve would move if launches and samples were drawn anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ringbench.model.curve import Array, Curve, Reduction, parameters, solve
from ringbench.model.points import Messages, Point
from ringbench.model.resample import RESAMPLES, SEED, resampled_medians

#: The logarithm of the largest factor that is added at random: one point too many than unknowns bounds nothing.
MOST = 5.0

#: Drawing from 3 to 20 normal values makes the variance of their median larger by this on average (1.12 to 1.38). The
#: median of two is their mean, whose variance it halves.
MEDIANS = 1.2

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


def redraw(
    points: Sequence[Point],
    rivals: Sequence[tuple[Curve, Array, float]],
    resamples: int = RESAMPLES,
    known: Mapping[Reduction, Array] | None = None,
) -> Redrawn:
    """Fit the shapes of curves again to measurements drawn anew, each as often as its weight says.

    ``rivals`` are curves, their designs and weights; the first is the best. Where cells have several launches, launches
    are drawn, otherwise samples. Points scatter about a curve by more than launches and samples explain, since no curve
    is the whole truth: what is missing is added at random, its size as uncertain as the number of points leaves it.
    ``known`` are costs of additions that were measured by themselves, each drawn as often.
    """
    random = np.random.default_rng(SEED)
    drawn = _deviations(points, random, resamples)
    curve = rivals[0][0]
    free = max(1, len(points) - curve.shape.unknowns)
    missing = max(0.0, scatter(points, curve) ** 2 - float(drawn.var(axis=0).mean()))
    size = np.sqrt(missing * free / random.chisquare(free, resamples))
    drawn += np.clip(random.normal(size=drawn.shape) * size[:, None], -MOST, MOST)
    times = np.array([point.time_s for point in points]) * np.exp(drawn)
    added = np.zeros_like(times)
    for reduction, costs in (known or {}).items():
        added += np.outer(costs, [point.reduced * (point.reduction == reduction) for point in points])
    shares = 1 - added / times
    ends = np.round(np.cumsum([weight for _, _, weight in rivals]) * resamples).astype(int)
    parts = []
    for (one, columns, _), lines in zip(rivals, np.split(np.arange(resamples), ends[:-1]), strict=True):
        if len(lines):
            found = np.concatenate(
                [
                    _solved(columns, times[part], shares[part])
                    for part in np.array_split(lines, -(-len(lines) // _AT_ONCE))
                ]
            )
            alphas, betas, gammas = parameters(one.shape, found)
            if known:
                gammas = np.stack([costs[lines] for costs in known.values()], axis=1)
            pairs = ((alphas, one.alphas), (betas, one.betas), (gammas, one.gammas))
            parts.append([_unbiased(*pair) for pair in pairs])
    alphas, betas, gammas = (np.concatenate(same) for same in zip(*parts, strict=True))
    several = any(len(point.launches) > 1 for point in points)
    return Redrawn(alphas=alphas, betas=betas, gammas=gammas, over="launches" if several else "samples")


def _unbiased(values: Array, estimates: Sequence[float]) -> Array:
    """Return redrawn values, a column for each estimate, none below 0.

    Redrawn fits divide by what was drawn, which draws them to points that are too low: what does not reach 0 is moved
    back by that.
    """
    low, middle = np.percentile(values, [2.5, 50], axis=0)
    moved: Array = np.maximum(0.0, values - np.where(low > 0, middle - np.array(estimates), 0.0))
    return moved


def interval(values: Array, estimate: float) -> tuple[float, float]:
    """Return the 95 % interval of redrawn values. The estimate is never outside."""
    low, high = np.percentile(values, [2.5, 97.5])
    return min(float(low), estimate), max(float(high), estimate)


def _deviations(points: Sequence[Point], random: np.random.Generator, resamples: int) -> Array:
    """Return by how much the logarithm of each point's time deviates in each redrawing, by nothing on average."""
    found = np.zeros((resamples, len(points)))
    launched: dict[int, list[int]] = defaultdict(list)
    for at, point in enumerate(points):
        if len(point.launches) > 1:
            launched[point.row.nranks].append(at)
        else:
            samples = np.sort(point.launches[0][1])
            found[:, at] = np.log(np.maximum(resampled_medians(samples, resamples, random), 1e-12) / point.time_s)
    for members in launched.values():
        found[:, members] = _relaunched([points[at] for at in members], random, resamples)
    centred: Array = found - found.mean(axis=0)
    return centred


def _relaunched(points: Sequence[Point], random: np.random.Generator, resamples: int) -> Array:
    """Return the deviations of the points of one rank count, all of which the same launches measured.

    What a launch as a whole does to all of them, as a line over the logarithm of the size, is drawn by launch; what is
    left, by launch and point.
    """
    ids = sorted({launch for point in points for launch, _ in point.launches})
    logs = np.full((len(points), len(ids)), np.nan)
    for line, point in zip(logs, points, strict=True):
        for launch, samples in point.launches:
            line[ids.index(launch)] = np.log(np.median(samples))
    logs -= np.nanmedian(logs, axis=1, keepdims=True)
    sizes = np.log([point.row.nbytes for point in points])
    terms = np.stack([np.ones(len(points)), sizes - sizes.mean()], axis=1)[:, : 2 if len(set(sizes)) > 2 else 1]
    known = np.nan_to_num(logs)
    common = terms @ np.linalg.lstsq(terms, known, rcond=None)[0]
    launches = random.integers(len(ids), size=(resamples, 1, len(ids)))
    each = random.integers(len(ids), size=(resamples, len(points), len(ids)))
    at = np.arange(len(points))[:, None]
    found: Array = np.median(common[at, launches] + (known - common)[at, each], axis=2)
    found *= np.sqrt(2 if len(ids) == 2 else 1 / MEDIANS)
    return np.asarray(found)


def _solved(columns: Array, times: Array, shares: Array) -> Array:
    """Return the unknowns of each line of times, by a triangle of the problem's own size where none is at its bound."""
    relative = columns / times[:, :, None]
    scale = np.linalg.norm(relative, axis=1)
    scale[scale == 0] = 1.0
    relative /= scale[:, None, :]
    unit, triangle = np.linalg.qr(relative)
    right = np.einsum("lpu,lp->lu", unit, shares)
    diagonal = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    sound = diagonal.min(axis=1) > 1e-9
    found = np.full((len(times), columns.shape[1]), -1.0)
    found[sound] = np.linalg.solve(triangle[sound], right[sound][:, :, None])[:, :, 0] / scale[sound]
    for at in np.flatnonzero(found.min(axis=1) < 0):
        found[at] = solve(columns, times[at], shares[at])[0]
    return found

"""The step curve: the time of one message against its length, in segments chosen by an information criterion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ringbench.model.points import Messages, Point

Array = NDArray[np.float64]

#: Every segment has so many message lengths, and points, at least.
FEWEST = 3

MOST_SEGMENTS = 3

#: Relative errors below it are no reason for another segment: no model of a machine is truer than that.
FLOOR = 0.02

#: Steps to the least squares of a logarithm; a handful is enough.
_STEPS = 10

#: Places at which a curve may break; where there are more lengths, neighbours are looked at together.
MOST_PLACES = 24

Reduction = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Say where a curve breaks [B] and whether it jumps there (a protocol changes) or bends (a cache is full).

    ``reductions`` are those whose cost is told apart from that of the messages.
    """

    breaks: tuple[float, ...] = ()
    jumps: tuple[bool, ...] = ()
    reductions: tuple[Reduction, ...] = ()

    @property
    def segments(self) -> int:
        """Return the number of segments."""
        return len(self.breaks) + 1

    @property
    def lines(self) -> int:
        """Return the number of latencies to be found: a segment after a bend has none of its own."""
        return 1 + sum(self.jumps)

    @property
    def unknowns(self) -> int:
        """Return the number of unknowns of the linear problem: latencies, then slopes, then costs of additions."""
        return self.lines + self.segments + len(self.reductions)

    def segment(self, nbytes: float) -> int:
        """Return the number of the segment in which a message of this length lies."""
        return int(np.searchsorted(self.breaks, nbytes, side="left"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Hold t(m) = alpha + m beta for each segment, and gamma for each reduction, all at or above 0, in s and s/B."""

    shape: Shape
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    gammas: tuple[float, ...] = ()

    def step(self, nbytes: float) -> float:
        """Return the time of one message."""
        at = self.shape.segment(nbytes)
        return self.alphas[at] + self.betas[at] * nbytes

    def gamma(self, reduction: Reduction) -> float | None:
        """Return the cost of an added byte, None where it is not told apart."""
        return dict(zip(self.shape.reductions, self.gammas, strict=True)).get(reduction)

    def time(self, messages: Messages, reduced: float = 0.0, reduction: Reduction | None = None) -> float:
        """Return the time of messages one after the other, and of the additions between them."""
        gamma = self.gamma(reduction) if reduction else None
        return sum(number * self.step(length) for length, number in messages) + reduced * (gamma or 0.0)


def curve_from(shape: Shape, unknowns: Array) -> Curve:
    """Return the curve that a solution of the linear problem stands for."""
    alphas, betas, gammas = (tuple(map(float, line[0])) for line in parameters(shape, unknowns[None]))
    return Curve(shape=shape, alphas=alphas, betas=betas, gammas=gammas)


def parameters(shape: Shape, unknowns: Array) -> tuple[Array, Array, Array]:
    """Return alpha and beta of every segment and every gamma, for each line of unknowns."""
    lines, betas, gammas = np.split(unknowns, [shape.lines, shape.lines + shape.segments], axis=1)
    alphas = [lines[:, 0]]
    for at, (place, jump) in enumerate(zip(shape.breaks, shape.jumps, strict=True)):
        bent = alphas[-1] + (betas[:, at] - betas[:, at + 1]) * place
        alphas.append(lines[:, sum(shape.jumps[: at + 1])] if jump else bent)
    return np.stack(alphas, axis=1), betas, gammas


def solve(columns: Array, times: Array, shares: Array) -> tuple[Array, float]:
    """Return the unknowns >= 0 with the least sum of squared relative errors, and that sum.

    Relative, because times span many decades: absolute errors would let the largest size alone decide everything.
    ``shares`` are the parts of the times that the unknowns have to explain.
    """
    from scipy.optimize import nnls

    relative = columns / times[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    found, residual = nnls(relative / scale, shares)
    return found / scale, float(residual) ** 2


def level(columns: Array, times: Array, added: Array, unknowns: Array) -> Array:
    """Return unknowns about which times lie a factor above as often as below it, beginning with those of ``solve``.

    Dividing by what was measured draws a fit to what is too low: by a twentieth where points scatter by a quarter, by
    nothing that counts where they scatter by less than ``FLOOR``. Least squares of the logarithm do not. Each step
    solves them as they look near the last (Gauss and Newton's way); one that makes the sum larger is the last.
    """
    best, loss = unknowns, np.inf
    scatter = ((columns @ unknowns + added) / times - 1) ** 2
    for _ in range(_STEPS if scatter.mean() > FLOOR**2 else 0):
        modelled = columns @ unknowns + added
        deviations = np.log(times / modelled)
        if not (deviations**2).sum() < loss * (1 - 1e-9):
            break
        best, loss = unknowns, float((deviations**2).sum())
        unknowns, _ = solve(columns, modelled, 1 + deviations - added / modelled)
    return best


class Search:
    """Look for the curve that explains points best, or explains some of them: what they share is prepared once."""

    def __init__(
        self,
        points: Sequence[Point],
        reductions: Iterable[Reduction] = (),
        known: Mapping[Reduction, float] | None = None,
    ) -> None:
        """Prepare to find the cost of ``reductions``; that of ``known`` ones is taken for granted, in s/B."""
        self.times = np.array([point.time_s for point in points])
        self.reductions = tuple(reductions)
        self.known = dict(known or {})
        self.added = np.array([point.reduced * self.known.get(point.reduction, 0.0) for point in points])
        self.shares = 1 - self.added / self.times
        self.lengths = sorted({length for point in points for length, _ in point.messages})
        where = {length: at for at, length in enumerate(self.lengths)}
        self.has = np.zeros((len(points), len(self.lengths)), dtype=bool)
        for line, point in zip(self.has, points, strict=True):
            line[[where[length] for length, _ in point.messages]] = True
        self.shapes, self.edges = self._shapes()
        self.sums = _Sums(points, sorted({place for shape in self.shapes for place in shape.breaks}), self.reductions)
        self.parts = [self.sums.combination(shape) for shape in self.shapes]
        self.penalties = np.array([shape.unknowns + len(shape.breaks) for shape in self.shapes], dtype=np.float64)
        # What all shapes with as many unknowns, or segments, have in common is computed for all of them at once.
        sizes = np.array([shape.unknowns for shape in self.shapes])
        self.alike = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
        self.stacks = [np.stack([self.parts[at] for at in members]) for members in self.alike]
        few = len(points) <= self.sums.columns.shape[1]
        self.designs = [self.sums.columns @ stack for stack in self.stacks] if few else None
        broken = [edges for edges in self.edges if len(edges) > 2]
        spans = sorted({span for edges in broken for span in pairwise(edges)})
        number = {span: at for at, span in enumerate(spans)}
        self.spans = np.array(spans, dtype=np.intp).reshape(-1, 2)
        # Which points have messages in which span.
        before = np.pad(np.cumsum(self.has, axis=1, dtype=np.int32), ((0, 0), (1, 0)))
        self.inside = before[:, self.spans[:, 1]] > before[:, self.spans[:, 0]]
        # A single line has no spans to look at: the last column is always long enough.
        self.segments = np.full((len(self.shapes), MOST_SEGMENTS), len(spans))
        for line, edges in zip(self.segments, self.edges, strict=True):
            if len(edges) > 2:
                line[: len(edges) - 1] = [number[span] for span in pairwise(edges)]

    def best(self, chosen: NDArray[np.bool_] | None = None) -> tuple[Curve, float]:
        """Return the curve with the least Bayesian information criterion, and that criterion.

        One to three segments; each break is a jump, with a latency of its own behind it, or a bend, and counts as an
        unknown. With n points, k unknowns and relative errors e: n ln(2 %^2 + mean e^2) + k ln n (Schwarz 1978); with
        no more than two points for an unknown also 2 k (k + 1) / (n - k - 1) (Hurvich and Tsai 1989).
        """
        chosen = np.ones(len(self.times), dtype=bool) if chosen is None else chosen
        times, shares, columns = self.times[chosen], self.shares[chosen], self.sums.columns[chosen]
        bounds = self._bounds(chosen)
        allowed = self._allowed(chosen)
        best: tuple[float, int, Array] | None = None
        for at in np.argsort(bounds, kind="stable"):
            if best is not None and bounds[at] >= best[0]:
                break  # where unknowns may be negative the criterion is never worse
            if allowed[at]:
                unknowns, residual = solve(columns @ self.parts[at], times, shares)
                score = float(_criterion(np.array(residual), len(times), self.penalties[at]))
                if min(self._curve(at, unknowns).alphas) >= 0 and (best is None or score < best[0]):
                    best = score, at, unknowns
        assert best is not None  # a single line is always allowed
        score, at, unknowns = best
        return self._levelled(at, columns, times, self.added[chosen], unknowns), score

    def rivals(self, shape: Shape) -> list[tuple[Curve, Array, float]]:
        """Return curves that break where a shape does, their columns, and how well each explains the points.

        That of the shape itself is the first. At each break the line may jump or bend, which measurements often tell
        badly. How well adds up to 1: weights follow from the criterion (Burnham and Anderson 2002, section 2.9).
        """
        best = self.shapes.index(replace(shape, reductions=self.reductions))
        alike = [at for at, edges in enumerate(self.edges) if edges == self.edges[best] and at != best]
        found = []
        for at in (best, *alike):
            columns = self.sums.columns @ self.parts[at]
            unknowns, residual = solve(columns, self.times, self.shares)
            one = self._levelled(at, self.sums.columns, self.times, self.added, unknowns)
            if min(one.alphas) >= 0:
                score = float(_criterion(np.array(residual), len(self.times), self.penalties[at]))
                found.append((one, columns, score))
        weights = np.exp(-0.5 * np.array([score - found[0][2] for _, _, score in found]))
        weights /= weights.sum()
        return [(one, columns, float(weight)) for (one, columns, _), weight in zip(found, weights, strict=True)]

    def _levelled(self, at: int, sums: Array, times: Array, added: Array, unknowns: Array) -> Curve:
        """Return the curve of levelled unknowns, unless a latency behind a bend would then be below 0."""
        found = self._curve(at, level(sums @ self.parts[at], times, added, unknowns))
        return found if min(found.alphas) >= 0 else self._curve(at, unknowns)

    def _curve(self, at: int, unknowns: Array) -> Curve:
        """Return the curve of one of the shapes, with the cost of additions that was known before."""
        found = curve_from(self.shapes[at], unknowns)
        if not self.known:
            return found
        return replace(
            found, shape=replace(found.shape, reductions=tuple(self.known)), gammas=tuple(self.known.values())
        )

    def _shapes(self) -> tuple[list[Shape], list[list[int]]]:
        """Return all shapes whose segments have enough lengths, and between which lengths they break."""
        lengths = self.lengths
        places = [at for at in range(FEWEST, len(lengths) - FEWEST + 1) if lengths[at] > 1.02 * lengths[at - 1]]
        if len(places) > MOST_PLACES:
            places = [places[round(at)] for at in np.linspace(0, len(places) - 1, MOST_PLACES)]
        shapes, cuts = [], []
        for number in range(MOST_SEGMENTS):
            for chosen in combinations(places, number):
                edges = [0, *chosen, len(lengths)]
                if number and min(end - first for first, end in pairwise(edges)) < FEWEST:
                    continue
                for jumps in product((True, False), repeat=number):
                    # A jump lies between two lengths, a bend as likely at one.
                    middles = [sqrt(lengths[at - 1] * lengths[at]) for at in chosen]
                    breaks = tuple(
                        middle if jump else lengths[at - 1]
                        for middle, jump, at in zip(middles, jumps, chosen, strict=True)
                    )
                    shapes.append(Shape(breaks=breaks, jumps=jumps, reductions=self.reductions))
                    cuts.append(edges)
        return shapes, cuts

    def _allowed(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Say which shapes leave every segment three lengths and three points; a single line always does."""
        seen = np.concatenate([[0], np.cumsum(self.has[chosen].any(axis=0))])
        first, end = self.spans.T
        fewer = np.minimum(self.inside[chosen].sum(axis=0), seen[end] - seen[first])
        enough = np.append(fewer >= FEWEST, True)
        found: NDArray[np.bool_] = enough[self.segments].all(axis=1)
        return found

    def _bounds(self, chosen: NDArray[np.bool_]) -> Array:
        """Return for each shape what its criterion would be if unknowns might be negative."""
        points, whole = int(chosen.sum()), float((self.shares[chosen] ** 2).sum())
        residuals = np.empty(len(self.shapes))
        for members, (left, right) in zip(self.alike, self._normal(chosen), strict=True):
            norm = np.sqrt(np.maximum(np.diagonal(left, axis1=1, axis2=2), 1e-300))
            left, right = left / norm[:, :, None] / norm[:, None, :], right / norm
            left += 1e-11 * np.eye(left.shape[1])  # of unknowns that nothing tells apart any will do
            explained = (right * np.linalg.solve(left, right[:, :, None])[:, :, 0]).sum(axis=1)
            residuals[members] = whole - explained
        # A little below, for what that and rounding do to sums of squares.
        return _criterion(np.maximum(residuals, 0.0), points, self.penalties) - 1e-3

    def _normal(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[Array, Array]]:
        """Yield the normal equations of relative errors, of all shapes with as many unknowns at once."""
        times, shares = self.times[chosen], self.shares[chosen]
        if self.designs is not None:  # fewer points than what shapes are put together from: straight away
            for design in self.designs:
                relative = design[:, chosen] / times[:, None]
                yield relative.transpose(0, 2, 1) @ relative, shares @ relative
            return
        relative = self.sums.columns[chosen] / times[:, None]
        scale = np.linalg.norm(relative, axis=0)
        scale[scale == 0] = 1.0
        relative /= scale
        squares, straight = relative.T @ relative, shares @ relative
        for stack in self.stacks:
            parts = stack * scale[:, None]
            yield parts.transpose(0, 2, 1) @ (squares @ parts), straight @ parts


def _criterion(residual: Array, points: int, penalty: Array) -> Array:
    few = 2 * penalty * (penalty + 1) / np.maximum(points - penalty - 1, 0.1)
    found: Array = points * np.log(FLOOR**2 + residual / points) + penalty * np.log(points)
    return found + np.where(points <= 2 * penalty, few, 0.0)


class _Sums:
    """Hold what all shapes with breaks at some places are put together from.

    ``columns`` has for each point the number and the bytes of its messages in each interval between neighbouring
    places, then what it adds for each reduction.
    """

    def __init__(self, points: Sequence[Point], places: Sequence[float], reductions: tuple[Reduction, ...]) -> None:
        self.places = list(places)
        self.cells = len(self.places) + 1
        self.columns = np.zeros((len(points), 2 * self.cells + len(reductions)))
        for line, point in zip(self.columns, points, strict=True):
            for length, number in point.messages:
                at = int(np.searchsorted(self.places, length, side="left"))
                line[at] += number
                line[self.cells + at] += number * length
            if point.reduction in reductions:
                line[2 * self.cells + reductions.index(point.reduction)] = point.reduced

    def combination(self, shape: Shape) -> Array:
        """Return which multiples of the columns make up the unknowns of a shape.

        After a bend a message pays the earlier slope up to the bend and its own beyond, so the line goes on.
        """
        found = np.zeros((self.columns.shape[1], shape.unknowns))
        edges = [0, *(self.places.index(place) + 1 for place in shape.breaks), self.cells]
        first = line = 0
        for at in range(shape.segments):
            if at and shape.jumps[at - 1]:
                first, line = at, line + 1
            numbers, nbytes = slice(edges[at], edges[at + 1]), slice(self.cells + edges[at], self.cells + edges[at + 1])
            found[numbers, line] = 1.0
            starts = [0.0 if earlier == first else shape.breaks[earlier - 1] for earlier in range(first, at + 1)]
            for earlier in range(first, at):
                found[numbers, shape.lines + earlier] = shape.breaks[earlier] - starts[earlier - first]
            found[nbytes, shape.lines + at] = 1.0
            found[numbers, shape.lines + at] = -starts[-1]
        for at in range(len(shape.reductions)):
            found[2 * self.cells + at, shape.lines + shape.segments + at] = 1.0
        return found

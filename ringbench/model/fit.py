"""Fit alpha and beta, the cost of a message and of a byte, to measured rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.guards import CROWDED, GUARDS
from ringbench.records.row import MANNER, Row
from ringbench.records.units import format_size
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import Algorithm, algorithms

MIN_SIZES = 3
RESAMPLES = 1000
SEED = 20090101

#: Playing all ranks of a ring takes time with the square of their number.
PLAYED = 32

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Hold alpha [s] and beta [s/B] of one group of rows, each with the ends of its interval.

    ``basis`` is ``link`` where the schedule is known: alpha is then the cost of one round and beta that of one byte on
    the critical path, the same at every rank count. It is ``call`` where it is not (the library's own): alpha and beta
    are those of the whole call at one rank count. ``mape`` is the mean and ``worst`` the largest absolute relative
    error, both as fractions. ``bandwidth_gb_per_s`` is 1/beta, None where beta is 0.
    """

    collective: str
    algorithm: str
    alpha_s: float
    alpha_low_s: float
    alpha_high_s: float
    beta_s_per_byte: float
    beta_low_s_per_byte: float
    beta_high_s_per_byte: float
    bandwidth_gb_per_s: float | None
    nranks: str
    basis: str
    dtype: str
    op: str
    device: str
    in_place: bool
    mape: float
    worst: float
    points: int
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fit as one flat dictionary, units in the names."""
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Hold the fits, and the lines that say which rows are in none of them and why."""

    segments: list[Fit]
    notes: list[str]


def fit_rows(rows: Iterable[Row], *, include_oversubscribed: bool = False) -> FitResult:
    """Fit T = rounds * alpha + bytes * beta to the median times of each group of rows.

    A group shares collective, algorithm, op, dtype, device and placement. A registered algorithm is fitted over all
    its rank counts together, with rounds and bytes from the critical path of its schedule; any other name for each
    rank count by itself, with T = alpha + nbytes * beta. Reductions are not told apart from transfers: in most
    algorithms the two grow in a fixed ratio, so gamma is inside beta. Every launch is a point of its own.

    Wrong or unmeasured rows, empty vectors and single ranks are left out, rows whose ranks share cores unless included;
    groups of fewer than 3 sizes are skipped. Raises ValueError saying what is missing where no group is left, and where
    rows differ in what a sample is, or in the buffers that took turns.
    """
    kept, notes = _usable(rows, include_oversubscribed)
    for name in MANNER:
        values = sorted({getattr(row, name) for row in kept})
        if len(values) > 1:
            raise ValueError(f"rows of {name} {' and '.join(map(str, values))}: they are no points of one line")
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in kept:
        groups[_group(row)].append(row)
    segments = []
    for _, members in sorted(groups.items()):
        counts = np.array([_counts(row) for row in members], dtype=np.float64)
        sizes = _fewest_sizes(members, counts)
        if sizes < MIN_SIZES:
            notes.append(
                f"{_title(members)}: not fitted, {_number(sizes, 'distinct size')} where {MIN_SIZES} are needed"
            )
        else:
            segments.append(_fit_group(members, counts))
    if not segments:
        needs = f"nothing to fit: it takes {MIN_SIZES} distinct sizes on 2 or more ranks"
        raise ValueError("; ".join([needs, *(notes or ["there are no rows"])]))
    return FitResult(segments=segments, notes=notes)


def relative_least_squares(rounds: Array, nbytes: Array, times_s: Array) -> tuple[float, float]:
    """Return alpha, beta >= 0 that minimise the sum of squared relative errors of rounds * alpha + nbytes * beta.

    Relative, because times span many decades: absolute residuals would let the largest size alone decide alpha.
    """
    alpha, beta = _solve(_products(rounds, nbytes, times_s).sum(axis=0)[None, :])
    return float(alpha[0]), float(beta[0])


def _usable(rows: Iterable[Row], include_oversubscribed: bool) -> tuple[list[Row], list[str]]:
    kept, left_out = [], Counter[str]()
    for row in rows:
        why = _unfit(row, include_oversubscribed)
        if why is None:
            kept.append(row)
        else:
            left_out[why] += 1
    return kept, [f"{_number(number, 'row')} left out: {why}" for why, number in left_out.items()]


def _unfit(row: Row, include_oversubscribed: bool) -> str | None:
    time = row.summary[0]
    if row.wrong:
        return "wrong result"
    if row.nranks == 1:
        return "N = 1, a single rank sends nothing"
    if row.nbytes == 0:
        return "zero bytes"
    crowded = next((name for name in GUARDS if name in CROWDED and name in row.warnings), None)
    if crowded is not None and not include_oversubscribed:
        return f"{crowded}, {GUARDS[crowded].meaning}"
    if time is None:
        return "no samples"
    return None if time > 0 else "shorter than the clock can tell"


def _schedule(row: Row) -> Algorithm | None:
    """Return the schedule of a row if it is one for all sizes: without chunks by the size, or nodes that were found."""
    known = {(algorithm.collective, algorithm.name): algorithm for algorithm in algorithms()}
    found = known.get((row.collective, row.algorithm))
    return found if found and not {"chunks", "groups"} & dict(found.arguments).keys() else None


def _group(row: Row) -> tuple[Any, ...]:
    nranks = 0 if _schedule(row) else row.nranks
    return row.collective, row.algorithm, row.op, row.dtype, row.device, row.in_place, nranks


def _counts(row: Row) -> tuple[float, float]:
    """Return the factors of alpha and beta: rounds and bytes of the critical path, or one call and its bytes."""
    algorithm = _schedule(row)
    if algorithm is None:
        return 1.0, float(row.nbytes)
    rounds, elements = _critical_path(algorithm, row.nranks, row.count)
    return float(rounds), elements * row.nbytes / row.count


@cache
def _critical_path(algorithm: Algorithm, nranks: int, count: int) -> tuple[float, float]:
    """Return rounds and elements sent on the critical path; played up to PLAYED ranks, by the closed forms beyond.

    The closed form of bytes is that of the busiest rank; how many times as many lie on the critical path (twice, for a
    root that first receives and then sends) is taken from the largest number of ranks that is played.
    """
    if nranks <= PLAYED:
        counted = cost(algorithm, nranks, count)
        return counted.rounds, counted.critical_sent
    size = algorithm.blocks(PLAYED)
    played = cost(algorithm, PLAYED, size)
    share = Fraction(played.critical_sent, played.sent_max) if played.sent_max else Fraction(1)
    return algorithm.rounds(nranks), float(share * algorithm.sent(nranks) * count)


def _fewest_sizes(members: Sequence[Row], counts: Array) -> int:
    """Count distinct sizes, of the vector or of one round's message, whichever are fewer.

    16 B on 2 ranks and 32 B on 4 ranks are two sizes but, for a ring, one message: nothing tells alpha from beta there.
    """
    return min(len({row.nbytes for row in members}), len(np.unique(counts[:, 1] / counts[:, 0])))


def _fit_group(members: Sequence[Row], counts: Array) -> Fit:
    first, algorithm = members[0], _schedule(members[0])
    rounds, nbytes = counts[:, 0], counts[:, 1]
    times = np.array([row.summary[0] for row in members], dtype=np.float64)
    alpha, beta = relative_least_squares(rounds, nbytes, times)
    (alpha_low, alpha_high), (beta_low, beta_high) = _intervals(rounds, nbytes, times, alpha, beta)
    errors = np.abs(rounds * alpha + nbytes * beta - times) / times
    lows = {"alpha": alpha_low, "beta": beta_low}
    return Fit(
        collective=first.collective,
        algorithm=first.algorithm,
        alpha_s=alpha,
        alpha_low_s=alpha_low,
        alpha_high_s=alpha_high,
        beta_s_per_byte=beta,
        beta_low_s_per_byte=beta_low,
        beta_high_s_per_byte=beta_high,
        bandwidth_gb_per_s=1 / beta / 1e9 if beta else None,
        nranks=_rank_counts(members),
        basis="link" if algorithm else "call",
        dtype=first.dtype,
        op=first.op,
        device=first.device,
        in_place=first.in_place,
        mape=float(errors.mean()),
        worst=float(errors.max()),
        points=len(members),
        warnings=(
            *(f"{name} not identified" for name, low in lows.items() if low <= 0),
            *sorted({warning for row in members for warning in row.warnings}),
        ),
    )


def _intervals(
    rounds: Array, nbytes: Array, times: Array, alpha: float, beta: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the 95 % intervals of alpha and beta, from 1000 resamples of the points with a fixed seed.

    They show how much the values depend on which sizes are looked at, so mostly how far the model misses the shape of
    the curve; rows of a single launch say nothing about how the next launch would differ. Resamples in which all
    messages are alike determine no line and are dropped. Rounding does not push the estimate out.
    """
    points = len(times)
    # How often each point was drawn is all that a resample's sums need.
    drawn = np.random.default_rng(SEED).multinomial(points, np.full(points, 1 / points), RESAMPLES)
    _, message = np.unique(nbytes / rounds, return_inverse=True)
    hits = drawn @ np.eye(message.max() + 1)[message]
    drawn = drawn[(hits > 0).sum(axis=1) >= 2]
    alphas, betas = _solve(drawn @ _products(rounds, nbytes, times))
    return _percentiles(alphas, alpha), _percentiles(betas, beta)


def _percentiles(values: Array, estimate: float) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return min(float(low), estimate), max(float(high), estimate)


def _products(rounds: Array, nbytes: Array, times: Array) -> Array:
    """Return one line for each point whose sums over points are all that the normal equations need."""
    x, y = rounds / times, nbytes / times
    return np.stack([x * x, x * y, y * y, x, y], axis=1)


def _solve(sums: Array) -> tuple[Array, Array]:
    """Solve the two normal equations for each line of sums, keeping both unknowns at or above zero."""
    xx, xy, yy, x, y = sums.T
    determinant = xx * yy - xy * xy
    # Relative to its terms, a determinant this small is rounding: the two columns are parallel.
    solvable = determinant > 1e-12 * xx * yy
    divisor = np.where(solvable, determinant, 1.0)
    alpha, beta = (x * yy - y * xy) / divisor, (y * xx - x * xy) / divisor
    inside = solvable & (alpha >= 0) & (beta >= 0)
    # At the boundary one unknown is 0 and the other removes x*x/xx or y*y/yy from the sum of squares: take the larger.
    alone = x * x * yy >= y * y * xx
    alpha = np.where(inside, alpha, np.where(alone, x / xx, 0.0))
    beta = np.where(inside, beta, np.where(alone, 0.0, y / yy))
    return alpha, beta


def _title(members: Sequence[Row]) -> str:
    first = members[0]
    sizes = ", ".join(format_size(nbytes) for nbytes in sorted({row.nbytes for row in members})[:MIN_SIZES])
    place = "in place" if first.in_place else "out of place"
    return (
        f"{first.collective} {first.algorithm} {first.op} {first.dtype} {first.device} {place}, "
        f"N = {_rank_counts(members)} ({sizes})"
    )


def _rank_counts(members: Sequence[Row]) -> str:
    return ",".join(str(nranks) for nranks in sorted({row.nranks for row in members}))


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

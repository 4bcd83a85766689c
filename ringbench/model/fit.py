"""Fit the cost of messages and of additions to measured rows, and see how well it predicts what was left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ringbench.model.addition import Addition, leave_time, timed_additions
from ringbench.model.causes import Facts, cause_of
from ringbench.model.curve import FEWEST, FLOOR, Curve, Reduction, Search
from ringbench.model.heldout import HeldOut, hold_out, instead, median_error, only
from ringbench.model.intervals import Redrawn, interval, redraw, relative_errors, scatter
from ringbench.model.points import CALL, LINK, Point, points_of, separable
from ringbench.model.resample import RESAMPLES
from ringbench.records.row import Row
from ringbench.records.units import format_size

#: Where gamma comes from.
MESSAGES, TIMED = "messages", "timed additions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Hold one segment of a step curve: t(m) = alpha [s] + m beta [s/B] for messages of m bytes, with 95 % intervals.

    ``basis`` is ``link`` where the schedules are known: one curve for all rank counts, algorithms and collectives. It
    is ``call`` where they are not (the library's own): then m is the vector and t a whole call at one rank count.
    ``message_low_nbytes`` and ``message_high_nbytes`` are the shortest and longest message measured in the segment, and
    ``cause`` says what the break before it probably is. ``gamma_s_per_byte`` is the cost of an added byte for this
    ``op`` and ``dtype``, None where it is inside beta; ``gamma_from`` says whether ``messages`` told it apart or
    ``timed additions``. ``mape`` and ``worst`` are the mean and largest relative error
    of the ``points`` with messages in the segment; ``heldout_ranks_...`` and ``heldout_sizes_...`` those of the whole
    curve where one rank count, or one size, was left out, ``heldout_bias`` the signed mean of the latter (else of the
    former) in each decade of sizes that begins at ``heldout_decade_nbytes``. ``regret_mean`` and ``regret_worst`` say
    by how much the algorithm so chosen is slower than the best. ``drawn`` says what the intervals come from: drawing
    ``launches`` or ``samples`` anew. Fractions are fractions, not per cent.
    """

    collective: str
    algorithm: str
    segment: int
    message_low_nbytes: int
    message_high_nbytes: int
    alpha_s: float
    alpha_low_s: float | None
    alpha_high_s: float | None
    beta_s_per_byte: float
    beta_low_s_per_byte: float | None
    beta_high_s_per_byte: float | None
    bandwidth_gb_per_s: float | None
    gamma_s_per_byte: float | None
    gamma_low_s_per_byte: float | None
    gamma_high_s_per_byte: float | None
    reduction_gb_per_s: float | None
    gamma_from: str | None
    cause: str | None
    nranks: str
    basis: str
    dtype: str
    op: str
    device: str
    in_place: bool
    mape: float
    worst: float
    points: int
    heldout_ranks_mape: float | None
    heldout_ranks_worst: float | None
    heldout_sizes_mape: float | None
    heldout_sizes_worst: float | None
    heldout_decade_nbytes: tuple[int, ...]
    heldout_bias: tuple[float, ...]
    regret_mean: float | None
    regret_worst: float | None
    drawn: str | None
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the segment as one flat dictionary, units in the names."""
        lists = ("heldout_decade_nbytes", "heldout_bias", "warnings")
        return {**asdict(self), **{name: list(getattr(self, name)) for name in lists}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Hold one fitted curve: of all schedules of a device and placement, or of the whole calls of one rank count.

    ``redrawn`` is None where no intervals were asked for. ``ranks`` and ``sizes`` are what was predicted of left out
    rank counts and sizes. ``own`` has the curve of an algorithm by itself where that predicts it better.
    ``gamma_from`` says what tells the cost of additions where the curve has one; ``timed`` are the costs of those that
    were timed by themselves, which count unless they leave no time for messages.
    """

    basis: str
    points: tuple[Point, ...]
    curve: Curve
    redrawn: Redrawn | None
    scatter: float
    ranks: HeldOut | None
    sizes: HeldOut | None
    own: dict[tuple[str, str], Model]
    gamma_from: str = MESSAGES
    timed: tuple[float, ...] = ()

    @property
    def lengths(self) -> list[float]:
        """Return the lengths of messages that were measured."""
        return sorted({length for point in self.points for length, _ in point.messages})

    @property
    def nranks(self) -> list[int]:
        """Return the rank counts that were measured."""
        return sorted({point.row.nranks for point in self.points})

    @property
    def share(self) -> float:
        """Return the bytes added for each byte moved that are inside beta: 0 where additions are told apart."""
        return 0.0 if self.curve.shape.reductions else _share(self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Hold the segments, the curves they are of, and the lines that say which rows are in none of them and why."""

    segments: list[Fit]
    models: list[Model]
    notes: list[str]


def fit_rows(
    rows: Iterable[Row],
    *,
    include_oversubscribed: bool = False,
    assume: str | None = None,
    resamples: int = RESAMPLES,
    facts: Facts | None = None,
) -> FitResult:
    """Fit t(m), the time of one step with a message of m bytes, and the cost of additions to the rows of a run.

    Every row's time is the sum of t(m) over the messages of its schedule's critical path, and gamma times the bytes
    added on it. All schedules of one device and placement are fitted together, over all rank counts, algorithms,
    collectives and types: a link carries bytes; only gamma depends on op and dtype. Where nothing tells gamma from
    beta it is inside beta, in the ratio of those rows; additions that were timed by themselves tell it. A name without
    a schedule is fitted for each rank count by itself, as whole calls of the vector's size, unless ``assume`` names the
    algorithm it stands for. Launches of one cell are pooled. ``resamples`` of 0 leaves out the intervals. ``facts`` are
    what is known of the machine.

    See ``points_of`` for what is left out; groups of fewer than 3 sizes are skipped. Raises ValueError saying what is
    missing where no group is left.
    """
    points, notes = points_of(rows, include_oversubscribed=include_oversubscribed, assume=assume)
    groups: dict[tuple[Any, ...], list[Point]] = defaultdict(list)
    for point in points:
        groups[_group(point)].append(point)
    segments, models = [], []
    for _, members in sorted(groups.items()):
        sizes = _fewest_sizes(members)
        if sizes < FEWEST:
            count = f"{sizes} distinct size{'s'[: sizes > 1]}"
            notes.append(f"{_title(members)}: not fitted, {count} where {FEWEST} are needed")
            continue
        models.append(_model(members, resamples))
        segments += _segments(models[-1], facts or Facts())
    if not segments:
        needs = f"nothing to fit: it takes {FEWEST} distinct sizes on 2 or more ranks"
        raise ValueError("; ".join([needs, *(notes or ["there are no rows"])]))
    return FitResult(segments=segments, models=models, notes=notes)


def _group(point: Point) -> tuple[Any, ...]:
    row = point.row
    if point.basis == LINK:
        return row.device, row.in_place, LINK
    return row.device, row.in_place, CALL, row.collective, row.algorithm, row.op, row.dtype, row.nranks


def _fewest_sizes(members: Sequence[Point]) -> int:
    """Count distinct sizes, of the vector or of the messages, whichever are fewer.

    16 B on 2 ranks and 32 B on 4 ranks are two sizes but, for a ring, one message: nothing tells alpha from beta there.
    """
    lengths = {length for point in members for length, _ in point.messages}
    return min(len({point.row.nbytes for point in members}), len(lengths))


def _model(points: Sequence[Point], resamples: int) -> Model:
    timed = timed_additions(points, resamples)
    usable = timed if leave_time(timed, points) else {}
    known = {reduction: one.gamma for reduction, one in usable.items()}
    search = Search(points, () if known else separable(points), known)
    held = {left: hold_out(points, search, left) for left in ("nranks", "nbytes")}
    own: dict[tuple[str, str], Model] = {}
    names: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        names[point.row.collective, point.row.algorithm].append(point)
    for name, members in names.items() if len(names) > 1 else ():
        theirs = {left: only(found, members) for left, found in held.items()}
        if median_error(theirs.values()) <= FLOOR or _fewest_sizes(members) < FEWEST:
            continue
        alone = Search(members, known=known)
        # What the common curve cannot be held to, the own one is not either.
        ours = {left: only(hold_out(members, alone, left), members) if theirs[left] else None for left in held}
        if all(ours[left] for left in held if theirs[left]) and (
            median_error(ours.values()) < median_error(theirs.values())
        ):
            own[name] = _curve_of(members, alone, ours, {}, resamples, timed, usable)
    held = {
        which: instead(found, [one.ranks if which == "nranks" else one.sizes for one in own.values()])
        for which, found in held.items()
    }
    return _curve_of(points, search, held, own, resamples, timed, usable)


def _curve_of(
    points: Sequence[Point],
    search: Search,
    held: dict[str, HeldOut | None],
    own: dict[tuple[str, str], Model],
    resamples: int,
    timed: dict[Reduction, Addition],
    usable: dict[Reduction, Addition],
) -> Model:
    curve, _ = search.best()
    known = {reduction: one.drawn for reduction, one in usable.items() if one.drawn is not None}
    redrawn = redraw(points, search.rivals(curve.shape), resamples, known) if resamples else None
    return Model(
        basis=points[0].basis,
        points=tuple(points),
        curve=curve,
        redrawn=redrawn,
        scatter=scatter(points, curve),
        timed=tuple(one.gamma for one in timed.values()),
        gamma_from=TIMED if usable else MESSAGES,
        ranks=held["nranks"],
        sizes=held["nbytes"],
        own=own,
    )


def _share(points: Sequence[Point]) -> float:
    return float(np.median([point.reduced / point.moved for point in points]))


def _segments(model: Model, facts: Facts) -> list[Fit]:
    """Return one entry for each segment, for every op and dtype where their additions have costs of their own."""
    reductions: tuple[Reduction | None, ...] = model.curve.shape.reductions or (None,)
    return [_segment(model, at, one, facts) for one in reductions for at in range(model.curve.shape.segments)]


def _segment(model: Model, at: int, reduction: Reduction | None, facts: Facts) -> Fit:
    curve, redrawn, row = model.curve, model.redrawn, model.points[0].row
    members = [
        point for point in model.points if any(curve.shape.segment(length) == at for length, _ in point.messages)
    ]
    errors = np.abs(relative_errors(members, curve))
    lengths = [length for length in model.lengths if curve.shape.segment(length) == at]
    alpha, beta, gamma = curve.alphas[at], curve.betas[at], curve.gamma(reduction) if reduction else None
    none: tuple[float | None, float | None] = (None, None)
    alphas, betas, gammas = none, none, none
    if redrawn is not None:
        alphas, betas = interval(redrawn.alphas[:, at], alpha), interval(redrawn.betas[:, at], beta)
        if reduction is not None and gamma is not None:
            gammas = interval(redrawn.gammas[:, curve.shape.reductions.index(reduction)], gamma)
    lows = {"alpha": alphas[0], "beta": betas[0], "gamma": gammas[0]}
    unknown = [f"{name} not identified" for name, low in lows.items() if low is not None and low <= 0]
    if reduction is None and any(point.reduced for point in model.points):
        unknown.append("gamma not identified")
    held = model.sizes or model.ranks
    regrets = [regret for found in (model.ranks, model.sizes) if found for regret, _ in found.regrets]
    return Fit(
        collective=_listed(point.row.collective for point in model.points),
        algorithm=_listed(point.row.algorithm for point in model.points),
        segment=at + 1,
        message_low_nbytes=round(lengths[0]),
        message_high_nbytes=round(lengths[-1]),
        alpha_s=alpha,
        alpha_low_s=alphas[0],
        alpha_high_s=alphas[1],
        beta_s_per_byte=beta,
        beta_low_s_per_byte=betas[0],
        beta_high_s_per_byte=betas[1],
        bandwidth_gb_per_s=_inverse(beta),
        gamma_s_per_byte=gamma,
        gamma_low_s_per_byte=gammas[0],
        gamma_high_s_per_byte=gammas[1],
        reduction_gb_per_s=_inverse(gamma),
        gamma_from=None if gamma is None else model.gamma_from,
        cause=cause_of(curve, at, model.lengths, facts) if at else None,
        nranks=",".join(map(str, model.nranks)),
        basis=model.basis,
        dtype=reduction[1] if reduction else _listed(point.row.dtype for point in model.points),
        op=reduction[0] if reduction else _listed(point.row.op for point in model.points),
        device=row.device,
        in_place=row.in_place,
        mape=float(errors.mean()),
        worst=float(errors.max()),
        points=len(members),
        heldout_ranks_mape=model.ranks.mape if model.ranks else None,
        heldout_ranks_worst=abs(model.ranks.worst[0]) if model.ranks else None,
        heldout_sizes_mape=model.sizes.mape if model.sizes else None,
        heldout_sizes_worst=abs(model.sizes.worst[0]) if model.sizes else None,
        heldout_decade_nbytes=tuple(held.bias) if held else (),
        heldout_bias=tuple(held.bias.values()) if held else (),
        regret_mean=float(np.mean(regrets)) if regrets else None,
        regret_worst=max(regrets, default=None),
        drawn=redrawn.over if redrawn else None,
        warnings=(*unknown, *sorted({warning for point in members for warning in point.warnings})),
    )


def _inverse(cost: float | None) -> float | None:
    return 1 / cost / 1e9 if cost else None


def _listed(names: Iterable[str]) -> str:
    return ",".join(sorted(set(names)))


def _title(members: Sequence[Point]) -> str:
    row = members[0].row
    sizes = ", ".join(format_size(nbytes) for nbytes in sorted({point.row.nbytes for point in members})[:FEWEST])
    names = _listed(f"{point.row.collective} {point.row.algorithm}" for point in members)
    place = "in place" if row.in_place else "out of place"
    ranks = ",".join(str(nranks) for nranks in sorted({point.row.nranks for point in members}))
    return f"{names} {row.op} {row.dtype} {row.device} {place}, N = {ranks} ({sizes})"

"""Predict times of rank counts and sizes that were never run, from a fit or from the links' figures alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import exp, log
from typing import Any

import numpy as np

from ringbench.model.fit import FitResult, Model
from ringbench.model.intervals import interval
from ringbench.model.points import CALL, LINK, Messages, messages_of, schedule_of
from ringbench.model.resample import SEED

#: What lies further outside of the measured rank counts or messages than this factor is marked.
FAR = 2.0

OUTSIDE_RANKS, OUTSIDE_MESSAGES = "outside ranks", "outside messages"
NOT_MEASURED, NO_GAMMA, MODEL_ALONE = "not measured", "gamma not identified", "model alone"
IN_NETWORK = "in_network"

#: Sizes at which one algorithm passes another are looked for on so many steps, then found by halving.
_STEPS = 48

#: The time of an algorithm for a vector of so many bytes [s].
Time = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Hold what one call would take. ``low_s`` and ``high_s`` bound it with 95 %, None where nothing tells.

    ``best`` marks the fastest of a cell, which wins from ``wins_from_nbytes`` to ``wins_to_nbytes`` within the sizes
    asked for. ``measured_s`` is what a run measured of a cell that was not fitted, and ``error`` by what fraction the
    prediction is above it. ``basis`` is ``link`` (the curve of all schedules), ``own`` (the algorithm's own, which
    predicts it better), ``call`` (whole calls at that rank count) or ``given``. ``warnings`` say what is against it.
    """

    collective: str
    algorithm: str
    nranks: int
    nbytes: int
    predicted_s: float
    low_s: float | None
    high_s: float | None
    measured_s: float | None
    error: float | None
    algbw_gb_per_s: float | None
    best: bool
    wins_from_nbytes: int | None
    wins_to_nbytes: int | None
    basis: str
    op: str
    dtype: str
    device: str
    in_place: bool | None
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as one flat dictionary, units in the names."""
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Hold one algorithm at one rank count: its time by size, and all of its prediction but that."""

    base: Prediction
    time: Time
    bounds: Callable[[int], tuple[float | None, float | None]]
    warn: Callable[[int], tuple[str, ...]]


def predict_run(
    result: FitResult, ranks: Sequence[int], sizes: Sequence[int], names: Sequence[str] | None = None
) -> tuple[list[Prediction], list[str]]:
    """Return the predictions of a fit for every rank count and size, and lines on what cannot be predicted.

    ``names`` are those of the algorithms, else all that were measured. What lies more than twice outside the fitted
    rank counts or lengths of messages is marked; whole calls are known at their own rank counts alone. Raises
    ValueError for an algorithm that neither has a schedule nor was measured, and where nothing is left.
    """
    check_cells(ranks, sizes)
    notes: dict[str, None] = {}
    tried: set[str] = set()
    cells: dict[tuple[Any, ...], list[Candidate]] = {}
    for model in result.models:
        for name, collective, op, dtype in _asked(model, names):
            for nranks in ranks:
                try:
                    one = _of_model(model, collective, name, op, dtype, nranks)
                except ValueError as error:
                    notes[str(error)] = None
                    tried.add(name)
                    continue
                base = one.base
                key = (collective, op, dtype, base.device, base.in_place, nranks)
                cells.setdefault(key, []).append(one)
    for key in [key for key in cells if key[0] == "allreduce" and names is None]:
        links = [one for one in result.models if one.basis == LINK and _place(one) == key[3:5]]
        cells[key] += [_in_network(one, cells[key][0].base) for one in links]
    known = {one.base.algorithm for members in cells.values() for one in members}
    unknown = [name for name in names or () if name not in known | tried]
    if unknown or not cells:
        what = f"no rows and no schedule of {', '.join(unknown)}" if unknown else "; ".join(notes) or "no rows"
        raise ValueError(f"nothing to predict: {what}")
    return filled(cells, sizes), list(notes)


def crossovers(times: Mapping[str, Time], low: int, high: int) -> list[tuple[str, int, int]]:
    """Return which algorithm is fastest from which size to which, from ``low`` to ``high`` bytes."""
    grid = sorted({round(exp(at)) for at in np.linspace(log(low), log(high), _STEPS if high > low else 1)})

    def winner(nbytes: int) -> str:
        return min(times, key=lambda name: times[name](nbytes))

    found = [(winner(grid[0]), grid[0], grid[0])]
    for nbytes in grid[1:]:
        name = winner(nbytes)
        before, start, last = found[-1]
        if name == before:
            found[-1] = (before, start, nbytes)
            continue
        left, right = last, nbytes
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if winner(middle) == before else (left, middle)
        found[-1] = (before, start, left)
        found.append((name, right, nbytes))
    return found


def time_of(model: Model, collective: str, name: str, nranks: int, reduction: tuple[str, str]) -> Time:
    """Return the time of an algorithm by size, as a curve of all schedules predicts it."""
    algorithm = schedule_of(collective, name)
    if algorithm is None:
        raise ValueError(f"{collective} {name}: its messages depend on chunks or nodes, or it has no schedule here")
    curve = model.own.get((collective, name), model).curve

    def time(nbytes: int) -> float:
        return curve.time(*messages_of(algorithm, nranks, nbytes), reduction)

    return time


def check_cells(ranks: Sequence[int], sizes: Sequence[int]) -> None:
    """Raise ValueError where a single rank is among the rank counts, or nothing among the sizes."""
    if min(ranks) < 2:
        raise ValueError(f"{min(ranks)} rank: it takes 2 or more to exchange anything")
    if min(sizes) < 1:
        raise ValueError(f"size {min(sizes)}: no bytes take no time to predict")


def _place(model: Model) -> tuple[str, bool]:
    return model.points[0].row.device, model.points[0].row.in_place


def blank(**values: Any) -> Prediction:
    """Return a prediction of which only some fields are known yet."""
    bounds = ("low_s", "high_s", "measured_s", "error", "wins_from_nbytes", "wins_to_nbytes")
    unset = dict.fromkeys((*bounds, "algbw_gb_per_s", "in_place"))
    rest: dict[str, Any] = {"algorithm": "", "nbytes": 0, "predicted_s": 0.0, "best": False, "warnings": ()}
    return Prediction(**{**unset, **rest, **values})


def unbounded(nbytes: int) -> tuple[float | None, float | None]:
    """Return no bounds: nothing tells how far off a model alone is."""
    return None, None


def _asked(model: Model, names: Sequence[str] | None) -> Iterator[tuple[str, str, str, str]]:
    """Yield algorithm, collective, op and dtype of all that a model is asked for."""
    kinds = dict.fromkeys((one.row.collective, one.row.op, one.row.dtype) for one in model.points)
    for collective, op, dtype in kinds:
        measured = dict.fromkeys(
            one.row.algorithm
            for one in model.points
            if (one.row.collective, one.row.op, one.row.dtype) == (collective, op, dtype)
        )
        for name in measured if names is None else names:
            if name in measured or (model.basis == LINK and schedule_of(collective, name)):
                yield name, collective, op, dtype


def _of_model(model: Model, collective: str, name: str, op: str, dtype: str, nranks: int) -> Candidate:
    base = blank(
        collective=collective,
        algorithm=name,
        nranks=nranks,
        op=op,
        dtype=dtype,
        device=_place(model)[0],
        in_place=_place(model)[1],
        basis=model.basis,
    )
    warnings: list[str] = []
    source = model
    if model.basis == CALL:
        if nranks not in model.nranks:
            raise ValueError(
                f"{collective} {name} on {nranks} ranks: whole calls are known on {model.nranks[0]} ranks, and nothing "
                "tells how they go on (a schedule it may be taken for: --assume ring)"
            )

        def path(nbytes: int) -> tuple[Messages, float]:
            return ((float(nbytes), 1.0),), 0.0

    else:
        algorithm = schedule_of(collective, name.removeprefix("mpi as "))
        assert algorithm is not None
        path = partial(messages_of, algorithm, nranks)
        source = model.own.get((collective, name), model)
        base = replace(base, basis=LINK if source is model else "own")
        if not any((one.row.collective, one.row.algorithm) == (collective, name) for one in model.points):
            warnings.append(NOT_MEASURED)
        if not source.nranks[0] / FAR <= nranks <= FAR * source.nranks[-1]:
            warnings.append(OUTSIDE_RANKS)
        messages, reduced = path(2**20)
        moved = sum(length * number for length, number in messages)
        if not source.curve.shape.reductions and abs(reduced / moved - source.share) > 0.1:
            warnings.append(NO_GAMMA)
    lengths = source.lengths

    def warn(nbytes: int) -> tuple[str, ...]:
        asked = [length for length, _ in path(nbytes)[0]]
        outside = min(asked) < lengths[0] / FAR or max(asked) > lengths[-1] * FAR
        return (*warnings, *([OUTSIDE_MESSAGES] if outside else []))

    def bounds(nbytes: int) -> tuple[float | None, float | None]:
        if source.redrawn is None:
            return None, None
        messages, reduced = path(nbytes)
        drawn = source.redrawn.times(source.curve, messages, reduced, (op, dtype))
        about = np.random.default_rng(SEED).normal(0.0, source.scatter, len(drawn))
        return interval(drawn * np.exp(about), source.curve.time(messages, reduced, (op, dtype)))

    def time(nbytes: int) -> float:
        messages, reduced = path(nbytes)
        return source.curve.time(messages, reduced, (op, dtype))

    time(1)  # a schedule with too many messages is refused here
    return Candidate(base=base, time=time, bounds=bounds, warn=warn)


def _in_network(model: Model, like: Prediction) -> Candidate:
    """Return a reduction inside the switches: every rank sends its vector and receives the sum, once."""
    return Candidate(
        base=replace(like, algorithm=IN_NETWORK, basis=LINK),
        time=model.curve.step,
        bounds=unbounded,
        warn=lambda nbytes: (MODEL_ALONE,),
    )


def filled(cells: Mapping[tuple[Any, ...], Sequence[Candidate]], sizes: Sequence[int]) -> list[Prediction]:
    """Return the predictions of all cells, and which algorithm is the fastest in each."""
    found = []
    for members in cells.values():
        times = {one.base.algorithm: one.time for one in members if one.base.algorithm != IN_NETWORK}
        ranges = crossovers(times, min(sizes), max(sizes)) if times else []
        for nbytes in sizes:
            name = min(times, key=lambda name: times[name](nbytes)) if times else None
            wins = [(low, high) for winner, low, high in ranges if winner == name and low <= nbytes <= high]
            found += [_at(one, nbytes, name, wins) for one in members]
    return found


def _at(one: Candidate, nbytes: int, winner: str | None, wins: Iterable[tuple[int, int]]) -> Prediction:
    time, best = one.time(nbytes), one.base.algorithm == winner
    low, high = one.bounds(nbytes)
    wins_from, wins_to = next(iter(wins), (nbytes, nbytes)) if best else (None, None)
    return replace(
        one.base,
        nbytes=nbytes,
        predicted_s=time,
        low_s=low,
        high_s=high,
        algbw_gb_per_s=nbytes / time / 1e9 if time else None,
        best=best,
        wins_from_nbytes=wins_from,
        wins_to_nbytes=wins_to,
        warnings=one.warn(nbytes),
    )

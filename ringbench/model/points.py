"""What a fit is made of: measured rows as points, with the messages and additions that their schedules cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.model.resample import pooled_median
from ringbench.records.guards import CROWDED, GUARDS
from ringbench.records.row import KEY, MANNER, NCCL, Row
from ringbench.records.straggler import NOBODY
from ringbench.schedule.cost import critical_path
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms

LINK, CALL = "link", "call"

#: One message length [B] and how many messages on the path have it.
Messages = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Hold one cell, its launches pooled: how long it takes [s], and what its critical path costs.

    ``messages`` are the path's messages in bytes, each length with its number; ``reduced`` the bytes added on it. Where
    the schedule is not known, a whole call stands for one message of the vector's size. ``additions`` were timed by
    themselves beside it: launch, bytes and seconds of each.
    """

    row: Row
    time_s: float
    launches: tuple[tuple[int, tuple[float, ...]], ...]
    messages: Messages
    reduced: float
    basis: str
    warnings: tuple[str, ...]
    additions: tuple[tuple[int, int, float], ...] = ()

    @property
    def reduction(self) -> tuple[str, str]:
        """Return what the cost of an addition depends on: operation and type."""
        return self.row.op, self.row.dtype

    @property
    def moved(self) -> float:
        """Return the bytes of all messages of the path."""
        return sum(length * number for length, number in self.messages)


def separable(points: Iterable[Point]) -> tuple[tuple[str, str], ...]:
    """Return the reductions whose cost can be told apart from that of messages; none where no one can.

    In ring, Rabenseifner, trees and parameter server bytes moved and added stand in the fixed ratio of 2:1. It takes
    another ratio beside: an all-gather, a reduce-scatter, recursive doubling.
    """
    points = list(points)
    found = dict.fromkeys(point.reduction for point in points if point.reduced)
    for reduction in found:
        shares = [one.reduced / (one.moved or 1.0) for one in points if one.reduction == reduction or not one.reduced]
        if max(shares) - min(shares) > 0.1:
            return tuple(sorted(found))
    return ()


def schedule_of(collective: str, name: str) -> Algorithm | None:
    """Return the schedule of that name if it is one of messages, for all sizes: no chunks by the size, no nodes."""
    found = {algorithm.name: algorithm for algorithm in algorithms(collective)}.get(name)
    if found is None or found.shared is not None or {"chunks", "groups"} & dict(found.arguments).keys():
        return None
    return found


def messages_of(algorithm: Algorithm, nranks: int, nbytes: int) -> tuple[Messages, float]:
    """Return the messages of an algorithm's critical path and what is added on it, in bytes."""
    path = critical_path(algorithm, nranks)
    return tuple((float(length * nbytes), float(n)) for length, n in path.messages), float(path.reduced * nbytes)


def points_of(
    rows: Iterable[Row], *, include_oversubscribed: bool = False, assume: str | None = None
) -> tuple[list[Point], list[str]]:
    """Return the cells of rows that may enter a fit, and lines on how many may not and why.

    Wrong or unmeasured rows, empty vectors and single ranks are left out, rows whose ranks share cores unless included.
    ``assume`` names the algorithm that the library's own calls are taken for. Raises ValueError where rows differ in
    what a sample is, or in the buffers that took turns, and where that algorithm is not known.
    """
    kept, notes = _usable(rows, include_oversubscribed)
    for name in MANNER:
        if name == "memory":  # where a vector lies is as much a part of an algorithm as what is done with it
            continue
        values = sorted({getattr(row, name) for row in kept})
        if len(values) > 1:
            raise ValueError(f"rows of {name} {' and '.join(map(str, values))}: they are no points of one line")
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in kept:
        cells[tuple(getattr(row, name) for name in (*KEY, "memory") if name != "launch")].append(row)
    return [_point(members, assume) for members in cells.values()], notes


def _usable(rows: Iterable[Row], include_oversubscribed: bool) -> tuple[list[Row], list[str]]:
    kept, left_out = [], Counter[str]()
    for row in rows:
        why = _unfit(row, include_oversubscribed)
        if why is None:
            kept.append(row)
        else:
            left_out[why] += 1
    return kept, [f"{number} row{'s'[: number > 1]} left out: {why}" for why, number in left_out.items()]


def _unfit(row: Row, include_oversubscribed: bool) -> str | None:
    time = row.summary[0]
    if row.wrong:
        return "wrong result"
    if row.transfer == NCCL:
        return "NCCL's, whose steps are its own"
    if row.straggler != NOBODY:
        return "ranks were late on purpose"
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


def _point(members: Sequence[Row], assume: str | None) -> Point:
    first = members[0]
    name = assume if assume is not None and first.algorithm == "mpi" else first.algorithm
    algorithm = schedule_of(first.collective, name)
    if algorithm is None and name != first.algorithm:
        algorithm_named(first.collective, name)  # names the known ones
        raise ValueError(f"assume {name!r}: its messages depend on chunks or nodes, which the rows do not tell")
    if algorithm is None:
        one_call: Messages = ((float(first.nbytes), 1.0),)
        messages, reduced = one_call, 0.0
    else:
        messages, reduced = messages_of(algorithm, first.nranks, first.nbytes)
    return Point(
        row=replace(first, algorithm=f"mpi as {name}") if name != first.algorithm else first,
        time_s=pooled_median([row.samples_s for row in members]),
        launches=tuple((row.launch, row.samples_s) for row in members),
        messages=messages,
        reduced=reduced,
        basis=CALL if algorithm is None else LINK,
        warnings=tuple(sorted({warning for row in members for warning in row.warnings})),
        additions=tuple(
            (row.launch, row.addition_nbytes, row.addition_s)
            for row in members
            if row.addition_nbytes and row.addition_s
        ),
    )

"""Which algorithm was fastest, as a run measured it: what ``auto`` stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log
from typing import TypeAlias

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.row import Row
from ringbench.schedule.registry import algorithms

#: The fastest algorithm for each collective, number of ranks and bytes.
Table: TypeAlias = dict[str, dict[int, dict[int, str]]]


def fastest(rows: Iterable[Row], **alike: str) -> Table:
    """Return the fastest hand-written algorithm of every cell; rows of wrong results and of ``auto`` do not count.

    Neither do those of algorithms that are not known here. Where some rows have all the values of ``alike``, such as
    ``dtype="float32"``, only they count. Raises ValueError where no row is left.
    """
    known = {(algorithm.collective, algorithm.name) for algorithm in algorithms()}
    rows = [row for row in rows if (row.collective, row.algorithm) in known]
    rows = [row for row in rows if all(getattr(row, name) == value for name, value in alike.items())] or rows
    best: dict[tuple[str, int, int], tuple[float, str]] = {}
    for row in rows:
        time = row.summary[0]
        if row.usable and time and row.nbytes and row.nranks > 1:
            key = (row.collective, row.nranks, row.nbytes)
            best[key] = min(best.get(key, (time, row.algorithm)), (time, row.algorithm))
    if not best:
        raise ValueError("no right and measured row of a hand-written algorithm to choose by")
    table: Table = {}
    for (collective, nranks, nbytes), (_, name) in best.items():
        table.setdefault(collective, {}).setdefault(nranks, {})[nbytes] = name
    return table


def choose_by(table: Table) -> Callable[[str, int, int], str]:
    """Return what picks the algorithm of the nearest number of ranks and, of those, the nearest size, as ratios.

    It raises ValueError for a collective that was not measured.
    """

    def choose(collective: str, nranks: int, nbytes: int) -> str:
        if collective not in table:
            raise ValueError(f"auto: the run to choose by has no rows of {collective}, but of {', '.join(table)}")
        counts = table[collective]
        sizes = counts[_nearest(counts, nranks)]
        return sizes[_nearest(sizes, nbytes)]

    return choose


def _nearest(known: Iterable[int], wanted: int) -> int:
    return min(known, key=lambda number: (abs(log(number / max(wanted, 1))), number))

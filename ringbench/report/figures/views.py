"""Which rows may stand in one figure: those of one place, measured in one manner, of one collective."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ringbench.model.causes import facts_of
from ringbench.model.compare import differing_places, took_turns
from ringbench.model.fit import FitResult, fit_rows
from ringbench.model.pool import table_cells
from ringbench.records.guards import CROWDED
from ringbench.records.libraries import library_name
from ringbench.records.row import ESTIMAND, Row
from ringbench.records.run import Run
from ringbench.report.figures.style import in_order

#: Rows that differ here never stand in one figure.
MANNER = ("collective", "op", "dtype", "device", "in_place", "buffers", "estimand", "transfer")

#: Rows that differ here are never fitted together; a link carries the bytes of any collective and type.
UNLIKE = ("buffers", "estimand", "transfer")
FITTED = ("device", "in_place", *UNLIKE)

Cell = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Hold runs of one machine and one MPI library, whose rows may be drawn together as further launches.

    ``interleaved`` says that the algorithms took turns.
    """

    name: str
    machine: str
    mpi: str
    rows: tuple[Row, ...]
    jobs: tuple[Mapping[str, Any], ...]
    interleaved: bool

    def title(self, nranks: Iterable[int]) -> str:
        """Return machine, MPI library and rank counts in one line; several nodes by their number."""
        counts = sorted(set(nranks))
        nodes = {len(set(job.get("hosts") or ())) for job in self.jobs if job.get("nranks") in counts}
        machine = f"{max(nodes)} nodes: {self.machine}" if nodes and max(nodes) > 1 else self.machine
        return ", ".join(part for part in (machine, self.mpi, f"N = {', '.join(map(str, counts))}") if part)


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Hold the rows that one figure shows. ``crowded`` says that their ranks shared cores."""

    pool: Pool
    rows: tuple[Row, ...]
    crowded: bool = False

    @cached_property
    def cells(self) -> list[Cell]:
        """Return the lines of the bandwidth table, launches pooled, by size; wrong results are left out."""
        right = [row for row in self.rows if not row.wrong]
        return sorted(table_cells(right), key=lambda cell: (cell["nranks"], cell["nbytes"]))

    @cached_property
    def fitted(self) -> FitResult:
        """Return the fit of the rows, without intervals. Raises ValueError saying why there is none."""
        return fit_rows(self.rows, resamples=0, facts=facts_of(self.pool.jobs))

    @property
    def nranks(self) -> list[int]:
        """Return the rank counts."""
        return sorted({row.nranks for row in self.rows})

    @property
    def title(self) -> str:
        """Return where this was measured on the first line, and what on the second."""
        return self.title_of(self.nranks)

    def title_of(self, nranks: Iterable[int]) -> str:
        """Return the title of a figure that shows only some of the rank counts."""
        row = self.rows[0]
        parts = [
            " ".join(word for word in (row.collective, row.op, row.dtype) if word != "none"),
            row.device,
            "in place" if row.in_place else "out of place",
            f"{row.buffers} sets of buffers in turns" if row.buffers > 1 else "",
            "ranks share cores" if self.crowded else "",
            "" if row.estimand == ESTIMAND else f"a sample is the {row.estimand}",
        ]
        return f"{self.pool.title(nranks)}\n{', '.join(part for part in parts if part)}"

    @property
    def missing(self) -> str:
        """Return why there is nothing to draw, for a figure that found nothing."""
        wrong = sum(bool(row.wrong) for row in self.rows)
        reasons = dict.fromkeys(row.bandwidths()[2] or "" for row in self.rows if not row.wrong)
        words = [f"wrong result in {wrong} of {len(self.rows)} rows"] if wrong else []
        return "; ".join([*words, *filter(None, reasons)]) or "too few rows"


def by_algorithm(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each algorithm, in the order of legends."""
    cells = list(cells)
    names = in_order(cell["algorithm"] for cell in cells)
    return {name: [cell for cell in cells if cell["algorithm"] == name] for name in names}


def is_crowded(row: Row) -> bool:
    """Say whether the ranks of a row shared cores."""
    return bool(CROWDED & set(row.warnings))


def pools(runs: Sequence[Run], keep: Callable[[Row], bool] = lambda row: True) -> list[Pool]:
    """Return the rows to be kept of some runs, together where place and manner of starting are the same.

    Imported runs do not say where they were measured: each stays by itself, as does what differs in machine, MPI
    library, thread level, order of the algorithms, or hosts of the same rank count.
    """
    groups: list[list[Run]] = []
    for run in runs:
        group = next((group for group in groups if all(_alike(run, other) for other in group)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return [_pool(group, keep) for group in groups]


def _alike(one: Run, other: Run) -> bool:
    if "imported" in one.provenance or "imported" in other.provenance:
        return False
    differing = set(differing_places(one, other))
    if not {row.nranks for row in one.rows} & {row.nranks for row in other.rows}:
        differing.discard("hosts")
    return not differing and _machine(one) == _machine(other) and _places(one, other) == _places(other, one)


def _places(run: Run, other: Run) -> set[tuple[str, ...]]:
    """Return where the vectors of a run lay and how their messages went, for the algorithms that another has too."""
    names = {row.algorithm for row in other.rows}
    return {(row.algorithm, row.memory, row.transfer) for row in run.rows if row.algorithm in names}


def _pool(runs: Sequence[Run], keep: Callable[[Row], bool]) -> Pool:
    rows: list[Row] = []
    jobs: list[Mapping[str, Any]] = []
    launches = 0
    for run in runs:
        rows += [replace(row, launch=row.launch + launches, job=row.job + len(jobs)) for row in run.rows if keep(row)]
        jobs += run.jobs
        launches += max((row.launch for row in run.rows), default=-1) + 1
    first = runs[0]
    libraries = dict.fromkeys(_library(job) for job in jobs)
    return Pool(
        name=first.path.resolve().parent.name if first.path.name == "run.jsonl" else first.path.stem,
        machine=_machine(first),
        mpi=" and ".join(filter(None, libraries)) or ("" if "imported" in first.provenance else "MPI not recorded"),
        rows=tuple(rows),
        jobs=tuple(jobs),
        interleaved=all(map(took_turns, runs)),
    )


def _library(job: Mapping[str, Any]) -> str:
    name = library_name(job.get("mpi_library") or "")
    return re.sub(r" v(?=\d)", " ", re.sub(r"(?i)\s*\bversion\b\s*:?\s*", " ", name))


def _machine(run: Run) -> str:
    """Return host and processor, or the tool whose output was imported."""
    imported = run.provenance.get("imported")
    if imported is not None:
        tools = [tool for file in _list(imported) for tool in _list(_mapping(file).get("tools"))]
        names = dict.fromkeys(f"{_word(tool, 'tool')} {_word(tool, 'version')}".strip() for tool in tools)
        return f"{' and '.join(filter(None, names)) or 'another tool'} (machine, MPI not recorded)"
    machine = _mapping(run.provenance.get("machine"))
    cpus = machine.get("cpus")
    about = [_word(machine, "cpu"), f"{cpus} cpus" if isinstance(cpus, int) else ""]
    host, about_text = _word(run.provenance, "host"), ", ".join(filter(None, about))
    return f"{host} ({about_text})" if host and about_text else host or about_text or "machine not recorded"


def _word(values: Any, name: str) -> str:
    value = _mapping(values).get(name)
    return value[:40] if isinstance(value, str) and value.isprintable() else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def views(pool: Pool) -> Iterator[View]:
    """Yield the rows of a pool that share their manner, whatever the rank count."""
    for rows in _split(pool.rows, MANNER):
        yield View(pool=pool, rows=rows, crowded=all(map(is_crowded, rows)))


def views_by_ranks(pool: Pool) -> Iterator[View]:
    """Yield those that share the rank count too, and whether ranks share cores."""
    for rows in _split(pool.rows, (*MANNER, "nranks")):
        for crowded in (False, True):
            chosen = tuple(row for row in rows if is_crowded(row) == crowded)
            if chosen:
                yield View(pool=pool, rows=chosen, crowded=crowded)


def views_to_fit(pool: Pool) -> Iterator[View]:
    """Yield those that one fit is made of."""
    for rows in _split(pool.rows, FITTED):
        yield View(pool=pool, rows=rows, crowded=all(map(is_crowded, rows)))


def rows_to_fit(pool: Pool) -> list[tuple[Row, ...]]:
    """Return rows that were measured in one manner, which a fit takes together."""
    return _split(pool.rows, UNLIKE)


def _split(rows: Iterable[Row], names: Sequence[str]) -> list[tuple[Row, ...]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return [tuple(groups[key]) for key in sorted(groups)]

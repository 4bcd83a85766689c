"""What changed between two runs, in Markdown: for a pull request, or for a ticket after maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ringbench.model.compare import ENOUGH_LAUNCHES
from ringbench.model.resample import pooled_median
from ringbench.records.libraries import library_name
from ringbench.records.row import MANNER, Row
from ringbench.records.run import RUN_FILE, Run
from ringbench.records.units import format_size
from ringbench.report.grid import draw
from ringbench.report.kind import Flat
from ringbench.report.kinds import COMPARE
from ringbench.report.tables import codes, flags, legend, reasons
from ringbench.report.writing import bounds, digits, launches, microseconds, number, one_line, placement

#: What is another in any two runs and means nothing, or is told under another name too.
_VOLATILE = frozenset(
    (
        *("kind", "schema_version", "time", "command", "imported", "slurm.SLURM_JOB_ID", "slurm.SLURM_RESTART_COUNT"),
        *("launch", "nranks", "clocks", "clock_tick_s", "eager_nbytes", "cache_nbytes"),
        *("ranks.ringbench", "ranks.mpi_library", "ranks.host", "ranks.cpus"),
        *("machines.host", "machines.cores", "machines.others_cpus", "machines.shm_free_nbytes"),
    )
)

#: The verdicts in the order in which a reader wants them, and whether their cells stand open.
_SECTIONS = (("slower", True), ("faster", True), ("cannot tell", False), ("same", False))
_NAMES = {"slower": "Slower", "faster": "Faster", "cannot tell": "Cannot tell", "same": "The same"}

_CELL = ("collective", "algorithm", "op", "dtype", "device", "nranks", "in_place", "nbytes")


def render_change(before: Run, after: Run, compared: Sequence[Flat]) -> str:
    """Return what two runs are, what differs in how they were measured, and their cells by verdict, as Markdown.

    ``compared`` are the flat comparisons of ``after`` with ``before``. The counts come first, then who was compared,
    then the cells: slower and faster ones open, the others folded. Pure ASCII.
    """
    letters = codes(compared)
    medians = [_medians(run.rows) for run in (before, after)]
    one, other = facts_of_run(before), facts_of_run(after)
    heads = zip(head_of_run(before, one).items(), head_of_run(after, other).values(), strict=True)
    parts = [
        f"# {_escaped(_name(after))} against {_escaped(_name(before))}",
        _counts(compared),
        _grid(["", "before", "after"], [[name, old, new] for (name, old), new in heads]),
        *_differences(one, other),
    ]
    for verdict, opened in _SECTIONS:
        cells = [row for row in compared if row["verdict"] == verdict]
        if cells:
            title = f"{_NAMES[verdict]}: {number(len(cells), 'cell')}"
            table = _grid(_HEADERS, [_cells(row, medians, letters) for row in cells])
            lines = "\n".join(f"- {_escaped(one_line(line))}" for line in reasons(cells))
            body = f"{table}\n\n{lines}" if lines else table
            folded = f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
            parts.append(f"## {title}\n\n{body}" if opened else folded)
    notes = [*legend(letters), *COMPARE.notes, *_alone(*medians)]
    parts.append("\n".join(f"- {_escaped(note)}" for note in notes))
    return ("\n\n".join(parts) + "\n").encode("ascii", "backslashreplace").decode()


def _counts(compared: Sequence[Flat]) -> str:
    found = {verdict: sum(row["verdict"] == verdict for row in compared) for verdict, _ in _SECTIONS}
    said = f"**{found['slower']} slower, {found['faster']} faster**, {found['same']} the same"
    said = f"Of {number(len(compared), 'cell')} that both runs have: {said}, {found['cannot tell']} cannot be told."
    if compared and min(row["launches"] for row in compared) < ENOUGH_LAUNCHES:
        said += f" The cells have {launches(compared)}; runs are told apart from {ENOUGH_LAUNCHES} of each on."
    return f"{said}\n\nratio = time after / time before: below 1 it is faster now."


_HEADERS = ("cell", "algorithm", "ranks", "size", "before(us)", "after(us)", "change", "ratio, 95% interval", "warn")


def _cells(row: Flat, medians: Sequence[Mapping[tuple[Any, ...], float]], letters: Mapping[str, str]) -> list[str]:
    key = tuple(row[name] for name in _CELL)
    operation = "" if row["op"] == "none" else f" {row['op']}"
    interval = bounds(row["ratio_low"], row["ratio_high"], digits)
    return [
        f"{row['collective']}{operation} {row['dtype']} on {row['device']}, {placement(row)}",
        str(row["algorithm"]),
        str(row["nranks"]),
        format_size(row["nbytes"]),
        *(microseconds(times.get(key)) for times in medians),
        "-" if row["ratio"] is None else f"{row['ratio'] - 1:+.1%}",
        "-" if row["ratio"] is None else f"{digits(row['ratio'])} {interval}",
        flags(row["warnings"], letters),
    ]


def _medians(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    """Return the median over launches of every cell; nothing for one that was measured in several manners."""
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.usable and row.nranks > 1:
            cells.setdefault(tuple(getattr(row, name) for name in _CELL), []).append(row)
    return {
        key: float(pooled_median([row.samples_s for row in members]))
        for key, members in cells.items()
        if len({tuple(getattr(row, name) for name in MANNER) for row in members}) == 1
    }


def _alone(before: Mapping[tuple[Any, ...], float], after: Mapping[tuple[Any, ...], float]) -> list[str]:
    """Say how many cells only one of the runs has."""
    counts = [len(one.keys() - other.keys()) for one, other in ((before, after), (after, before))]
    said = [f"{count} only {name}" for count, name in zip(counts, ("before", "after"), strict=True) if count]
    return [f"cells that are not compared: {', '.join(said)}"] if said else []


def _name(run: Run) -> str:
    return str(run.path.parent if run.path.name == RUN_FILE else run.path)


def head_of_run(run: Run, facts: Mapping[str, str]) -> dict[str, str]:
    """Return who was measured, when, and with what."""
    machine = [facts.get("machine.cpu"), f"{facts.get('machine.cpus', '?')} CPUs", facts.get("machine.system")]
    library = facts.get("mpi_library")
    return {
        "run": _name(run),
        "measured": facts.get("time", "-"),
        "machine": ", ".join(filter(None, [*machine, facts.get("lab")])) if "machine.cpu" in facts else "-",
        "hosts": facts.get("hosts", "-"),
        "MPI": library_name(library) if library else "-",
        "ringbench": facts.get("ringbench", "-"),
        "launches": str(len({row.launch for row in run.rows})),
    }


def _differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return a table of every fact in which the runs differ."""
    names = [name for name in dict.fromkeys([*one, *other]) if name not in _VOLATILE]
    unlike = [name for name in names if one.get(name) != other.get(name)]
    if not unlike:
        return ["Nothing else differs in how they were measured."]
    return ["What differs:", _grid(["", "before", "after"], [[n, one.get(n, "-"), other.get(n, "-")] for n in unlike])]


def facts_of_run(run: Run) -> dict[str, str]:
    """Return by dotted name what the run's first line and its jobs say, what several jobs and ranks say together."""
    found: dict[str, dict[str, None]] = {}
    for record in (run.provenance, *run.jobs):
        for name, value in _leaves("", record):
            if value not in found.setdefault(name, {}) and (record is run.provenance or name != "time"):
                found[name][value] = None
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the facts below a value: what a list's objects say under one name, a list of anything else as one fact."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from _leaves(name, inner)
    elif isinstance(value, list):
        yield name, " ".join(dict.fromkeys(map(str, value))) or "none"
    elif value is not None:
        yield name, str(value)


def _escaped(text: str) -> str:
    """Return text that Markdown and HTML show as it is."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace("`", "\\`").replace("*", "\\*")


def _grid(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    return draw(headers, [[_escaped(one_line(cell)) for cell in row] for row in cells], "markdown")

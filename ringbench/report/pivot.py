"""The bandwidth table turned: sizes down, algorithms across, the fastest of each size marked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ringbench.records.units import format_size
from ringbench.report.bandwidth import TABLE
from ringbench.report.grid import WIDTH, draw, join, widths
from ringbench.report.kind import Flat
from ringbench.report.summary import leaders
from ringbench.report.tables import codes, failures, flags, legend, reasons
from ringbench.report.writing import digits, microseconds

BASELINE = "mpi"

_NOTES = (
    "* the smallest median of its size; ~ its interval reaches to that, so the two may be alike",
    f"/{BASELINE}: the time / that of {BASELINE}; below 1 the algorithm is faster",
)


def render_pivot(rows: Sequence[Flat], format: str) -> str:
    """Return the rows of a bandwidth table with a column of times for each algorithm, and its ratio to the library's.

    ``format`` is ``text``, ``markdown`` or ``latex``; text wider than the page is parted. A wrong result has no time.
    Raises ValueError for another format: what CSV and JSON hold is one cell a row.
    """
    if format not in ("text", "markdown", "latex"):
        raise ValueError(f"a pivot has no format {format!r}: text, markdown or latex; csv and json hold a cell a row")

    def block(row: Flat) -> list[object]:
        return [row[name] for name in TABLE.keys]

    ordered = sorted(rows, key=lambda row: (block(row), row["nbytes"], row["algorithm"]))
    letters, parts, based = codes(ordered), [], False
    for _, group in groupby(ordered, key=block):
        members = list(group)
        based |= any(row["algorithm"] == BASELINE for row in members)
        grid = "\n\n".join(_grids(members, letters, format))
        parts.append(join(TABLE.heading(members), grid, reasons(members), format))
    notes = [*legend(letters), *_NOTES[: 1 + based], *failures(ordered)]
    text = "\n".join([*parts, join("", "", notes, format)] if parts else ["no rows\n"])
    return text.encode("ascii", "backslashreplace").decode()


def _grids(members: Sequence[Flat], letters: dict[str, str], format: str) -> list[str]:
    """Draw one block: the library first, and in text no more algorithms beside each other than the page holds."""
    names = sorted({row["algorithm"] for row in members}, key=lambda name: (name != BASELINE, name))
    sizes = [list(cell) for _, cell in groupby(members, key=lambda row: row["nbytes"])]
    size = ["size", *(format_size(cell[0]["nbytes"]) for cell in sizes)]
    warn = [
        "warn",
        *(flags(dict.fromkeys(text for row in cell for text in row["warnings"]), letters) for cell in sizes),
    ]
    columns = {name: _columns(name, sizes, names) for name in names}
    grids, shown = [], [size]
    for name in names:
        wider = [*shown, *columns[name], warn]
        if format == "text" and len(shown) > 1 and _width(wider) > WIDTH:
            grids.append(_drawn([*shown, warn], format))
            shown = [size]
        shown = [*shown, *columns[name]]
    return [*grids, _drawn([*shown, warn], format)]


def _columns(name: str, sizes: Sequence[Sequence[Flat]], names: Sequence[str]) -> list[list[str]]:
    """Return the column of an algorithm's times, and where the library was measured too that of the ratios."""
    times, ratios = [f"{name}(us)"], [f"/{BASELINE}"]
    for cell in sizes:
        best, near = leaders(cell)
        own, base = (_median(cell, one) for one in (name, BASELINE))
        mark = "*" if name == best else "~" if name in near else " "
        failed = any(row["wrong"] for row in cell if row["algorithm"] == name)
        times.append(f"{'FAIL' if failed else microseconds(own)}{mark}")
        ratios.append(digits(own / base if own is not None and base else None))
    return [times, ratios] if BASELINE in names and name != BASELINE else [times]


def _median(cell: Sequence[Flat], name: str) -> float | None:
    return next((row["median_s"] for row in cell if row["algorithm"] == name and not row["wrong"]), None)


def _width(columns: Sequence[Sequence[str]]) -> int:
    headers, *cells = zip(*columns, strict=True)
    return sum(widths(headers, cells)) + 2 * (len(headers) - 1)


def _drawn(columns: Sequence[Sequence[str]], format: str) -> str:
    headers, *cells = zip(*columns, strict=True)
    if format != "text":  # where no column of signs has to stay straight
        cells = [tuple(cell.strip() for cell in row) for row in cells]
    return draw(headers, cells, format)

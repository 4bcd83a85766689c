"""Tables of bandwidths, comparisons, fits, predictions and simulations: text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ringbench.records.guards import GUARDS
from ringbench.records.units import format_size
from ringbench.report.grid import WIDTH, draw, join, widths
from ringbench.report.kind import Columns as Columns
from ringbench.report.kind import Flat as Flat
from ringbench.report.kind import Kind as Kind
from ringbench.report.kinds import KINDS
from ringbench.report.kinds import verdict_line as verdict_line
from ringbench.report.writing import number

FORMATS = ("text", "markdown", "latex", "csv", "json")


def render(rows: Sequence[Flat], kind: str | Kind, format: str, words: Sequence[str] = ()) -> str:
    """Return flat rows of one ``kind`` of table, by its name or as it is, in one ``format``.

    ``words`` are lines for people, below the tables. JSON is an array of the rows as they are; CSV is RFC 4180 with the
    same columns, an empty field for None, lists joined by ``;``. Always pure ASCII, so that any locale can print it,
    and ended by a line break. Raises ValueError for an unknown kind or format, and for NaN or Infinity in JSON.
    """
    if not isinstance(kind, Kind):
        if kind not in KINDS:
            raise ValueError(f"unknown kind of table {kind!r}; known: {', '.join(KINDS)}")
        kind = KINDS[kind]
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    if format == "json":
        return _json(rows)
    text = _csv(rows, kind.fields) if format == "csv" else _blocks(rows, kind, words, format)
    return text.encode("ascii", "backslashreplace").decode()


def _json(rows: Sequence[Flat]) -> str:
    lines = [json.dumps(dict(row), allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def _csv(rows: Sequence[Flat], fields: Sequence[str]) -> str:
    columns = list(dict.fromkeys([*fields, *(name for row in rows for name in row)]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    if columns:
        writer.writerow(columns)
    writer.writerows([_csv_field(row.get(name)) for name in columns] for row in rows)
    return out.getvalue()


def _csv_field(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _blocks(rows: Sequence[Flat], kind: Kind, words: Sequence[str], format: str) -> str:
    def block(row: Flat) -> list[Any]:
        return [row[name] for name in kind.keys]

    ordered = sorted(rows, key=lambda row: (block(row), [row[name] for name in kind.order]))
    letters = codes(ordered)
    absent = kind.absent(ordered)
    columns = {name: write for name, write in kind.columns.items() if name not in absent}
    if any("warnings" in row for row in rows):
        columns["warn"] = lambda row: flags(row["warnings"], letters)
    groups = [list(group) for _, group in groupby(ordered, key=block)]
    grids = [[[write(row) for write in columns.values()] for row in members] for members in groups]
    parts = [
        join(kind.heading(members), grid, [*kind.closing(members), *reasons(members)], format)
        for members, grid in zip(groups, _fitted(list(columns), grids, kind, format), strict=True)
    ]
    if words:
        parts.append(join("", "", words, format))
    notes = [*legend(letters), *(_notes(kind, absent) if rows else []), *failures(ordered)]
    return "\n".join([*parts, join("", "", notes, format)] if notes else parts) or "no rows\n"


def _fitted(headers: list[str], grids: list[list[list[str]]], kind: Kind, format: str) -> Iterable[str]:
    """Draw all grids alike: text that is wider than the page with less between columns, and then with fewer of them."""
    gap = "  "
    if format == "text" and _widest(headers, grids, gap) > WIDTH:
        gap = " "
        if _widest(headers, grids, gap) > WIDTH and headers[-1] == "warn":
            grids = [[[*row[:-1], row[-1].replace(",", "")] for row in grid] for grid in grids]
        for names in kind.shed:
            if _widest(headers, grids, gap) <= WIDTH:
                break
            kept = [at for at, name in enumerate(headers) if name not in names]
            headers = [headers[at] for at in kept]
            grids = [[[row[at] for at in kept] for row in grid] for grid in grids]
    return [draw(headers, grid, format, gap) for grid in grids]


def _widest(headers: list[str], grids: list[list[list[str]]], gap: str) -> int:
    return max((sum(widths(headers, grid)) for grid in grids), default=0) + len(gap) * (len(headers) - 1)


def reasons(members: Sequence[Flat]) -> list[str]:
    """Say for every cell that is missing why it is; long lists of places are cut short."""
    places: dict[str, list[str]] = {}
    for row in members:
        if row.get("reason"):
            size = format_size(row["nbytes"])
            places.setdefault(row["reason"], []).append(size if "baseline" in row else f"{row['algorithm']} {size}")
    return [f'"-" at {_some(where)}: {reason}' for reason, where in places.items()]


def _some(items: Sequence[str]) -> str:
    named = ", ".join(items[:4])
    return named if len(items) <= 4 else f"{named} and {len(items) - 4} more"


def codes(rows: Sequence[Flat]) -> dict[str, str]:
    """Give every warning seen its letter, or a number where it has none."""
    seen = dict.fromkeys(warning for row in rows for warning in row.get("warnings", ()))
    unknown = (str(number) for number in range(1, len(seen) + 1))
    return {warning: GUARDS[warning].letter if warning in GUARDS else next(unknown) for warning in seen}


def flags(warnings: Iterable[str], letters: Mapping[str, str]) -> str:
    """Write warnings as their letters."""
    return ",".join(letters[warning] for warning in warnings)


def legend(letters: Mapping[str, str]) -> list[str]:
    """Say what each letter means, and what to do."""
    return [
        f"{code} = {warning}: {GUARDS[warning].meaning}; {GUARDS[warning].advice}"
        if warning in GUARDS
        else f"{code} = {warning}"
        for warning, code in letters.items()
    ]


def _notes(kind: Kind, absent: set[str]) -> list[str]:
    """Return what a reader of the kind has to know."""
    return [*kind.notes, *(note for name, note in kind.rare_notes.items() if name not in absent)]


def failures(rows: Sequence[Flat]) -> list[str]:
    """Say how many results are wrong, where some are."""
    failed = sum(bool(row.get("wrong")) for row in rows)
    return [f"FAIL: wrong result in {failed} of {number(len(rows), 'row')}"] if failed else []

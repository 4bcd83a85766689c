"""Flat rows of any kind of table as one HTML table, to be sorted and filtered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ringbench.records.row import ESTIMAND
from ringbench.report.grid import LEFT
from ringbench.report.kind import Flat, Kind
from ringbench.report.page.html import bullets, element, folded, text
from ringbench.report.tables import codes, flags, reasons
from ringbench.report.writing import number, placement

#: More rows than this are not shown: the page must stay one that opens at once.
MOST = 4000

#: What the keys of blocks are called as columns.
_NAMES = {"nranks": "N", "dtype": "type", "op": "redop", "in_place": "placement", "estimand": "a sample is"}

#: A column that stands for a key of the same content.
_SAME = {"type": "dtype", "redop": "op"}

#: Columns of words beside those of the other formats.
_WORDS = frozenset(("collective", "placement", "a sample is", "memory", "device", "straggler", "warn"))

#: Columns that give way on a narrow screen.
_SPARED = frozenset(("count", "sent", "algbw"))

#: Columns by which one chooses rows.
_FILTERS = frozenset(("collective", "algorithm", "N", "type", "redop", "placement", "verdict", "device", "lever"))


def _of_key(name: str) -> Callable[[Flat], str]:
    if name == "in_place":
        return placement
    if name == "estimand":
        return lambda row: str(row[name]).partition(" after ")[2] if row[name] == ESTIMAND else str(row[name])
    return lambda row: str(row[name])


def html_table(rows: Sequence[Flat], kind: Kind, name: str, title: str) -> str:
    """Return the rows of one kind as a table: what all share stands above it, what is said of each block below.

    ``name`` is its id on the page.
    """
    blocks = _blocks(rows, kind)
    ordered = [row for members in blocks for row in members]
    columns = _columns(ordered, kind)
    shown = ordered[:MOST]
    head = "".join(
        element("th", text(column.strip()), {"scope": "col", "data-f": column if column in _FILTERS else None})
        for column in columns
    )
    body = "".join(f"<tr>{_cells(row, columns)}</tr>" for row in shown)
    left = [at for at, column in enumerate(columns, 1) if column in LEFT or column in _WORDS]
    spared = [at for at, column in enumerate(columns, 1) if column in _SPARED]
    sheet = _rule(name, left, "text-align:left")
    if spared:
        sheet += f"@media (max-width:600px){{{_rule(name, spared, 'display:none')}}}"
    heading = kind.heading(blocks[0]) if len(blocks) == 1 else number(len(ordered), "row")
    parts = [
        element("h3", text(title)),
        element("p", text(heading), {"class": "about"}),
        f"<style>{sheet}</style>",
        f'<div class="wide"><table class="data" id="{name}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>",
    ]
    if len(ordered) > len(shown):
        parts.append(element("p", text(f"{len(ordered) - len(shown)} further rows are left out; see ringbench table")))
    return "".join([*parts, _closing(blocks, kind)])


def _rule(name: str, places: Sequence[int], style: str) -> str:
    """Return a rule for the columns at some places of a table."""
    chosen = ",".join(f"#{name} :is(th,td):nth-child({at})" for at in places)
    return f"{chosen}{{{style}}}" if places else ""


def _columns(rows: Sequence[Flat], kind: Kind) -> dict[str, Callable[[Flat], str]]:
    """Return what to show: of the keys those in which rows differ, then the columns of the kind, then warnings."""
    letters, absent = codes(rows), kind.absent(rows)
    differing = {name for name in kind.keys if len({str(row[name]) for row in rows}) > 1}
    own = {
        name: write
        for name, write in kind.columns.items()
        if name not in absent and (name not in _SAME or _SAME[name] in differing)
    }
    keys = {_NAMES.get(name, name): _of_key(name) for name in kind.keys if name in differing}
    warn = {"warn": lambda row: flags(row["warnings"], letters)} if any("warnings" in row for row in rows) else {}
    return {**{name: write for name, write in keys.items() if name not in own}, **own, **warn}


def _cells(row: Flat, columns: Mapping[str, Callable[[Flat], str]]) -> str:
    found = []
    for name, write in columns.items():
        shown, more = text(write(row)), ""
        if name == "size":
            more = f' data-v="{int(row["nbytes"])}"'
        elif name == "wrong" and row.get("wrong"):
            more = ' class="bad"'
        elif name == "algorithm" and "," in shown:  # those that share a curve
            shown, more = shown.replace(",", ", "), ' class="many"'
        found.append(f"<td{more}>{shown}</td>")
    return "".join(found)


def _blocks(rows: Sequence[Flat], kind: Kind) -> list[list[Flat]]:
    def block(row: Flat) -> list[Any]:
        return [row[name] for name in kind.keys]

    ordered = sorted(rows, key=lambda row: (block(row), [row[name] for name in kind.order]))
    return [list(members) for _, members in groupby(ordered, key=block)]


def _closing(blocks: Sequence[Sequence[Flat]], kind: Kind) -> str:
    """Return what is said of each block, under its heading, and what a reader of the kind has to know."""
    said = []
    for members in blocks:
        if lines := [*kind.closing(members), *reasons(members)]:
            said.append((element("p", text(kind.heading(members))) if len(blocks) > 1 else "") + bullets(lines))
    words = "".join(said)
    absent = kind.absent([row for members in blocks for row in members])
    notes = [*kind.notes, *(note for name, note in kind.rare_notes.items() if name not in absent)]
    folding = folded(f"each of {len(blocks)} blocks in words", words) if len(said) > 1 else words
    return folding + (element("div", bullets(notes), {"class": "notes"}) if notes else "")

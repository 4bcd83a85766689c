"""The answer in two sentences, and the list of all that speaks against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ringbench.records.guards import CROWDED, GUARDS
from ringbench.records.stats import CONFIDENCE
from ringbench.records.units import format_seconds, format_size
from ringbench.report.kind import Flat
from ringbench.report.page.html import element, text
from ringbench.report.summary import GROUP, leaders
from ringbench.report.writing import digits, launches, number, placement


def verdict(cells: Sequence[Flat]) -> str:
    """Say in two sentences which algorithm is the fastest when, and why that can, or cannot, be believed."""
    return f"{_fastest(cells)} {_trust(cells)}"


def _fastest(cells: Sequence[Flat]) -> str:
    """Say who wins at the shortest and the longest vector of the group that tells most."""
    right = [row for row in cells if row["median_s"] is not None and not row["wrong"] and row["nranks"] > 1]
    if not right:
        return "Nothing can be said of algorithms: no right result of 2 ranks or more has a time."
    right.sort(key=lambda row: [row[name] for name in GROUP])
    groups = [list(members) for _, members in groupby(right, key=lambda row: [row[name] for name in GROUP])]
    group = max(groups, key=_worth)
    first = group[0]
    where = f"{first['collective']} of {first['dtype']} on {first['nranks']} ranks, {placement(first)}"
    others = f" (and {number(len(groups) - 1, 'other group')} below)" if len(groups) > 1 else ""
    if _crowded(group):
        return f"Which algorithm is the fastest cannot be said: ranks shared cores in {where}{others}."
    sizes = sorted({row["nbytes"] for row in group})
    ends = [
        _winner([row for row in group if row["nbytes"] == nbytes]) for nbytes in dict.fromkeys((sizes[0], sizes[-1]))
    ]
    return f"Fastest {where}{others}: {', and '.join(ends)}."


def _worth(group: Sequence[Flat]) -> tuple[Any, ...]:
    first = group[0]
    return not _crowded(group), first["collective"] == "allreduce", first["in_place"], first["nranks"], len(group)


def _crowded(group: Sequence[Flat]) -> bool:
    return any(CROWDED & set(row["warnings"]) for row in group)


def _winner(cell: Sequence[Flat]) -> str:
    best, near = leaders(cell)
    (row,) = [row for row in cell if row["algorithm"] == best][:1]
    names = (
        f"{best} or {next(iter(near))}" if len(near) == 1 else f"{best} or {len(near)} others" if near else str(best)
    )
    own = [one["median_s"] for one in cell if one["algorithm"] == "mpi"]
    ratio = f", {digits(row['median_s'] / own[0])} of the time of mpi" if own and best != "mpi" else ""
    busbw = f", busbw {digits(row['busbw_gb_per_s'])} GB/s" if row["busbw_gb_per_s"] and row["nbytes"] > 2**16 else ""
    return f"{names} at {format_size(row['nbytes'])} ({format_seconds(row['median_s'])}{busbw}{ratio})"


def _trust(cells: Sequence[Flat]) -> str:
    checked = [row for row in cells if row["wrong"] is not None]
    wrong = sum(bool(row["wrong"]) for row in checked)
    if not checked:
        said = "No result was checked"
    elif wrong:
        said = f"{wrong} of {number(len(checked), 'result')} {'is' if wrong == 1 else 'are'} wrong"
    else:
        said = f"All {len(checked)} results are right, each checked on every rank"
    sure = [row["launch_confidence"] for row in cells]
    few = "" if all(one is not None and one >= CONFIDENCE for one in sure) else ", too few to tell how launches differ"
    counted = warned(cells)
    warnings = f"{number(len(cells), 'row')} carry no warning"
    if counted:
        named = ", ".join(f"{name} {count}" for name, count in counted[:3]) + (", ..." if len(counted) > 3 else "")
        marked = sum(bool(row["warnings"]) for row in cells)
        warnings = f"{marked} of {number(len(cells), 'row')} carry warnings ({named})"
    return f"{said}; intervals are those of {launches(cells)}{few}, and {warnings}."


def warned(rows: Sequence[Flat]) -> list[tuple[str, int]]:
    """Return each warning, and how many rows carry it, the most frequent first."""
    counted = Counter(name for row in rows for name in row["warnings"])
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))


def warnings_table(rows: Sequence[Flat]) -> str:
    """Return what speaks against rows: letter, name, in how many, what it means and what to do."""
    found = warned(rows)
    if not found:
        return element("p", "No row carries a warning.")
    lines = []
    for at, (name, count) in enumerate(found, 1):
        guard = GUARDS.get(name)
        letter, meaning = (guard.letter, f"{guard.meaning}; {guard.advice}") if guard else (str(at), "")
        lines.append(
            "<tr>"
            + "".join(f"<td>{text(one)}</td>" for one in (letter, name, f"{count} of {len(rows)}", meaning))
            + "</tr>"
        )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", "warning", "rows", "what it means; what to do"))
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="wide"><table class="words">{table}</table></div>'

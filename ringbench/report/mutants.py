"""What became of the broken collectives: one line for each way to break them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Cell = Mapping[str, Any]


def verdict(cell: Cell) -> str:
    """Say what became of a cell.

    ``caught``, ``survived``, ``equivalent`` (nothing was broken there, and nothing found), ``right`` (of an original),
    ``false alarm`` (nothing was broken, and something found), or ``not run``.
    """
    if cell["wrong"] is None:
        return "not run"
    if cell["mutant"] is None:
        return "false alarm" if cell["wrong"] else "right"
    if cell["equivalent"] is not None:
        return "false alarm" if cell["wrong"] else "equivalent"
    return "caught" if cell["wrong"] else "survived"


def all_caught(cells: Sequence[Cell]) -> bool:
    """Say whether every original passed, every mutant was caught where it breaks anything, and there were any."""
    verdicts = {verdict(cell) for cell in cells}
    return {"right", "caught"} <= verdicts <= {"right", "caught", "equivalent"}


def render_mutants(cells: Sequence[Cell], format: str) -> str:
    """Return the cells as text, or as JSON: an array of flat objects with their verdicts."""
    if format == "json":
        lines = [json.dumps({**cell, "verdict": verdict(cell)}, allow_nan=False) for cell in cells]
        return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"
    originals = [cell for cell in cells if cell["mutant"] is None]
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell["mutant"] is not None:
            groups.setdefault(cell["mutant"], []).append(cell)
    width = max(map(len, groups), default=0)
    wide = max((len(members[0]["breaks"]) for members in groups.values()), default=0)
    lines = []
    for name, members in groups.items():
        found = [verdict(cell) for cell in members]
        broken = found.count("caught") + found.count("survived")
        same = f", {found.count('equivalent')} more where nothing breaks" if "equivalent" in found else ""
        proofs = {(cell["collective"], cell["algorithm"], cell["nranks"]) for cell in members if cell["proof"]}
        proof = f"; refused by {len(proofs)} proofs" if proofs else ""
        word = "SURVIVED" if "survived" in found else "caught" if broken else "harmless"
        lines.append(
            f"{word:8}  {name:{width}}  {members[0]['breaks']:{wide}}  "
            f"in {found.count('caught')} of {broken} cells{same}{proof}"
        )
        first = next((cell for cell in members if verdict(cell) == "caught"), None)
        if first is not None:
            lines.append(f"{'':{width + 12}}{_name(first)}: {first['detail']}")
    for cell in cells:
        if verdict(cell) in ("survived", "false alarm", "not run"):
            what = f"{cell['mutant'] or 'original'} {_name(cell)}"
            lines.append(f"{verdict(cell)}: {what}: {cell['detail'] or 'no wrong element'}")
    harmful = {cell["mutant"] for cell in cells if verdict(cell) in ("caught", "survived")}
    survivors = {cell["mutant"] for cell in cells if verdict(cell) == "survived"}
    caught = sum(verdict(cell) == "caught" for cell in cells)
    broken = caught + sum(verdict(cell) == "survived" for cell in cells)
    right = sum(verdict(cell) == "right" for cell in originals)
    lines.append(
        f"{len(harmful - survivors)} of {len(harmful)} mutants caught in all of their cells ({caught} of {broken}), "
        f"{right} of {len(originals)} cells of originals right"
    )
    return "\n".join(lines) + "\n"


def _name(cell: Cell) -> str:
    kind = cell["dtype"] if cell["op"] == "none" else f"{cell['op']} {cell['dtype']}"
    place = "in place" if cell["in_place"] else "out of place"
    elements = f"{cell['count']} element{'s'[: cell['count'] != 1]}"
    return f"{cell['collective']} {cell['algorithm']} {kind}, {cell['nranks']} ranks, {elements}, {place}"

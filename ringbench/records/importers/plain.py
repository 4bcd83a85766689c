"""Plain CSV: ``collective,algorithm,nranks,nbytes,seconds``, and as further columns op, dtype, device, in_place.

``nbytes`` is of the whole vector. What is not said is ``sum``, ``unknown`` (counted in bytes), ``cpu`` and false.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringbench.records.importers.found import ITEM_NBYTES, Asked, Found, Table, Tool, reported
from ringbench.records.importers.lines import Line, count, seconds
from ringbench.schedule.semantics import COLLECTIVES

CSV = "CSV"
REQUIRED = ("collective", "algorithm", "nranks", "nbytes", "seconds")
ESTIMAND = "time that the file gives, of which it does not say how it was taken"

_WORD = re.compile(r"[\w.+-]{1,60}", re.ASCII)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _split(text: str) -> list[str]:
    return [cell.strip().strip('"').strip() for cell in text.split(",")]


class Plain(Tool):
    """Look for the heading of a CSV file."""

    def heed(self, line: Line) -> Table | bool | None:
        """Open a table where all five names stand in one line."""
        columns = _split(line.bare)
        return _PlainTable(columns, self.asked) if set(REQUIRED) <= set(columns) else None


class _PlainTable(Table):
    def __init__(self, columns: list[str], asked: Asked):
        super().__init__(columns)
        self.asked = asked

    def cells(self, text: str) -> list[str]:
        return _split(text)

    def row_like(self, cells: list[str]) -> bool:
        row = dict(zip(self.columns, cells, strict=True))
        return count(row["nranks"]) is not None and count(row["nbytes"]) is not None

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        nranks, nbytes, time = count(cells["nranks"]), count(cells["nbytes"]), seconds(cells["seconds"], 0)
        words = {name: cells.get(name) or value for name, value in _DEFAULTS.items()}
        truth = _TRUTH.get(cells.get("in_place", "").lower() or "false")
        names = (cells["algorithm"], words["op"], words["device"])
        if nranks is None or nbytes is None or truth is None or not all(map(_WORD.fullmatch, names)):
            return None
        if time is None:
            return f"no time ({cells['seconds'][:20] or 'empty'})"
        if cells["collective"] not in COLLECTIVES:
            return f"{cells['collective'][:40]}: no collective that ringbench knows"
        if words["dtype"] not in ITEM_NBYTES:
            return f"type {words['dtype'][:40]}: not known"
        further = {name: text for name, text in cells.items() if name not in (*REQUIRED, *_DEFAULTS, "in_place")}
        return [
            Found(
                tool=CSV,
                version=None,
                collective=cells["collective"],
                algorithm=cells["algorithm"],
                op=words["op"],
                dtype=words["dtype"],
                device=words["device"],
                nranks=self.asked.nranks_or(nranks),
                size=nbytes,
                samples_s=(time,),
                estimand=ESTIMAND,
                in_place=truth,
                reported=reported(further),
            )
        ]


_DEFAULTS = {"op": "sum", "dtype": "unknown", "device": "cpu"}

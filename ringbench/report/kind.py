"""What a kind of table is: how its rows fall into blocks, and what stands in, above and below each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Flat = Mapping[str, Any]
Columns = Mapping[str, Callable[[Flat], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Describe a kind of table.

    One block holds the rows that share ``keys``, sorted by ``order``, under ``heading`` and above the lines of
    ``closing``; ``notes`` are said once, at the end. A column that ``rare`` names is shown where some row has a value
    under the key it names there, with the note of the same name in ``rare_notes``. Text that is wider than the page
    loses the columns of ``shed``, group by group. ``fields`` are the columns of CSV, also where there are no rows.
    """

    keys: tuple[str, ...]
    heading: Callable[[Sequence[Flat]], str]
    order: tuple[str, ...]
    columns: Columns
    closing: Callable[[Sequence[Flat]], list[str]]
    notes: tuple[str, ...] = ()
    rare: Mapping[str, str] = field(default_factory=dict)
    rare_notes: Mapping[str, str] = field(default_factory=dict)
    shed: tuple[tuple[str, ...], ...] = ()
    fields: tuple[str, ...] = ()

    def absent(self, rows: Sequence[Flat]) -> set[str]:
        """Return the rare columns that no row has a value for."""
        return {name for name, key in self.rare.items() if all(row.get(key) is None for row in rows)}

"""The comment lines that ringbench writes before a table in another tool's columns, and what they change."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ringbench.records.importers.found import ITEM_NBYTES, Asked, Found, Tool
from ringbench.records.importers.lines import Line, count

RINGBENCH = "ringbench"

_BLOCK = re.compile(r"#\s*ringbench (?P<version>\S{1,40}), in the columns of .{1,60} (?P<columns>[\d.]{1,10})")
_LINE = re.compile(r"#\s*(algorithm|nranks|op|dtype|device|in_place|buffers|estimand)\s+(\S.{0,400})")
_NAME = re.compile(r"\w[\w.+-]{0,60}", re.ASCII)
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Hold what the lines before a table say; None is what they leave to the tool.

    ``version`` is that of the ringbench that wrote the table, ``columns`` that of the tool whose columns it wrote.
    """

    version: str | None = None
    columns: str | None = None
    algorithm: str | None = None
    nranks: int | None = None
    op: str | None = None
    dtype: str | None = None
    device: str | None = None
    in_place: bool | None = None
    buffers: int | None = None
    estimand: str | None = None

    def and_then(self, later: Said) -> Said:
        """Return both, where they differ the later."""
        return replace(self, **_given(later))

    def over(self, found: Found) -> Found:
        """Return what a table's row says with what is said here in its place."""
        changes = _given(self)
        for name in ("version", "columns", "nranks"):
            changes.pop(name, None)
        if self.version is not None:
            changes |= {"tool": RINGBENCH, "version": self.version}
        return replace(found, **changes)


def _given(said: Said) -> dict[str, Any]:
    names = (name for name in Said.__slots__ if getattr(said, name) is not None)
    return {name: getattr(said, name) for name in names}


class Own(Tool):
    """Gather the lines since the last table, for whoever opens the next."""

    def forget(self) -> None:
        """Forget what was said: it was of another table."""
        self._said = Said()

    def take(self) -> Said:
        """Return what was said, and forget it."""
        said = self._said
        self.forget()
        return said

    def heed(self, line: Line) -> bool | None:
        """Take in one line; where it says nothing that can be, it is none of these."""
        if block := _BLOCK.fullmatch(line.text):
            self._said = Said(version=block["version"], columns=block["columns"])
            return True
        own = _LINE.fullmatch(line.text)
        value = _value(self.asked, own[1], own[2]) if own else None
        if own is None or value is None:
            return None
        self._said = self._said.and_then(Said(**{own[1]: value}))  # type: ignore[arg-type]
        return True


def _value(asked: Asked, name: str, text: str) -> str | int | bool | None:
    if name == "nranks":
        return asked.nranks_or(count(text)) if count(text) is not None else None
    if name == "buffers":
        return count(text) or None
    if name == "in_place":
        return _TRUTH.get(text)
    if name == "estimand":
        return text if text.isprintable() else None
    if name == "dtype" and text not in ITEM_NBYTES:
        return None
    return text if _NAME.fullmatch(text) else None

"""The lines of a log that somebody kept: bounded, decoded, without what launchers and Markdown put before them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import BinaryIO

#: What no log of these tools comes near. Together they bound the time and memory that a hostile file may take.
LINE_LIMIT = 64 * 1024
FILE_LIMIT = 64 * 1024**2
MOST_LINES = 300_000

#: Longer lines are read, but no tool writes one that says anything.
TELLING = 1024

#: A tab may stand in a line; an escape sequence, a null or a line feed of another kind may not.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

#: ``> `` of Markdown, then one of: ``[1,0]<stdout>:`` (Open MPI), ``[0] `` (hydra), ``0: `` (srun --label).
_PREFIX = re.compile(r"(?:>\s?)*(?:\[[^\]\s]{0,100}\d\]<std(?:out|err)>\s?:|\[\d{1,7}\](?:\s|$)|\d{1,7}:(?:\s|$))?\s*")


class NotSaidError(ValueError):
    """Report what a file leaves out and the command must say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Hold one line, numbered from 1, stripped of prefixes and surrounding blanks.

    ``torn`` says that no line break ends it: the file was cut off there, or whoever wrote it left the break out.
    """

    number: int
    text: str
    torn: bool = False

    @property
    def bare(self) -> str:
        """Return the line without the ``#`` before it, which Markdown takes for a heading and pasting often loses."""
        return self.text.lstrip("# \t")

    @property
    def comment(self) -> bool:
        """Say whether it is none of a tool's rows: empty, after a ``#``, or a fence or rule."""
        return not self.text or self.text.startswith(("#", "```", "~~~")) or not self.text.strip("-= ")


class Source:
    """Read a file once, and keep what identifies it: the number of bytes and their SHA-256."""

    def __init__(self, stream: BinaryIO):
        self.stream = stream
        self.nbytes = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the digest of all that was read."""
        return self._digest.hexdigest()

    def lines(self) -> Iterator[Line]:
        """Yield every line; raise ValueError naming the line for what is no text, or too much of it."""
        number = 0
        while raw := self.stream.readline(LINE_LIMIT + 1):
            number += 1
            self._take(raw)
            if len(raw) > LINE_LIMIT:
                raise ValueError(f"line {number}: longer than {LINE_LIMIT} bytes, so no log of a benchmark")
            if number > MOST_LINES:
                raise ValueError(f"more than {MOST_LINES} lines")
            torn = not raw.endswith(b"\n")
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")
            if found := _CONTROL.search(text):
                raise ValueError(f"line {number}: control character {found[0]!a}, so no log of a benchmark")
            text = text.strip()
            yield Line(number=number, text=text[_PREFIX.match(text).end() :], torn=torn)  # type: ignore[union-attr]

    def everything(self, limit: int) -> str:
        """Return the whole text; raise ValueError where it is longer than ``limit`` bytes or not UTF-8."""
        raw = self.stream.read(limit + 1)
        self._take(raw)
        if len(raw) > limit:
            raise ValueError(f"more than {limit} bytes of JSON")
        return raw.decode("utf-8-sig")

    def _take(self, raw: bytes) -> None:
        self.nbytes += len(raw)
        self._digest.update(raw)
        if self.nbytes > FILE_LIMIT:
            raise ValueError(f"more than {FILE_LIMIT} bytes")


_COUNT = re.compile(r"[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]+\.([0-9]+)")


def count(text: str) -> int | None:
    """Return a whole number, None where it is none; raise ValueError for one of 2^63 or more."""
    if not text.isascii() or not text.isdecimal():
        return None
    if not _COUNT.fullmatch(text) or int(text) >= 2**63:
        raise ValueError(f"number {text[:40]}{'...' * (len(text) > 40)}: 2^63 or more")
    return int(text)


def number(text: str) -> float | None:
    """Return what a cell says where it is a number, NaN and infinity among them, else None."""
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def seconds(text: str, power: int) -> float | None:
    """Return a time that is written in units of 10^-power seconds, None where it is no number.

    Raises ValueError naming one that is no time at all: not finite, negative, or beyond what anybody measures.
    """
    value = number(text)
    if value is None:
        return None
    if not (value == 0 or 1e-12 < value / 10**power < 1e12):
        raise ValueError(f"time {text[:40]}: no time that can be measured")
    return float(Decimal(text).scaleb(-power)) if value else 0.0  # the very digits, not their quotient


def decimals(text: str) -> int:
    """Return how many decimals a number is written with, 0 where it has none or is none."""
    found = _DECIMAL.fullmatch(text)
    return len(found[1]) if found else 0

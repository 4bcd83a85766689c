"""The language of schedules: what one rank does, as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Place: TypeAlias = Literal["work", "original", "temp"]


@dataclass(frozen=True, slots=True)
class Span:
    """Name a range of consecutive blocks in one place.

    ``first`` is taken modulo the number of blocks of the place, so that a ring may count past the end; a range that
    passes the end goes on at block 0. ``rank`` is whose place it is (None: one's own).
    """

    place: Place
    first: int
    count: int = 1
    rank: int | None = None


Spans: TypeAlias = "Span | tuple[Span, ...]"


def work(first: int, count: int = 1) -> Span:
    """Name blocks of the vector being worked on; it starts as this rank's input."""
    return Span("work", first, count)


def original(first: int, count: int = 1) -> Span:
    """Name blocks of this rank's input, which no step may change."""
    return Span("original", first, count)


def temp(first: int, count: int = 1) -> Span:
    """Name blocks of scratch memory; temp block t is as large as block t modulo the number of blocks."""
    return Span("temp", first, count)


def peer(rank: int, span: Span) -> Span:
    """Name the same blocks in another rank's memory, where the algorithm shares that place."""
    return Span(span.place, span.first, span.count, rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Describe one ``Sendrecv`` of one rank.

    A peer of None is MPI_PROC_NULL. Several spans travel as one message. With ``combine`` what arrives is added to
    what is there, otherwise it overwrites.
    """

    dest: int | None = None
    send: Spans = ()
    source: int | None = None
    recv: Spans = ()
    combine: bool = False


@dataclass(frozen=True, slots=True)
class Meet:
    """Describe a barrier: none of ``ranks`` goes on before all of them have come, each naming the same ones.

    What a rank did before is seen by the others after it.
    """

    ranks: Sequence[int]


@dataclass(frozen=True, slots=True)
class Local:
    """Describe what a rank does without a message: ``dest = source``, ``dest += source`` or ``dest /= nranks``.

    Either side may be in another rank's memory (``peer``).
    """

    action: Literal["copy", "combine", "scale"]
    dest: Spans
    source: Spans = ()


def copy(source: Spans, dest: Spans) -> Local:
    """Overwrite ``dest`` with ``source``."""
    return Local("copy", dest, source)


def combine(source: Spans, dest: Spans) -> Local:
    """Add ``source`` to ``dest``."""
    return Local("combine", dest, source)


def scale(dest: Spans) -> Local:
    """Divide ``dest`` by the number of ranks where the operation is an average; nothing otherwise."""
    return Local("scale", dest)


def spans(value: Spans) -> tuple[Span, ...]:
    """Return one span or several as a tuple."""
    return (value,) if isinstance(value, Span) else tuple(value)


def ranges(span: Span, size: int) -> tuple[tuple[int, int], ...]:
    """Return a span as one or two ranges (first, end) of a place with ``size`` blocks: two where it passes the end.

    Raises ValueError for a span of temp in an algorithm that declares none, or longer than its place.
    """
    if not 0 <= span.count <= size:
        raise ValueError(f"{span.place} block {span.first}: a span of {span.count} blocks where there are {size}")
    if span.count == 0:
        return ()
    first = span.first % size
    end = first + span.count
    return ((first, end),) if end <= size else ((first, size), (0, end - size))


def block_numbers(value: Spans, nblocks: int, ntemp: int) -> list[tuple[Place, int]]:
    """Spell out the blocks of some spans as (place, block) in the order in which they travel.

    Raises ValueError for a span of temp in an algorithm that declares none, or longer than its place.
    """
    named: list[tuple[Place, int]] = []
    for span in spans(value):
        for first, end in ranges(span, ntemp if span.place == "temp" else nblocks):
            named.extend((span.place, block) for block in range(first, end))
    return named


def owners(value: Spans, rank: int) -> list[int]:
    """Return whose memory each block is in that ``block_numbers`` spells out for a rank."""
    return [rank if span.rank is None else span.rank for span in spans(value) for _ in range(span.count)]


def describe(value: Spans, nblocks: int, ntemp: int) -> str:
    """Say which blocks some spans name, for messages: ``block 3``, ``temp blocks 2..5``, ``rank 1's blocks 3..1``."""
    words = []
    for span in spans(value):
        prefix = "" if span.rank is None else f"rank {span.rank}'s "
        prefix += "" if span.place == "work" else f"{span.place} "
        size = max(1, ntemp if span.place == "temp" else nblocks)
        first, last = span.first % size, (span.first + span.count - 1) % size
        words.append(f"{prefix}block {first}" if span.count == 1 else f"{prefix}blocks {first}..{last}")
    return " and ".join(words) if words else "no block"


Operation: TypeAlias = "Step | Meet | Local"
Operations: TypeAlias = Iterable[Operation]

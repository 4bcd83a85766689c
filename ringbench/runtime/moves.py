"""The moves of one rank between named buffers: what a schedule is compiled to, and what a plan runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

#: Messages are never longer than this many elements: the counts of MPI 3 are C ints.
MESSAGE_LIMIT = 2**31 - 1

#: Bytes of a message's segments unless the caller says otherwise. Measured with 2 ranks on 2 cores, 1 MiB to 128 MiB:
#: 0.5, 1 and 2 MiB differ by less than the noise, and only 2 MiB is long enough not to cost a slow link anything.
DEFAULT_SEGMENT = 2 * 2**20


MAX_PIECES = 100_000


def segment_elements(segment: int, itemsize: int) -> int:
    """Return how many elements a segment of so many bytes holds, at least one; 0 bytes mean no segments."""
    return max(1, segment // itemsize) if segment else MESSAGE_LIMIT


def check_segment(count: int, itemsize: int, segment: int) -> None:
    """Raise ValueError for a segment that would cut a vector into more pieces than a plan should hold (2 KiB each)."""
    pieces = -(-count // segment_elements(segment, itemsize))
    if pieces > MAX_PIECES:
        raise ValueError(f"segment {segment}: cuts {count * itemsize} bytes into {pieces} pieces, {MAX_PIECES} at most")


class Piece(NamedTuple):
    """Name elements ``start`` to ``stop`` of a buffer."""

    buffer: str
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Return the number of elements."""
        return self.stop - self.start


class Exchange(NamedTuple):
    """Send one piece and receive another at the same time; a peer of None takes no part."""

    send: Piece | None
    dest: int | None
    recv: Piece | None
    source: int | None


class Combine(NamedTuple):
    """Write ``one`` and ``other``, reduced with the operation of the collective, into ``out``."""

    one: Piece
    other: Piece
    out: Piece


class Copy(NamedTuple):
    """Write ``source`` into ``dest``."""

    source: Piece
    dest: Piece


class Divide(NamedTuple):
    """Divide a piece by the number of ranks."""

    piece: Piece


Move: TypeAlias = "Exchange | Combine | Copy | Divide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Hold the moves of one rank.

    The buffers ``input`` and ``result`` are the caller's (``result`` alone where the input lies in it); ``scratch``
    says how many elements of each other buffer the program needs. ``sent`` counts elements sent, ``segment`` is the
    longest message allowed, in elements; ``steps`` holds for each Sendrecv of the schedule the elements of its longer
    message, and how many of them are reduced then.
    """

    moves: tuple[Move, ...]
    scratch: dict[str, int]
    sent: int
    segment: int
    steps: tuple[tuple[int, int], ...] = ()

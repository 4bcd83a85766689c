"""The moves of one rank between named buffers: what a schedule is compiled to, and what a plan runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

#: Messages are never longer than this many elements: the counts of MPI 3 are C ints.
MESSAGE_LIMIT = 2**31 - 1

#: Bytes of a message's segments unless the caller says otherwise. Measured with 2 ranks on 2 cores, 1 MiB to 128 MiB:
#: 0.5, 1 and 2 MiB differ by less than the noise, and only 2 MiB is long enough not to cost a slow link anything.
DEFAULT_SEGMENT = 2 * 2**20


MAX_PIECES = 100_000

#: Bytes that the operands of local moves on one block have together before they are done piece by piece: a piece stays
#: in cache from one move to the next. Measured with 2 ranks on 2 cores of 1 MiB of L2, 8 to 128 MiB, both libraries:
#: 512 KiB and 1 MiB differ by less than the noise, 128 KiB takes up to 15 % and 4 MiB up to 25 % longer.
CACHE_NBYTES = 512 * 2**10


def segment_elements(segment: int, itemsize: int) -> int:
    """Return how many elements a segment of so many bytes holds, at least one; 0 bytes mean no segments."""
    return max(1, segment // itemsize) if segment else MESSAGE_LIMIT


def check_segment(count: int, itemsize: int, segment: int) -> None:
    """Raise ValueError for a segment that would cut a vector into more pieces than a plan should hold (2 KiB each)."""
    pieces = -(-count // segment_elements(segment, itemsize))
    if pieces > MAX_PIECES:
        raise ValueError(f"segment {segment}: cuts {count * itemsize} bytes into {pieces} pieces, {MAX_PIECES} at most")


class Piece(NamedTuple):
    """Name elements ``start`` to ``stop`` of a buffer; ``rank`` is whose it is (None: one's own)."""

    buffer: str
    start: int
    stop: int
    rank: int | None = None

    @property
    def length(self) -> int:
        """Return the number of elements."""
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Piece:
        """Return elements ``start`` to ``stop`` of the piece."""
        return self._replace(start=self.start + start, stop=self.start + stop)


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


class Gather(NamedTuple):
    """Wait until all of ``ranks`` have come, and see what they wrote before."""

    ranks: tuple[int, ...]


Move: TypeAlias = "Exchange | Combine | Copy | Divide | Gather"


def in_pieces(moves: Sequence[Move], cache: int) -> list[Move]:
    """Do local moves on the same elements piece by piece: on one piece all of them, then on the next.

    A piece's operands have ``cache`` elements together. Moves go together as long as their operands are of one length
    and those in the same memory the same or apart, so that no piece of one touches another piece of an earlier one.
    """
    found: list[Move] = []
    run: list[Combine | Copy | Divide] = []
    operands: dict[Piece, None] = {}

    def end_run() -> None:
        length = next(iter(operands)).length if operands else 0
        parts = min(length, -(-length * len(operands) // cache)) if len(run) > 1 else 1
        cuts = [length * part // parts for part in range(parts + 1)]
        for start, stop in pairwise(cuts):
            for move in run:
                found.append(type(move)(*(piece.part(start, stop) for piece in move)))
        run.clear()
        operands.clear()

    for move in moves:
        if isinstance(move, (Exchange, Gather)):
            end_run()
            found.append(move)
            continue
        if operands and not all(_side_by_side(piece, other) for piece in move for other in operands):
            end_run()
        run.append(move)
        operands.update(dict.fromkeys(move))
    end_run()
    return found


def _side_by_side(one: Piece, other: Piece) -> bool:
    """Say whether two pieces are of one length, and the same or apart."""
    if one.length != other.length:
        return False
    if one == other or (one.buffer, one.rank) != (other.buffer, other.rank):
        return True
    return one.stop <= other.start or other.stop <= one.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Hold the moves of one rank.

    The buffers ``input`` and ``result`` are the caller's (``result`` alone where the input lies in it); ``scratch``
    says how many elements of each other buffer the program needs. ``sent`` counts elements sent, ``segment`` is the
    longest message allowed, in elements; ``steps`` holds for each Sendrecv of the schedule the elements of its longer
    message, and how many of them are reduced then. Pieces of other ranks are of the buffers that those have by the same
    names.
    """

    moves: tuple[Move, ...]
    scratch: dict[str, int]
    sent: int
    segment: int
    steps: tuple[tuple[int, int], ...] = ()

"""Turn one rank's schedule into moves between named buffers, without MPI and without allocating.

Python integers only, so that a plan for any size can be looked at (and its memory refused) before anything exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ringbench.runtime.moves import (
    MESSAGE_LIMIT,
    Combine,
    Copy,
    Divide,
    Exchange,
    Gather,
    Move,
    Piece,
    Program,
    in_pieces,
)
from ringbench.schedule.blocks import block_offset, block_offsets
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.rendezvous import Observer, play
from ringbench.schedule.semantics import Collective, collective_named
from ringbench.schedule.step import Local, Meet, Operation, Span, Spans, Step, ranges, spans


def compile_program(
    algorithm: Algorithm,
    rank: int,
    nranks: int,
    count: int,
    *,
    in_place: bool,
    average: bool = False,
    segment: int = MESSAGE_LIMIT,
    cache: int | None = None,
) -> Program:
    """Compile what ``rank`` does for a vector of ``count`` elements, in messages of at most ``segment`` elements.

    A message is cut by its own length alone, so that its two ends agree. Where ranks share memory, local moves on the
    same elements are done in pieces whose operands have ``cache`` elements together (None: whole). Raises ValueError
    where an algorithm whose messages may not be cut would send one longer than MESSAGE_LIMIT.
    """
    compiler = _compiled(algorithm, rank, nranks, count, in_place, average, segment, True)
    cut = algorithm.shared is not None and cache is not None
    return Program(
        moves=tuple(in_pieces(compiler.moves, max(1, cache or 1)) if cut else compiler.moves),
        scratch=compiler.sizes(),
        sent=compiler.sent,
        segment=compiler.segment,
        steps=tuple(compiler.steps) if algorithm.shared is None else (),
    )


def scratch_sizes(
    algorithm: Algorithm, rank: int, nranks: int, count: int, *, in_place: bool, segment: int = MESSAGE_LIMIT
) -> dict[str, int]:
    """Return the ``scratch`` of the program without spelling out its segments: as fast for 1 TiB as for 1 KiB."""
    return _compiled(algorithm, rank, nranks, count, in_place, False, segment, False).sizes()


def _compiled(
    algorithm: Algorithm,
    rank: int,
    nranks: int,
    count: int,
    in_place: bool,
    average: bool,
    segment: int,
    cut: bool,
) -> _Compiler:
    for save_input in (False, True):
        compiler = _Compiler(algorithm, rank, nranks, count, in_place, average, segment, cut, save_input)
        if compiler.run():
            return compiler
    raise AssertionError("a saved input is never overwritten")


@dataclass(slots=True)
class _Vector:
    """Know where the vector of one rank lies: which blocks it brings and gets, and which were written by now."""

    brought: range
    got: range
    written: bytearray


class _Everyone(Observer):
    """Hand a compiler what its rank does, and have it note what the others do, in an order that can be."""

    def __init__(self, compiler: _Compiler) -> None:
        self.compiler = compiler

    def local(self, rank: int, round: int, action: Local) -> None:
        self.compiler.see(rank, action)

    def finish(self, rank: int, round: int, step: Step) -> None:
        self.compiler.see(rank, step)

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        if self.compiler.rank in ranks:
            self.compiler.see(self.compiler.rank, Meet(ranks))


@dataclass(slots=True)
class _Compiler:
    algorithm: Algorithm
    rank: int
    nranks: int
    count: int
    in_place: bool
    average: bool
    segment: int
    cut: bool
    save_input: bool
    collective: Collective = field(init=False)
    nblocks: int = field(init=False)
    ntemp: int = field(init=False)
    vectors: dict[int, _Vector] = field(default_factory=dict)
    own: _Vector = field(init=False)
    moves: list[Move] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.collective = collective_named(self.algorithm.collective)
        self.collective.check_count(self.nranks, self.count)
        self.nblocks = self.algorithm.blocks(self.nranks)
        self.ntemp = self.algorithm.temp(self.nranks)
        self.own = self._vector(self.rank)
        self.segment = max(1, min(self.segment, MESSAGE_LIMIT)) if self.algorithm.segmentable else MESSAGE_LIMIT

    def run(self) -> bool:
        """Compile; return False where the input must be saved first because it is read after it was overwritten."""
        if self.save_input:
            self.scratch["saved"] = self.count
            brought = self._input(self.own.brought.start, self.own.brought.stop)
            if brought.length:
                self.moves.append(Copy(brought, brought._replace(buffer="saved")))
        if self.algorithm.shared == "work" and not self.in_place:
            # Where a block of another rank is now, in its input or its result, depends on what all have done.
            programs = [self.algorithm.operations(rank, self.nranks) for rank in range(self.nranks)]
            if play(programs, _Everyone(self)):
                raise ValueError(f"{self.algorithm.title}, {self.nranks} ranks: never ends")
        else:
            for operation in self.algorithm.operations(self.rank, self.nranks):
                if self._reads_lost_input(operation):
                    return False
                self.see(self.rank, operation)
        self._deliver(divide=self.average and not self.algorithm.scales and self.nranks > 1)
        return True

    def see(self, rank: int, operation: Operation) -> None:
        """Compile an operation of this rank's own; note what one of another rank's writes."""
        if rank != self.rank:
            if isinstance(operation, Step):
                self._mark(operation.recv if operation.source is not None else (), rank)
            elif isinstance(operation, Local) and (operation.action != "scale" or self.average):
                self._mark(operation.dest, rank)
        elif isinstance(operation, Step):
            self._step(operation)
        elif isinstance(operation, Meet):
            self.moves.extend([Gather(tuple(operation.ranks))] if self.count else [])
        elif operation.action != "scale":
            self._local(operation)
        elif self.average:
            self._scale(operation)

    def _vector(self, rank: int | None) -> _Vector:
        rank = self.rank if rank is None else rank
        found = self.vectors.get(rank)
        if found is None:
            blocks = (self.collective.brought, self.collective.got)
            brought, got = (held(rank, self.nblocks, self.algorithm.root) for held in blocks)
            found = self.vectors[rank] = _Vector(brought, got, bytearray(self.nblocks))
        return found

    def sizes(self) -> dict[str, int]:
        """Return the elements of each scratch buffer that has any."""
        return {name: size for name, size in self.scratch.items() if size}

    def _reads_lost_input(self, operation: Operation) -> bool:
        if not self.in_place or self.save_input or isinstance(operation, Meet):
            return False
        if isinstance(operation, Step):
            read, written = operation.send, operation.recv
        else:
            read, written = operation.source, operation.dest
        reads = [part for span in spans(read) if span.place == "original" for part in ranges(span, self.nblocks)]
        if not reads:
            return False
        now = [part for span in spans(written) if span.place == "work" for part in ranges(span, self.nblocks)]
        return any(
            self.own.written.find(1, first, end) >= 0 or any(first < stop and start < end for start, stop in now)
            for first, end in reads
        )

    # Where blocks lie: always as ranges of them, so that 65 536 blocks cost no more than two.

    def _offset(self, block: int) -> int:
        return block_offset(self.count, self.nblocks, block)

    def _input(self, first: int, end: int, rank: int | None = None) -> Piece:
        base = 0 if self.in_place else self._offset(self._vector(rank).brought.start)
        buffer = "result" if self.in_place else "input"
        return Piece(buffer, self._offset(first) - base, self._offset(end) - base, rank)

    def _home(self, first: int, end: int, rank: int | None = None) -> list[Piece]:
        """Return where blocks of ``work`` are written: out of place the result has room for no others than its own."""
        got = self._vector(rank).got
        if self.in_place or len(got) == self.nblocks:
            return [Piece("result", self._offset(first), self._offset(end), rank)]
        low = min(max(first, got.start), end)
        high = max(low, min(end, got.stop))
        if (low, high) != (first, end):
            if rank is not None:
                raise ValueError(f"{self.algorithm.title}: blocks {first} to {end - 1} of rank {rank} are nowhere")
            self.scratch["partial"] = self.count
        base = self._offset(got.start)
        return [
            Piece("partial", self._offset(first), self._offset(low), rank),
            Piece("result", self._offset(low) - base, self._offset(high) - base, rank),
            Piece("partial", self._offset(high), self._offset(end), rank),
        ]

    def _temp(self, first: int, end: int, rank: int | None = None) -> Iterator[Piece]:
        self.scratch["temp"] = self.ntemp // self.nblocks * self.count
        while first < end:
            whole, part = divmod(first, self.nblocks)
            stop = min(end, (whole + 1) * self.nblocks)
            base = whole * self.count
            yield Piece("temp", base + self._offset(part), base + self._offset(stop - whole * self.nblocks), rank)
            first = stop

    def _current(self, first: int, end: int, rank: int | None) -> Iterator[Piece]:
        """Return where blocks of ``work`` can be read now: untouched ones are still in the input."""
        whether = self._vector(rank).written
        while first < end:
            written = whether[first]
            stop = whether.find(1 - written, first, end)
            stop = end if stop < 0 else stop
            if written:
                yield from self._home(first, stop, rank)
            else:
                yield self._input(first, stop, rank)
            first = stop

    def _now(self, value: Spans) -> list[Piece]:
        """Return where some blocks can be read now."""
        pieces: list[Piece] = []
        for span in spans(value):
            for first, end in ranges(span, self.ntemp if span.place == "temp" else self.nblocks):
                if span.place == "temp":
                    pieces.extend(self._temp(first, end, span.rank))
                elif span.place == "original" and self.save_input:
                    pieces.append(Piece("saved", self._offset(first), self._offset(end)))
                elif span.place == "original":
                    pieces.append(self._input(first, end))
                elif self.in_place:
                    pieces.append(Piece("result", self._offset(first), self._offset(end), span.rank))
                else:
                    pieces.extend(self._current(first, end, span.rank))
        return _merge(pieces)

    def _homes(self, value: Spans) -> list[Piece]:
        """Return where some blocks are written."""
        pieces: list[Piece] = []
        for span in spans(value):
            for first, end in ranges(span, self.ntemp if span.place == "temp" else self.nblocks):
                if span.place == "temp":
                    pieces.extend(self._temp(first, end, span.rank))
                else:
                    pieces.extend(self._home(first, end, span.rank))
        return _merge(pieces)

    def _mark(self, value: Spans, rank: int | None = None) -> None:
        """Note that a rank (None: this one) has written some blocks."""
        for span in spans(value):
            if span.place == "work":
                written = self._vector(rank if span.rank is None else span.rank).written
                for first, end in ranges(span, self.nblocks):
                    written[first:end] = b"\1" * (end - first)

    # What is done with them.

    def _step(self, step: Step) -> None:
        sending = self._now(step.send) if step.dest is not None else []
        send = self._pack("send_pack", sending, gather=True)
        if step.source is None:
            self._exchange(send, step.dest, None, None, [])
            return
        receiving = self._homes(step.recv)
        length = sum(piece.length for piece in receiving)
        if step.combine:
            adds = _aligned(self._now(step.recv), receiving)
            self._mark(step.recv)
            recv = Piece("arrived", 0, length) if length else None
            if recv is not None:
                landing = -(-length // self._parts(length)) if len(adds) == 1 else length  # the longest segment
                self.scratch["arrived"] = max(self.scratch.get("arrived", 0), landing)
            self._exchange(send, step.dest, recv, step.source, adds)
            return
        exchanged = len(sending) == 1 and _touching(sending, receiving)  # the same blocks both ways need a buffer
        recv = self._pack("recv_pack", receiving, gather=False, always=exchanged)
        self._mark(step.recv)
        self._exchange(send, step.dest, recv, step.source, [])
        if recv is not None and recv.buffer == "recv_pack":
            self._scatter("recv_pack", receiving)

    def _exchange(
        self,
        send: Piece | None,
        dest: int | None,
        recv: Piece | None,
        source: int | None,
        adds: list[tuple[Piece, ...]],
    ) -> None:
        """Emit one step's message, cut into segments; what arrives is added segment by segment while it is in cache.

        An empty message is not sent at all: both ends know its length.
        """
        send_parts, recv_parts = self._cut(send), self._cut(recv)
        sent, received = send.length if send else 0, recv.length if recv else 0
        self.sent += sent
        self.steps.append((max(sent, received), received if adds else 0))
        for index in range(max(len(send_parts), len(recv_parts))):
            away = send_parts[index] if index < len(send_parts) else None
            here = recv_parts[index] if index < len(recv_parts) else None
            landing = here
            if here is not None and len(adds) == 1:
                landing = Piece(here.buffer, 0, here.length)  # each segment lands in the same cached place
            self.moves.append(Exchange(away, dest if away else None, landing, source if here else None))
            if here is not None and landing is not None and len(adds) == 1:
                one, out = adds[0]
                self.moves.append(Combine(one.part(here.start, here.stop), landing, out.part(here.start, here.stop)))
        if len(adds) > 1:
            start = 0
            for one, out in adds:
                self.moves.append(Combine(one, Piece("arrived", start, start + one.length), out))
                start += one.length

    def _cut(self, piece: Piece | None) -> list[Piece]:
        if piece is None:
            return []
        parts = self._parts(piece.length)
        if parts == 1 or not self.cut:
            return [piece]
        cuts = block_offsets(piece.length, parts)
        return [Piece(piece.buffer, piece.start + start, piece.start + stop) for start, stop in pairwise(cuts)]

    def _parts(self, length: int) -> int:
        """Return into how many segments a message is cut."""
        if length > MESSAGE_LIMIT and not self.algorithm.segmentable:
            what = self.algorithm.title
            limit = f"the limit of {MESSAGE_LIMIT} (INT_MAX) for one message"
            raise ValueError(f"{what}: a message of {length} elements exceeds {limit}")
        return -(-length // self.segment)

    def _pack(self, buffer: str, pieces: list[Piece], *, gather: bool, always: bool = False) -> Piece | None:
        """Return one piece that stands for several on the wire, gathering them into a buffer where needed."""
        if len(pieces) < 2 and not always:
            return pieces[0] if pieces else None
        length = sum(piece.length for piece in pieces)
        self.scratch[buffer] = max(self.scratch.get(buffer, 0), length)
        if gather:
            start = 0
            for piece in pieces:
                self.moves.append(Copy(piece, Piece(buffer, start, start + piece.length)))
                start += piece.length
        return Piece(buffer, 0, length)

    def _scatter(self, buffer: str, pieces: list[Piece]) -> None:
        start = 0
        for piece in pieces:
            self.moves.append(Copy(Piece(buffer, start, start + piece.length), piece))
            start += piece.length

    def _local(self, action: Local) -> None:
        sources, homes = self._now(action.source), self._homes(action.dest)
        if action.action == "copy":
            self.moves.extend(Copy(source, home) for source, home in _aligned(sources, homes))
        else:
            here = self._now(action.dest)
            self.moves.extend(Combine(one, source, out) for one, source, out in _aligned(here, sources, homes))
        self._mark(action.dest)

    def _scale(self, action: Local) -> None:
        homes = self._homes(action.dest)
        self.moves.extend(Copy(one, out) for one, out in _aligned(self._now(action.dest), homes) if one != out)
        self.moves.extend(Divide(piece) for piece in homes)
        self._mark(action.dest)

    def _deliver(self, *, divide: bool) -> None:
        """Bring result blocks that no step wrote, or that lie elsewhere, to where the caller looks for them."""
        got = self.own.got
        sources = self._now(Span("work", got.start, len(got)))
        if self.in_place and self.collective.name == "reduce_scatter":
            start = 0  # as MPI_Reduce_scatter with MPI_IN_PLACE
        else:
            start = self._offset(got.start) if self.in_place else 0
        length = self._offset(got.stop) - self._offset(got.start)
        targets = [Piece("result", start, start + length)] if length else []
        self.moves.extend(Copy(one, out) for one, out in _aligned(sources, targets) if one != out)
        if divide:
            self.moves.extend(Divide(piece) for piece in targets)


def _touching(one: list[Piece], other: list[Piece]) -> bool:
    return any(a.buffer == b.buffer and a.start < b.stop and b.start < a.stop for a in one for b in other)


def _merge(pieces: list[Piece]) -> list[Piece]:
    """Join neighbours that lie side by side, and drop what is empty."""
    merged: list[Piece] = []
    for piece in pieces:
        if piece.start == piece.stop:
            continue
        last = merged[-1] if merged else None
        if last and (last.buffer, last.rank, last.stop) == (piece.buffer, piece.rank, piece.start):
            merged[-1] = merged[-1]._replace(stop=piece.stop)
        else:
            merged.append(piece)
    return merged


def _aligned(*columns: list[Piece]) -> list[tuple[Piece, ...]]:
    """Cut lists of pieces that hold equally many elements alike: each tuple's pieces are of one length."""
    if all(len(pieces) == 1 for pieces in columns):  # nearly always
        return [tuple(pieces[0] for pieces in columns)]
    cuts = sorted({0}.union(*(accumulate(piece.length for piece in pieces) for pieces in columns)))
    rows = []
    for pieces in columns:
        remaining, row = iter(pieces), []
        piece, done = Piece("", 0, 0), 0
        for start, stop in pairwise(cuts):
            if start == done:
                piece = next(remaining)
                done += piece.length
            row.append(piece._replace(start=piece.stop - (done - start), stop=piece.stop - (done - stop)))
        rows.append(row)
    return list(zip(*rows, strict=True))

"""Turn one rank's schedule into moves between named buffers, without MPI and without allocating.

Python integers only, so that a plan for any size can be looked at (and its memory refused) before anything exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ringbench.runtime.moves import MESSAGE_LIMIT, Combine, Copy, Divide, Exchange, Move, Piece, Program
from ringbench.schedule.blocks import block_offset, block_offsets
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.semantics import Collective, collective_named
from ringbench.schedule.step import Local, Span, Spans, Step, ranges, spans


def compile_program(
    algorithm: Algorithm,
    rank: int,
    nranks: int,
    count: int,
    *,
    in_place: bool,
    average: bool = False,
    segment: int = MESSAGE_LIMIT,
) -> Program:
    """Compile what ``rank`` does for a vector of ``count`` elements, in messages of at most ``segment`` elements.

    A message is cut by its own length alone, so that its two ends agree. Raises ValueError where an algorithm whose
    messages may not be cut would send one longer than MESSAGE_LIMIT.
    """
    compiler = _compiled(algorithm, rank, nranks, count, in_place, average, segment, True)
    return Program(
        moves=tuple(compiler.moves),
        scratch=compiler.sizes(),
        sent=compiler.sent,
        segment=compiler.segment,
        steps=tuple(compiler.steps),
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
    brought: range = field(init=False)
    got: range = field(init=False)
    written: bytearray = field(init=False)
    moves: list[Move] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.collective = collective_named(self.algorithm.collective)
        self.collective.check_count(self.nranks, self.count)
        self.nblocks = self.algorithm.blocks(self.nranks)
        self.ntemp = self.algorithm.temp(self.nranks)
        root = self.algorithm.root
        self.brought = self.collective.brought(self.rank, self.nblocks, root)
        self.got = self.collective.got(self.rank, self.nblocks, root)
        self.written = bytearray(self.nblocks)
        self.segment = max(1, min(self.segment, MESSAGE_LIMIT)) if self.algorithm.segmentable else MESSAGE_LIMIT

    def run(self) -> bool:
        """Compile; return False where the input must be saved first because it is read after it was overwritten."""
        if self.save_input:
            self.scratch["saved"] = self.count
            brought = self._input(self.brought.start, self.brought.stop)
            if brought.length:
                self.moves.append(Copy(brought, brought._replace(buffer="saved")))
        for operation in self.algorithm.operations(self.rank, self.nranks):
            if self._reads_lost_input(operation):
                return False
            if isinstance(operation, Step):
                self._step(operation)
            elif operation.action != "scale":
                self._local(operation)
            elif self.average:
                self._scale(operation)
        self._deliver(divide=self.average and not self.algorithm.scales and self.nranks > 1)
        return True

    def sizes(self) -> dict[str, int]:
        """Return the elements of each scratch buffer that has any."""
        return {name: size for name, size in self.scratch.items() if size}

    def _reads_lost_input(self, operation: Step | Local) -> bool:
        if not self.in_place or self.save_input:
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
            self.written.find(1, first, end) >= 0 or any(first < stop and start < end for start, stop in now)
            for first, end in reads
        )

    # Where blocks lie: always as ranges of them, so that 65 536 blocks cost no more than two.

    def _offset(self, block: int) -> int:
        return block_offset(self.count, self.nblocks, block)

    def _input(self, first: int, end: int) -> Piece:
        base = 0 if self.in_place else self._offset(self.brought.start)
        return Piece("result" if self.in_place else "input", self._offset(first) - base, self._offset(end) - base)

    def _home(self, first: int, end: int) -> list[Piece]:
        """Return where blocks of ``work`` are written: out of place the result has room for no others than its own."""
        if self.in_place or len(self.got) == self.nblocks:
            return [Piece("result", self._offset(first), self._offset(end))]
        low = min(max(first, self.got.start), end)
        high = max(low, min(end, self.got.stop))
        if (low, high) != (first, end):
            self.scratch["partial"] = self.count
        base = self._offset(self.got.start)
        return [
            Piece("partial", self._offset(first), self._offset(low)),
            Piece("result", self._offset(low) - base, self._offset(high) - base),
            Piece("partial", self._offset(high), self._offset(end)),
        ]

    def _temp(self, first: int, end: int) -> Iterator[Piece]:
        self.scratch["temp"] = self.ntemp // self.nblocks * self.count
        while first < end:
            whole, part = divmod(first, self.nblocks)
            stop = min(end, (whole + 1) * self.nblocks)
            base = whole * self.count
            yield Piece("temp", base + self._offset(part), base + self._offset(stop - whole * self.nblocks))
            first = stop

    def _current(self, first: int, end: int) -> Iterator[Piece]:
        """Return where blocks of ``work`` can be read now: untouched ones are still in the input."""
        while first < end:
            written = self.written[first]
            stop = self.written.find(1 - written, first, end)
            stop = end if stop < 0 else stop
            if written:
                yield from self._home(first, stop)
            else:
                yield self._input(first, stop)
            first = stop

    def _now(self, value: Spans) -> list[Piece]:
        """Return where some blocks can be read now."""
        pieces: list[Piece] = []
        for span in spans(value):
            for first, end in ranges(span, self.ntemp if span.place == "temp" else self.nblocks):
                if span.place == "temp":
                    pieces.extend(self._temp(first, end))
                elif span.place == "original" and self.save_input:
                    pieces.append(Piece("saved", self._offset(first), self._offset(end)))
                elif span.place == "original":
                    pieces.append(self._input(first, end))
                elif self.in_place:
                    pieces.append(Piece("result", self._offset(first), self._offset(end)))
                else:
                    pieces.extend(self._current(first, end))
        return _merge(pieces)

    def _homes(self, value: Spans) -> list[Piece]:
        """Return where some blocks are written."""
        pieces: list[Piece] = []
        for span in spans(value):
            for first, end in ranges(span, self.ntemp if span.place == "temp" else self.nblocks):
                pieces.extend(self._temp(first, end) if span.place == "temp" else self._home(first, end))
        return _merge(pieces)

    def _mark(self, value: Spans) -> None:
        for span in spans(value):
            if span.place == "work":
                for first, end in ranges(span, self.nblocks):
                    self.written[first:end] = b"\1" * (end - first)

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
                self.moves.append(Combine(_part(one, here), landing, _part(out, here)))
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
        sources = self._now(Span("work", self.got.start, len(self.got)))
        if self.in_place and self.collective.name == "reduce_scatter":
            start = 0  # as MPI_Reduce_scatter with MPI_IN_PLACE
        else:
            start = self._offset(self.got.start) if self.in_place else 0
        length = self._offset(self.got.stop) - self._offset(self.got.start)
        targets = [Piece("result", start, start + length)] if length else []
        self.moves.extend(Copy(one, out) for one, out in _aligned(sources, targets) if one != out)
        if divide:
            self.moves.extend(Divide(piece) for piece in targets)


def _part(whole: Piece, part: Piece) -> Piece:
    return Piece(whole.buffer, whole.start + part.start, whole.start + part.stop)


def _touching(one: list[Piece], other: list[Piece]) -> bool:
    return any(a.buffer == b.buffer and a.start < b.stop and b.start < a.stop for a in one for b in other)


def _merge(pieces: list[Piece]) -> list[Piece]:
    """Join neighbours that lie side by side, and drop what is empty."""
    merged: list[Piece] = []
    for piece in pieces:
        if piece.start == piece.stop:
            continue
        if merged and merged[-1].buffer == piece.buffer and merged[-1].stop == piece.start:
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
            row.append(Piece(piece.buffer, piece.stop - (done - start), piece.stop - (done - stop)))
        rows.append(row)
    return list(zip(*rows, strict=True))

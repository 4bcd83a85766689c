"""Turn one rank's schedule into moves between named buffers, without MPI and without allocating.

Python integers only, so that a plan for any size can be looked at (and its memory refused) before anything exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ringbench.runtime.moves import MESSAGE_LIMIT, Add, Copy, Divide, Exchange, Move, Piece, Program
from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.semantics import Collective, collective_named
from ringbench.schedule.step import Local, Span, Spans, Step, spans


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
    return Program(moves=tuple(compiler.moves), scratch=compiler.sizes(), sent=compiler.sent, segment=compiler.segment)


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
    offsets: list[int] = field(init=False)
    nblocks: int = field(init=False)
    ntemp: int = field(init=False)
    written: bytearray = field(init=False)
    moves: list[Move] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self.collective = collective_named(self.algorithm.collective)
        self.nblocks = self.algorithm.blocks(self.nranks)
        self.ntemp = self.algorithm.temp(self.nranks)
        self.offsets = block_offsets(self.count, self.nblocks)
        self.written = bytearray(self.nblocks)
        self.segment = max(1, min(self.segment, MESSAGE_LIMIT)) if self.algorithm.segmentable else MESSAGE_LIMIT

    def run(self) -> bool:
        """Compile; return False where the input must be saved first because it is read after it was overwritten."""
        if self.save_input:
            self.scratch["saved"] = self.count
            brought = [self._input(block) for block in range(self.nblocks) if self.collective.brings(self.rank, block)]
            self.moves.extend(Copy(piece, piece._replace(buffer="saved")) for piece in self._merge(brought))
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
        now = {block for span in spans(written) if span.place == "work" for block in self._of(span)}
        inputs = (block for span in spans(read) if span.place == "original" for block in self._of(span))
        return any(self.written[block] or block in now for block in inputs)

    # Where blocks lie.

    def _of(self, span: Span) -> Iterator[int]:
        size = self.ntemp if span.place == "temp" else self.nblocks
        return (block % size for block in range(span.first, span.first + span.count))

    def _input(self, block: int) -> Piece:
        start, stop = self.offsets[block], self.offsets[block + 1]
        if self.in_place:
            return Piece("result", start, stop)
        if not self.collective.reduces:
            return Piece("input", 0, stop - start)  # the rank's own block is all of its input
        return Piece("input", start, stop)

    def _home(self, block: int) -> Piece:
        """Return where a block of ``work`` is written; a reduce_scatter's result holds one block only."""
        start, stop = self.offsets[block], self.offsets[block + 1]
        if self.in_place or self.collective.name != "reduce_scatter":
            return Piece("result", start, stop)
        if block == self.rank:
            return Piece("result", 0, stop - start)
        self.scratch["partial"] = self.count
        return Piece("partial", start, stop)

    def _temp(self, block: int) -> Piece:
        whole, part = divmod(block, self.nblocks)
        self.scratch["temp"] = self.ntemp // self.nblocks * self.count
        base = whole * self.count
        return Piece("temp", base + self.offsets[part], base + self.offsets[part + 1])

    def _saved_input(self, block: int) -> Piece:
        if not self.save_input:
            return self._input(block)
        return Piece("saved", self.offsets[block], self.offsets[block + 1])

    def _now(self, value: Spans) -> list[Piece]:
        """Return where the blocks can be read now: untouched blocks of ``work`` are still in the input."""
        pieces = []
        for span in spans(value):
            for block in self._of(span):
                if span.place == "work":
                    pieces.append(self._home(block) if self.written[block] else self._input(block))
                elif span.place == "temp":
                    pieces.append(self._temp(block))
                else:
                    pieces.append(self._saved_input(block))
        return pieces

    def _homes(self, value: Spans) -> list[Piece]:
        """Return where the blocks are written."""
        return [
            self._home(block) if span.place == "work" else self._temp(block)
            for span in spans(value)
            for block in self._of(span)
        ]

    def _mark(self, value: Spans) -> None:
        for span in spans(value):
            if span.place == "work":
                for block in self._of(span):
                    self.written[block] = 1

    @staticmethod
    def _merge(pieces: list[Piece]) -> list[Piece]:
        """Drop empty pieces and join those that lie side by side."""
        merged: list[Piece] = []
        for piece in pieces:
            if piece.start == piece.stop:
                continue
            if merged and merged[-1].buffer == piece.buffer and merged[-1].stop == piece.start:
                piece = merged.pop()._replace(stop=piece.stop)
            merged.append(piece)
        return merged

    # What is done with them.

    def _step(self, step: Step) -> None:
        sending = self._merge(self._now(step.send)) if step.dest is not None else []
        send = self._pack("send_pack", sending, gather=True)
        if step.source is None:
            self._exchange(send, step.dest, None, None, [])
            return
        receiving = self._homes(step.recv)
        length = sum(piece.length for piece in receiving)
        if step.combine:
            adds = _zip_adds(self._now(step.recv), receiving)
            self._mark(step.recv)
            recv = Piece("arrived", 0, length) if length else None
            if recv is not None:
                landing = -(-length // self._parts(length)) if len(adds) == 1 else length  # the longest segment
                self.scratch["arrived"] = max(self.scratch.get("arrived", 0), landing)
            self._exchange(send, step.dest, recv, step.source, adds)
            return
        merged = self._merge(receiving)
        recv = self._pack("recv_pack", merged, gather=False)
        self._mark(step.recv)
        self._exchange(send, step.dest, recv, step.source, [])
        if len(merged) > 1:
            self._scatter("recv_pack", merged)

    def _exchange(
        self,
        send: Piece | None,
        dest: int | None,
        recv: Piece | None,
        source: int | None,
        adds: list[tuple[Piece, Piece]],
    ) -> None:
        """Emit one step's message, cut into segments; what arrives is added segment by segment while it is in cache.

        An empty message is not sent at all: both ends know its length.
        """
        send_parts, recv_parts = self._cut(send), self._cut(recv)
        self.sent += send.length if send else 0
        for index in range(max(len(send_parts), len(recv_parts))):
            sent = send_parts[index] if index < len(send_parts) else None
            received = recv_parts[index] if index < len(recv_parts) else None
            landing = received
            if received is not None and len(adds) == 1:
                landing = Piece(received.buffer, 0, received.length)  # each segment lands in the same cached place
            self.moves.append(Exchange(sent, dest if sent else None, landing, source if received else None))
            if received is not None and landing is not None and len(adds) == 1:
                one, out = adds[0]
                self.moves.append(Add(_part(one, received), landing, _part(out, received)))
        if len(adds) > 1:
            start = 0
            for one, out in adds:
                self.moves.append(Add(one, Piece("arrived", start, start + one.length), out))
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
            what = f"{self.algorithm.collective} {self.algorithm.name}"
            limit = f"the limit of {MESSAGE_LIMIT} (INT_MAX) for one message"
            raise ValueError(f"{what}: a message of {length} elements exceeds {limit}")
        return -(-length // self.segment)

    def _pack(self, buffer: str, pieces: list[Piece], *, gather: bool) -> Piece | None:
        """Return one piece that stands for several on the wire, gathering them into a buffer where needed."""
        if len(pieces) < 2:
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
            self.moves.extend(Copy(source, home) for source, home in _zip_adds(sources, homes))
        else:
            here = self._now(action.dest)
            for (one, out), (source, _) in zip(_zip_nonempty(here, homes), _zip_nonempty(sources, homes), strict=True):
                self.moves.append(Add(one, source, out))
        self._mark(action.dest)

    def _scale(self, action: Local) -> None:
        homes = self._homes(action.dest)
        self.moves.extend(Copy(one, out) for one, out in _zip_adds(self._now(action.dest), homes) if one != out)
        self.moves.extend(Divide(piece) for piece in self._merge(homes))
        self._mark(action.dest)

    def _deliver(self, *, divide: bool) -> None:
        """Bring result blocks that no step wrote, or that lie elsewhere, to where the caller looks for them."""
        wanted = [block for block in range(self.nblocks) if self.collective.gets(self.rank, block)]
        sources = self._now(tuple(Span("work", block) for block in wanted))
        if self.collective.name == "reduce_scatter" and self.in_place:
            targets = [Piece("result", 0, piece.length) for piece in sources]  # as MPI_Reduce_scatter with MPI_IN_PLACE
        else:
            targets = [self._home(block) for block in wanted]
        self.moves.extend(Copy(one, out) for one, out in _zip_adds(sources, targets) if one != out)
        if divide:
            self.moves.extend(Divide(piece) for piece in self._merge(targets))


def _part(whole: Piece, part: Piece) -> Piece:
    return Piece(whole.buffer, whole.start + part.start, whole.start + part.stop)


def _zip_nonempty(sources: list[Piece], targets: list[Piece]) -> list[tuple[Piece, Piece]]:
    return [(one, out) for one, out in zip(sources, targets, strict=True) if one.start != one.stop]


def _zip_adds(sources: list[Piece], targets: list[Piece]) -> list[tuple[Piece, Piece]]:
    """Pair pieces block by block and join neighbours that lie side by side on both sides."""
    joined: list[tuple[Piece, Piece]] = []
    for one, out in _zip_nonempty(sources, targets):
        if joined:
            last_one, last_out = joined[-1]
            side_by_side = (last_one.buffer, last_one.stop) == (one.buffer, one.start)
            if side_by_side and (last_out.buffer, last_out.stop) == (out.buffer, out.start):
                joined[-1] = (last_one._replace(stop=one.stop), last_out._replace(stop=out.stop))
                continue
        joined.append((one, out))
    return joined

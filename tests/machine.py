"""Run compiled programs of all ranks on lists, and say what the right result is from each collective's definition.

Nothing here asks ``schedule.semantics`` or ``verify``: what a rank brings and gets is spelled out once more.
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from ringbench.runtime.compile import compile_program
from ringbench.runtime.moves import MESSAGE_LIMIT, Combine, Copy, Divide, Exchange, Gather, Piece, Program
from ringbench.schedule.registry import Algorithm

MOST_RANKS = 24
NOISE = random.Random(7)
#: What rank r brings for element i: a bit of its own, below noise that no other element has.
BROUGHT = [[(1 << rank) + (NOISE.getrandbits(24) << 2 * MOST_RANKS) for _ in range(1000)] for rank in range(MOST_RANKS)]
REDUCING = ("allreduce", "reduce_scatter", "reduce")


class Machine:
    """Run the programs of all ranks; raise AssertionError for whatever MPI or a caller would not forgive."""

    def __init__(self, programs: list[Program], memories: list[dict[str, list[Any]]]) -> None:
        self.programs, self.memories = programs, memories
        self.nranks = len(programs)
        self.position = [0] * self.nranks
        self.open: list[list[bool]] = [[False, False] for _ in programs]
        self.sent = [0] * self.nranks
        for program, memory in zip(programs, memories, strict=True):
            assert not set(memory) & set(program.scratch)
            memory.update({name: [None] * count for name, count in program.scratch.items()})

    def memory(self, rank: int, piece: Piece) -> list[Any]:
        assert piece.rank != rank, f"rank {rank} has itself as its peer"
        return self.memories[rank if piece.rank is None else piece.rank][piece.buffer]

    def read(self, rank: int, piece: Piece) -> list[Any]:
        memory = self.memory(rank, piece)
        assert 0 <= piece.start < piece.stop <= len(memory), f"rank {rank}: {piece} outside of {len(memory)}"
        values = memory[piece.start : piece.stop]
        assert None not in values, f"rank {rank} reads {piece}, not all of which was written"
        return values

    def write(self, rank: int, piece: Piece, values: list[Any]) -> None:
        memory = self.memory(rank, piece)
        assert piece.buffer != "input", f"rank {rank} writes its input"
        assert 0 <= piece.start < piece.stop <= len(memory), f"rank {rank}: {piece} outside of {len(memory)}"
        assert piece.length == len(values), f"rank {rank}: {len(values)} elements into {piece}"
        memory[piece.start : piece.stop] = values

    def exchange(self, rank: int) -> Exchange | None:
        move = self.programs[rank].moves[self.position[rank]] if self.position[rank] >= 0 else None
        return move if isinstance(move, Exchange) else None

    def advance(self, rank: int) -> None:
        """Run local moves up to the next exchange; the position is -1 behind the last move."""
        program = self.programs[rank]
        while self.position[rank] < len(program.moves):
            move = program.moves[self.position[rank]]
            if isinstance(move, Exchange):
                self.check(rank, move)
                self.open[rank] = [move.dest is not None, move.source is not None]
                return
            if isinstance(move, Gather):
                assert rank in move.ranks
                return
            if isinstance(move, Combine):
                one, other = self.read(rank, move.one), self.read(rank, move.other)
                self.write(rank, move.out, [a + b for a, b in zip(one, other, strict=True)])
            elif isinstance(move, Copy):
                self.write(rank, move.dest, self.read(rank, move.source))
            else:
                assert isinstance(move, Divide)
                self.write(rank, move.piece, [Fraction(value) / self.nranks for value in self.read(rank, move.piece)])
            self.position[rank] += 1
        self.position[rank] = -1

    def check(self, rank: int, move: Exchange) -> None:
        assert (move.send is None, move.recv is None) == (move.dest is None, move.source is None), move
        assert move.send or move.recv, f"rank {rank} exchanges nothing with nobody"
        for piece in filter(None, (move.send, move.recv)):
            assert 0 < piece.length <= self.programs[rank].segment, f"{piece} is longer than a segment"
        if move.send and move.recv and move.send.buffer == move.recv.buffer:
            apart = move.send.stop <= move.recv.start or move.recv.stop <= move.send.start
            assert apart, f"rank {rank} sends {move.send} while it receives {move.recv}"

    def run(self) -> None:
        for rank in range(self.nranks):
            self.advance(rank)
        moved = True
        while moved:
            moved = False
            for rank in range(self.nranks):
                moved |= self.pass_on(rank) or self.meet(rank)
            for rank in range(self.nranks):
                if self.exchange(rank) and not any(self.open[rank]):
                    self.position[rank] += 1
                    self.advance(rank)
                    moved = True
        assert self.position == [-1] * self.nranks, "deadlock"
        assert self.sent == [program.sent for program in self.programs]

    def meet(self, rank: int) -> bool:
        """Let all that a rank waits for go on, where they have all come."""
        move = self.programs[rank].moves[self.position[rank]] if self.position[rank] >= 0 else None
        if not isinstance(move, Gather):
            return False
        for other in move.ranks:
            if self.position[other] < 0 or self.programs[other].moves[self.position[other]] != move:
                return False
        for other in move.ranks:
            self.position[other] += 1
        for other in move.ranks:
            self.advance(other)
        return True

    def pass_on(self, rank: int) -> bool:
        move = self.exchange(rank)
        if move is None or not self.open[rank][0] or move.dest is None or move.send is None:
            return False
        other = self.exchange(move.dest)
        if other is None or other.source != rank or not self.open[move.dest][1] or other.recv is None:
            return False
        self.write(move.dest, other.recv, self.read(rank, move.send))  # asserts equal lengths
        self.sent[rank] += move.send.length
        self.open[rank][0] = self.open[move.dest][1] = False
        return True


def own_block(rank: int, nranks: int, count: int) -> slice:
    """Return the elements of block ``rank`` where there is one block for each rank, the longer ones first."""
    size, longer = divmod(count, nranks)
    first = rank * size + min(rank, longer)
    return slice(first, first + size + (rank < longer))


def brings(algorithm: Algorithm, rank: int, nranks: int, count: int) -> slice:
    """Return which elements of the vector are a rank's input."""
    if algorithm.collective == "allgather":
        return own_block(rank, nranks, count)
    return slice(count if algorithm.collective != "bcast" or rank == algorithm.root else 0)


def gets(algorithm: Algorithm, rank: int, nranks: int, count: int) -> slice:
    """Return which elements of the right vector are a rank's result."""
    if algorithm.collective == "reduce_scatter":
        return own_block(rank, nranks, count)
    return slice(count if algorithm.collective != "reduce" or rank == algorithm.root else 0)


def run_programs(
    algorithm: Algorithm,
    nranks: int,
    count: int,
    *,
    in_place: bool,
    average: bool = False,
    segment: int = MESSAGE_LIMIT,
    cache: int | None = None,
) -> tuple[list[list[Any]], list[Program]]:
    """Compile and run; return what lies where the caller looks for the result, and check that inputs are unchanged.

    Out of place the caller's buffers are no longer than what he brings and gets: elsewhere there is no room.
    """
    programs, memories, results = [], [], []
    for rank in range(nranks):
        programs.append(
            compile_program(
                algorithm, rank, nranks, count, in_place=in_place, average=average, segment=segment, cache=cache
            )
        )
        mine, yours = brings(algorithm, rank, nranks, count), gets(algorithm, rank, nranks, count)
        if in_place:
            result: list[Any] = [None] * count
            result[mine] = BROUGHT[rank][:count][mine]
            memories.append({"result": result})
        else:
            result = [None] * (yours.stop - (yours.start or 0))
            memories.append({"input": BROUGHT[rank][:count][mine], "result": result})
        results.append(result)
    if algorithm.shared == "temp":  # of the plan, and everybody's, whether a rank uses its own or not
        most = max(program.scratch.get("temp", 0) for program in programs)
        for program in programs:
            program.scratch.update({"temp": most} if most else {})
    Machine(programs, memories).run()
    if not in_place:
        for rank, memory in enumerate(memories):
            mine = brings(algorithm, rank, nranks, count)
            assert memory["input"] == BROUGHT[rank][:count][mine], f"the input of rank {rank} changed"
    found = []
    for rank, result in enumerate(results):
        yours = gets(algorithm, rank, nranks, count)
        found.append(result[: yours.stop - (yours.start or 0)])
    return found, programs


def answer(algorithm: Algorithm, rank: int, nranks: int, count: int, average: bool) -> list[Any]:
    """Return the right result from the definition alone."""
    if algorithm.collective == "bcast":
        return BROUGHT[algorithm.root][:count]
    if algorithm.collective in ("allgather", "alltoall"):
        right = []
        for source in range(nranks):
            block = source if algorithm.collective == "allgather" else rank
            right += BROUGHT[source][:count][own_block(block, nranks, count)]
        return right
    total = [sum(BROUGHT[r][i] for r in range(nranks)) for i in range(count)]
    result = [Fraction(value, nranks) for value in total] if average else total
    return result[gets(algorithm, rank, nranks, count)]

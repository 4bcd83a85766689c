from __future__ import annotations

import random
from typing import Any

from ringbench.runtime.moves import Combine, Copy, Divide, Exchange, Gather, Move, Piece, in_pieces


def run(moves: list[Move], memory: dict[tuple[str, int | None], list[Any]]) -> None:
    def read(piece: Piece) -> list[Any]:
        return memory[piece.buffer, piece.rank][piece.start : piece.stop]

    for move in moves:
        if isinstance(move, Combine):
            out, values = move.out, [a + b for a, b in zip(read(move.one), read(move.other), strict=True)]
        elif isinstance(move, Copy):
            out, values = move.dest, read(move.source)
        elif isinstance(move, Divide):
            out, values = move.piece, [value / 2 for value in read(move.piece)]
        else:
            continue
        memory[out.buffer, out.rank][out.start : out.stop] = values


def piece(start: int, stop: int, rank: int | None = None, buffer: str = "result") -> Piece:
    return Piece(buffer, start, stop, rank)


def pieces(move: Move) -> list[Piece]:
    return [part for part in move if isinstance(part, Piece)]


def test_what_is_added_is_written_before_the_next_piece_is_read() -> None:
    own, theirs = piece(10, 20), piece(10, 20, 1)
    moves = in_pieces([Combine(own, theirs, own), Copy(own, theirs)], 8)
    assert [type(move).__name__ for move in moves] == ["Combine", "Copy"] * 3
    assert [(pieces(move)[0].start, pieces(move)[0].stop) for move in moves[::2]] == [(10, 13), (13, 16), (16, 20)]
    assert all(pieces(a)[0].start == pieces(b)[0].start for a, b in zip(moves[::2], moves[1::2], strict=True))


def test_a_move_alone_stays_whole_and_none_crosses_a_message_or_a_barrier() -> None:
    own, theirs = piece(0, 100), piece(0, 100, 1)
    add, put = Combine(own, theirs, own), Copy(own, theirs)
    assert in_pieces([add], 8) == [add]
    for wait in (Gather((0, 1)), Exchange(own, 1, None, None)):
        assert in_pieces([add, wait, put], 8) == [add, wait, put]
    assert in_pieces([add, put], 200) == [add, put]


def test_moves_that_overlap_or_differ_in_length_keep_their_order() -> None:
    one = Copy(piece(0, 10), piece(10, 20))
    for other in (
        Copy(piece(5, 15), piece(30, 40)),
        Copy(piece(10, 20), piece(15, 25)),
        Copy(piece(0, 9), piece(30, 39)),
    ):
        assert in_pieces([one, other], 4) == [one, other]


def test_there_are_no_more_pieces_than_elements() -> None:
    own, theirs = piece(0, 2), piece(0, 2, 1)
    moves = in_pieces([Combine(own, theirs, own), Copy(own, theirs)], 1)
    assert [pieces(move)[0].length for move in moves] == [1] * 4


def test_pieces_give_what_the_whole_moves_give() -> None:
    """Also where operands overlap, which no schedule here does."""
    random.seed(3)
    for _ in range(2000):
        moves: list[Move] = []
        for _ in range(random.randint(2, 5)):
            length = random.choice((4, 6, 6))
            ends = [
                piece(start, start + length, random.choice((None, 1)))
                for start in (random.choice((0, 2, 6, 12, 18)) for _ in range(3))
            ]
            kind = random.choice((Combine, Copy, Divide))
            moves.append(kind(*ends[: len(kind._fields)]))
        whole, cut = ({("result", rank): [float(i) for i in range(24)] for rank in (None, 1)} for _ in range(2))
        run(moves, whole)
        run(in_pieces(moves, random.choice((1, 5, 9))), cut)
        # A copy onto an overlapping part of itself reads before it writes only where it is whole.
        if all(len({(p.buffer, p.rank) for p in pieces(move)}) == len(move) or len(set(move)) == 1 for move in moves):
            assert cut == whole, moves

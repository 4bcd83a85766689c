from __future__ import annotations

from math import ceil, floor, log2

import pytest

from ringbench.schedule.compose import Part, ceil_log2, floor_log2, fold, folded, folded_rounds, placed, renamed
from ringbench.schedule.step import Local, Operations, Span, Step, combine, copy, original, scale, temp, work


def test_logarithms() -> None:
    for number in range(1, 1000):
        assert (floor_log2(number), ceil_log2(number)) == (floor(log2(number)), ceil(log2(number)))
    assert (floor_log2(2**60 + 1), ceil_log2(2**60 + 1)) == (60, 61)


@pytest.mark.parametrize("keep", [0, 1])
def test_folding_leaves_a_power_of_two_and_pairs_off_the_rest(keep: int) -> None:
    for nranks in range(1, 71):
        folds = [fold(rank, nranks, keep) for rank in range(nranks)]
        rest = nranks - folds[0].power
        assert {(one.power, one.rest) for one in folds} == {(2 ** floor(log2(nranks)), rest)}
        staying = [one.index for one in folds if one.index is not None]
        assert staying == list(range(folds[0].power))
        for rank, one in enumerate(folds):
            if one.index is not None:
                assert one.rank(one.index) == rank
            if rank >= 2 * rest:
                assert one.partner is None
                assert one.index is not None
            else:
                assert one.partner == rank + 1 - 2 * (rank % 2)
                assert folds[one.partner].partner == rank
                assert (one.index is None) == (rank % 2 != keep)


def test_of_five_ranks_the_first_leaves_and_the_second_is_index_0() -> None:
    assert [fold(rank, 5).index for rank in range(5)] == [None, 0, 1, 2, 3]
    assert [fold(rank, 5, keep=0).index for rank in range(5)] == [0, None, 1, 2, 3]
    assert [fold(rank, 7).index for rank in range(7)] == [None, 0, None, 1, None, 2, 3]
    assert [fold(rank, 8).partner for rank in range(8)] == [None] * 8


def nothing(index: int, power: int) -> Operations:
    yield Step(dest=(index + 1) % power, send=work(index), source=(index - 1) % power, recv=work(index - 1))


def test_a_folded_schedule_runs_between_those_that_remain() -> None:
    whole = work(0, 3)
    assert list(folded(0, 6, 3, nothing)) == [Step(dest=1, send=whole), Step(source=1, recv=whole)]
    inner = Step(dest=3, send=work(0), source=5, recv=work(-1))
    assert list(folded(1, 6, 3, nothing)) == [
        Step(source=0, recv=whole, combine=True),
        inner,
        Step(dest=0, send=whole),
    ]
    assert list(folded(4, 6, 3, nothing)) == [Step(dest=5, send=work(2), source=3, recv=work(1))]
    assert list(folded(0, 4, 3, nothing)) == [Step(dest=1, send=work(0), source=3, recv=work(-1))]


def test_folding_costs_two_rounds() -> None:
    assert [folded_rounds(10, nranks) for nranks in (1, 2, 3, 4, 5, 7, 8, 9)] == [10, 10, 12, 10, 12, 12, 10, 12]


def test_renaming_changes_peers_and_nothing_else() -> None:
    operations: list[Step | Local] = [
        Step(dest=0, send=work(1), source=2, recv=temp(0), combine=True),
        Step(source=1, recv=work(0)),
        Step(dest=1, send=(work(0), original(1))),
        scale(work(0)),
    ]
    assert list(renamed(operations, lambda rank: 10 * rank + 1)) == [
        Step(dest=1, send=work(1), source=21, recv=temp(0), combine=True),
        Step(source=11, recv=work(0)),
        Step(dest=11, send=(work(0), original(1))),
        scale(work(0)),
    ]


#: Blocks 4 and 5 of six; the schedule has two temp slots of two blocks, so that its input is kept in a third one.
PART = Part(first=4, size=2, nblocks=6, ntemp=4)


@pytest.mark.parametrize(
    ("span", "where"),
    [
        (work(0), [work(4)]),
        (work(1), [work(5)]),
        (work(-1), [work(5)]),
        (work(0, 2), [work(4, 2)]),
        (work(1, 2), [work(5), work(4)]),  # around the end of the part, not of the vector
        (work(0, 0), []),
        (temp(0), [temp(4)]),
        (temp(1), [temp(5)]),
        (temp(2), [temp(10)]),
        (temp(0, 4), [temp(4, 2), temp(10, 2)]),
        (temp(1, 2), [temp(5), temp(10)]),
        (temp(3, 2), [temp(11), temp(4)]),
        (original(0), [temp(16)]),
        (original(1, 2), [temp(17), temp(16)]),
    ],
)
def test_a_schedule_is_placed_on_a_part_of_the_vector(span: Span, where: list[Span]) -> None:
    assert PART.spans(span) == tuple(where)
    assert PART.spans((span, span)) == tuple(where + where)


def test_blocks_keep_their_number_in_temp_so_that_they_keep_their_size() -> None:
    """Wherever a part begins, its temp block t is as large as block t of the part: what ``verify`` demands of both."""
    for first in range(0, 12, 3):
        part = Part(first=first, size=3, nblocks=12, ntemp=6)
        for block in range(6):
            (span,) = part.spans(temp(block))
            assert span.first % 12 == first + block % 3
        for block in range(3):
            assert part.spans(original(block))[0].first % 12 == first + block
            assert part.spans(original(block))[0].first >= 2 * 12  # behind both slots


def test_a_placed_schedule_leaves_the_average_to_others() -> None:
    operations: list[Step | Local] = [
        copy(work(0), temp(0)),
        Step(dest=1, send=original(0), source=1, recv=work(0), combine=True),
        scale(work(0)),
        combine(temp(0), work(0)),
    ]
    part = Part(first=1, size=1, nblocks=3, ntemp=1)
    assert list(placed(operations, part)) == [
        copy((work(1),), (temp(1),)),
        Step(dest=1, send=(temp(4),), source=1, recv=(work(1),), combine=True),
        combine((temp(1),), (work(1),)),
    ]

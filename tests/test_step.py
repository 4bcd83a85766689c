from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from ringbench.schedule.step import (
    Local,
    Span,
    Step,
    block_numbers,
    combine,
    copy,
    describe,
    original,
    ranges,
    scale,
    spans,
    temp,
    work,
)


def test_a_span_counts_past_the_end_and_below_zero() -> None:
    assert block_numbers(work(3, 3), 4, 0) == [("work", 3), ("work", 0), ("work", 1)]
    assert block_numbers(work(-1), 4, 0) == [("work", 3)]
    assert block_numbers(original(9), 4, 0) == [("original", 1)]


@pytest.mark.parametrize(
    ("first", "count", "found"),
    [
        (0, 4, ((0, 4),)),
        (1, 3, ((1, 4),)),
        (1, 4, ((1, 4), (0, 1))),
        (3, 2, ((3, 4), (0, 1))),
        (-1, 1, ((3, 4),)),
        (-1, 2, ((3, 4), (0, 1))),
        (9, 2, ((1, 3),)),
        (2, 0, ()),
    ],
)
def test_a_span_is_one_range_or_two_where_it_passes_the_end(
    first: int, count: int, found: tuple[tuple[int, int], ...]
) -> None:
    assert ranges(work(first, count), 4) == found


def test_ranges_are_the_blocks_of_a_span() -> None:
    for size in range(1, 7):
        for first in range(-size, 2 * size):
            for count in range(size + 1):
                found = [block for start, end in ranges(work(first, count), size) for block in range(start, end)]
                assert found == [block for _, block in block_numbers(work(first, count), size, 0)]
                assert found == [(first + k) % size for k in range(count)]


def test_a_range_costs_no_more_for_a_million_blocks() -> None:
    assert ranges(work(-5, 10**12), 10**12 + 1) == ((10**12 - 4, 10**12 + 1), (0, 10**12 - 5))
    with pytest.raises(ValueError, match="work block 0: a span of 3 blocks where there are 2"):
        ranges(work(0, 3), 2)


def test_temp_wraps_at_its_own_length() -> None:
    assert block_numbers(temp(7, 2), 4, 8) == [("temp", 7), ("temp", 0)]


def test_several_spans_travel_in_the_order_given() -> None:
    assert block_numbers((temp(1), work(2, 2), original(0)), 4, 4) == [
        ("temp", 1),
        ("work", 2),
        ("work", 3),
        ("original", 0),
    ]
    assert block_numbers((), 4, 0) == []


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (temp(0), "temp block 0: a span of 1 blocks where there are 0"),
        (work(2, 5), "work block 2: a span of 5 blocks where there are 4"),
        (original(1, -1), "original block 1: a span of -1 blocks"),
    ],
)
def test_a_span_that_does_not_fit_its_place_is_refused(span: Span, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block_numbers(span, 4, 0)


def test_a_span_of_all_blocks_fits() -> None:
    assert [block for _, block in block_numbers(work(2, 4), 4, 0)] == [2, 3, 0, 1]


def test_one_span_and_a_tuple_of_spans_read_alike() -> None:
    assert spans(work(1)) == spans((work(1),)) == (work(1),)
    assert spans(()) == ()


def test_descriptions_name_place_and_blocks() -> None:
    assert describe(work(3), 4, 0) == "block 3"
    assert describe(work(-1), 4, 0) == "block 3"
    assert describe(temp(2, 4), 4, 8) == "temp blocks 2..5"
    assert describe(work(3, 3), 4, 0) == "blocks 3..1"
    assert describe((work(0), original(1)), 4, 0) == "block 0 and original block 1"
    assert describe((), 4, 0) == "no block"


def test_local_actions_read_from_source_to_destination() -> None:
    assert copy(temp(1), work(0)) == Local("copy", work(0), temp(1))
    assert combine(temp(1), work(0)) == Local("combine", work(0), temp(1))
    assert scale(work(2)) == Local("scale", work(2), ())


def test_a_step_is_a_value_without_peers_unless_given() -> None:
    step = Step()
    assert (step.dest, step.source, step.send, step.recv, step.combine) == (None, None, (), (), False)
    assert Step(dest=1, send=work(0)) == Step(dest=1, send=work(0))
    with pytest.raises(FrozenInstanceError):
        step.dest = 1  # type: ignore[misc]

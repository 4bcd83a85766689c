from __future__ import annotations

import pytest

from ringbench.schedule.blocks import block_offset, block_offsets, block_sizes


@pytest.mark.parametrize(
    ("count", "nblocks", "sizes"),
    [
        (10, 4, [3, 3, 2, 2]),
        (3, 4, [1, 1, 1, 0]),
        (0, 3, [0, 0, 0]),
        (8, 4, [2, 2, 2, 2]),
        (5, 1, [5]),
    ],
)
def test_sizes(count: int, nblocks: int, sizes: list[int]) -> None:
    assert block_sizes(count, nblocks) == sizes


def test_offsets_end_with_the_count() -> None:
    assert block_offsets(10, 4) == [0, 3, 6, 8, 10]


def test_offsets_above_the_limits_of_c_integers() -> None:
    offsets = block_offsets(3_221_225_472, 4)
    assert offsets[:4] == [0, 805306368, 1610612736, 2415919104]
    assert block_offsets(2**70, 2) == [0, 2**69, 2**70]
    assert all(type(offset) is int for offset in offsets)


def test_blocks_tile_the_vector_evenly_with_the_larger_ones_first() -> None:
    for nblocks in range(1, 20):
        for count in range(60):
            offsets, sizes = block_offsets(count, nblocks), block_sizes(count, nblocks)
            assert (offsets[0], offsets[-1], len(offsets)) == (0, count, nblocks + 1)
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
            assert sum(sizes) == count


@pytest.mark.parametrize(("count", "nblocks", "message"), [(-1, 4, "-1"), (4, 0, "0 blocks"), (4, -2, "-2 blocks")])
def test_impossible_cuts_are_refused_by_value(count: int, nblocks: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block_offsets(count, nblocks)


def test_one_offset_is_known_without_the_others() -> None:
    for nblocks in range(1, 20):
        for count in range(60):
            offsets = block_offsets(count, nblocks)
            assert [block_offset(count, nblocks, block) for block in range(nblocks + 1)] == offsets
    assert block_offset(10**30, 10**15, 10**15 - 1) == 10**30 - 10**15

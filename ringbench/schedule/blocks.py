"""How a vector is cut into blocks."""

from __future__ import annotations

from itertools import pairwise


def block_offset(count: int, nblocks: int, block: int) -> int:
    """Return where block ``block`` of ``nblocks`` starts in ``count`` elements: no list, however many blocks."""
    size, larger = divmod(count, nblocks)
    return block * size + min(block, larger)


def block_offsets(count: int, nblocks: int) -> list[int]:
    """Return where each of ``nblocks`` blocks of ``count`` elements starts, and as last entry ``count``.

    The first ``count mod nblocks`` blocks hold one element more than the others; blocks are empty where there are
    fewer elements than blocks. Python integers, so no size overflows. Raises ValueError for a negative count or fewer
    than one block.
    """
    if count < 0:
        raise ValueError(f"count {count}: must not be negative")
    if nblocks < 1:
        raise ValueError(f"{nblocks} blocks: there must be at least one")
    return [block_offset(count, nblocks, block) for block in range(nblocks + 1)]


def block_sizes(count: int, nblocks: int) -> list[int]:
    """Return the number of elements in each block."""
    offsets = block_offsets(count, nblocks)
    return [end - start for start, end in pairwise(offsets)]

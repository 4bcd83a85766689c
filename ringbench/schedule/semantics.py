"""What each collective promises: who brings what, who ends with what, and its bus factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ringbench.schedule.blocks import block_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """State the pre-condition and post-condition of one collective over blocks of the whole vector.

    ``brings(rank, block, root)`` says whether a rank's input holds the block, ``gets(rank, block, root)`` whether its
    result must, and ``owner(block, root)`` which single rank contributes it (None: every rank does). ``per_rank``
    collectives have one block for each rank. In one that ``transposes`` block b of rank r's result is block r of rank
    b's input, so that all blocks must be of one size. ``bus_factor(nranks)`` turns algbw into busbw as nccl-tests does.
    """

    name: str
    reduces: bool
    rooted: bool = False
    per_rank: bool = False
    transposes: bool = False
    brings: Callable[[int, int, int], bool]
    gets: Callable[[int, int, int], bool]
    owner: Callable[[int, int], int | None]
    bus_factor: Callable[[int], Fraction]

    def contributors(self, block: int, nranks: int, root: int) -> int:
        """Return the set of ranks that a result block must contain, as a bit mask."""
        owner = self.owner(block, root)
        return (1 << nranks) - 1 if owner is None else 1 << owner

    def origin(self, rank: int, block: int) -> int:
        """Return the number that a block of ``rank``'s result has in the input it comes from."""
        return rank if self.transposes else block

    def brought(self, rank: int, nblocks: int, root: int) -> range:
        """Return the blocks of ``rank``'s input: always neighbours."""
        return _held(self.brings, rank, nblocks, root, self.per_rank)

    def got(self, rank: int, nblocks: int, root: int) -> range:
        """Return the blocks of ``rank``'s result: always neighbours."""
        return _held(self.gets, rank, nblocks, root, self.per_rank)

    def send_count(self, rank: int, nranks: int, count: int, root: int = 0) -> int:
        """Return the elements in ``rank``'s input when the whole vector has ``count``."""
        return _elements(self.brought(rank, nranks, root), nranks, count)

    def recv_count(self, rank: int, nranks: int, count: int, root: int = 0) -> int:
        """Return the elements in ``rank``'s result when the whole vector has ``count``."""
        return _elements(self.got(rank, nranks, root), nranks, count)

    def check_count(self, nranks: int, count: int) -> None:
        """Raise ValueError where a vector of ``count`` elements cannot be cut as the collective needs it."""
        if self.transposes and count % nranks:
            elements = f"{count} element{'s'[: count != 1]}"
            raise ValueError(f"{self.name} of {elements}: needs a multiple of {nranks}, as many for each rank")


def _held(holds: Callable[[int, int, int], bool], rank: int, nblocks: int, root: int, per_rank: bool) -> range:
    """Return which blocks are held; no collective here has more cases than all of them, none, or the rank's own."""
    other = (rank + 1) % nblocks
    if per_rank and nblocks > 1 and holds(rank, rank, root) != holds(rank, other, root):
        return range(rank, rank + 1)
    return range(nblocks if holds(rank, rank % nblocks, root) else 0)


def _elements(blocks: range, nblocks: int, count: int) -> int:
    return block_offset(count, nblocks, blocks.stop) - block_offset(count, nblocks, blocks.start)


def _everywhere(rank: int, block: int, root: int) -> bool:
    return True


def _own(rank: int, block: int, root: int) -> bool:
    return rank == block


def _at_root(rank: int, block: int, root: int) -> bool:
    return rank == root


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            name="allreduce",
            reduces=True,
            brings=_everywhere,
            gets=_everywhere,
            owner=lambda block, root: None,
            bus_factor=lambda nranks: Fraction(2 * (nranks - 1), nranks),
        ),
        Collective(
            name="reduce_scatter",
            reduces=True,
            per_rank=True,
            brings=_everywhere,
            gets=_own,
            owner=lambda block, root: None,
            bus_factor=lambda nranks: Fraction(nranks - 1, nranks),
        ),
        Collective(
            name="allgather",
            reduces=False,
            per_rank=True,
            brings=_own,
            gets=_everywhere,
            owner=lambda block, root: block,
            bus_factor=lambda nranks: Fraction(nranks - 1, nranks),
        ),
        Collective(
            name="bcast",
            reduces=False,
            rooted=True,
            brings=_at_root,
            gets=_everywhere,
            owner=lambda block, root: root,
            bus_factor=lambda nranks: Fraction(1),
        ),
        Collective(
            name="reduce",
            reduces=True,
            rooted=True,
            brings=_everywhere,
            gets=_at_root,
            owner=lambda block, root: None,
            bus_factor=lambda nranks: Fraction(1),
        ),
        Collective(
            name="alltoall",
            reduces=False,
            per_rank=True,
            transposes=True,
            brings=_everywhere,
            gets=_everywhere,
            owner=lambda block, root: block,
            bus_factor=lambda nranks: Fraction(nranks - 1, nranks),
        ),
    )
}


def collective_named(name: str) -> Collective:
    """Return the semantics of a collective; raise ValueError naming the known ones."""
    try:
        return COLLECTIVES[name]
    except KeyError:
        raise ValueError(f"unknown collective {name!r}; known: {', '.join(COLLECTIVES)}") from None

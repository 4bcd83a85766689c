"""What each collective promises: who brings what, who ends with what, and its bus factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ringbench.schedule.blocks import block_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """State the pre-condition and post-condition of one collective over blocks of the whole vector.

    ``brings(rank, block)`` says whether a rank's input holds the block, ``gets(rank, block)`` whether its result must,
    and ``owner(block)`` which single rank contributes it (None: every rank does). ``per_rank`` collectives have one
    block for each rank. ``bus_factor(nranks)`` turns algbw into busbw as nccl-tests does.
    """

    name: str
    reduces: bool
    per_rank: bool
    brings: Callable[[int, int], bool]
    gets: Callable[[int, int], bool]
    owner: Callable[[int], int | None]
    bus_factor: Callable[[int], Fraction]

    def contributors(self, block: int, nranks: int) -> int:
        """Return the set of ranks that a result block must contain, as a bit mask."""
        owner = self.owner(block)
        return (1 << nranks) - 1 if owner is None else 1 << owner

    def send_count(self, rank: int, nranks: int, count: int) -> int:
        """Return the elements in ``rank``'s input when the whole vector has ``count``."""
        return self._elements(self.brings, rank, nranks, count)

    def recv_count(self, rank: int, nranks: int, count: int) -> int:
        """Return the elements in ``rank``'s result when the whole vector has ``count``."""
        return self._elements(self.gets, rank, nranks, count)

    def _elements(self, holds: Callable[[int, int], bool], rank: int, nranks: int, count: int) -> int:
        sizes = block_sizes(count, nranks)
        return sum(size for block, size in enumerate(sizes) if holds(rank, block))


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            name="allreduce",
            reduces=True,
            per_rank=False,
            brings=lambda rank, block: True,
            gets=lambda rank, block: True,
            owner=lambda block: None,
            bus_factor=lambda nranks: Fraction(2 * (nranks - 1), nranks),
        ),
        Collective(
            name="reduce_scatter",
            reduces=True,
            per_rank=True,
            brings=lambda rank, block: True,
            gets=lambda rank, block: rank == block,
            owner=lambda block: None,
            bus_factor=lambda nranks: Fraction(nranks - 1, nranks),
        ),
        Collective(
            name="allgather",
            reduces=False,
            per_rank=True,
            brings=lambda rank, block: rank == block,
            gets=lambda rank, block: True,
            owner=lambda block: block,
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

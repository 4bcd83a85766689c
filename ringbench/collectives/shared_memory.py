"""Inside a node: ranks whose vectors lie in shared memory reduce where the data lie, and send nothing."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import register
from ringbench.schedule.step import Meet, Operations, Place, combine, copy, peer, scale, work


def in_work() -> Place:
    """Say that the vectors themselves are shared."""
    return "work"


def _meets(nranks: int) -> int:
    return 2 * ceil_log2(nranks)


def _others(nranks: int) -> Fraction:
    return Fraction(nranks - 1, nranks)


def reduced_in_memory(rank: int, nranks: int) -> Operations:
    """Meet, and add block ``rank`` of all others to one's own: one rank alone adds it, always in the same order."""
    yield Meet(range(nranks))
    for k in range(1, nranks):
        yield combine(peer((rank + k) % nranks, work(rank)), work(rank))


def written_to_memory(rank: int, nranks: int) -> Operations:
    """Write one's own block into all other memories, and meet."""
    for k in range(1, nranks):
        yield copy(work(rank), peer((rank + k) % nranks, work(rank)))
    yield Meet(range(nranks))


@register(
    "allreduce",
    "shared_memory",
    blocks=lambda nranks: nranks,
    rounds=_meets,
    sent=lambda nranks: 0,
    critical=lambda nranks: (2 * _others(nranks), _others(nranks)),
    formulas=("2L", "0"),
    shared=in_work,
)
def shared_memory_allreduce(rank: int, nranks: int) -> Operations:
    """Add one's own block from all memories, write it into all. Reads and writes (N-1)/N S each. Jain et al. 2018.

    The block goes through the cache in pieces: each is added and written before the next one is read.
    """
    yield from reduced_in_memory(rank, nranks)
    yield scale(work(rank))
    yield from written_to_memory(rank, nranks)


@register(
    "reduce_scatter",
    "shared_memory",
    blocks=lambda nranks: nranks,
    rounds=_meets,
    sent=lambda nranks: 0,
    critical=lambda nranks: (_others(nranks), _others(nranks)),
    formulas=("2L", "0"),
    shared=in_work,
)
def shared_memory_reduce_scatter(rank: int, nranks: int) -> Operations:
    """Add one's own block from all memories. Reads (N-1)/N S. Jain et al. 2018."""
    yield from reduced_in_memory(rank, nranks)
    yield Meet(range(nranks))


@register(
    "allgather",
    "shared_memory",
    blocks=lambda nranks: nranks,
    rounds=_meets,
    sent=lambda nranks: 0,
    critical=lambda nranks: (_others(nranks), 0),
    formulas=("2L", "0"),
    shared=in_work,
)
def shared_memory_allgather(rank: int, nranks: int) -> Operations:
    """Copy each block from its owner's memory. Reads (N-1)/N S. Jain et al. 2018."""
    yield Meet(range(nranks))
    for k in range(1, nranks):
        owner = (rank + k) % nranks
        yield copy(peer(owner, work(owner)), work(owner))
    yield Meet(range(nranks))


@register(
    "bcast",
    "shared_memory",
    blocks=lambda nranks: 1,
    rounds=_meets,
    sent=lambda nranks: 0,
    critical=lambda nranks: (min(1, nranks - 1), 0),
    formulas=("2L", "0"),
    arguments=("root",),
    shared=in_work,
)
def shared_memory_bcast(rank: int, nranks: int, root: int = 0) -> Operations:
    """Copy the vector from the root's memory. Reads S. Jain et al. 2018."""
    yield Meet(range(nranks))
    if rank != root:
        yield copy(peer(root, work(0)), work(0))
    yield Meet(range(nranks))


@register(
    "reduce",
    "shared_memory",
    blocks=lambda nranks: nranks,
    rounds=_meets,
    sent=lambda nranks: 0,
    critical=lambda nranks: (min(1, nranks - 1), _others(nranks)),
    formulas=("2L", "0"),
    arguments=("root",),
    shared=in_work,
)
def shared_memory_reduce(rank: int, nranks: int, root: int = 0) -> Operations:
    """Add one's own block from all memories, write it to the root's. Reads (N-1)/N S, writes S/N. Jain et al. 2018."""
    yield from reduced_in_memory(rank, nranks)
    yield scale(work(rank))
    if rank != root:
        yield copy(work(rank), peer(root, work(rank)))
    yield Meet(range(nranks))

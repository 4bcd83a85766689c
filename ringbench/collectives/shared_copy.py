"""Inside a node, for vectors that lie elsewhere: through shared memory of the plan's own, copied in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import register
from ringbench.schedule.step import Meet, Operations, Place, Span, combine, copy, peer, scale, temp, work


def _in_temp() -> Place:
    return "temp"


def _others(nranks: int) -> Fraction:
    return Fraction(nranks - 1, nranks)


def _cut(nranks: int, chunks: int) -> int:
    return nranks * chunks


def _turns(nranks: int, chunks: int) -> int:
    return (chunks + 1) * ceil_log2(nranks)


def _pipelined(phases: Sequence[Callable[[int], Operations]], chunks: int, nranks: int) -> Operations:
    """Take each chunk through the phases, a meet before each; while one is in a phase the next is in that before.

    So a phase finds in cache what the one before it has written, and all together meet no more than they must.
    """
    for turn in range(chunks + len(phases) - 1):
        if turn:
            yield Meet(range(nranks))
        for number in reversed(range(len(phases))):
            if 0 <= turn - number < chunks:
                yield from phases[number](turn - number)


def _around(place: Callable[[int, int], Span], first: int, rank: int, nranks: int) -> tuple[Span, Span]:
    """Name those of N blocks, counted from the first, that are not this rank's own."""
    return place(first, rank), place(first + rank + 1, nranks - 1 - rank)


def _put(first: int, rank: int, nranks: int) -> Operations:
    """Copy what the others are to add to where they find it."""
    yield copy(_around(work, first, rank, nranks), _around(temp, first, rank, nranks))


def _add(first: int, rank: int, nranks: int) -> Operations:
    """Add what the others have put there to one's own block: one rank alone, always in the same order."""
    for k in range(1, nranks):
        yield combine(peer((rank + k) % nranks, temp(first + rank)), work(first + rank))


@register(
    "allreduce",
    "shared_copy",
    blocks=_cut,
    temp=_cut,
    rounds=_turns,
    sent=lambda nranks: 0,
    critical=lambda nranks: (2 * _others(nranks), _others(nranks)),
    formulas=("(c+1)L", "0"),
    arguments=("chunks",),
    shared=_in_temp,
)
def shared_copy_allreduce(rank: int, nranks: int, chunks: int = 4) -> Operations:
    """Copy in, add one's own block from all memories, copy all sums out. Reads 2(N-1)/N S. Jain et al. 2018."""

    def put(chunk: int) -> Operations:
        yield from _put(chunk * nranks, rank, nranks)

    def add(chunk: int) -> Operations:
        own = chunk * nranks + rank
        yield from _add(chunk * nranks, rank, nranks)
        yield scale(work(own))
        yield copy(work(own), temp(own))

    def get(chunk: int) -> Operations:
        for k in range(1, nranks):
            owner = (rank + k) % nranks
            yield copy(peer(owner, temp(chunk * nranks + owner)), work(chunk * nranks + owner))

    yield from _pipelined((put, add, get), chunks, nranks)


@register(
    "reduce_scatter",
    "shared_copy",
    blocks=lambda nranks: nranks,
    temp=lambda nranks: nranks,
    rounds=lambda nranks: 2 * ceil_log2(nranks),
    sent=lambda nranks: 0,
    critical=lambda nranks: (_others(nranks), _others(nranks)),
    formulas=("2L", "0"),
    shared=_in_temp,
)
def shared_copy_reduce_scatter(rank: int, nranks: int) -> Operations:
    """Copy in, add one's own block from all memories. Reads (N-1)/N S. Jain et al. 2018."""
    yield from _put(0, rank, nranks)
    yield Meet(range(nranks))
    yield from _add(0, rank, nranks)
    yield Meet(range(nranks))


@register(
    "allgather",
    "shared_copy",
    blocks=lambda nranks: nranks,
    temp=lambda nranks: nranks,
    rounds=lambda nranks: 2 * ceil_log2(nranks),
    sent=lambda nranks: 0,
    critical=lambda nranks: (_others(nranks), 0),
    formulas=("2L", "0"),
    shared=_in_temp,
)
def shared_copy_allgather(rank: int, nranks: int) -> Operations:
    """Copy one's own block in, and all others out. Reads (N-1)/N S. Jain et al. 2018."""
    yield copy(work(rank), temp(rank))
    yield Meet(range(nranks))
    for k in range(1, nranks):
        owner = (rank + k) % nranks
        yield copy(peer(owner, temp(owner)), work(owner))
    yield Meet(range(nranks))


@register(
    "bcast",
    "shared_copy",
    blocks=lambda nranks, chunks: chunks,
    temp=lambda nranks, chunks: chunks,
    rounds=lambda nranks, chunks: max(2, chunks) * ceil_log2(nranks),
    sent=lambda nranks: 0,
    critical=lambda nranks: (min(1, nranks - 1), 0),
    formulas=("cL", "0"),
    arguments=("root", "chunks"),
    shared=_in_temp,
)
def shared_copy_bcast(rank: int, nranks: int, root: int = 0, chunks: int = 4) -> Operations:
    """Copy in at the root, and out everywhere else. Reads S. Jain et al. 2018.

    A single chunk needs a meet at its end, lest the next call overwrites it; of several each is read long before.
    """

    def put(chunk: int) -> Operations:
        if rank == root:
            yield copy(work(chunk), temp(chunk))

    def get(chunk: int) -> Operations:
        if rank != root:
            yield copy(peer(root, temp(chunk)), work(chunk))

    yield from _pipelined((put, get), chunks, nranks)
    if chunks == 1:
        yield Meet(range(nranks))


@register(
    "reduce",
    "shared_copy",
    blocks=_cut,
    temp=_cut,
    rounds=_turns,
    sent=lambda nranks: 0,
    critical=lambda nranks: (2 * _others(nranks), _others(nranks)),
    formulas=("(c+1)L", "0"),
    arguments=("root", "chunks"),
    shared=_in_temp,
)
def shared_copy_reduce(rank: int, nranks: int, root: int = 0, chunks: int = 4) -> Operations:
    """Copy in, add one's own block from all memories, copy out at the root. Reads (N-1)/N S. Jain et al. 2018."""

    def put(chunk: int) -> Operations:
        yield from _put(chunk * nranks, rank, nranks)

    def add(chunk: int) -> Operations:
        own = chunk * nranks + rank
        yield from _add(chunk * nranks, rank, nranks)
        yield scale(work(own))
        if rank != root:
            yield copy(work(own), temp(own))

    def get(chunk: int) -> Operations:
        if rank == root:
            for k in range(1, nranks):
                owner = (root + k) % nranks
                yield copy(peer(owner, temp(chunk * nranks + owner)), work(chunk * nranks + owner))

    yield from _pipelined((put, add, get), chunks, nranks)

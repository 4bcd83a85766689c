"""Broadcasts of long vectors: in parts, or in a pipeline."""

from __future__ import annotations

from fractions import Fraction

from ringbench.collectives.ring import ring_allgather
from ringbench.schedule.compose import ceil_log2, renamed
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, work


@register(
    "bcast",
    "scatter_allgather",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: ceil_log2(nranks) + nranks - 1,
    sent=lambda nranks: Fraction(2 * (nranks - 1), nranks),
    critical=lambda nranks: (Fraction(2 * (nranks - 1), nranks), 0),
    formulas=("L + N-1", "2(N-1)/N"),
    arguments=("root",),
)
def scatter_allgather_bcast(rank: int, nranks: int, root: int = 0) -> Operations:
    """Scatter the blocks along a binomial tree, then gather them round a ring. Van de Geijn; Thakur et al. 2005."""
    i = (rank - root) % nranks
    distance = i & -i if i else 1 << ceil_log2(nranks)
    if i:
        yield Step(source=(rank - distance) % nranks, recv=work(i, min(distance, nranks - i)))
    while distance := distance // 2:
        child = i + distance
        if child < nranks:
            yield Step(dest=(rank + distance) % nranks, send=work(child, min(distance, nranks - child)))
    yield from renamed(ring_allgather(i, nranks), lambda index: (index + root) % nranks)


@register(
    "bcast",
    "chain",
    blocks=lambda nranks, chunks: chunks,
    rounds=lambda nranks, chunks: chunks + nranks - 2 if nranks > 1 else 0,
    sent=lambda nranks: min(1, nranks - 1),
    critical=lambda nranks, chunks: (Fraction(chunks + nranks - 2, chunks) if nranks > 1 else 0, 0),
    formulas=("c + N-2", "1"),
    arguments=("root", "chunks"),
)
def chain_bcast(rank: int, nranks: int, root: int = 0, chunks: int = 1) -> Operations:
    """Hand chunk after chunk down a chain, sending one while the next arrives. Textbook pipeline.

    The time tends to that of one message of the whole vector as the c chunks become many and small.
    """
    i = (rank - root) % nranks
    after = (rank + 1) % nranks if i < nranks - 1 else None
    before = (rank - 1) % nranks if i else None
    if before is None:
        for chunk in range(chunks):
            yield Step(dest=after, send=work(chunk))
    elif after is None:
        for chunk in range(chunks):
            yield Step(source=before, recv=work(chunk))
    else:
        yield Step(source=before, recv=work(0))
        for chunk in range(1, chunks):
            yield Step(dest=after, send=work(chunk - 1), source=before, recv=work(chunk))
        yield Step(dest=after, send=work(chunks - 1))

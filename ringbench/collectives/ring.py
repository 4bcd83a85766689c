"""The ring: every rank talks to its two neighbours only."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


@register(
    "allreduce",
    "ring",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: 2 * (nranks - 1),
    sent=lambda nranks: Fraction(2 * (nranks - 1), nranks),
    critical=lambda nranks: (Fraction(2 * (nranks - 1), nranks), Fraction(nranks - 1, nranks)),
    formulas=("2(N-1)", "2(N-1)/N"),
)
def ring_allreduce(rank: int, nranks: int) -> Operations:
    """Reduce-scatter, then all-gather: the least bytes for any N. Patarasuk and Yuan 2009.

    At step k rank i sends block i-k to the right and adds what comes from the left to block i-k-1; after N-1 steps
    block i+1 is complete at rank i, and N-1 more steps hand the complete blocks round.
    """
    right, left = (rank + 1) % nranks, (rank - 1) % nranks
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank - k), source=left, recv=work(rank - k - 1), combine=True)
    yield scale(work(rank + 1))
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank + 1 - k), source=left, recv=work(rank - k))


@register(
    "reduce_scatter",
    "ring",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: nranks - 1,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), Fraction(nranks - 1, nranks)),
    formulas=("N-1", "(N-1)/N"),
)
def ring_reduce_scatter(rank: int, nranks: int) -> Operations:
    """Run the first half of the ring, shifted by one so that block i ends at rank i. Patarasuk and Yuan 2009."""
    right, left = (rank + 1) % nranks, (rank - 1) % nranks
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank - k - 1), source=left, recv=work(rank - k - 2), combine=True)


@register(
    "allgather",
    "ring",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: nranks - 1,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), 0),
    formulas=("N-1", "(N-1)/N"),
)
def ring_allgather(rank: int, nranks: int) -> Operations:
    """Hand every block once round the ring. Thakur, Rabenseifner and Gropp 2005."""
    right, left = (rank + 1) % nranks, (rank - 1) % nranks
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank - k), source=left, recv=work(rank - k - 1))

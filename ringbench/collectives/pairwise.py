"""Pairwise exchange: every rank deals with every other directly, one after the other."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, original, work


@register(
    "reduce_scatter",
    "pairwise",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: nranks - 1,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), Fraction(nranks - 1, nranks)),
    formulas=("N-1", "(N-1)/N"),
)
def pairwise_reduce_scatter(rank: int, nranks: int) -> Operations:
    """Send every other rank its block, and add what comes for the own one. Thakur, Rabenseifner and Gropp 2005."""
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=work(dest), source=source, recv=work(rank), combine=True)


@register(
    "alltoall",
    "pairwise",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: nranks - 1,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), 0),
    formulas=("N-1", "(N-1)/N"),
)
def pairwise_alltoall(rank: int, nranks: int) -> Operations:
    """Send every other rank its block in a round of its own. Thakur, Rabenseifner and Gropp 2005.

    What arrives may lie where a block waits that is sent later, so blocks are sent from the input as it was.
    """
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=original(dest), source=source, recv=work(source))

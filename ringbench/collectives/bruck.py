"""Bruck's algorithms: log N rounds for any N, by sending along what others will need."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, copy, temp, work


@register(
    "allgather",
    "bruck",
    blocks=lambda nranks: nranks,
    rounds=ceil_log2,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), 0),
    formulas=("L", "(N-1)/N"),
)
def bruck_allgather(rank: int, nranks: int) -> Operations:
    """Double the number of gathered blocks each round, for any N. Bruck et al. 1997.

    Rank i holds blocks i, i+1 ... and gets as many more from the rank behind the last. A range that passes the end of
    the vector goes on at its start, so nothing has to be rotated at the end.
    """
    have = 1
    while have < nranks:
        more = min(have, nranks - have)
        yield Step(
            dest=(rank - have) % nranks,
            send=work(rank, more),
            source=(rank + have) % nranks,
            recv=work(rank + have, more),
        )
        have += more


def _travelling(bit: int, nranks: int) -> range:
    return range(1 << bit, nranks, 2 << bit)


def _sent(nranks: int) -> Fraction:
    return Fraction(sum(distance.bit_count() for distance in range(nranks)), nranks)


@register(
    "alltoall",
    "bruck",
    blocks=lambda nranks: nranks,
    temp=lambda nranks: nranks,
    rounds=ceil_log2,
    sent=_sent,
    critical=lambda nranks: (_sent(nranks), 0),
    formulas=("L", "L/2 for N = 2^L"),
)
def bruck_alltoall(rank: int, nranks: int) -> Operations:
    """Send each block by the bits of its distance: fewer messages, more bytes. Bruck et al. 1997.

    Block d, for the rank at distance d, first lies at place d. In round k all whose d has bit k move on by 2^k; what
    has then come from distance d lies at place d and goes to the block of its source.
    """
    yield copy(work(rank, nranks), temp(0, nranks))
    for bit in range(ceil_log2(nranks)):
        moving = tuple(temp(first, min(1 << bit, nranks - first)) for first in _travelling(bit, nranks))
        yield Step(dest=(rank + (1 << bit)) % nranks, send=moving, source=(rank - (1 << bit)) % nranks, recv=moving)
    for distance in range(nranks):
        yield copy(temp(distance), work(rank - distance))

"""Binomial trees: the fewest rounds in which one rank can hear from all, or tell all."""

from __future__ import annotations

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


@register(
    "reduce",
    "binomial",
    blocks=lambda nranks: 1,
    rounds=ceil_log2,
    sent=lambda nranks: min(1, nranks - 1),
    critical=lambda nranks: (ceil_log2(nranks), ceil_log2(nranks)),
    formulas=("L", "1"),
    arguments=("root",),
)
def binomial_reduce(rank: int, nranks: int, root: int = 0) -> Operations:
    """Add up along a binomial tree. Thakur, Rabenseifner and Gropp 2005.

    Counted from the root, rank i adds what i + 1, i + 2, i + 4 ... send, up to its own lowest bit, and then sends to
    the rank without that bit.
    """
    i, distance = (rank - root) % nranks, 1
    while distance < nranks and not i & distance:
        if i + distance < nranks:
            yield Step(source=(rank + distance) % nranks, recv=work(0), combine=True)
        distance *= 2
    if i:
        yield Step(dest=(rank - distance) % nranks, send=work(0))


@register(
    "bcast",
    "binomial",
    blocks=lambda nranks: 1,
    rounds=ceil_log2,
    sent=ceil_log2,
    critical=lambda nranks: (ceil_log2(nranks), 0),
    formulas=("L", "L"),
    arguments=("root",),
)
def binomial_bcast(rank: int, nranks: int, root: int = 0) -> Operations:
    """Hand the vector down a binomial tree, the farthest first. Thakur, Rabenseifner and Gropp 2005."""
    i = (rank - root) % nranks
    distance = i & -i if i else 1 << ceil_log2(nranks)
    if i:
        yield Step(source=(rank - distance) % nranks, recv=work(0))
    while distance := distance // 2:
        if i + distance < nranks:
            yield Step(dest=(rank + distance) % nranks, send=work(0))


@register(
    "allreduce",
    "binomial_tree",
    blocks=lambda nranks: 1,
    rounds=lambda nranks: 2 * ceil_log2(nranks),
    sent=ceil_log2,
    critical=lambda nranks: (2 * ceil_log2(nranks), ceil_log2(nranks)),
    formulas=("2L", "L"),
)
def binomial_tree_allreduce(rank: int, nranks: int) -> Operations:
    """Reduce to rank 0, then broadcast from it: few rounds, whole vectors. Thakur, Rabenseifner and Gropp 2005."""
    yield from binomial_reduce(rank, nranks)
    if rank == 0:
        yield scale(work(0))
    yield from binomial_bcast(rank, nranks)

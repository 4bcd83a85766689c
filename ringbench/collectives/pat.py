"""PAT, parallel aggregated trees: log N rounds for any N, the fullest messages over the shortest ways."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, work


@register(
    "allgather",
    "pat",
    blocks=lambda nranks: nranks,
    rounds=ceil_log2,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), 0),
    formulas=("L", "(N-1)/N"),
)
def pat_allgather(rank: int, nranks: int) -> Operations:
    """Run a binomial tree for every block at once, the farthest first. Jeaugey 2025, with full aggregation.

    Rank i stands at place i - b in the tree of block b. Unlike Bruck's, the last and largest messages go to neighbours.
    """
    distance = 1 << ceil_log2(nranks)
    while distance := distance // 2:
        places = range(0, nranks - distance, 2 * distance)
        source = rank - distance
        yield Step(
            dest=(rank + distance) % nranks,
            send=tuple(work(rank - place) for place in places),
            source=source % nranks,
            recv=tuple(work(source - place) for place in places),
        )


@register(
    "reduce_scatter",
    "pat",
    blocks=lambda nranks: nranks,
    rounds=ceil_log2,
    sent=lambda nranks: Fraction(nranks - 1, nranks),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), Fraction(nranks - 1, nranks)),
    formulas=("L", "(N-1)/N"),
)
def pat_reduce_scatter(rank: int, nranks: int) -> Operations:
    """Run the trees of the all-gather backwards, adding: the closest first. Jeaugey 2025, with full aggregation."""
    distance = 1
    while distance < nranks:
        places = range(distance, nranks, 2 * distance)
        source = rank + distance
        yield Step(
            dest=(rank - distance) % nranks,
            send=tuple(work(rank - place) for place in places),
            source=source % nranks,
            recv=tuple(work(source - place) for place in places),
            combine=True,
        )
        distance *= 2

"""The naive exchange: what one writes first, and what the others are measured against."""

from __future__ import annotations

from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, combine, original, temp, work


@register(
    "allreduce",
    "naive",
    blocks=lambda nranks: 1,
    temp=lambda nranks: nranks,
    rounds=lambda nranks: nranks - 1,
    sent=lambda nranks: nranks - 1,
    critical=lambda nranks: (nranks - 1, nranks - 1),
    formulas=("N-1", "N-1"),
)
def naive_allreduce(rank: int, nranks: int) -> Operations:
    """Send the whole input to every other rank; each adds all of them in rank order. Textbook.

    What arrives is kept in N slots and added only at the end, in the same order everywhere: adding in order of arrival
    would give each rank other bits. Costs N vectors of memory.
    """
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=original(0), source=source, recv=temp(source))
    for lower in range(1, rank):
        yield combine(temp(lower), temp(0))
    if rank > 0:
        yield combine(temp(0), work(0))
    for higher in range(rank + 1, nranks):
        yield combine(temp(higher), work(0))

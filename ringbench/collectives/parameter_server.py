"""The parameter server: one rank adds everything and sends it back."""

from __future__ import annotations

from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


@register(
    "allreduce",
    "parameter_server",
    blocks=lambda nranks: 1,
    rounds=lambda nranks: 2 * (nranks - 1),
    sent=lambda nranks: nranks - 1,
    critical=lambda nranks: (2 * (nranks - 1), nranks - 1),
    formulas=("2(N-1)", "N-1"),
)
def parameter_server_allreduce(rank: int, nranks: int) -> Operations:
    """Gather and add at rank 0, one rank after the other, then send the sum back. Li et al. 2014, one server."""
    root = 0
    if rank == root:
        for worker in range(1, nranks):
            yield Step(source=worker, recv=work(0), combine=True)
        yield scale(work(0))
        for worker in range(1, nranks):
            yield Step(dest=worker, send=work(0))
    else:
        yield Step(dest=root, send=work(0))
        yield Step(source=root, recv=work(0))

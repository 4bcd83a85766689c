"""The bare link between nodes: what a Sendrecv gets through it, to be held against what it should let through."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

SIZES = (65536, 262144, 1048576, 4194304)

#: For how long each size is sent at the rate of the link; and the longest that one message may take.
_SECONDS, _LONGEST_S = 0.2, 0.5
_LEAST, _MOST = 3, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """Hold what ``count`` messages of ``nbytes`` took in seconds, on the slowest of the nodes that exchanged them."""

    nbytes: int
    count: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """Return the bandwidth of one direction."""
        return self.nbytes * self.count / self.seconds

    def too_fast(self, rate: float, burst: int) -> bool:
        """Say whether more passed than a link of ``rate`` bytes per second lets through in the time, ``burst`` ahead.

        A hundredth is left for the clocks.
        """
        return self.nbytes * self.count > 1.01 * rate * self.seconds + burst


def pass_messages(comm: Any, rate: float, sizes: Sequence[int] = SIZES) -> tuple[int, list[Passed]]:
    """Have one rank of each node send to the next and receive from the one before; return nodes and times on all.

    The other ranks sleep meanwhile. Sizes that would take too long at ``rate`` bytes per second are left out, but for
    the first.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    leaders = comm.Split(0 if node.Get_rank() == 0 else 1)
    nnodes = comm.allreduce(1 if node.Get_rank() == 0 else 0)
    passed = []
    if node.Get_rank() == 0:
        chosen = [nbytes for nbytes in sizes if nbytes <= rate * _LONGEST_S] or [sizes[0]]
        passed = [_pass(leaders, nbytes, rate) for nbytes in chosen] if nnodes > 1 else []
    done = comm.Ibarrier()
    while not done.Test():
        time.sleep(0.01)
    result = nnodes, comm.bcast(passed, root=0)
    leaders.Free()
    node.Free()
    return result


def _pass(leaders: Any, nbytes: int, rate: float) -> Passed:
    rank, size = leaders.Get_rank(), leaders.Get_size()
    send, recv = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    dest, source = (rank + 1) % size, (rank - 1) % size
    count = min(_MOST, max(_LEAST, round(_SECONDS * rate / nbytes)))
    seconds = 0.0
    for repetitions in (1, count):
        leaders.Barrier()
        start = time.perf_counter()
        for _ in range(repetitions):
            leaders.Sendrecv(send, dest, 0, recv, source, 0)
        seconds = time.perf_counter() - start
    return Passed(nbytes=nbytes, count=count, seconds=leaders.allreduce(seconds, MPI.MAX))

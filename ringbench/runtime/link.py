"""The bare link between nodes: what a Sendrecv gets through it, to be held against what it should let through."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

SIZES = (65536, 262144, 1048576, 4194304)

#: For how long each size is sent at the rate of the link, how often at least and at most, how long one may take.
_SECONDS, _LEAST, _MOST, _LONGEST_S = 0.3, 5, 100, 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """Hold the median time in seconds of a message of ``nbytes``, on the slowest of the nodes that exchanged it."""

    nbytes: int
    seconds: float

    def too_fast(self, rate: float, burst: int) -> bool:
        """Say whether more passed than a link of ``rate`` bytes per second lets through in the time, ``burst`` at once.

        A hundredth is left for the clocks.
        """
        return self.nbytes > 1.01 * rate * self.seconds + burst


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
    """Time messages as everything else is timed: each after a barrier, the maximum over ranks is the sample."""
    rank, size = leaders.Get_rank(), leaders.Get_size()
    send, recv = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    dest, source = (rank + 1) % size, (rank - 1) % size
    count = min(_MOST, max(_LEAST, round(_SECONDS * rate / nbytes)))
    times = np.empty(count)
    for repetition in range(-1, count):  # the first opens the connections
        leaders.Barrier()
        start = time.perf_counter()
        leaders.Sendrecv(send, dest, 0, recv, source, 0)
        times[repetition] = time.perf_counter() - start
    leaders.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
    return Passed(nbytes=nbytes, seconds=float(np.median(times)))

"""A barrier of ranks that share memory: flags in a window of their own, no messages.

MPI's barrier takes 0.6 us under Open MPI and 3 us under MPICH on two ranks (thread level multiple), flags 0.7 and 0.9.

What is written before is seen behind it. The windows stand in an access epoch of MPI_Win_lock_all from their making to
their end, and are of the unified memory model (of shared memory on one machine). There MPI-4.1, section 12.7 asks for
MPI_Win_sync, a full fence of the processor, on both sides of what synchronises the processes:

    store data; Win_sync; store flag    ...    load flag until it is set; Win_sync; load data

A flag is one byte, which cannot be torn, written by one rank and read by one. In round k of ceil(lg N), rank i sets the
flag of rank i + 2^k and waits for its own (Hensgen, Finkel and Manber 1988), with a fence after each, so that what a
rank has heard of it passes on. It writes the number of the barrier modulo 256; even and odd barriers have flags of
their own, since a rank can be one barrier ahead of another, but not two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

from mpi4py import MPI

from ringbench.schedule.compose import ceil_log2

#: Every flag has a cache line of its own, and one more, for processors that fetch two at a time.
LINE = 128

#: So many looks at a flag take 2 us. A rank that has still not come is waited for in a way that leaves it the core.
LOOKS = 40


def open_window(comm: Any, nbytes: int) -> tuple[Any, Any]:
    """Make a window of the ranks of one node; return it, open for reading and writing, and its memory.

    All of it is rank 0's part: where the parts of others start is then ours to say, and none is without an address.
    """
    win = MPI.Win.Allocate_shared(nbytes if comm.Get_rank() == 0 else 0, 1, comm=comm)
    win.Lock_all(MPI.MODE_NOCHECK)
    return win, win.Shared_query(0)[0]


def close_window(win: Any) -> None:
    """Give the memory of a window back; collective over its ranks."""
    win.Unlock_all()
    win.Free()


def gate_nbytes(nranks: int) -> int:
    """Return what the flags of a barrier need."""
    return max(1, 2 * ceil_log2(nranks)) * LINE * nranks


def _closed() -> Iterator[Any]:
    raise RuntimeError("the communicator of this plan was freed, and with it the barrier that its ranks share")
    yield


class Gate:
    """Stand for the barrier of all ranks of a communicator, who share memory; collective to make and to close."""

    def __init__(self, comm: Any) -> None:
        rank, nranks = comm.Get_rank(), comm.Get_size()
        nrounds = ceil_log2(nranks)
        each = gate_nbytes(nranks) // nranks
        self.win, part = open_window(comm, each * nranks)
        memory = memoryview(part).cast("B")
        flags = [memory[each * other : each * (other + 1)] for other in range(nranks)]
        flags[rank][:] = bytes(each)
        rounds = [
            [
                (flags[(rank + 2**k) % nranks][at : at + 1], flags[rank][at : at + 1])
                for k, at in enumerate(range(parity * nrounds * LINE, (parity + 1) * nrounds * LINE, LINE))
            ]
            for parity in (0, 1)
        ]
        #: The number of each barrier to come and, for each of its rounds, the flag to set and that to wait for.
        self.turns: Iterator[tuple[int, list[tuple[memoryview, memoryview]]]] = cycle(
            [(number & 255, rounds[number & 1]) for number in range(1, 257)]
        )
        cores = frozenset().union(*comm.allgather(frozenset(os.sched_getaffinity(0))))
        self.looks = LOOKS if nranks <= len(cores) else 0
        self.win.Sync()
        comm.Barrier()
        self.win.Sync()

    def passing(self, syncs: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """Return the barrier as a call; ``syncs`` are the Win_sync of the windows written and read around it."""
        first, *others = syncs or (self.win.Sync,)
        wait = self._wait

        def meet() -> None:
            for sync in others:
                sync()
            first()
            number, rounds = next(self.turns)
            for theirs, own in rounds:
                theirs[0] = number
                if own[0] != number:
                    wait(own, number)
                first()
            for sync in others:
                sync()

        return meet

    def _wait(self, own: memoryview, number: int) -> None:
        for _ in range(self.looks):
            if own[0] == number:
                return
        probe, sync, leave = MPI.COMM_SELF.Iprobe, self.win.Sync, os.sched_yield
        while own[0] != number:
            # MPI moves this rank's messages only while it is called: somebody may wait for one before coming here.
            probe(MPI.ANY_SOURCE, MPI.ANY_TAG)
            sync()
            leave()

    def close(self) -> None:
        """Give the memory back; whoever calls what is closed gets an exception, and does not reach what is gone."""
        self.turns = _closed()
        close_window(self.win)

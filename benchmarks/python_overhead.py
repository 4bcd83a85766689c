#!/usr/bin/env python3
"""Measure what the package adds to a bare Sendrecv and a bare addition.

Start with ``mpirun -n 2 python benchmarks/python_overhead.py``. At 8 bytes, in one job and in interleaved order: a
Sendrecv with a ready buffer spec, an in-place np.add, both in a bare loop, and planned schedules whose steps are just
these. Prints medians in microseconds on rank 0, and what the package adds to each step. The target is 0.5 us.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import ringbench

BATCH = 50


def bare_exchange(comm: MPI.Comm, count: int) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """Return a bare Sendrecv, a bare addition, and one after the other."""
    rank, nranks = comm.Get_rank(), comm.Get_size()
    dest, source = (rank + 1) % nranks, (rank - 1) % nranks
    vector, arrived = np.zeros(count, np.float32), np.zeros(count, np.float32)
    send, recv = [MPI.buffer.frombuffer(vector), count, MPI.FLOAT], [MPI.buffer.frombuffer(arrived), count, MPI.FLOAT]
    sendrecv, add = comm.Sendrecv, np.add

    def message() -> None:
        sendrecv(send, dest, 1, recv, source, 1)

    def addition() -> None:
        add(vector, arrived, vector)

    def both() -> None:
        sendrecv(send, dest, 1, recv, source, 1)
        add(vector, arrived, vector)

    return message, addition, both


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400, help="of every contestant (default 400)")
    rounds = parser.parse_args().rounds
    comm = MPI.COMM_WORLD
    rank, nranks = comm.Get_rank(), comm.Get_size()
    if nranks != 2 or rounds < 1:
        if rank == 0:
            print(f"python_overhead: {nranks} ranks and {rounds} rounds: needs 2 ranks and at least 1", file=sys.stderr)
        return 2
    message, addition, both = bare_exchange(comm, 2)
    mine = np.zeros(2, np.float32)
    contestants: dict[str, Callable[[], None]] = {
        "bare Sendrecv": message,
        "bare np.add in place": addition,
        "bare Sendrecv, then np.add": both,
        "planned recursive_doubling (the same step)": ringbench.plan(
            "allreduce", "recursive_doubling", comm, MPI.IN_PLACE, mine
        ),
        "planned allgather ring (one Sendrecv)": ringbench.plan("allgather", "ring", comm, MPI.IN_PLACE, mine),
        "MPI_Allreduce through the same plan": ringbench.plan("allreduce", "mpi", comm, MPI.IN_PLACE, mine),
    }
    names, order = list(contestants), random.Random(0)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 10):
        order.shuffle(names)
        for name in names:
            run = contestants[name]
            comm.Barrier()
            start = time.perf_counter_ns()
            for _ in range(BATCH):
                run()
            seconds = comm.allreduce((time.perf_counter_ns() - start) / BATCH * 1e-9, MPI.MAX)
            if number >= 10:
                samples[name].append(seconds)
    if rank == 0:
        median = {name: statistics.median(samples[name]) * 1e6 for name in contestants}
        print(f"{MPI.Get_library_version().split(',')[0].splitlines()[0]}, 8 bytes, {nranks} ranks, median us per call")
        for name, value in median.items():
            print(f"  {name:44} {value:6.3f}")
        step = median["planned recursive_doubling (the same step)"] - median["bare Sendrecv, then np.add"]
        one = median["planned allgather ring (one Sendrecv)"] - median["bare Sendrecv"]
        print(f"the package adds {step:.3f} us to a step of Sendrecv and np.add, {one:.3f} us to one of Sendrecv alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())

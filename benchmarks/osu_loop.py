#!/usr/bin/env python3
"""Time MPI_Allreduce in a loop like that of osu_allreduce, and beside it as ringbench does.

Start with ``mpirun -n 2 python benchmarks/osu_loop.py``. The loop is written out here and shares nothing with the
package: warm-up, then for each iteration the time around one out-of-place call and a barrier behind it; each rank's
mean over the iterations, of which the average over ranks is printed (osu_allreduce's first column). Beside it stands
``osu_avg_s`` of rows measured with ``--order blocked --placement out``, in the same job, in turns.
Prints the medians of both over the turns, and the median of the ratios within a turn, where what makes the machine fast
or slow for a while drops out. The target is 10 % from 64 KiB to 8 MiB.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

from ringbench.records.settings import Settings
from ringbench.runtime.worker import measure

SIZES = tuple(65536 * 2**step for step in range(8))
WARMUP, TURNS = 20, 5


def aligned(count: int) -> np.ndarray:
    """Return so many float32 from the beginning of a page on."""
    page = 4096
    memory = np.empty(count * 4 + page, np.uint8)
    start = -memory.ctypes.data % page
    return memory[start : start + count * 4].view(np.float32)


def loop(comm: MPI.Comm, nbytes: int, iterations: int) -> float:
    """Return what osu_allreduce prints first, in seconds."""
    send, recv = aligned(nbytes // 4), aligned(nbytes // 4)
    send.fill(1.0)
    recv.fill(0.0)
    specs = [send, nbytes // 4, MPI.FLOAT], [recv, nbytes // 4, MPI.FLOAT]
    total = 0.0
    for number in range(WARMUP + iterations):
        start = time.perf_counter()
        comm.Allreduce(*specs, MPI.SUM)
        stop = time.perf_counter()
        if number >= WARMUP:
            total += stop - start
        comm.Barrier()
    return comm.allreduce(total / iterations) / comm.Get_size()


def main() -> int:
    """Measure and print."""
    comm = MPI.COMM_WORLD
    settings = Settings(
        algorithms=("mpi",),
        sizes=SIZES,
        placement="out",
        order="blocked",
        warmup=WARMUP,
        precision=0.01,
        max_samples=200,
    )
    ours: dict[int, list[float]] = {nbytes: [] for nbytes in SIZES}
    theirs: dict[int, list[float]] = {nbytes: [] for nbytes in SIZES}
    for _ in range(TURNS):
        for row in measure(comm, settings):
            assert row.rank_average is not None
            ours[row.nbytes].append(row.rank_average)
            theirs[row.nbytes].append(loop(comm, row.nbytes, 200))
    if comm.Get_rank() == 0:
        print(MPI.Get_library_version().split(",")[0].splitlines()[0], f"{comm.Get_size()} ranks, medians of {TURNS}")
        print(f"{'bytes':>10} {'loop_us':>10} {'osu_avg_us':>10} {'ratio':>7}  ratio of each turn")
        for nbytes in SIZES:
            one, other = statistics.median(ours[nbytes]), statistics.median(theirs[nbytes])
            turns = [a / b for a, b in zip(ours[nbytes], theirs[nbytes], strict=True)]
            ratio, each = statistics.median(turns), " ".join(f"{turn:.2f}" for turn in turns)
            print(f"{nbytes:>10} {1e6 * other:>10.2f} {1e6 * one:>10.2f} {ratio:>7.3f}  {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a plan decides where the caller does not: chunks of a pipeline, and the algorithm that ``auto`` stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ringbench.runtime.moves import DEFAULT_SEGMENT

#: Bytes of the vector for each chunk of a pipeline, and the most chunks. More and smaller ones fill a pipeline sooner
#: but pay more latencies; on links from shared memory to Ethernet the best number for 16 MiB is some dozens.
CHUNK_NBYTES = 512 * 2**10
MOST_CHUNKS = 64

#: What ``auto`` stands for: called with collective, ranks and bytes of the whole vector.
Choose: TypeAlias = Callable[[str, int, int], str]


def default_segment(device: str) -> int:
    """Return the longest message before it is cut: a cache's worth on the host, where the sum follows from cache.

    On a device every piece is a launch and a wait of its own, and its memory is as fast as what lies in its cache.
    """
    return DEFAULT_SEGMENT if device == "cpu" else 0


def default_chunks(nbytes: int) -> int:
    """Return how many chunks a vector of so many bytes is sent in through a pipeline."""
    return min(max(1, nbytes // CHUNK_NBYTES), MOST_CHUNKS)


def choose_by_rule(collective: str, nranks: int, nbytes: int) -> str:
    """Return the algorithm for a case by its latency and its bytes alone, where no run says better.

    Short vectors go to the algorithm with the fewest rounds, long ones to one that moves few bytes without a pipeline;
    between them stand those that need few rounds and few bytes where N is a power of two, or the collective has one for
    any N. The limits are where they cross for links of 1 us to 5 us and 5 GB/s to 20 GB/s, so only of the right order.
    """
    power = nranks & (nranks - 1) == 0
    if collective == "allreduce":
        if nbytes <= 32 * 2**10 or (nranks == 2 and nbytes <= 128 * 2**10):
            return "recursive_doubling"
        return "rabenseifner" if power and nbytes <= 2**20 else "ring"
    if collective == "reduce_scatter":
        if nbytes <= 512 * 2**10:
            return "recursive_halving" if power else "pat"
        return "ring"
    if collective == "allgather":
        if nbytes <= 512 * 2**10:
            return "recursive_doubling" if power else "bruck"
        return "ring"
    if collective == "bcast":
        return "binomial" if nbytes <= 128 * 2**10 or nranks == 2 else "scatter_allgather"
    if collective == "reduce":
        return "binomial" if nbytes <= 32 * 2**10 or nranks == 2 else "rabenseifner"
    return "bruck" if nranks > 4 and nbytes <= 256 * nranks else "pairwise"

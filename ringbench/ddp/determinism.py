"""Which bits an averaged gradient has: run to run, from engine to engine, by algorithm and by number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringbench.ddp.choices import can_run
from ringbench.ddp.reducer import DataParallel
from ringbench.runtime.arrays import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """Hold what became of one average on ``nranks`` ranks.

    ``same_again``: the same bits in every run. ``same_on_ranks``: on all ranks. ``same_as_first``: as in the first
    engine with this algorithm and number of ranks. ``differing`` is the share of elements that are not the exact
    average rounded once, and ``max_ulp`` how far the furthest is from that, in units in the last place;
    ``max_ulp_from_first`` is the same distance from the first row's result.
    """

    nranks: int
    algorithm: str
    engine: str
    same_again: bool
    same_on_ranks: bool
    same_as_first: bool
    differing: float
    max_ulp: int
    max_ulp_from_first: int


def ulp_distance(one: Array, other: Array) -> Array:
    """Return for each pair of floats of one dtype how many numbers of that dtype they are apart; 0 and -0 are the same.

    NaN counts as a number beyond infinity.
    """
    first, second = _order(one), _order(other)
    return np.maximum(first, second).view(np.uint64) - np.minimum(first, second).view(np.uint64)


def _order(values: Array) -> Array:
    """Return integers in the order of the floats: those of negative ones count downwards from that of zero."""
    integers = np.dtype(f"i{values.dtype.itemsize}")
    bits = np.ascontiguousarray(values).view(integers).astype(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(integers).min) - bits, bits)


def exact_average(parts: Sequence[Array]) -> Array:
    """Return the average of vectors, summed in float64, or of float64 in the widest type there is, and rounded once."""
    wide = np.longdouble if parts[0].dtype.itemsize == 8 else np.float64
    total = np.zeros(len(parts[0]), dtype=wide)
    for vector in parts:
        total += vector.astype(wide)
    average: Array = (total / len(parts)).astype(parts[0].dtype)
    return average


def determinism(
    comm: Any,
    parts: Sequence[Array],
    *,
    algorithms: Sequence[str] = ("ring", "recursive_doubling", "rabenseifner", "mpi"),
    engines: Sequence[str] = ("blocking", "thread", "poll", "iallreduce", "iallreduce_progress"),
    rank_counts: Sequence[int] | None = None,
    repeats: int = 3,
) -> list[Bits]:
    """Average flat vectors in every way and compare the bits; return the rows on all ranks.

    ``parts`` are the gradients of the parts of a batch, the same on all ranks, whose number is a multiple of every one
    of ``rank_counts`` (None: those that divide it). The first N ranks take an equal number of consecutive parts each,
    average them in order, and then over the ranks: what differs between rows is the order of additions alone. Each
    engine is run with the algorithms that it can run. Collective; raises ValueError for numbers that do not fit.
    """
    size = comm.Get_size()
    counts = [n for n in range(1, size + 1) if len(parts) % n == 0] if rank_counts is None else rank_counts
    for nranks in counts:
        if not 1 <= nranks <= size or len(parts) % nranks:
            raise ValueError(f"{nranks} ranks: must be among {size}, and divide {len(parts)} parts")
    if repeats < 1:
        raise ValueError(f"repeats {repeats}: must be at least 1")
    exact = exact_average(parts)
    rows: list[Bits] = []
    results: list[Array] = []
    for nranks in counts:
        inside = comm.Get_rank() < nranks
        some = comm.Split(0 if inside else 1)
        try:
            for algorithm in algorithms if inside else ():
                first = len(results)
                for engine in engines:
                    if not can_run(engine, algorithm):
                        continue
                    runs, same_on_ranks = _averages(some, parts, algorithm, engine, repeats)
                    results.append(runs[0])
                    far = ulp_distance(runs[0], exact)
                    rows.append(
                        Bits(
                            nranks=nranks,
                            algorithm=algorithm,
                            engine=engine,
                            same_again=all(run.tobytes() == runs[0].tobytes() for run in runs),
                            same_on_ranks=same_on_ranks,
                            same_as_first=runs[0].tobytes() == results[first].tobytes(),
                            differing=float((far > 0).mean()),
                            max_ulp=int(far.max()),
                            max_ulp_from_first=int(ulp_distance(runs[0], results[0]).max()),
                        )
                    )
        finally:
            some.Free()
    everywhere: list[Bits] = comm.bcast(rows, root=0)
    return everywhere


def _averages(comm: Any, parts: Sequence[Array], algorithm: str, engine: str, repeats: int) -> tuple[list[Array], bool]:
    """Return the averages of several runs, and whether all ranks have the same bits in all of them."""
    share = len(parts) // comm.Get_size()
    mine = parts[comm.Get_rank() * share : (comm.Get_rank() + 1) * share]
    runs = []
    with DataParallel(comm, {"vector": parts[0]}, engine=engine, algorithm=algorithm) as averaged:
        gradient = averaged.gradients["vector"]
        for _ in range(repeats):
            gradient[...] = mine[0]
            for vector in mine[1:]:
                gradient += vector
            gradient /= gradient.dtype.type(share)
            averaged.ready("vector")
            averaged.finish()
            runs.append(gradient.copy())
    every = comm.allgather([run.tobytes() for run in runs])
    return runs, all(found == every[0] for found in every)

#!/usr/bin/env python3
"""Average the same gradients by every algorithm and engine, on 1, 2, ... ranks, and compare the bits.

Start with ``mpirun -n 4 python benchmarks/gradient_bits.py``. Twelve parts of a batch, each of a hundred thousand
elements between 1 and 2 (where a unit in the last place is one length), are averaged on as many ranks as divide twelve,
three times in each way. Prints a line for each rank count and algorithm: whether the bits are the same in every run, on
all ranks and in every engine, which share of elements is not the exact average rounded once, and how many units in the
last place the furthest is from that, and from the average on one rank.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from mpi4py import MPI
from tabulate import tabulate

from ringbench.ddp.determinism import Bits, determinism
from ringbench.records.libraries import library_name

HEADS = ("N", "algorithm", "engines", "again", "on ranks", "engines alike", "not exact", "ULP", "ULP from N = 1")


def lines(rows: list[Bits]) -> list[list[object]]:
    """Return a line for each rank count and algorithm: engines whose bits are the same stand together."""
    together: dict[tuple[int, str], list[Bits]] = {}
    for row in rows:
        together.setdefault((row.nranks, row.algorithm), []).append(row)
    found: list[list[object]] = []
    for (nranks, algorithm), members in together.items():
        yes = {
            name: "yes" if all(getattr(one, name) for one in members) else "no"
            for name in ("same_again", "same_on_ranks", "same_as_first")
        }
        far, furthest = max(one.differing for one in members), max(one.max_ulp for one in members)
        other = max(one.max_ulp_from_first for one in members)
        found.append([nranks, algorithm, len(members), *yes.values(), f"{far:.1%}", furthest, other])
    return found


def main() -> int:
    """Average and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--algorithms", default="ring,recursive_doubling,rabenseifner,naive,mpi")
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    for dtype in ("float32", "float64"):
        random = np.random.default_rng(1)
        parts = [(1 + random.random(arguments.elements)).astype(dtype) for _ in range(12)]
        rows = determinism(comm, parts, algorithms=arguments.algorithms.split(","))
        if comm.Get_rank() == 0:
            print(f"### {dtype}, {library_name(MPI.Get_library_version())}\n", flush=True)
            print(tabulate(lines(rows), headers=HEADS, tablefmt="pipe"), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

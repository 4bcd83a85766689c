#!/usr/bin/env python3
"""Compare the ring with itself, and count how often the two are said to differ.

Start with ``mpirun -n 2 python benchmarks/self_comparison.py DIR``. The ring is registered a second time under another
name and measured beside itself, in the same rounds and buffers, at 50 sizes in place and out of place: 100 cells in
about a minute. Prints how many are called faster or slower, and which. ``DIR`` is a run like any other; further
arguments are those of ``ringbench run``. The target is 5 of 100 at most.
"""

from __future__ import annotations

import sys
from collections import Counter
from fractions import Fraction

from mpi4py import MPI

from ringbench.cli import main as ringbench
from ringbench.collectives.ring import ring_allreduce
from ringbench.model.compare import compare_rows
from ringbench.records.run import read_run
from ringbench.schedule.registry import register

#: 50 lengths of float32 from 8 B to 64 MiB, evenly spaced on a logarithmic scale.
SIZES = [round(2 * 2 ** (step * 23 / 49)) * 4 for step in range(50)]


def main() -> int:
    """Measure, compare and print."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, *more = sys.argv[1:]
    register(
        "allreduce",
        "ring_again",
        blocks=lambda nranks: nranks,
        rounds=lambda nranks: 2 * (nranks - 1),
        sent=lambda nranks: Fraction(2 * (nranks - 1), nranks),
        formulas=("2(N-1)", "2(N-1)/N"),
    )(ring_allreduce)
    sizes = ",".join(map(str, SIZES))
    words = ["run", "--algorithms=ring,ring_again", f"--sizes={sizes}", "--placement=both", f"--out={folder}"]
    status = ringbench([*words, *more])
    if status or MPI.COMM_WORLD.Get_rank():
        return status
    found = compare_rows(read_run(folder).rows, "ring", "ring_again")
    verdicts = Counter(one.verdict for one in found)
    told = [one for one in found if one.verdict in ("faster", "slower")]
    print(f"the ring differs from itself at {len(told)} of {len(found)} cells; {dict(sorted(verdicts.items()))}")
    for one in told:
        place = "in place" if one.in_place else "out of place"
        print(f"  {one.nbytes} B {place}: ratio {one.ratio:.3f} [{one.ratio_low:.3f}, {one.ratio_high:.3f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())

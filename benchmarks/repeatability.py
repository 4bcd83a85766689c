#!/usr/bin/env python3
"""Say how well a sweep repeats: whether intervals of two sweeps overlap, and whether the two are told apart.

``python benchmarks/repeatability.py DIR1 DIR2``, two runs of the same plan one after the other. Prints the share of
cells whose 95 % intervals overlap (target: 90 % at least), those that do not, and the verdicts of the comparison of the
two runs, which measured the same thing.
"""

from __future__ import annotations

import sys
from collections import Counter

from ringbench.model.compare import compare_runs
from ringbench.model.pool import table_cells
from ringbench.records.run import read_run

CELL = ("collective", "algorithm", "op", "dtype", "device", "nranks", "in_place", "nbytes")


def main() -> int:
    """Read, compare and print."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    before, after = map(read_run, sys.argv[1:])
    try:
        verdicts = Counter(comparison.verdict for comparison in compare_runs(before, after))
    except ValueError as error:
        print(f"repeatability: {error}", file=sys.stderr)
        return 2
    one, other = (
        {tuple(cell[name] for name in CELL): cell for cell in table_cells(run.rows) if cell["ci_low_s"] is not None}
        for run in (before, after)
    )
    both = sorted(one.keys() & other.keys())
    apart = [
        cell
        for cell in both
        if one[cell]["ci_high_s"] < other[cell]["ci_low_s"] or other[cell]["ci_high_s"] < one[cell]["ci_low_s"]
    ]
    print(f"the intervals of {len(both) - len(apart)} of {len(both)} cells overlap ({1 - len(apart) / len(both):.1%})")
    for cell in apart:
        first, second = one[cell], other[cell]
        shown = [f"{1e6 * run['ci_low_s']:.4g} to {1e6 * run['ci_high_s']:.4g} us" for run in (first, second)]
        print(f"  {first['algorithm']} N={first['nranks']} {first['nbytes']} B: {shown[0]}, then {shown[1]}")
    print(f"compared with each other: {dict(sorted(verdicts.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The table of bits: own algorithms give the same again, on all ranks and in every engine, near the exact average."""

from __future__ import annotations

import numpy as np
from battery import Battery, battery

from ringbench.ddp.determinism import determinism

OWN = ("ring", "recursive_doubling", "rabenseifner", "naive", "shared_memory", "shared_copy")


def table(tests: Battery) -> None:
    random = np.random.default_rng(5)
    for dtype in ("float32", "float64"):
        parts = [(1 + random.random(5001)).astype(dtype) for _ in range(12)]
        rows = determinism(tests.comm, parts, algorithms=(*OWN, "mpi"))
        counts = {row.nranks for row in rows}
        tests.check(counts == {n for n in (1, 2, 3, 4) if n <= tests.nranks}, f"numbers of ranks {counts}")
        for row in rows:
            tests.check(row.max_ulp <= 6, f"{row}: far from the exact average")
            if row.algorithm in OWN:
                tests.check(row.same_again and row.same_on_ranks and row.same_as_first, f"{row}")
            if row.nranks == 1:
                tests.check(row.max_ulp_from_first == 0, f"{row}: no rank to differ")
        tests.check(any(row.differing > 0.01 for row in rows), "nothing is rounded")
        if tests.nranks > 1:
            tests.check(any(row.max_ulp_from_first > 0 for row in rows), "numbers of ranks make no difference")
        if tests.nranks == 4:
            first = {row.algorithm: row for row in rows if row.nranks == 4 and row.engine == "blocking"}
            tests.check(len({first[name].differing for name in OWN}) > 1, "algorithms make no difference")
    tests.refused("ranks", "5 ranks", call=lambda: determinism(tests.comm, parts, rank_counts=(5,)))
    tests.refused("parts", "12 parts", call=lambda: determinism(tests.comm, parts, rank_counts=(tests.nranks, 7)))


if __name__ == "__main__":
    with battery(least=20) as tests:
        table(tests)

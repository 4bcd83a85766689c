"""The digits, learnt by N ranks in N shards, against one process with the whole batch: every engine and algorithm."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # ranks share what cores there are

import numpy as np
from battery import Battery, battery
from mpi4py import MPI

from ringbench.ddp.choices import ENGINES, LIBRARYS_OWN
from ringbench.ddp.mlp import Trained, load_digits, train

ALGORITHMS = ("ring", "recursive_doubling", "naive", "auto", "mpi")
#: Buckets of one and several parameters, and what else a step may have.
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"bucket_bytes": 4000, "first_bucket_bytes": 100},
    {"bucket_bytes": 4000, "accumulate": 2},
    {"max_norm": 0.5, "bucket_bytes": 10_000},
    {"sharded": True, "bucket_bytes": 8000},
    {"sharded": True, "max_norm": 0.5, "accumulate": 4},
)
#: Rounding errors that 20 steps make of one, relative to the largest parameter: seen are 3e-15 and 2e-6.
NEAR = {"float64": 1e-13, "float32": 3e-5}


def distance(one: Trained, other: Trained) -> float:
    pairs = [(one.parameters[name], other.parameters[name]) for name in one.parameters]
    largest = max(float(np.abs(value).max()) for _, value in pairs)
    return max(float(np.abs(mine - theirs).max()) for mine, theirs in pairs) / largest


def equivalence(tests: Battery) -> None:
    for dtype, ways in (("float64", WAYS), ("float32", WAYS[1:2])):
        algorithms = ALGORITHMS if dtype == "float64" else ("auto",)
        digits = load_digits(dtype)
        alone = {}
        for way in ways:
            norm = way.get("max_norm")
            if norm not in alone:
                alone[norm] = train(MPI.COMM_SELF, digits, max_norm=norm)
                tests.check(alone[norm].losses[-1] < alone[norm].losses[0], f"nothing is learnt: {alone[norm].losses}")
        turns = itertools.cycle(ways)
        for engine in ENGINES:
            for algorithm in ("mpi",) if engine in LIBRARYS_OWN else algorithms:
                for _ in range(min(len(ways), 5 if engine in LIBRARYS_OWN else 2)):
                    way = next(turns)
                    found = train(tests.comm, digits, engine=engine, algorithm=algorithm, **way)
                    reference = alone[way.get("max_norm")]
                    off = distance(found, reference)
                    what = f"{dtype}, {engine}, {algorithm}, {way}"
                    if engine == "none" and tests.nranks > 1:
                        tests.check(off > 0.001, f"{what}: no communication, and yet the same")
                        continue
                    tests.check(off < NEAR[dtype], f"{what}: {off:.1e} from one process")
                    losses = np.allclose(found.losses, reference.losses, rtol=NEAR[dtype])
                    tests.check(losses, f"{what}: losses {found.losses[-1]}, not {reference.losses[-1]}")


if __name__ == "__main__":
    if sys.argv[1:] == ["uneven"]:
        with battery() as tests:
            tests.refused("shards", "batch 97", call=lambda: train(tests.comm, load_digits(), batch=97))
    else:
        with battery(least=20) as tests:
            equivalence(tests)

"""Every algorithm of messages on arrays of CUDA devices, checked as measurements are; the argument is the staging."""

from __future__ import annotations

import sys

from battery import battery

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.settings import Settings
from ringbench.runtime import worker
from ringbench.runtime.arrays import backend_for
from ringbench.runtime.devices import bind_devices
from ringbench.schedule.registry import algorithms
from ringbench.schedule.semantics import COLLECTIVES

if __name__ == "__main__":
    with battery() as tests:
        device, staging = sys.argv[2] if len(sys.argv) > 2 else "cuda", sys.argv[1]
        bind_devices(tests.comm, backend_for(device))
        for collective in COLLECTIVES:
            names = [one.name for one in algorithms(collective) if one.shared is None]
            for dtype, op in (("float32", "sum"), ("float16", "average"), ("int64", "max")):
                if op != "sum" and not COLLECTIVES[collective].reduces:
                    continue
                settings = Settings(
                    collective=collective,
                    algorithms=(*names, *(["mpi"] if staging == "host" else [])),
                    sizes=(8 * tests.nranks, 80_008 * tests.nranks),
                    dtype=dtype,
                    op=op,
                    device=device,
                    staging=staging,
                    placement="both",
                    max_samples=3,
                    warmup=1,
                )
                for row in worker.measure(tests.comm, settings):
                    what = f"{collective} {row.algorithm} {dtype} {op}, {row.nbytes} B, in place {row.in_place}"
                    tests.check(row.wrong == 0 or row.reason, f"{what}: {row.wrong_detail}")
                    tests.check(bool(row.samples_s) or row.reason, f"{what}: no samples")

"""Every algorithm with messages that wait for their receiver, around powers of two (CASE 11)."""

from __future__ import annotations

from battery import battery
from vectors import OUT, PLACEMENTS, Case

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import algorithms

COUNTS = tuple(2**power + more for power in (1, 3, 5, 10, 15) for more in (-1, 0, 1))

if __name__ == "__main__":
    with battery() as tests:
        for algorithm in algorithms():
            if algorithm.shared is not None:  # no message
                continue
            for count in COUNTS:
                for placement in (OUT, PLACEMENTS[-1]):
                    # A segment of its own for each count, so that messages of a step differ in number of pieces.
                    for segment in (0, DEFAULT_SEGMENT, max(8, count // 2)):
                        case = Case(
                            algorithm.collective,
                            tests.rank,
                            tests.nranks,
                            count,
                            "float64",
                            "sum",
                            placement,
                            needs=(tests.comm, algorithm.name),
                        )
                        run = plan(
                            algorithm.collective,
                            algorithm.name,
                            tests.comm,
                            case.sendbuf,
                            case.recvbuf,
                            "sum",
                            segment,
                            chunks=3,
                        )
                        case.fill(3)
                        run()
                        fault = case.fault(3)
                        what = f"{algorithm.collective} {algorithm.name}, {count} elements, segment {segment}"
                        tests.check(fault is None, f"{what}: {fault}")

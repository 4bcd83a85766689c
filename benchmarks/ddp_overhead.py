#!/usr/bin/env python3
"""Measure what the machinery of ringbench.ddp adds to a step for each bucket: hooks, queue, thread.

Start with ``python benchmarks/ddp_overhead.py``. One rank, buckets of one parameter whose reduction does nothing,
engines in interleaved order. Prints medians in microseconds per bucket: of a step whose gradients are all ready at once
(from the first ``ready`` to the end of ``finish``); and, with a millisecond of sleep before each gradient, of ``ready``
itself and of the time from there to the begin of the reduction. The target is 50 us for each.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.ddp import DataParallel

TARGET_US = 50.0
#: Engines that begin a reduction before ``finish``, so that the time until then is their own.
EAGER = ("thread", "poll", "iallreduce", "iallreduce_progress")


class Nothing:
    """Reduce nothing, in one stage."""

    name = "nothing"

    def stages(self, comm: object, vector: Any, pieces: object, make_plan: object) -> tuple[Any, ...]:
        """Return the stage."""
        return (lambda: None,)

    def wire_bytes(self, pieces: object, itemsize: int, nranks: int) -> int:
        """Return 0."""
        return 0


def at_once(averaged: DataParallel, nbuckets: int) -> float:
    """Return the seconds per bucket of a step without pauses."""
    start = time.perf_counter()
    for index in reversed(range(nbuckets)):
        averaged.ready(index)
        averaged.poll()
    averaged.finish()
    return (time.perf_counter() - start) / nbuckets


def with_pauses(averaged: DataParallel, nbuckets: int) -> tuple[float, float]:
    """Return the median seconds of ``ready``, and from there until the reduction begins."""
    calls = []
    for index in reversed(range(nbuckets)):
        time.sleep(0.001)
        start = time.perf_counter()
        averaged.ready(index)
        calls.append(time.perf_counter() - start)
    averaged.finish()
    return statistics.median(calls), statistics.median(job.begin_s - job.ready_s for job in averaged.jobs)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="steps of every engine (default 100)")
    parser.add_argument("--buckets", type=int, default=32, help="buckets of a step (default 32)")
    given = parser.parse_args()
    if MPI.COMM_WORLD.Get_size() != 1 or given.rounds < 1 or given.buckets < 1:
        print("ddp_overhead: needs one rank, and at least one round and bucket", file=sys.stderr)
        return 2
    parameters = [np.zeros(2, np.float32)] * given.buckets
    engines = {
        name: DataParallel(
            MPI.COMM_WORLD,
            parameters,
            engine=name,
            hook=Nothing(),
            bucket_bytes=1,
            first_bucket_bytes=1,
            check_steps=False,
        )
        for name in ("blocking", *EAGER, "none")
    }
    names, order = list(engines), random.Random(0)
    steps: dict[str, list[float]] = {name: [] for name in names}
    calls: dict[str, list[float]] = {name: [] for name in names}
    waits: dict[str, list[float]] = {name: [] for name in names}
    for number in range(given.rounds + 5):
        order.shuffle(names)
        for name in names:
            step = at_once(engines[name], given.buckets)
            call, wait = with_pauses(engines[name], given.buckets) if number % 10 == 5 else (None, None)
            if number >= 5:
                steps[name].append(step)
                calls[name] += [] if call is None else [call]
                waits[name] += [] if wait is None else [wait]
    worst = 0.0
    print(f"{'us per bucket':<22}{'step at once':>14}{'ready':>9}{'until begun':>13}")
    for name, averaged in engines.items():
        step, call, wait = (statistics.median(found[name]) * 1e6 for found in (steps, calls, waits))
        worst = max(worst, step, call, wait if name in EAGER else 0)
        print(f"{name:<22}{step:>14.1f}{call:>9.1f}" + (f"{wait:>13.1f}" if name in EAGER else f"{'-':>13}"))
        averaged.close()
    print(f"at most {worst:.1f} us, target {TARGET_US:g} us: {'met' if worst <= TARGET_US else 'missed'}")
    return 0 if worst <= TARGET_US else 1


if __name__ == "__main__":
    sys.exit(main())

"""Plans that are started: the bits of the blocking ones, many in flight at once, each rank at a speed of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from battery import Battery, battery
from vectors import OUT, PLACEMENTS, ROOTED, Case

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.runtime.execute import Plan
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import algorithms
from ringbench.schedule.semantics import COLLECTIVES

COUNTS = (0, 7, 3000)


def names(collective: str) -> list[str]:
    return [*(algorithm.name for algorithm in algorithms(collective) if algorithm.shared is None), "mpi"]


def finish(run: Plan, way: int) -> None:
    """Bring a plan that was started to its end by waiting, by testing, or by both."""
    if way == 1:
        while not run.test():
            pass
    elif way == 2:
        run.test()
        run.wait()
    else:
        run.wait()


def every_plan(tests: Battery) -> None:
    """Every algorithm gives the right answer, again and again, whoever tests and whoever waits."""
    number = 0
    for collective in COLLECTIVES:
        for name in names(collective):
            for count in COUNTS:
                number += 1
                root = number % tests.nranks if collective in ROOTED else 0
                op = ("sum", "average", "max")[number % 3] if COLLECTIVES[collective].reduces else "sum"
                placement = PLACEMENTS[number % 3]
                case = Case(collective, tests.rank, tests.nranks, count, "float64", op, placement, root)
                segment = (0, 1000, 3000)[number % 3] if count > 7 else (0, 8)[number % 2]
                run = plan(collective, name, tests.comm, case.sendbuf, case.recvbuf, op, segment, root=root, chunks=3)
                for salt in range(3):
                    case.fill(salt)
                    if salt == 1:
                        run()
                    else:
                        run.start()
                        finish(run, (number + salt + tests.rank) % 3)
                    fault = case.fault(salt)
                    tests.check(fault is None, f"{collective} {name}, {count} elements, {op}, run {salt}: {fault}")


def same_bits(tests: Battery) -> None:
    """The same additions in the same order as when the plan is called."""
    brought = np.random.default_rng(tests.rank).standard_normal(10_001, dtype=np.float32)
    for name in names("allreduce")[:-1]:
        vector = brought.copy()
        run = plan("allreduce", name, tests.comm, vector, vector, "average", segment=4096)
        run()
        called = vector.tobytes()
        vector[...] = brought
        run.start()
        finish(run, tests.rank % 3)
        tests.check(vector.tobytes() == called, f"{name}: other bits than when called")


def many_in_flight(tests: Battery) -> None:
    """Plans of one communicator are advanced in an order that differs on every rank; no message goes astray."""
    dice = random.Random(tests.rank)
    kinds = [
        (collective, name) for collective in ("allreduce", "reduce_scatter", "allgather") for name in names(collective)
    ]
    cases = []
    for collective, name in kinds:
        for count in (5, 3000):
            case = Case(collective, tests.rank, tests.nranks, count, "float64", "sum", OUT)
            cases.append((f"{collective} {name}", case, plan(collective, name, tests.comm, case.sendbuf, case.recvbuf)))
    for salt in range(3):
        for _, case, run in cases:
            case.fill(salt)
            run.start()
            for _ in range(dice.randrange(3)):
                dice.choice(cases)[2].test()
        called = plan("allreduce", "ring", tests.comm, *(np.full(9, 2.0**tests.rank),) * 2)
        called()  # beside those in flight
        going = [run for _, _, run in cases]
        while going:
            going = [run for run in dice.sample(going, len(going)) if not run.test()]
        for what, case, _ in cases:
            fault = case.fault(salt)
            tests.check(fault is None, f"{what} beside others, run {salt}: {fault}")


def in_flight(tests: Battery) -> None:
    """A plan in flight is not called or started again; one that is not can be tested and waited for."""
    vector = np.full(100_000, 2.0**tests.rank)
    run = plan("allreduce", "ring", tests.comm, vector, vector)
    tests.check(run.test(), "a plan that was not started is not done")
    run.wait()
    tests.check(vector[0] == 2.0**tests.rank, "a wait started the plan")
    if tests.nranks > 1:
        # The last rank has not begun, so that no other can be done; each tests as long as it may.
        if tests.rank < tests.nranks - 1:
            run.start()
            tests.check(not run.test(), "done without the last rank")
            for what in (run, run.start):
                tests.check(refused(what), f"{what} is allowed while the plan is in flight")
        tests.comm.Barrier()
        if tests.rank == tests.nranks - 1:
            run.start()
        run.wait()
    tests.check(tests.nranks == 1 or (vector == 2**tests.nranks - 1).all(), f"the sum is {vector[:2]}")


def refused(call: Callable[[], Any], word: str = "in flight") -> bool:
    try:
        call()
    except RuntimeError as error:
        return word in str(error)
    return False


def waiting(tests: Battery) -> None:
    """A plan whose ranks wait for each other in shared memory is called, and not started."""
    vector = np.full(50, 2.0**tests.rank)
    run = plan("allreduce", "shared_copy", tests.comm, vector, vector)
    if tests.nranks == 1:  # nobody to wait for
        run.start()
        run.wait()
    else:
        tests.check(refused(run.start, "cannot be started"), "is started, though it would wait")
        run()
    tests.check((vector == 2**tests.nranks - 1).all(), f"after a refused start: {vector[:2]}")


def halves(tests: Battery) -> None:
    """Plans on communicators that overlap have numbers of their own, and each its ranks' agreement on the tag."""
    half = tests.comm.Split(tests.rank % 2)
    ones = np.ones(50)
    alone = [plan("allreduce", "ring", half, ones.copy(), np.empty(50)) for _ in range(1 + tests.rank % 2)]
    whole = np.full(50, 2.0**tests.rank)
    every = plan("allreduce", "ring", tests.comm, whole, whole)
    for run in (every, *alone):
        run.start()
    for run in (*alone, every):
        run.wait()
    tests.check((whole == 2**tests.nranks - 1).all(), f"after plans of half the ranks: {whole[:2]}")
    half.Free()


if __name__ == "__main__":
    with battery(least=100) as tests:
        every_plan(tests)
        same_bits(tests)
        many_in_flight(tests)
        in_flight(tests)
        waiting(tests)
        halves(tests)

"""Every compression over MPI: the same bits on all ranks, what simulated ranks give, and the bytes announced."""

from __future__ import annotations

from typing import Any

import numpy as np
from battery import Battery, battery

from ringbench.ddp.compress import hook_named, measure
from ringbench.ddp.compress_codec import Compression, Vector, sent_bytes
from ringbench.ddp.compress_gathered import Sign, Topk
from ringbench.ddp.compress_half import Half
from ringbench.ddp.compress_study import pieces_of, run_step
from ringbench.ddp.hooks import Piece
from ringbench.runtime.execute import Plan
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import algorithm_named

NAMES = ("fp16", "bf16", "powersgd:1", "powersgd:3", "sign", "topk:0.02", "topk:1")
LAYOUTS = {
    "a model": ((24, 36), (24,), (5, 4, 3, 3), (1,), ()),
    "vectors": ((13,), (8,)),
    "one element": ((1,),),
    "fewer elements than ranks": ((1, 2),),
    "nothing": ((0, 4),),
}
STEPS = 4

#: What the run asks for, and what allreduce and allgather then are.
ALGORITHMS = {"ring": ("ring", "ring"), "auto": ("auto", "auto"), "recursive_doubling": ("recursive_doubling", "bruck")}


class Planner:
    """Plan with one algorithm for each collective, on one communicator."""

    def __init__(self, comm: Any, allreduce: str, allgather: str) -> None:
        self.comm, self.names = comm, {"allreduce": allreduce, "allgather": allgather}

    def __call__(self, collective: str, sendbuf: Any, recvbuf: Any, op: str = "sum") -> Plan:
        return plan(collective, self.names[collective], self.comm, sendbuf, recvbuf, op)


def gradients(step: int, nranks: int, count: int, dtype: str) -> list[Vector]:
    draw = np.random.default_rng([step, count])
    common = draw.standard_normal(count)
    return [(common + draw.standard_normal(count)).astype(dtype) for _ in range(nranks)]


def named(name: str) -> Compression:
    found = hook_named(name)
    assert found is not None
    return found


def same(tests: Battery, vector: Vector, what: str) -> None:
    everyone = tests.comm.allgather(vector.tobytes())
    tests.check(len(set(everyone)) == 1, f"{what}: the ranks hold unlike bits")


def steps(tests: Battery, name: str, layout: str, dtype: str, algorithm: str) -> None:
    what = f"{name}, {layout}, {dtype}, {algorithm}"
    pieces = pieces_of(LAYOUTS[layout])
    count = sum(int(np.prod(shape)) for _, shape in pieces)
    hook = named(name)
    vector = np.zeros(count, dtype)
    stages = hook.stages(tests.comm, vector, pieces, Planner(tests.comm, *ALGORITHMS[algorithm]))
    simulated = [np.zeros(count, dtype) for _ in range(tests.nranks)]
    codecs = [named(name).codec(own, pieces, rank, tests.nranks) for rank, own in enumerate(simulated)]

    sent, given, bound = np.zeros(count), np.zeros(count), np.zeros(count)
    unit = 2e-4 if dtype == "float32" else 1e-11
    half = {"fp16": 2.0**-11, "bf16": 2.0**-8}.get(name, 0) * tests.nranks * 1.01  # of rounding as often as ranks add
    for step in range(STEPS):
        each = gradients(step, tests.nranks, count, dtype)
        vector[:] = each[tests.rank]
        for stage in stages:
            stage()
        same(tests, vector, f"{what}, step {step}")
        size = np.mean(np.abs(each), axis=0)
        for own, gradient in zip(simulated, each, strict=True):
            own[:] = gradient
        run_step(codecs)
        if isinstance(hook, (Sign, Topk)) or tests.nranks <= 2:
            right = (vector == simulated[0]).all()  # two numbers have one sum, and the gathered are added in order
        elif isinstance(hook, Half):
            right = (np.abs(vector - np.mean(each, axis=0)) <= half * size).all()
        else:
            right = np.allclose(vector, simulated[0], rtol=0, atol=unit)
        tests.check(right, f"{what}, step {step}: {vector[:9]} and not {simulated[0][:9]}")
        sent += vector
        given += np.mean(each, axis=0, dtype=np.float64)
        bound += half * size
    left = np.mean(tests.comm.allgather(hook.codecs[0].residual), axis=0, dtype=np.float64)
    if left.size:
        tests.check(np.allclose(sent + left, given, rtol=0, atol=unit), f"{what}: gradients are lost or doubled")
    else:
        tests.check((np.abs(sent - given) <= bound).all(), f"{what}: {sent[:9]} and not {given[:9]}")
    account = hook.account()
    tests.check(account.steps == STEPS and not account.nonfinite, f"{what}: {account}")
    if algorithm == "ring":
        announced(tests, hook, stages, pieces, vector.itemsize, what)


def announced(
    tests: Battery, hook: Compression, stages: tuple[Any, ...], pieces: tuple[Piece, ...], itemsize: int, what: str
) -> None:
    """The busiest rank of a ring sends what was announced; blocks that are not equal may add an element a message."""
    plans = [stage for stage in stages if isinstance(stage, Plan)]
    most = max(tests.comm.allgather(sum(one.bytes_sent or 0 for one in plans)))
    said = hook.wire_bytes(pieces, itemsize, tests.nranks)
    messages = hook.messages(pieces, itemsize, tests.nranks)
    more = sum(2 * (tests.nranks - 1) * one.itemsize for one in messages if one.count % tests.nranks)
    tests.check(said <= most + 1 and most <= said + more, f"{what}: {most} bytes, {said} were announced")
    ring = sent_bytes(messages, tests.nranks, lambda kind, nranks: algorithm_named(kind, "ring").sent(nranks))
    tests.check(ring == said, f"{what}: a ring is to send {ring} bytes, the least are {said}")


def poisoned(tests: Battery, name: str) -> None:
    """What is not finite on one rank is seen on all, and gone in the next step."""
    pieces = pieces_of(LAYOUTS["a model"])
    count = sum(int(np.prod(shape)) for _, shape in pieces)
    hook, vector = named(name), np.zeros(count, np.float32)
    stages = hook.stages(tests.comm, vector, pieces, Planner(tests.comm, "ring", "ring"))
    for step, poison in enumerate((np.nan, None, np.inf, None)):
        vector[:] = gradients(step, tests.nranks, count, "float32")[tests.rank]
        if poison is not None and tests.rank == tests.nranks - 1:
            vector[7] = poison
        for stage in stages:
            stage()
        finite = bool(np.isfinite(vector).all())
        tests.check(finite == (poison is None), f"{name}, step {step}: {vector[:9]}")
        if poison is not None:
            tests.check(not np.isfinite(vector[7]), f"{name}, step {step}: hidden")
    counts = tests.comm.allgather(hook.account().nonfinite)
    tests.check(len(set(counts)) == 1 and counts[0] >= 2, f"{name}: not finite were {counts}")


def readings(tests: Battery, name: str) -> None:
    pieces = pieces_of(LAYOUTS["a model"])
    count = sum(int(np.prod(shape)) for _, shape in pieces)
    own = gradients(0, tests.nranks, count, "float32")[tests.rank]
    kept = own.copy()
    for algorithm in ("ring", "mpi"):
        hook = named(name)
        try:
            found = measure(tests.comm, hook, own, pieces, Planner(tests.comm, algorithm, algorithm), repeats=3)
        except ValueError as error:
            missing = algorithm == "mpi" and name in ("fp16", "bf16") and "has no reduction" in str(error)
            tests.check(missing, f"{name}, {algorithm}: {error}")
            continue
        what = f"{name}, {algorithm}: {found}"
        tests.check(len(set(tests.comm.allgather(found))) == 1, f"{what}: not the same on all ranks")
        tests.check((found.compression, found.nranks) == (name, tests.nranks), what)
        tests.check((own == kept).all() and not hook.codecs, f"{what}: changes what it is given")
        tests.check(min(found.plain_s, found.encode_s, found.wire_s, found.decode_s) > 0, what)
        gain = found.plain_s - (found.encode_s + found.wire_s + found.decode_s)
        tests.check(abs(found.net_s - gain) < 1e-9, what)
        limits = {"fp16": (0, 1e-2), "bf16": (0, 5e-2), "topk:1": (-1, 1e-6)}
        least, most = limits.get(name, (0.05, 1.0 if name != "sign" else 2.0))
        tests.check(least < found.error < most and not found.nonfinite, what)
        tests.check((found.wire_bytes is None) == (found.plain_bytes is None) == (algorithm == "mpi"), what)
        if algorithm == "ring" and found.wire_bytes is not None and found.plain_bytes is not None and tests.nranks > 1:
            tests.check((found.wire_bytes < found.plain_bytes) == (name != "topk:1"), what)


if __name__ == "__main__":
    with battery(least=500) as tests:
        for name in NAMES:
            for layout in LAYOUTS:
                for dtype in ("float32", "float64"):
                    for algorithm in ALGORITHMS:
                        steps(tests, name, layout, dtype, algorithm)
            poisoned(tests, name)
            readings(tests, name)
        tests.usable("after all of it")

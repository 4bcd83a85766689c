"""Compression of gradients, by name, and what a step with it costs and loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from ringbench.ddp.compress_codec import Compression, Vector, Work, planned
from ringbench.ddp.compress_gathered import Sign, Topk
from ringbench.ddp.compress_half import WIRES, Half
from ringbench.ddp.compress_powersgd import PowerSgd
from ringbench.ddp.hooks import MakePlan, Piece
from ringbench.runtime.execute import Plan

#: What can be asked for, as it is written.
NAMES = ("none", *WIRES, "powersgd:RANK", "sign", "topk:DENSITY")


def hook_named(text: str) -> Compression | None:
    """Return the compression of a name such as ``fp16``, ``powersgd:4``, ``topk:0.01``; None for ``none``.

    Raises ValueError naming the value that is wrong.
    """
    name, colon, value = text.partition(":")
    if name == "powersgd" and colon:
        return PowerSgd(_number(int, value, "rank", text))
    if name == "topk" and colon:
        return Topk(_number(float, value, "density", text))
    if name in ("powersgd", "topk"):
        example = "powersgd:4" if name == "powersgd" else "topk:0.01"
        raise ValueError(f"compression {text!r}: needs a number, as in {example}")
    if colon and name in NAMES:
        raise ValueError(f"compression {text!r}: {name} takes no {value!r}")
    if name in WIRES:
        return Half(name)
    if name == "sign":
        return Sign()
    if name == "none":
        return None
    raise ValueError(f"unknown compression {text!r}; known: {', '.join(NAMES)}")


def _number(kind: Callable[[str], Any], value: str, what: str, text: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"compression {text!r}: {what} {value!r} is no {kind.__name__}") from None


def step_error(decoded: Vector, exact: Vector) -> float:
    """Return the length of the difference in units of the exact average's.

    It is 0 where both are zero, infinite where only the exact one is, NaN where either is not finite.
    """
    wide = exact.astype(np.float64)
    lost, length = float(np.linalg.norm(decoded - wide)), float(np.linalg.norm(wide))
    if length:
        return lost / length
    return float("inf") if lost else lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Hold what one compressed step of one bucket costs beside an uncompressed one, and what it loses.

    Seconds are medians over repeats of the slowest rank, nothing overlapped; bytes are the busiest rank's, None where
    the library decides. ``error`` is that of the first step, see ``step_error``; ``nonfinite`` counts elements of its
    average.
    """

    compression: str
    nranks: int
    plain_bytes: int | None
    wire_bytes: int | None
    plain_s: float
    encode_s: float
    wire_s: float
    decode_s: float
    error: float
    nonfinite: int

    @property
    def net_s(self) -> float:
        """Return what a step gains in seconds; it loses where this is negative."""
        return self.plain_s - self.encode_s - self.wire_s - self.decode_s


def measure(
    comm: Any,
    compression: Compression,
    gradients: Vector,
    pieces: Sequence[Piece],
    make_plan: MakePlan,
    repeats: int = 5,
) -> Reading:
    """Measure compressed and uncompressed steps of a bucket in turns, all on the same gradients. Collective.

    ``gradients`` stay as they are; the codec is one of its own, so that nothing is carried into a training that uses
    the compression. Raises ValueError for what cannot be compressed or planned, or for fewer than one repeat.
    """
    if repeats < 1:
        raise ValueError(f"{repeats} repeats: must be at least one")
    vector = gradients.copy()
    codec = compression.codec(vector, pieces, comm.Get_rank(), comm.Get_size())
    stages = planned(codec, make_plan)
    whole, exact = gradients.copy(), gradients.astype(np.float64)
    plain = make_plan("allreduce", whole, whole, "average")
    make_plan("allreduce", exact, exact, "average")()

    seconds: list[tuple[float, float, float, float]] = []
    error, nonfinite = 0.0, 0
    for repeat in range(repeats):
        np.copyto(whole, gradients)
        np.copyto(vector, gradients)
        comm.Barrier()
        spent = {"plain": _timed(plain), "encode": 0.0, "wire": 0.0, "decode": 0.0}
        comm.Barrier()
        for stage in stages:
            spent[stage.what if isinstance(stage, Work) else "wire"] += _timed(stage)
        if not repeat:
            error, nonfinite = step_error(vector, exact), codec.nonfinite
        times = comm.allgather(tuple(spent.values()))
        seconds.append(tuple(max(column) for column in zip(*times, strict=True)))
    plain_s, encode_s, wire_s, decode_s = (median(column) for column in zip(*seconds, strict=True))
    return Reading(
        compression=compression.name,
        nranks=comm.Get_size(),
        plain_bytes=_busiest(comm, [plain]),
        wire_bytes=_busiest(comm, [stage for stage in stages if isinstance(stage, Plan)]),
        plain_s=plain_s,
        encode_s=encode_s,
        wire_s=wire_s,
        decode_s=decode_s,
        error=error,
        nonfinite=nonfinite,
    )


def _timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _busiest(comm: Any, plans: Sequence[Plan]) -> int | None:
    """Return the bytes of the rank that sends most."""
    sent = [plan.bytes_sent for plan in plans]
    known = [nbytes for nbytes in sent if nbytes is not None]
    return max(comm.allgather(sum(known))) if len(known) == len(sent) else None

"""When buckets are reduced, and what of it a step has to wait for: the timeline of one training step, as arithmetic.

A bucket is reduced once its gradients are ready and the bucket before it is done: start = max(ready, end before), end =
start + t(bytes). What ends after the backward pass is exposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate as cumulate

from ringbench.ddp.buckets import Parameter, assign_buckets
from ringbench.ddp.choices import ENGINES
from ringbench.ddp.workloads import Workload
from ringbench.records.units import format_seconds

#: The seconds that reducing so many bytes takes.
Time = Callable[[int], float]

#: The types that gradients may have, and the bytes of an element.
ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

#: Engines that reduce nothing while gradients are still computed. ``MPI_Iallreduce`` alone does not: nobody lets the
#: library make progress.
LATE_ENGINES = ("blocking", "iallreduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Hold the bytes of one bucket, and the seconds after the step's start at which its last gradient is ready.

    ``nbytes`` are what is reduced, ``encode_s`` what is computed for it before and after by the engine.
    """

    nbytes: int
    ready_s: float
    encode_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Hold when a bucket was ready, and when its reduction started and ended, in seconds after the step's start."""

    nbytes: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Hold one step: its buckets in the order of reduction, what computing takes, and what all of it takes."""

    slots: tuple[Slot, ...]
    compute_s: float
    step_s: float

    @property
    def communication_s(self) -> float:
        """Return what all reductions take by themselves."""
        return math.fsum(slot.end_s - slot.start_s for slot in self.slots)

    @property
    def exposed_s(self) -> float:
        """Return what the step takes longer than its computing."""
        return self.step_s - self.compute_s

    @property
    def hidden_share(self) -> float | None:
        """Return the share of communication that the step does not wait for; None where there is none."""
        whole = self.communication_s
        return (whole - self.exposed_s) / whole if whole > 0 else None


def timeline(buckets: Iterable[Bucket], time: Time, compute_s: float, engine: str = "thread") -> Timeline:
    """Return the step of an engine, for buckets in the order in which they are reduced.

    ``compute_s`` is when the backward pass ends. Raises ValueError for an unknown engine.
    """
    check_engine(engine)
    if engine == "none":
        return Timeline(slots=(), compute_s=compute_s, step_s=compute_s)
    end = compute_s if engine in LATE_ENGINES else 0.0
    slots = []
    for bucket in buckets:
        start = max(bucket.ready_s, end)
        end = start + time(bucket.nbytes) + bucket.encode_s
        slots.append(Slot(nbytes=bucket.nbytes, ready_s=bucket.ready_s, start_s=start, end_s=end))
    return Timeline(slots=tuple(slots), compute_s=compute_s, step_s=max(end, compute_s))


def check_engine(name: str) -> None:
    """Raise ValueError for an engine that there is not."""
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")


def ready_times(workload: Workload, accumulate: int = 1) -> list[float]:
    """Return when the gradients of each layer are ready, in forward order, in seconds after the step's start.

    Gradients of ``accumulate`` micro-batches are added up: only in the last one are they ready to be reduced.
    """
    before = (accumulate - 1) * workload.compute_s + workload.forward_s
    ends = list(cumulate(layer.backward_s for layer in reversed(workload.layers)))
    return [before + end for end in reversed(ends)]


def buckets_of(
    workload: Workload, dtype: str, bucket_nbytes: int, first_nbytes: int, accumulate: int = 1
) -> list[Bucket]:
    """Return the buckets of a workload in the order in which they are reduced, and when each is ready."""
    ready = ready_times(workload, accumulate)
    of_layer = [at for at, layer in enumerate(workload.layers) for _ in layer.shapes]
    return [
        Bucket(nbytes=bucket.nbytes, ready_s=max(ready[of_layer[index]] for index in bucket.indices))
        for bucket in assign_buckets(parameters_of(workload, dtype), bucket_nbytes, first_nbytes)
    ]


def parameters_of(workload: Workload, dtype: str) -> list[Parameter]:
    """Return the parameters of all layers in forward order; raise ValueError for a type that gradients do not have."""
    if dtype not in ITEMSIZE:
        raise ValueError(f"dtype {dtype!r}: gradients are of {', '.join(ITEMSIZE)}")
    return [
        Parameter(name=f"{layer.name}.{number}", shape=shape, dtype=dtype, itemsize=ITEMSIZE[dtype])
        for layer in workload.layers
        for number, shape in enumerate(layer.shapes)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Hold what a measured step says: what was exposed, and the shares that were hidden by several definitions.

    ``hidden_share`` is that of all communication, None where the times contradict each other; ``possible_share`` that
    of what could have been hidden. ``osu`` and ``imb`` are the overlap that OSU's and IMB's benchmarks would print of
    the same times, as a share. ``note`` says what is wrong with the times, or was cut off.
    """

    exposed_s: float
    hidden_share: float | None
    possible_share: float | None
    osu: float | None
    imb: float | None
    note: str | None


def overlap(
    compute_s: float,
    communication_s: float,
    step_s: float,
    *,
    unavoidable_s: float = 0.0,
    within_s: float = 0.0,
) -> Overlap:
    """Return how much of the communication a step hid, from the times of both alone and of the step.

    ``unavoidable_s`` is what no engine could have hidden: the last bucket, and what does not fit beside the backward
    pass. Times closer to each other than ``within_s`` count as equal. A step that is shorter than its computing or its
    communication cannot be: no share is given, and ``note`` says so. One that is longer than both together hides
    nothing, and ``note`` says by how much.

    ``osu`` is 1 - (step - compute) / communication, not below 0, as osu_iallreduce has it; ``imb`` is (communication +
    compute - step) / the lesser of both, from 0 to 1, as the manual of IMB-NBC has it.
    """
    exposed = step_s - compute_s
    if communication_s <= 0:
        return Overlap(exposed_s=exposed, hidden_share=None, possible_share=None, osu=None, imb=None, note=None)
    osu = max(0.0, 1 - exposed / communication_s)
    least = min(communication_s, compute_s)
    imb = min(1.0, max(0.0, (communication_s + compute_s - step_s) / least)) if least > 0 else None
    note = None
    share: float | None = 1 - exposed / communication_s
    floor, what = max((compute_s, "computing"), (communication_s, "communication"))
    if step_s < floor - within_s:
        share = None
        note = f"impossible: the step ({format_seconds(step_s)}) is shorter than its {what} ({format_seconds(floor)})"
    elif exposed > communication_s:
        share = 0.0
        if exposed > communication_s + within_s:
            slower = format_seconds(exposed - communication_s)
            note = f"nothing is hidden: {slower} longer than computing and communicating one after the other"
    elif exposed < 0:
        share = 1.0
    hideable = communication_s - unavoidable_s
    possible = None
    if share is not None and hideable > 0:
        possible = share * communication_s / hideable
        if possible > 1:
            if (possible - 1) * hideable > within_s and note is None:
                more = format_seconds((possible - 1) * hideable)
                note = f"more is hidden than could be, by {more}: what was measured alone was slower than in the step"
            possible = 1.0
    return Overlap(exposed_s=exposed, hidden_share=share, possible_share=possible, osu=osu, imb=imb, note=note)


def unavoidable(found: Timeline) -> float:
    """Return the seconds that stay exposed whatever the engine: those of the same buckets with the best overlap."""
    slots = found.slots
    again = [Bucket(nbytes=index, ready_s=slot.ready_s) for index, slot in enumerate(slots)]
    best = timeline(again, lambda index: slots[index].end_s - slots[index].start_s, found.compute_s)
    return best.exposed_s

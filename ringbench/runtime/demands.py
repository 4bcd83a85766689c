"""What may be asked for, and what it takes: decided without MPI, NumPy or an allocation."""

from __future__ import annotations

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.settings import Settings
from ringbench.runtime.compile import scratch_sizes
from ringbench.runtime.moves import DEFAULT_SEGMENT, check_segment, segment_elements
from ringbench.schedule.registry import algorithm_named
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.verify import verify

#: Bytes of an element of every dtype that can be reduced.
ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
OPS = ("sum", "average")

#: Above this many ranks a proof takes seconds, and the check of every result has to do.
VERIFY_LIMIT = 32


def check_types(collective: str, op: str, dtype: str) -> None:
    """Raise ValueError, naming what is known, for an operation or a dtype that is not reduced here."""
    reduces = collective_named(collective).reduces
    if op not in OPS:
        raise ValueError(f"unknown op {op!r}; known: {', '.join(OPS)}")
    if not reduces and op != "sum":
        raise ValueError(f"op {op!r}: {collective} reduces nothing")
    if dtype == "bool":
        raise ValueError("dtype 'bool' has no sum: MPI refuses it and NumPy would say True; land and lor are meant")
    if dtype not in ITEMSIZE:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(ITEMSIZE)}")
    if reduces and op == "average" and not dtype.startswith("float"):
        raise ValueError(f"op 'average' of dtype {dtype!r}: refused, how to round whole numbers is not defined")


def check_settings(settings: Settings) -> None:
    """Raise ValueError, naming the value, for what no number of ranks can run."""
    check_types(settings.collective, settings.op, settings.dtype)
    for name in settings.algorithms:
        if name != "mpi":
            algorithm_named(settings.collective, name)
    itemsize = ITEMSIZE[settings.dtype]
    for nbytes in settings.sizes:
        if nbytes % itemsize:
            raise ValueError(f"size {nbytes}: not a whole number of {settings.dtype} ({itemsize} bytes each)")
    if settings.segment is not None:
        check_segment(max(settings.sizes) // itemsize, itemsize, settings.segment)


def memory_needed(settings: Settings, nranks: int) -> tuple[int, int]:
    """Return the bytes that rank 0 needs at the largest size, and that size; nothing is allocated.

    All algorithms of a size are planned at once, since they are measured in turns. Rank 0 needs the most.
    """
    nbytes = max(settings.sizes)
    itemsize = ITEMSIZE[settings.dtype]
    count = nbytes // itemsize
    semantics = collective_named(settings.collective)
    segment = DEFAULT_SEGMENT if settings.segment is None else settings.segment
    worst = 0
    for in_place in settings.placements:
        need = count if in_place else semantics.send_count(0, nranks, count) + semantics.recv_count(0, nranks, count)
        for name in settings.algorithms:
            if name != "mpi":
                algorithm = algorithm_named(settings.collective, name)
                longest = segment_elements(segment, itemsize)
                need += sum(scratch_sizes(algorithm, 0, nranks, count, in_place=in_place, segment=longest).values())
        worst = max(worst, need * itemsize)
    return worst, nbytes


def check_schedules(settings: Settings, nranks: int) -> None:
    """Raise ValueError where an algorithm is not right on ``nranks`` ranks: it might never end."""
    if nranks <= VERIFY_LIMIT:
        for name in settings.algorithms:
            if name != "mpi":
                verify(algorithm_named(settings.collective, name), nranks)

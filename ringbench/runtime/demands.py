"""What may be asked for, and what it takes: decided without MPI, NumPy or an allocation."""

from __future__ import annotations

from importlib.util import find_spec

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.row import AWARE, DIRECT, NCCL, STAGED
from ringbench.records.settings import Settings
from ringbench.records.straggler import parse_straggler
from ringbench.runtime.choices import choose_by_rule, default_chunks, default_segment
from ringbench.runtime.compile import scratch_sizes
from ringbench.runtime.moves import check_segment, segment_elements
from ringbench.schedule.parameters import DEFAULTS, parse_groups
from ringbench.schedule.registry import RESERVED, Algorithm, algorithm_named, algorithms
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.verify import verify

#: Bytes of an element of every dtype, by kind.
FLOATS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
INTEGERS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1}
COMPLEX = {"complex64": 8, "complex128": 16}
ITEMSIZE = {**FLOATS, **INTEGERS, **COMPLEX, "bool": 1}

OPS = ("sum", "average", "prod", "min", "max", "land", "lor")

#: Above this many ranks a proof takes seconds, and the check of every result has to do.
VERIFY_LIMIT = 32


def check_types(collective: str, op: str, dtype: str) -> None:
    """Raise ValueError, naming what is known, for an operation or a dtype that is not reduced here.

    One rule for all algorithms and for the library's call, whatever either would make of it: logical operations are
    for integers and bool, as in MPI; bool has no other; complex numbers have no order; how to round the average of
    whole numbers is not defined.
    """
    reduces = collective_named(collective).reduces
    if op not in OPS:
        raise ValueError(f"unknown op {op!r}; known: {', '.join(OPS)}")
    if dtype not in ITEMSIZE:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(ITEMSIZE)}")
    if dtype == "bfloat16" and find_spec("ml_dtypes") is None:
        raise ValueError("dtype 'bfloat16': NumPy has none of its own; install ml_dtypes (extra bfloat16)")
    if not reduces:
        if op != "sum":
            raise ValueError(f"op {op!r}: {collective} reduces nothing")
        return
    if dtype == "bool" and op not in ("land", "lor"):
        raise ValueError(f"dtype 'bool' has no {op}: MPI refuses it and NumPy would say True; land and lor are meant")
    if op in ("land", "lor") and dtype not in INTEGERS and dtype != "bool":
        raise ValueError(f"op {op!r} of dtype {dtype!r}: refused, logical operations are for integers and bool")
    if op in ("min", "max") and dtype in COMPLEX:
        raise ValueError(f"op {op!r} of dtype {dtype!r}: refused, complex numbers have no order")
    if op == "average" and dtype in INTEGERS:
        raise ValueError(f"op 'average' of dtype {dtype!r}: refused, how to round whole numbers is not defined")


def check_settings(settings: Settings) -> None:
    """Raise ValueError, naming the value, for what no number of ranks can run."""
    check_types(settings.collective, settings.op, settings.dtype)
    for name in settings.algorithms:
        if name not in RESERVED:
            configured(settings, name)
    _check_taken(settings)
    if settings.device != "cpu" and any(memory_of(settings, name) == "shared" for name in settings.algorithms):
        raise ValueError(f"device {settings.device!r}: only the memory of the cpu is shared by the ranks of a node")
    if settings.device == "cpu" and settings.staging != "none":
        raise ValueError(f"staging {settings.staging!r}: arrays of the cpu are on the host already")
    if "nccl" in settings.algorithms:
        check_nccl(settings.collective, settings.op, settings.dtype, settings.device)
    loop = {"limit": settings.limit, "straggler": settings.straggler, "buffers": settings.buffers > 1}
    if settings.sync == "loop" and any(loop.values()):
        raise ValueError(f"sync 'loop': not with {next(name for name in loop if loop[name])}")
    if settings.limit and settings.buffers > 1:
        raise ValueError(f"buffers {settings.buffers}: not with limit, whose bare messages are on one hot pair")
    if settings.straggler is not None and (settings.buffers > 1 or settings.limit):
        raise ValueError(f"straggler {settings.straggler}: not with {'buffers' if settings.buffers > 1 else 'limit'}")
    itemsize = ITEMSIZE[settings.dtype]
    for nbytes in settings.sizes:
        if nbytes % itemsize:
            raise ValueError(f"size {nbytes}: not a whole number of {settings.dtype} ({itemsize} bytes each)")
    if settings.segment is not None:
        check_segment(max(settings.sizes) // itemsize, itemsize, settings.segment)


#: What NCCL does here: its own collectives, and the types that are its own too. An average is its sum, divided.
NCCL_COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "bcast", "reduce")
NCCL_TYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
NCCL_OPS = ("sum", "average", "prod", "min", "max")


def check_nccl(collective: str, op: str, dtype: str, device: str) -> None:
    """Raise ValueError, naming the value, for what NCCL cannot do."""
    if device == "cpu":
        raise ValueError(f"nccl: arrays on device {device!r}; it is for those on a GPU (--device cuda)")
    for value, known in ((collective, NCCL_COLLECTIVES), (dtype, NCCL_TYPES), (op, NCCL_OPS)):
        if value not in known:
            raise ValueError(f"nccl: no {value}; it has {', '.join(known)}")


def transfer_of(settings: Settings, name: str) -> str:
    """Return how messages of an algorithm travel."""
    if settings.device == "cpu":
        return DIRECT
    return NCCL if name == "nccl" else STAGED if settings.staging == "host" else AWARE


def _check_taken(settings: Settings) -> None:
    """Raise ValueError for an argument that nothing here takes: it would change nothing, and say nothing."""
    own = [configured(settings, name) for name in settings.algorithms if name not in RESERVED]
    taken = {name for algorithm in own for name, _ in algorithm.arguments}
    if "auto" in settings.algorithms:
        taken |= {name for algorithm in algorithms(settings.collective) for name, _ in algorithm.arguments}
    elif settings.choose_from is not None:
        raise ValueError(f"choose from {settings.choose_from}: only 'auto' chooses, and it is not measured")
    if settings.root and not collective_named(settings.collective).rooted:
        raise ValueError(f"root {settings.root}: {settings.collective} has none")
    asked = {
        "chunks": settings.chunks,
        "groups": settings.groups,
        "outer": settings.outer,
        "inner": settings.inner,
    }
    for name, value in asked.items():
        if value not in (None, DEFAULTS.get(name)) and name not in taken:
            raise ValueError(f"{name} {value}: not for {', '.join(settings.algorithms)} of {settings.collective}")


def configured(settings: Settings, name: str, nranks: int | None = None, nbytes: int = 0) -> Algorithm:
    """Return a registered algorithm with what the settings say of its arguments.

    What is not said depends on the size, or on which ranks share a node; the latter is taken to be all of them.
    """
    groups = None if settings.groups is None else parse_groups(settings.groups)
    chunks = default_chunks(nbytes) if settings.chunks is None else settings.chunks
    algorithm = algorithm_named(settings.collective, name)
    inner = settings.inner or ("shared_memory" if settings.memory == "shared" else "ring")
    algorithm = algorithm.given(root=settings.root, chunks=chunks, groups=groups, outer=settings.outer, inner=inner)
    if nranks is not None:
        algorithm.check(nranks)
    return algorithm


def memory_of(settings: Settings, name: str) -> str:
    """Return where an algorithm's buffers are: in ``private`` memory, or ``shared`` by the ranks of a node."""
    known = [algorithm.name for algorithm in algorithms(settings.collective)]
    return "shared" if name in known and configured(settings, name).shared == "work" else settings.memory


def memory_needed(settings: Settings, nranks: int) -> tuple[int, int]:
    """Return the bytes that the rank that needs most needs at the largest size, and that size; nothing is allocated.

    All algorithms of a size are planned at once, since they are measured in turns; ``auto`` is what the rule says. A
    reduction of the library's is taken to need one vector of its own: what both libraries were seen to take at most.
    """
    nbytes = max(settings.sizes)
    itemsize = ITEMSIZE[settings.dtype]
    count = nbytes // itemsize
    semantics = collective_named(settings.collective)
    segment = default_segment(settings.device) if settings.segment is None else settings.segment
    longest = segment_elements(segment, itemsize)
    if semantics.transposes:
        count -= count % nranks
    names = [
        choose_by_rule(settings.collective, nranks, nbytes) if name == "auto" else name for name in settings.algorithms
    ]
    memories = len({memory_of(settings, name) for name in settings.algorithms})
    worst = 0
    for rank in _asked(nranks, settings.root):
        for in_place in settings.placements:
            held = semantics.send_count, semantics.recv_count
            need = count if in_place else sum(size(rank, nranks, count, settings.root) for size in held)
            need *= memories
            for name in names:
                if name not in RESERVED:
                    algorithm = configured(settings, name, nranks, nbytes)
                    if settings.groups is None:  # at worst every rank is on a node of its own
                        algorithm = algorithm.given(groups=tuple((other,) for other in range(nranks)))
                    sizes = scratch_sizes(algorithm, rank, nranks, count, in_place=in_place, segment=longest)
                    need += sum(sizes.values())
            need += count * (("mpi" in names and semantics.reduces and nranks > 1) + 2 * settings.limit)
            worst = max(worst, need * itemsize * settings.buffers)
    return worst, nbytes


def _asked(nranks: int, root: int) -> set[int]:
    """Return the ranks whose memory is counted: all of few, else the ends, the folded ones and those around them."""
    if nranks <= VERIFY_LIMIT:
        return set(range(nranks))
    few = {0, 1, 2, 3, root, nranks // 2, nranks - 2, nranks - 1} if nranks <= 4096 else {0}
    return few & set(range(nranks))


def check_schedules(settings: Settings, nranks: int) -> None:
    """Raise ValueError where an algorithm is not right on ``nranks`` ranks: it might never end."""
    if collective_named(settings.collective).rooted and settings.root >= nranks:
        raise ValueError(f"root {settings.root}: not one of {nranks} rank{'s'[: nranks > 1]}")
    if settings.straggler is not None:
        parse_straggler(settings.straggler).check_ranks(nranks)
    for name in settings.algorithms:
        if name not in RESERVED:
            algorithm = configured(settings, name, nranks, max(settings.sizes))
            if nranks <= VERIFY_LIMIT:
                verify(algorithm, nranks)

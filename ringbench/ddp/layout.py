"""The memory of buckets, and the agreement of all ranks on what lies where."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from ringbench.ddp.buckets import Bucket, Parameter, assign_buckets
from ringbench.ddp.choices import UNUSED, algorithm_for, reaches_into_buckets
from ringbench.ddp.hooks import Piece
from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import Array, Backend, backend_of
from ringbench.runtime.windows import empty_shared
from ringbench.schedule.registry import RESERVED, algorithm_named, algorithms

#: Gives the memory of a bucket: a contiguous vector of so many elements of a dtype.
Allocate: TypeAlias = Callable[[int, str], Array]

#: Dtypes of gradients.
DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Hold a bucket with its memory: the gradients of its parameters are ``pieces`` of the flat ``vector``."""

    bucket: Bucket
    pieces: tuple[Piece, ...]
    vector: Array

    def views(self, vector: Array) -> dict[int, Array]:
        """Return the pieces of a vector that is laid out like this one, by the indices of the parameters."""
        return {
            index: vector[piece.offset : piece.offset + math.prod(piece.shape)].reshape(piece.shape)
            for index, piece in zip(self.bucket.indices, self.pieces, strict=True)
        }


def filled(bucket: Bucket, layout: tuple[Parameter, ...], vector: Array) -> Filled:
    """Return a bucket whose parameters lie one behind the other in ``vector``."""
    offset, pieces = 0, []
    for index in bucket.indices:
        pieces.append(Piece(offset, layout[index].shape))
        offset += layout[index].size
    return Filled(bucket=bucket, pieces=tuple(pieces), vector=vector)


def bucket_memory(comm: Any, engine: str, algorithm: str, backend: Backend) -> Allocate:
    """Return what gives the memory of buckets; calling that is collective, and the same on all ranks.

    Where reductions read and write each other's buckets these lie in shared memory. Where ranks share none, or it lacks
    room, an algorithm that can do without gets private memory; one that cannot raises the ValueError of
    ``empty_shared``.
    """
    if backend.device != "cpu" or comm.Get_size() == 1 or not reaches_into_buckets(engine, algorithm):
        return backend.empty
    needed = algorithm_named("allreduce", algorithm).shared is not None

    def allocate(count: int, dtype: str) -> Array:
        try:
            return empty_shared(comm, count, dtype)
        except ValueError:
            if needed:
                raise
            return backend.empty(count, dtype)

    return allocate


def by_name(layout: tuple[Parameter, ...], views: Iterable[dict[int, Array]]) -> Mapping[str, Array]:
    """Return views of all buckets by the names of the parameters, in forward order."""
    every = {index: view for some in views for index, view in some.items()}
    return MappingProxyType({one.name: every[index] for index, one in enumerate(layout)})


def agreed_layout(
    comm: Any, arrays: Mapping[str, Array], settings: dict[str, Any]
) -> tuple[tuple[Parameter, ...], tuple[Bucket, ...]]:
    """Return parameters in forward order and their buckets, when all ranks have the same ones and the same settings.

    Raises the same ValueError on all ranks otherwise, and where a rank's settings make no sense.
    """
    problem: str | None = None
    layout: tuple[Parameter, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    try:
        check_settings(settings)
        layout = tuple(described(name, array) for name, array in arrays.items())
        if not layout:
            raise ValueError("there are no parameters")
        buckets = assign_buckets(layout, settings["bucket_bytes"], settings["first_bucket_bytes"])
    except (ValueError, TypeError) as error:
        problem = str(error)
    agree(comm, problem, settings | {"number of parameters": len(arrays)})
    agree(comm, None, {f"parameter {index}": str(one) for index, one in enumerate(layout)})
    return layout, buckets


def described(name: str, array: Array) -> Parameter:
    """Describe the parameter that an array holds; raise ValueError for what is no array of floats."""
    dtype = str(array.dtype) if hasattr(array, "dtype") else "unknown"
    device = backend_of(array).device
    if dtype not in DTYPES:
        raise ValueError(f"parameter {name!r} has dtype {dtype}; gradients are of {', '.join(DTYPES)}")
    shape = tuple(int(size) for size in array.shape)
    return Parameter(name=name, shape=shape, dtype=dtype, itemsize=array.dtype.itemsize, device=device)


def check_settings(settings: dict[str, Any]) -> None:
    """Raise ValueError naming the setting that makes no sense."""
    algorithm = algorithm_for(settings["engine"], settings["algorithm"])
    known = (*RESERVED, *dict.fromkeys(one.name for one in algorithms()))
    if algorithm not in known:
        raise ValueError(f"unknown algorithm {algorithm!r}; known: {', '.join(known)}")
    op, unused = settings["op"], settings["unused"]
    if op not in ("average", "sum"):
        raise ValueError(f"op {op!r}: gradients are reduced by 'average' or 'sum'")
    if settings["hook"] is not None and op != "average":
        raise ValueError(f"op {op!r}: the hook {settings['hook']} averages")
    if unused not in UNUSED:
        raise ValueError(f"unused {unused!r}: must be one of {', '.join(UNUSED)}")

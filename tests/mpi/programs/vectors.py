"""Inputs, right answers and recording communicators, made without a message and without ringbench.runtime.data."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.runtime.arrays import numpy_dtype
from ringbench.runtime.windows import empty_shared
from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.registry import RESERVED, algorithm_named

Vector = np.ndarray[Any, np.dtype[Any]]

FLOATS, COMPLEX = ("float16", "bfloat16", "float32", "float64"), ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
DTYPES = (*FLOATS, *INTEGERS, *COMPLEX, "bool")

#: Every dtype with the operations that it has.
KINDS = (
    *((dtype, op) for dtype in FLOATS for op in ("sum", "average", "prod", "min", "max")),
    *((dtype, op) for dtype in INTEGERS for op in ("sum", "prod", "min", "max", "land", "lor")),
    *((dtype, op) for dtype in COMPLEX for op in ("sum", "average", "prod")),
    ("bool", "land"),
    ("bool", "lor"),
)
REDUCING = ("allreduce", "reduce_scatter", "reduce")
ROOTED = ("bcast", "reduce")

OUT, SAME, MARKED = "out of place", "same array twice", "MPI.IN_PLACE"
PLACEMENTS = (OUT, SAME, MARKED)

GUARD, FENCE = 3, 77

REDUCED = {
    "sum": np.add,
    "average": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
}


def contribution(rank: int, count: int, dtype: str, salt: int = 0, op: str = "sum") -> Vector:
    """Return what a rank brings; up to 8 ranks' values reduce without rounding or overflow in the dtype.

    For a sum it is 2**rank times a factor that differs from one element to the next, so that bits name the ranks, and
    small numbers where the dtype is too narrow for that.
    """
    place = np.arange(count) * 3 + salt
    if op in ("sum", "average"):
        narrow = dtype in ("int8", "uint8", "bfloat16")
        values: Vector = (place + 5 * rank) % 8 if narrow else 2**rank * (1 + place % 7)
    elif op == "prod":
        values = np.where(place % 8 == rank, 2, 1)
        values = values if dtype == "uint8" else np.where((place + rank) % 3 == 0, -values, values)
    elif op in ("min", "max"):
        values = (7 * place + 11 * rank) % 101
    else:
        values = ((place + rank) % 9 != 0) == (op == "land")
    if dtype in COMPLEX:
        turns = np.array([1, 1j, -1, -1j])[(rank + place) % 4]  # 1j**n would be rounded
        values = values * turns if op == "prod" else values + 1j * values[::-1]
    return values.astype(numpy_dtype(dtype))


def total(nranks: int, count: int, dtype: str, op: str, salt: int = 0) -> Vector:
    """Return what all contributions reduce to."""
    wide = "complex128" if dtype in COMPLEX else "int64"
    found = contribution(0, count, dtype, salt, op).astype(wide)
    for rank in range(1, nranks):
        found = REDUCED[op](found, contribution(rank, count, dtype, salt, op).astype(wide))
    found = found.astype(numpy_dtype(dtype))
    if op == "average":
        parts = found.view(found.real.dtype) if dtype in COMPLEX else found
        parts /= parts.dtype.type(nranks)
    return found


def placed(comm: Any, collective: str, name: str, array: Vector) -> Vector:
    """Return an array, or a copy of it in memory that is shared, where the algorithm needs its vectors there."""
    if name in RESERVED or algorithm_named(collective, name).shared != "work":
        return array
    there: Vector = empty_shared(comm, array.size, array.dtype).reshape(array.shape)
    there[...] = array
    return there


class Fenced:
    """Hold a vector with a fence on either side that nobody may touch."""

    def __init__(self, whole: Vector, count: int) -> None:
        self.whole = whole
        self.whole[...] = FENCE
        self.fence = self.whole[0]  # True where the dtype is bool
        self.view = self.whole[GUARD : GUARD + count]

    def intact(self) -> bool:
        return bool((self.whole[:GUARD] == self.fence).all() and (self.whole[-GUARD:] == self.fence).all())


class Case:
    """Hold the buffers of one rank for one collective of one vector, filled by salt and judged by salt."""

    def __init__(
        self,
        collective: str,
        rank: int,
        nranks: int,
        count: int,
        dtype: str,
        op: str,
        placement: str,
        root: int = 0,
        needs: tuple[Any, str] = (None, "mpi"),
    ) -> None:
        """Make the buffers; ``needs`` is a communicator, and the algorithm that says what memory they must be in."""
        count -= count % nranks if collective == "alltoall" else 0
        self.collective, self.rank, self.nranks, self.count = collective, rank, nranks, count
        self.dtype, self.op, self.placement, self.root = dtype, op, placement, root
        self.offsets = offsets = block_offsets(count, nranks)
        everything, nothing = slice(0, count), slice(0, 0)
        own = slice(offsets[rank], offsets[rank + 1])
        at_root = everything if rank == root else nothing
        self.brought = {"allgather": own, "bcast": at_root}.get(collective, everything)
        self.got = {"reduce_scatter": own, "reduce": at_root}.get(collective, everything)
        self.received = self.got.stop - self.got.start
        out = placement == OUT

        def fenced(length: int) -> Fenced:
            comm, name = needs
            return Fenced(placed(comm, collective, name, np.zeros(length + 2 * GUARD, numpy_dtype(dtype))), length)

        self.recv = fenced(self.received if out else count)
        self.send = fenced(self.brought.stop - self.brought.start) if out else None

    @property
    def recvbuf(self) -> Vector:
        return self.recv.view

    @property
    def sendbuf(self) -> Any:
        if self.send is not None:
            return self.send.view
        return MPI.IN_PLACE if self.placement == MARKED else self.recv.view

    def whole(self, rank: int, salt: int) -> Vector:
        return contribution(rank, self.count, self.dtype, salt, self.op)

    def input(self, salt: int) -> Vector:
        return self.whole(self.rank, salt)[self.brought]

    def fill(self, salt: int) -> None:
        self.recv.view[...] = FENCE
        if self.send is not None:
            self.send.view[...] = self.input(salt)
        else:
            self.recv.view[self.brought] = self.input(salt)

    def expected(self, salt: int) -> Vector:
        if self.collective in REDUCING:
            return total(self.nranks, self.count, self.dtype, self.op, salt)[self.got]
        if self.collective == "bcast":
            return self.whole(self.root, salt)
        parts = []
        for rank in range(self.nranks):
            block = self.rank if self.collective == "alltoall" else rank
            parts.append(self.whole(rank, salt)[self.offsets[block] : self.offsets[block + 1]])
        return np.concatenate(parts)

    def fault(self, salt: int) -> str | None:
        """Return what is wrong with the result, the fences or the input; None where all is right."""
        result, expected = self.recv.view[: self.received], self.expected(salt)
        if not np.array_equal(result, expected):
            at = int(np.flatnonzero(result != expected)[0])
            return f"element {at} is {result[at]}, not {expected[at]}"
        if not self.recv.intact() or (self.send is not None and not self.send.intact()):
            return "written beyond the end"
        if self.send is not None and not np.array_equal(self.send.view, self.input(salt)):
            return "sendbuf changed"
        return None


class Recording:
    """Stand for a communicator, and note what is really done with it: bytes sent, the longest message, and when."""

    def __init__(self, comm: Any, events: list[str] | None = None) -> None:
        self.comm, self.events = comm, [] if events is None else events
        self.sent: list[int] = []
        self.longest = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.comm, name)
        if not name.startswith(("All", "Reduce", "Bcast")):
            return found

        def noted(*arguments: Any) -> Any:
            self.events.append(name)
            return found(*arguments)

        return noted

    def Sendrecv(  # noqa: N802
        self, sendbuf: Any, dest: int, sendtag: int, recvbuf: Any, source: int, recvtag: int
    ) -> None:
        if sendbuf is not None and dest != MPI.PROC_NULL:
            self.sent.append(sendbuf[1] * sendbuf[2].Get_size())
        for spec in (sendbuf, recvbuf):
            if spec is not None:
                self.longest = max(self.longest, spec[1] * spec[2].Get_size())
        self.events.append("Sendrecv")
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)

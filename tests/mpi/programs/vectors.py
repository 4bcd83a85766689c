"""Inputs, right answers and recording communicators, made without a message and without ringbench.runtime.data."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.schedule.blocks import block_offsets

Vector = np.ndarray[Any, np.dtype[Any]]

DTYPES = ("float32", "float64", "int32", "int64")
#: Every dtype with the operations that it has.
KINDS = tuple((dtype, op) for dtype in DTYPES for op in ("sum", "average") if op == "sum" or dtype.startswith("float"))
REDUCING = ("allreduce", "reduce_scatter")

OUT, SAME, MARKED = "out of place", "same array twice", "MPI.IN_PLACE"
PLACEMENTS = (OUT, SAME, MARKED)

GUARD, FENCE = 3, 77


def contribution(rank: int, count: int, dtype: str, salt: int = 0) -> Vector:
    """Return 2**rank times a factor that differs from one element to the next: the bits of a sum name the ranks."""
    return (2**rank * (1 + (np.arange(count) * 3 + salt) % 7)).astype(dtype)


def total(nranks: int, count: int, dtype: str, op: str, salt: int = 0) -> Vector:
    """Return the sum (2**nranks - 1 times the factor), or the average, of all contributions."""
    found = ((2**nranks - 1) * (1 + (np.arange(count) * 3 + salt) % 7)).astype(dtype)
    return np.divide(found, found.dtype.type(nranks)) if op == "average" else found


class Fenced:
    """Hold a vector with a fence on either side that nobody may touch."""

    def __init__(self, count: int, dtype: str) -> None:
        self.whole = np.full(count + 2 * GUARD, FENCE, dtype=dtype)
        self.view = self.whole[GUARD : GUARD + count]

    def intact(self) -> bool:
        return bool((self.whole[:GUARD] == FENCE).all() and (self.whole[-GUARD:] == FENCE).all())


class Case:
    """Hold the buffers of one rank for one collective of one vector, filled by salt and judged by salt."""

    def __init__(
        self, collective: str, rank: int, nranks: int, count: int, dtype: str, op: str, placement: str, move: Any = None
    ) -> None:
        self.collective, self.rank, self.nranks, self.count = collective, rank, nranks, count
        self.dtype, self.op, self.placement = dtype, op, placement
        offsets = block_offsets(count, nranks)
        self.own = slice(offsets[rank], offsets[rank + 1])
        block = offsets[rank + 1] - offsets[rank]
        self.received = block if collective == "reduce_scatter" else count
        out = placement == OUT
        self.recv = Fenced(self.received if out else count, dtype)
        self.send = Fenced(block if collective == "allgather" else count, dtype) if out else None

    @property
    def recvbuf(self) -> Vector:
        return self.recv.view

    @property
    def sendbuf(self) -> Any:
        if self.send is not None:
            return self.send.view
        return MPI.IN_PLACE if self.placement == MARKED else self.recv.view

    def input(self, salt: int) -> Vector:
        whole = contribution(self.rank, self.count, self.dtype, salt)
        return whole[self.own] if self.collective == "allgather" else whole

    def fill(self, salt: int) -> None:
        self.recv.view[...] = -5
        if self.send is not None:
            self.send.view[...] = self.input(salt)
        elif self.collective == "allgather":
            self.recv.view[self.own] = self.input(salt)
        else:
            self.recv.view[...] = self.input(salt)

    def expected(self, salt: int) -> Vector:
        if self.collective == "allgather":
            offsets = block_offsets(self.count, self.nranks)
            return np.concatenate(
                [
                    contribution(rank, self.count, self.dtype, salt)[offsets[rank] : offsets[rank + 1]]
                    for rank in range(self.nranks)
                ]
            )
        whole = total(self.nranks, self.count, self.dtype, self.op, salt)
        return whole[self.own] if self.collective == "reduce_scatter" else whole

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
        if not name.startswith(("All", "Reduce")):
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

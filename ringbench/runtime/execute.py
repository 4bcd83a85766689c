"""Bind a compiled program to arrays and a communicator, and run the textbook loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.runtime.arrays import Array, Backend
from ringbench.runtime.moves import Add, Copy, Divide, Exchange, Piece, Program

#: The tag of every message: out of the way of a caller who uses the same communicator, below MPI's smallest limit.
TAG = 21058

#: MPI's predefined types; those that mpi4py derives from a NumPy dtype are copies, which reductions refuse.
MPI_TYPES = {"float32": MPI.FLOAT, "float64": MPI.DOUBLE, "int32": MPI.INT32_T, "int64": MPI.INT64_T}

Call = tuple[Callable[..., object], tuple[Any, ...]]


class Plan:
    """Run one collective again and again: ``plan()``.

    ``algorithm`` names what runs; ``bytes_sent`` are this rank's per call (None where the library decides);
    ``segment_nbytes`` is the longest message (None likewise); ``in_place`` says whether the input lies in the result.
    """

    __slots__ = ("algorithm", "bytes_sent", "calls", "collective", "in_place", "segment_nbytes")

    def __init__(
        self,
        collective: str,
        algorithm: str,
        calls: list[Call],
        *,
        in_place: bool,
        bytes_sent: int | None = None,
        segment_nbytes: int | None = None,
    ) -> None:
        self.collective, self.algorithm = collective, algorithm
        self.calls = tuple(calls)
        self.in_place, self.bytes_sent, self.segment_nbytes = in_place, bytes_sent, segment_nbytes

    def __call__(self) -> None:
        """Run the collective on the data now in the buffers."""
        for call, arguments in self.calls:
            call(*arguments)


def buffer_spec(array: Array, datatype: MPI.Datatype) -> list[Any]:
    """Return what mpi4py takes for an array: ready-made, since looking into a NumPy array costs 0.1 us at each call."""
    if isinstance(array, np.ndarray):
        return [MPI.buffer.frombuffer(array, readonly=not array.flags.writeable), array.size, datatype]
    return [array, array.size, datatype]


def bind(program: Program, comm: Any, arrays: Mapping[str, Array], backend: Backend, nranks: int) -> list[Call]:
    """Allocate the program's scratch and bind every move to arrays, buffer specs and peers.

    On a device whose kernels run asynchronously a synchronisation stands before every exchange that follows a kernel
    (it may send what the kernel wrote, or overwrite what it still reads), at the start (the caller's kernels may
    still fill the input) and at the end (the clock, and the caller, come next).
    """
    dtype = arrays["result"].dtype
    datatype = MPI_TYPES[dtype.name]
    memory = dict(arrays)
    for name, count in program.scratch.items():
        memory[name] = backend.empty(count, dtype.str)

    def view(piece: Piece) -> Array:
        return memory[piece.buffer][piece.start : piece.stop]

    def spec(piece: Piece | None) -> list[Any] | None:
        return None if piece is None else buffer_spec(view(piece), datatype)

    calls: list[Call] = []
    pending = backend.asynchronous

    def synchronize() -> None:
        nonlocal pending
        if pending:
            calls.append((backend.synchronize, ()))
            pending = False

    null = MPI.PROC_NULL
    for move in program.moves:
        if isinstance(move, Exchange):
            synchronize()
            dest = null if move.dest is None else move.dest
            source = null if move.source is None else move.source
            calls.append((comm.Sendrecv, (spec(move.send), dest, TAG, spec(move.recv), source, TAG)))
            continue
        if isinstance(move, Add) and move.one == move.out and move.out.length == 1 and not backend.asynchronous:
            # NumPy takes 0.75 us for a single element in place, 0.22 from two on (1.26 and 2.4); MPI's own sum 0.35.
            calls.append((MPI.SUM.Reduce_local, (spec(move.other), spec(move.out))))
        elif isinstance(move, Add):
            calls.append((backend.add, (view(move.one), view(move.other), view(move.out))))
        elif isinstance(move, Copy):
            calls.append((backend.copy, (view(move.dest), view(move.source))))
        elif isinstance(move, Divide):
            calls.append((backend.divide, (view(move.piece), nranks)))
        pending = backend.asynchronous
    synchronize()
    return calls

"""Bind a compiled program to arrays and a communicator, and run the textbook loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.runtime.arrays import Array, Backend
from ringbench.runtime.moves import Combine, Copy, Divide, Exchange, Gather, Piece, Program
from ringbench.runtime.progress import Call as Call
from ringbench.runtime.progress import Progress
from ringbench.runtime.shared import Reach

#: The tag of messages: out of the way of a caller who uses the same communicator, below MPI's smallest limit. Plans
#: take it and those that follow in turns, each its own: several may be in flight at once, and ranks advance them at
#: different speeds. (A communicator for each would keep them apart too, but MPICH has no more than some 2000.)
TAG, TAGS = 21058, 32767 - 21058

#: MPI's predefined types; those that mpi4py derives from a NumPy dtype are copies, which reductions refuse.
MPI_TYPES = {
    "float32": MPI.FLOAT,
    "float64": MPI.DOUBLE,
    "int8": MPI.INT8_T,
    "int16": MPI.INT16_T,
    "int32": MPI.INT32_T,
    "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T,
    "complex64": MPI.C_FLOAT_COMPLEX,
    "complex128": MPI.C_DOUBLE_COMPLEX,
    "bool": MPI.C_BOOL,
    "float16": MPI.UINT16_T,  # only to be moved: not every library can reduce these two
    "bfloat16": MPI.UINT16_T,
}


class Plan:
    """Run one collective again and again: ``plan()``, or in the background: ``start()``, ``test()``..., ``wait()``.

    ``algorithm`` names what runs; ``bytes_sent`` are this rank's per call (None where the library decides);
    ``segment_nbytes`` is the longest message (None likewise); ``in_place`` says whether the input lies in the result.
    ``remark`` is what was decided for the caller, such as the nodes that were found. ``steps`` are those
    of the schedule, see ``Program``.

    A plan that was started must be tested until it is done, or waited for, before it is run or started again, and its
    buffers are its own until then. It moves on in ``test`` and ``wait`` alone, and does there what a call does, with
    the same result. Several may be in flight at once where all ranks start them in the same order and wait for them
    in that order. Ranks that share memory wait for each other within a call: such a plan cannot be started.
    """

    __slots__ = (
        "_progress",
        "_run",
        "_saved_run",
        "algorithm",
        "bytes_sent",
        "calls",
        "collective",
        "in_place",
        "meets",
        "remark",
        "segment_nbytes",
        "steps",
    )

    def __init__(
        self,
        collective: str,
        algorithm: str,
        calls: list[Call],
        *,
        in_place: bool,
        bytes_sent: int | None = None,
        segment_nbytes: int | None = None,
        remark: str | None = None,
        steps: tuple[tuple[int, int], ...] = (),
        meets: bool = False,
    ) -> None:
        self.collective, self.algorithm = collective, algorithm
        self.calls = tuple(calls)
        self._run = unrolled(self.calls)
        self._progress: Progress | None = None
        self._saved_run: Callable[[], None] | None = None  # while the plan is in flight
        self.in_place, self.bytes_sent, self.segment_nbytes = in_place, bytes_sent, segment_nbytes
        self.remark, self.steps, self.meets = remark, steps, meets

    def __repr__(self) -> str:
        """Name what runs, and what was decided."""
        return f"<plan of {self.collective} {self.algorithm}{f', {self.remark}' if self.remark else ''}>"

    def __call__(self) -> None:
        """Run the collective on the data now in the buffers."""
        self._run()

    def start(self) -> None:
        """Begin the collective on the data now in the buffers, and return.

        Raises RuntimeError where it is in flight, and where ranks share memory.
        """
        if self.meets:
            raise RuntimeError(f"{self!r} cannot be started: its ranks wait for each other in shared memory; call it")
        if self._saved_run is not None:
            self._refuse()
        if self._progress is None:
            self._progress = Progress(self.calls)
        self._saved_run, self._run = self._run, self._refuse  # checked here, so that a call costs no check
        self._advance(wait=False)

    def test(self) -> bool:
        """Go on where messages have arrived, without waiting; return whether the collective is done, or not begun."""
        return self._saved_run is None or self._advance(wait=False)

    def wait(self) -> None:
        """Return when the collective is done; at once where it was not begun."""
        if self._saved_run is not None:
            self._advance(wait=True)

    def _advance(self, *, wait: bool) -> bool:
        assert self._progress is not None
        assert self._saved_run is not None
        if not self._progress.advance(wait=wait):
            return False
        self._run, self._saved_run = self._saved_run, None
        return True

    def _refuse(self) -> None:
        raise RuntimeError(f"{self!r} is in flight: wait for it first")


#: Plans with so few calls are written out.
SHORT = 16


def unrolled(calls: tuple[Call, ...]) -> Callable[[], None]:
    """Return a function that makes the calls one after the other.

    A few are compiled to straight code, as one would write it by hand: the loop that does the same costs 0.12 us on a
    Sendrecv and an addition, a twelfth of the time at 8 bytes.
    """
    if len(calls) > SHORT:

        def loop() -> None:
            for call, arguments in calls:
                call(*arguments)

        return loop
    named = {f"call{at}": call for at, (call, _) in enumerate(calls)}
    lines = []
    for at, (_, arguments) in enumerate(calls):
        own = {f"argument{at}_{place}": value for place, value in enumerate(arguments)}
        named |= own
        lines.append(f"call{at}({', '.join(own)})")
    source = f"def bind({', '.join(named)}):\n def run():\n  {'; '.join(lines) or 'pass'}\n return run"
    scope: dict[str, Any] = {}
    exec(source, scope)
    run: Callable[[], None] = scope["bind"](**named)
    return run


def buffer_spec(array: Array, datatype: MPI.Datatype) -> list[Any]:
    """Return what mpi4py takes for an array: ready-made, since looking into a NumPy array costs 0.1 us at each call."""
    if isinstance(array, np.ndarray):
        return [MPI.buffer.frombuffer(array, readonly=not array.flags.writeable), array.size, datatype]
    return [array, array.size, datatype]


#: Up to so many bytes a copy by the buffer protocol is faster than NumPy's: 0.1 us instead of 0.4 at 8 bytes. It keeps
#: Python's lock for that long.
SMALL_COPY = 16 * 2**10


def _bytes(array: Array) -> memoryview:
    return memoryview(array.view(np.uint8))


def bind(
    program: Program,
    comm: Any,
    arrays: Mapping[str, Array],
    backend: Backend,
    nranks: int,
    op: str = "sum",
    tag: int = TAG,
    beyond: Reach | None = None,
) -> list[Call]:
    """Allocate the program's scratch and bind every move to arrays, buffer specs, peers and a tag.

    On a device whose kernels run asynchronously a synchronisation stands before every exchange that follows a kernel
    (it may send what the kernel wrote, or overwrite what it still reads), at the start (the caller's kernels may
    still fill the input) and at the end (the clock, and the caller, come next). ``beyond`` is what other ranks share.
    """
    dtype = arrays["result"].dtype
    datatype = MPI_TYPES[dtype.name]
    memory: dict[str, Array] = {**arrays, **(beyond.own if beyond else {})}
    for name, count in program.scratch.items():
        if name not in memory:
            memory[name] = backend.empty(count, dtype.name)

    def view(piece: Piece) -> Array:
        if piece.rank is None:
            return memory[piece.buffer][piece.start : piece.stop]
        assert beyond is not None
        return beyond.theirs[piece.buffer, piece.rank][piece.start : piece.stop]

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
    kernel = backend.kernel(op)
    single = op in ("sum", "average") and not backend.asynchronous and dtype.name not in ("float16", "bfloat16")
    for move in program.moves:
        if isinstance(move, Exchange):
            synchronize()
            dest = null if move.dest is None else move.dest
            source = null if move.source is None else move.source
            calls.append((comm.Sendrecv, (spec(move.send), dest, tag, spec(move.recv), source, tag)))
            continue
        if isinstance(move, Gather):
            assert beyond is not None
            calls.append((beyond.meet(move.ranks), ()))
            continue
        if isinstance(move, Combine) and single and move.one == move.out and move.out.length == 1:
            # NumPy takes 0.75 us for a single element in place, 0.22 from two on (1.26 and 2.4); MPI's own sum 0.35.
            calls.append((MPI.SUM.Reduce_local, (spec(move.other), spec(move.out))))
        elif isinstance(move, Combine):
            calls.append((kernel, (view(move.one), view(move.other), view(move.out))))
        elif isinstance(move, Copy) and beyond is not None and move.dest.length * dtype.itemsize <= SMALL_COPY:
            calls.append((_bytes(view(move.dest)).__setitem__, (slice(None), _bytes(view(move.source)))))
        elif isinstance(move, Copy):
            calls.append((backend.copy, (view(move.dest), view(move.source))))
        elif isinstance(move, Divide):
            calls.append((backend.divide, (view(move.piece), nranks)))
        pending = backend.asynchronous
    synchronize()
    return calls

"""Bind a compiled program to arrays and a communicator, and run the textbook loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.runtime.arrays import HALVES, Array, Backend
from ringbench.runtime.moves import Combine, Copy, Divide, Exchange, Gather, Piece, Program
from ringbench.runtime.progress import Call as Call
from ringbench.runtime.progress import Progress
from ringbench.runtime.shared import Reach
from ringbench.runtime.stream import Chain, Running, launches, overlap

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

    def repeated(self, times: int) -> Callable[[], None]:
        """Return what calls the plan so often, one call behind the other.

        NCCL's calls wait for each other on the device, so the host waits for the last of them alone, as nccl-tests do.
        """
        calls = self.calls * times
        if self.algorithm == "nccl":
            *own, wait = self.calls
            calls = (*own * times, wait)
        return unrolled(calls)

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
    """Return what mpi4py takes for an array: ready-made, since looking into an array costs 0.1 us at each call.

    An array of a device is looked into by ``__cuda_array_interface__``, once: the address is all that MPI needs.
    """
    readonly = isinstance(array, np.ndarray) and not array.flags.writeable
    return [MPI.buffer.frombuffer(array, readonly=readonly), array.size, datatype]


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
    staged: bool = False,
) -> list[Call]:
    """Allocate the program's scratch and bind every move to arrays, buffer specs, peers and a tag.

    Where the backend's kernels run asynchronously the host waits as ``stream`` says, and kernels that follow each other
    on one piece are started as one. ``beyond`` is what other ranks share. ``staged`` has messages go between buffers of
    the host, with a copy on either side; what has come that way, and was not changed, goes on without one.
    """
    dtype = arrays["result"].dtype
    datatype = MPI_TYPES[dtype.name]
    memory: dict[str, Array] = {**arrays, **(beyond.own if beyond else {})}
    for name, count in program.scratch.items():
        if name not in memory:
            memory[name] = backend.empty(count, dtype.name)
    views: dict[Piece, Array] = {}

    def view(piece: Piece) -> Array:
        """Return the same object for the same piece: CuPy copies an operand that overlaps a result but is not it."""
        if piece not in views:
            if piece.rank is not None:
                assert beyond is not None
                views[piece] = beyond.theirs[piece.buffer, piece.rank][piece.start : piece.stop]
            else:
                views[piece] = memory[piece.buffer][piece.start : piece.stop]
        return views[piece]

    def spec(piece: Piece | None) -> list[Any] | None:
        return None if piece is None else buffer_spec(view(piece), datatype)

    def mirror(piece: Piece) -> Piece:
        name = f"{piece.buffer} on the host"
        if name not in memory:
            memory[name] = backend.pinned(memory[piece.buffer].size, dtype.name)
        return piece._replace(buffer=name)

    calls: list[Call] = []
    running = Running(Piece(name, 0, array.size) for name, array in arrays.items())
    mirrored: list[Piece] = []  # what is the same on device and host

    def start(call: Callable[..., object], pieces: Sequence[Piece], written: Piece, *also: object) -> None:
        calls.append((call, (*map(view, pieces), *also)))
        if backend.asynchronous:
            running.start(pieces, written)
        mirrored[:] = [piece for piece in mirrored if not overlap(piece, written)]

    def synchronize() -> None:
        if backend.asynchronous and running.any:
            calls.append((backend.synchronize, ()))
            running.end()

    def exchange(move: Exchange) -> None:
        null = MPI.PROC_NULL
        dest = null if move.dest is None else move.dest
        source = null if move.source is None else move.source
        send, recv = move.send, move.recv
        if staged:
            if send is not None and dest != null and send not in mirrored:
                start(backend.copy_out, (mirror(send), send), mirror(send))
                mirrored.append(send)
            send, recv = (None if piece is None else mirror(piece) for piece in (send, recv))
        if backend.asynchronous and running.bars(send, recv):
            synchronize()
        calls.append((comm.Sendrecv, (spec(send), dest, tag, spec(recv), source, tag)))
        if staged and move.recv is not None and recv is not None and source != null:
            start(backend.copy_in, (move.recv, recv), move.recv)
            mirrored.append(move.recv)

    kernel = backend.kernel(op)
    single = op in ("sum", "average") and not backend.asynchronous and dtype.name not in HALVES
    fused = partial(backend.fused, op, dtype.name)
    for move in launches(program.moves, lambda terms, divide: fused(terms, nranks if divide else None) is not None):
        if isinstance(move, Exchange):
            exchange(move)
        elif isinstance(move, Gather):
            assert beyond is not None
            calls.append((beyond.meet(move.ranks), ()))
        elif isinstance(move, Combine) and single and move.one == move.out and move.out.length == 1:
            # NumPy takes 0.75 us for a single element in place, 0.22 from two on (1.26 and 2.4); MPI's own sum 0.35.
            calls.append((MPI.SUM.Reduce_local, (spec(move.other), spec(move.out))))
        elif isinstance(move, (Combine, Chain)):
            chain = Chain((move.one, move.other), move.out) if isinstance(move, Combine) else move
            own = kernel if isinstance(move, Combine) else fused(len(chain.operands), nranks if chain.divide else None)
            assert own is not None
            start(own, (*chain.operands, chain.out), chain.out)
        elif isinstance(move, Copy) and beyond is not None and move.dest.length * dtype.itemsize <= SMALL_COPY:
            calls.append((_bytes(view(move.dest)).__setitem__, (slice(None), _bytes(view(move.source)))))
        elif isinstance(move, Copy):
            start(backend.copy, (move.dest, move.source), move.dest)
        elif isinstance(move, Divide):
            start(backend.divide, (move.piece,), move.piece, nranks)
    synchronize()
    return calls

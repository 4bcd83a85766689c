"""The front door: check the arrays, agree over the ranks, make the plan."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from ringbench.runtime.arrays import Array, Backend, backend_of
from ringbench.runtime.compile import compile_program
from ringbench.runtime.demands import check_types
from ringbench.runtime.execute import Plan, bind
from ringbench.runtime.moves import DEFAULT_SEGMENT, check_segment, segment_elements
from ringbench.runtime.vendor import check_count, vendor_calls
from ringbench.schedule.registry import Algorithm, algorithm_named
from ringbench.schedule.semantics import collective_named

__all__ = ["DEFAULT_SEGMENT", "Plan", "plan"]


def plan(
    collective: str,
    algorithm: str,
    comm: Any,
    sendbuf: Array,
    recvbuf: Array,
    op: str = "sum",
    segment: int = DEFAULT_SEGMENT,
) -> Plan:
    """Plan one collective on the ranks of ``comm``; calling the plan runs it on what is then in the buffers.

    Buffers are contiguous NumPy or CuPy arrays of any shape, seen as vectors, with MPI's meaning: allreduce takes and
    gives the whole vector; reduce_scatter takes the whole vector and gives block ``rank``; allgather takes block
    ``rank`` and gives the whole vector. Block i of n elements on N ranks has n // N elements, one more where
    i < n mod N. ``MPI.IN_PLACE`` as ``sendbuf``, or the same array twice, means in place: ``recvbuf`` is then the
    whole vector, an allgather's own block lies where it belongs, and a reduce_scatter's result at the start. Out of
    place ``sendbuf`` never changes.

    ``algorithm`` is a registered name or ``mpi`` for the library's own call. Messages longer than ``segment`` bytes
    are cut (0: not cut). Planning is collective: every rank must call it, and what is wrong on any rank is raised on
    all of them as the same ValueError, which names the ranks and the values.
    """
    if comm.Is_inter():
        raise ValueError("comm is an intercommunicator: its two groups are no ring; merge them first")
    rank, nranks = comm.Get_rank(), comm.Get_size()
    request = _Request(collective, algorithm, op, segment)
    error: str | None = None
    try:
        request.inspect(sendbuf, recvbuf, rank, nranks)
    except (ValueError, TypeError) as problem:
        error = str(problem)
    _agree(comm, error, request.terms())

    assert request.backend is not None
    send = None if request.in_place else request.backend.flat(sendbuf)
    recv = request.backend.flat(recvbuf)
    average = request.average
    if request.algorithm is None:
        calls = vendor_calls(collective, comm, send, recv, request.count, average, request.backend)
        return Plan(collective, "mpi", calls, in_place=request.in_place)
    itemsize = recv.dtype.itemsize
    program = compile_program(
        request.algorithm,
        rank,
        nranks,
        request.count,
        in_place=request.in_place,
        average=average,
        segment=segment_elements(segment, itemsize),
    )
    arrays = {"result": recv} if send is None else {"input": send, "result": recv}
    return Plan(
        collective,
        algorithm,
        bind(program, comm, arrays, request.backend, nranks),
        in_place=request.in_place,
        bytes_sent=program.sent * itemsize,
        segment_nbytes=program.segment * itemsize,
    )


class _Request:
    """Hold what one rank asks for, and what its arrays turn out to be."""

    def __init__(self, collective: str, algorithm: str, op: str, segment: int) -> None:
        self.collective, self.name, self.op, self.segment = collective, algorithm, op, segment
        self.algorithm: Algorithm | None = None
        self.backend: Backend | None = None
        self.in_place = False
        self.count = -1
        self.dtype = "unknown"

    @property
    def average(self) -> bool:
        return self.op == "average" and collective_named(self.collective).reduces

    def terms(self) -> dict[str, object]:
        """Return what must be equal on all ranks."""
        device = self.backend.device if self.backend else "unknown"
        return {
            "collective": self.collective,
            "algorithm": self.name,
            "op": self.op,
            "dtype": self.dtype,
            "number of elements": self.count,
            "in place": self.in_place,
            "device": device,
            "segment": self.segment,
        }

    def inspect(self, sendbuf: Array, recvbuf: Array, rank: int, nranks: int) -> None:
        """Check this rank's part; raise ValueError or TypeError naming what is wrong."""
        semantics = collective_named(self.collective)
        if self.name != "mpi":
            self.algorithm = algorithm_named(self.collective, self.name)
        if isinstance(self.segment, bool) or not isinstance(self.segment, int) or self.segment < 0:
            raise ValueError(f"segment {self.segment!r}: must be a number of bytes, 0 for none")
        self.backend = backend_of(recvbuf)
        self.dtype = str(recvbuf.dtype)
        self.count = int(recvbuf.size)
        check_types(self.collective, self.op, self.dtype)
        self.backend.check(recvbuf, writable=True)
        if sendbuf is MPI.IN_PLACE or sendbuf is recvbuf:
            self.in_place = True
        else:
            if backend_of(sendbuf) is not self.backend:
                raise ValueError(f"sendbuf is a {type(sendbuf).__name__}, recvbuf a {type(recvbuf).__name__}")
            self.backend.check(sendbuf, writable=False)
            if str(sendbuf.dtype) != self.dtype:
                raise ValueError(f"sendbuf has dtype {sendbuf.dtype}, recvbuf {self.dtype}")
            self.in_place = self._same_memory(sendbuf, recvbuf)
        if not self.in_place:
            if self.collective == "reduce_scatter":
                self.count = int(sendbuf.size)
            self._check_sizes("sendbuf", sendbuf.size, semantics.send_count(rank, nranks, self.count), rank)
            self._check_sizes("recvbuf", recvbuf.size, semantics.recv_count(rank, nranks, self.count), rank)
        check_segment(self.count, recvbuf.dtype.itemsize, self.segment)
        if self.algorithm is None:
            check_count(self.count)
        elif not self.algorithm.segmentable:
            compile_program(self.algorithm, rank, nranks, self.count, in_place=self.in_place)

    def _same_memory(self, sendbuf: Array, recvbuf: Array) -> bool:
        assert self.backend is not None
        (send, send_bytes), (recv, recv_bytes) = self.backend.extent(sendbuf), self.backend.extent(recvbuf)
        if not send_bytes or not recv_bytes:
            return False
        if (send, send_bytes) == (recv, recv_bytes):
            return True
        overlap = min(send + send_bytes, recv + recv_bytes) - max(send, recv)
        if overlap > 0:
            raise ValueError(f"sendbuf and recvbuf overlap by {overlap} bytes; give the same array, or separate ones")
        return False

    def _check_sizes(self, name: str, found: int, wanted: int, rank: int) -> None:
        if found != wanted:
            whole = f"rank {rank}'s part of a vector of {self.count}"
            raise ValueError(f"{name} has {found} elements; {self.collective} needs {wanted} here, {whole}")


def _agree(comm: Any, error: str | None, terms: dict[str, object]) -> None:
    """Raise the same ValueError on all ranks where one of them has an error, or where they ask for unlike things."""
    everyone: list[tuple[str | None, dict[str, object]]] = comm.allgather((error, terms))
    failed = {rank: message for rank, (message, _) in enumerate(everyone) if message is not None}
    if len(set(failed.values())) == 1 and len(failed) == len(everyone):
        raise ValueError(failed[0])
    disagreeing = []
    for term in terms:
        values = {rank: their[term] for rank, (_, their) in enumerate(everyone)}
        first = values[0]
        other = next((rank for rank, value in values.items() if value != first), None)
        if other is not None:
            disagreeing.append(f"{term} {first!r} on rank 0, {values[other]!r} on rank {other}")
    if failed:
        shown = "; ".join(f"rank {rank}: {message}" for rank, message in list(failed.items())[:4])
        raise ValueError(shown)
    if disagreeing:
        raise ValueError("the ranks disagree: " + "; ".join(disagreeing))

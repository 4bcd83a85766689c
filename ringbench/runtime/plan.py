"""The front door: check the arrays, agree over the ranks, make the plan."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import Array, Backend, backend_of
from ringbench.runtime.choices import Choose, choose_by_rule, default_chunks, default_segment
from ringbench.runtime.compile import compile_program
from ringbench.runtime.demands import check_nccl, check_types
from ringbench.runtime.execute import TAG, TAGS, Plan, bind
from ringbench.runtime.moves import CACHE_NBYTES, check_segment, segment_elements
from ringbench.runtime.nccl import nccl_calls
from ringbench.runtime.shared import Reach, may_share, reach
from ringbench.runtime.vendor import check_count, reducible_type, vendor_calls
from ringbench.runtime.windows import groups_of_nodes, known_node
from ringbench.schedule.parameters import DEFAULTS, Groups, check_value, groups_of
from ringbench.schedule.registry import RESERVED, Algorithm, algorithm_named
from ringbench.schedule.semantics import collective_named

__all__ = ["Plan", "plan"]

#: One more than the number of any plan that this process has part in. A new plan gets the highest of its ranks, so that
#: they agree on its tag, and no other plan of its communicator has that until all tags were taken in turn.
_plans = 0


def plan(
    collective: str,
    algorithm: str,
    comm: Any,
    sendbuf: Array,
    recvbuf: Array,
    op: str = "sum",
    segment: int | None = None,
    *,
    root: int = 0,
    chunks: int | None = None,
    groups: Groups | None = None,
    outer: str = "ring",
    inner: str | None = None,
    choose: Choose = choose_by_rule,
    staged: bool = False,
) -> Plan:
    """Plan one collective on the ranks of ``comm``; calling the plan runs it on what is then in the buffers.

    Buffers are contiguous NumPy or CuPy arrays of any shape, seen as vectors, with MPI's meaning: allreduce takes and
    gives the whole vector; reduce_scatter takes the whole vector and gives block ``rank``; allgather takes block
    ``rank`` and gives the whole vector; bcast takes the whole vector at ``root`` and gives it everywhere; reduce takes
    it everywhere and gives it at ``root``; alltoall gives as block b the block ``rank`` of rank b. Block i of n
    elements on N ranks has n // N elements, one more where i < n mod N; an alltoall needs a multiple of N. A rank that
    takes or gives nothing passes an array of no elements. ``MPI.IN_PLACE`` as ``sendbuf``, or the same array twice,
    means in place: ``recvbuf`` is then the whole vector on every rank, an allgather's own block lies where it belongs,
    a reduce_scatter's result at the start, and a reduce leaves nothing of use but at ``root``. Out of place ``sendbuf``
    never changes.

    ``algorithm`` is a registered name, ``mpi`` for the library's own call, ``nccl`` for NCCL's on arrays of a GPU, or
    ``auto`` for what ``choose(collective, ranks, bytes)`` names. Messages longer than ``segment`` bytes are cut (0: not
    cut; None: at ``moves.DEFAULT_SEGMENT`` on the host, not on a device). ``chunks`` are those of a pipeline (None: by
    the size). ``groups`` says which ranks share a node (None: what MPI_Comm_split_type finds), ``outer`` which
    allreduce runs between nodes, ``inner`` what runs inside them (None: ``shared_memory`` where all buffers come from
    ``empty_shared``, else ``ring``). Planning is collective: every rank must call it, and what is wrong on any rank is
    raised on all of them as the same ValueError, which names the ranks and the values. ``start``, ``test`` and ``wait``
    of a plan run it in the background, see ``Plan``. ``staged`` has messages of arrays on a device go through buffers
    of the host, for MPI libraries that cannot take arrays of a device.
    """
    if comm.Is_inter():
        raise ValueError("comm is an intercommunicator: its two groups are no ring; merge them first")
    rank, nranks = comm.Get_rank(), comm.Get_size()
    node = known_node(comm)
    if node is not None:
        node.collect()
    request = _Request(collective, algorithm, op, segment, root, chunks, groups, outer, inner, choose, staged)
    error: str | None = None
    try:
        request.inspect(sendbuf, recvbuf, rank, nranks)
    except (ValueError, TypeError) as problem:
        error = str(problem)
    except Exception as problem:  # from ``choose``, or from an array that is none: the other ranks must hear of it
        error = f"{type(problem).__name__}: {problem}"
    global _plans
    number = agree(comm, error, request.terms(), _plans)
    _plans = number + 1

    assert request.backend is not None
    assert request.segment is not None
    send = None if request.in_place else request.backend.flat(sendbuf)
    recv = request.backend.flat(recvbuf)
    if algorithm == "nccl":
        calls = nccl_calls(collective, comm, send, recv, request.count, op, request.backend, root)
        return Plan(collective, "nccl", calls, in_place=request.in_place)
    if request.algorithm is None:
        calls = vendor_calls(collective, comm, send, recv, request.count, op, request.backend, root, staged)
        return Plan(collective, "mpi", calls, in_place=request.in_place)
    ready = request.algorithm
    if groups is None and "groups" in dict(ready.arguments):
        ready = ready.given(groups=node_groups(comm))
    arguments = dict(ready.arguments)
    if inner is None and "inner" in arguments and may_share(comm, send, recv, groups_of(arguments["groups"], nranks)):
        ready = ready.given(inner="shared_memory")
    itemsize = recv.dtype.itemsize
    program = compile_program(
        ready,
        rank,
        nranks,
        request.count,
        in_place=request.in_place,
        average=request.average,
        segment=segment_elements(request.segment, itemsize),
        cache=CACHE_NBYTES // itemsize,
    )
    arrays = {"result": recv} if send is None else {"input": send, "result": recv}
    beyond: Reach | None = None
    if ready.shared is not None and nranks > 1:
        beyond = reach(comm, ready, program, arrays, request.count)
    return Plan(
        collective,
        ready.name,
        bind(program, comm, arrays, request.backend, nranks, op, TAG + number % TAGS, beyond, staged),
        in_place=request.in_place,
        bytes_sent=program.sent * itemsize,
        segment_nbytes=program.segment * itemsize,
        remark=_remark(algorithm, ready, nranks, choose is choose_by_rule),
        steps=program.steps,
        meets=beyond is not None,
    )


def node_groups(comm: Any) -> Groups:
    """Return which ranks of ``comm`` share memory, as MPI sees it. Collective; frees what it splits."""
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return groups_of_nodes(comm, shared)
    finally:
        shared.Free()


def _remark(asked: str, ready: Algorithm, nranks: int, by_rule: bool) -> str | None:
    """Say what was decided: by ``auto``, by the nodes found, by the size."""
    arguments = dict(ready.arguments)
    found = [f"{ready.name} chosen by {'rule' if by_rule else 'a run'}"] if asked != ready.name else []
    if "chunks" in arguments and ("outer" not in arguments or arguments["outer"] == "double_binary_tree"):
        found.append(f"{arguments['chunks']} chunk{'s'[: arguments['chunks'] != 1]}")
    if arguments.get("root"):
        found.append(f"root {ready.root}")
    own = ready.remark(nranks)
    return ", ".join([*found, own] if own else found) or None


class _Request:
    """Hold what one rank asks for, and what its arrays turn out to be."""

    def __init__(
        self,
        collective: str,
        algorithm: str,
        op: str,
        segment: int | None,
        root: int,
        chunks: int | None,
        groups: Groups | None,
        outer: str,
        inner: str | None,
        choose: Choose,
        staged: bool,
    ) -> None:
        self.collective, self.name, self.op, self.segment = collective, algorithm, op, segment
        self.root, self.chunks, self.groups, self.outer, self.inner = root, chunks, groups, outer, inner
        self.choose, self.staged = choose, staged
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
            "collective": _plain(self.collective),
            "algorithm": _plain(self.name),
            "op": _plain(self.op),
            "dtype": self.dtype,
            "number of elements": self.count,
            "in place": self.in_place,
            "device": device,
            "segment": _plain(self.segment),
            "staged": self.staged,
            "inner": _plain(self.inner),
            "root": _plain(self.root),
            "chosen algorithm": self.algorithm.title if self.algorithm else None,
        }

    def inspect(self, sendbuf: Array, recvbuf: Array, rank: int, nranks: int) -> None:
        """Check this rank's part; raise ValueError or TypeError naming what is wrong."""
        semantics = collective_named(self.collective)
        if self.name not in RESERVED:
            algorithm_named(self.collective, self.name)
        root = check_value("root", self.root)
        assert isinstance(root, int)
        self.root = root
        if self.root >= nranks and semantics.rooted:
            raise ValueError(f"root {self.root!r}: must be one of the {nranks} ranks")
        self.backend = backend_of(recvbuf)
        if self.segment is None:
            self.segment = default_segment(self.backend.device)
        if isinstance(self.segment, bool) or not isinstance(self.segment, int) or self.segment < 0:
            raise ValueError(f"segment {self.segment!r}: must be a number of bytes, 0 for none")
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
            if self.collective in ("reduce_scatter", "reduce"):  # where the result may be less than the vector
                self.count = int(sendbuf.size)
            self._check_sizes("sendbuf", sendbuf.size, semantics.send_count(rank, nranks, self.count, self.root), rank)
            self._check_sizes("recvbuf", recvbuf.size, semantics.recv_count(rank, nranks, self.count, self.root), rank)
        semantics.check_count(nranks, self.count)
        itemsize = recvbuf.dtype.itemsize
        check_segment(self.count, itemsize, self.segment)
        if self.name == "nccl":
            check_nccl(self.collective, self.op, self.dtype, self.backend.device)
            return
        if self.name == "mpi":
            check_count(self.count)
            if semantics.reduces:
                reducible_type(self.dtype)
            return
        nbytes = self.count * itemsize
        name = self.choose(self.collective, nranks, nbytes) if self.name == "auto" else self.name
        if name in RESERVED:
            raise ValueError(f"auto: {name!r} was chosen, which is no schedule")
        given = {"chunks": self.chunks, "groups": self.groups, "outer": self.outer, "inner": self.inner}
        for argument, value in given.items():  # whether the algorithm takes it or not
            if value is not None:
                check_value(argument, value)
        chunks = default_chunks(nbytes) if self.chunks is None else self.chunks
        self.algorithm = algorithm_named(self.collective, name).given(
            root=self.root, chunks=chunks, groups=self.groups, outer=self.outer, inner=self.inner or DEFAULTS["inner"]
        )
        self.algorithm.check(nranks)
        if self.algorithm.shared is not None and self.backend.device != "cpu":
            raise ValueError(f"{self.algorithm.title}: shares the memory of a node, and {self.backend.device} has none")
        if not self.algorithm.segmentable:
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


def _plain(value: object) -> object:
    """Return what can be sent to the other ranks whatever the caller gave."""
    return value if isinstance(value, (str, int)) else repr(value)

"""NCCL's collectives behind the same plan: a communicator of its own for each of MPI's, made when first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import Array, Backend
from ringbench.runtime.demands import NCCL_OPS
from ringbench.runtime.execute import Call
from ringbench.schedule.blocks import block_sizes

#: What NCCL calls the operations; an average is its sum, divided as all algorithms do.
OPS = {op: "SUM" if op == "average" else op.upper() for op in NCCL_OPS}

_key: int | None = None


def communicator(comm: Any, backend: Backend) -> Any:
    """Return NCCL's communicator of the ranks of ``comm``, the one that was made before where there is one. Collective.

    Rank 0's unique identifier goes to all ranks by MPI. Raises the same ValueError on all ranks where NCCL is missing
    on one, or refuses: it wants a device for each rank.
    """
    global _key
    if _key is None:
        _key = MPI.Comm.Create_keyval()
    found = comm.Get_attr(_key)
    if found is not None:
        return found
    error, nccl, name = None, None, None
    try:
        nccl = backend.nccl()
        name = nccl.get_unique_id() if comm.Get_rank() == 0 else None
    except Exception as problem:  # NCCL's own errors too
        error = f"nccl: {problem}"
    agree(comm, error)
    name = comm.bcast(name, root=0)
    assert nccl is not None
    try:
        found = nccl.NcclCommunicator(comm.Get_size(), name, comm.Get_rank())
    except Exception as problem:
        error = f"nccl: {problem}; it wants a device of its own for each rank"
    agree(comm, error)
    comm.Set_attr(_key, found)
    return found


def nccl_calls(
    collective: str,
    comm: Any,
    sendbuf: Array | None,
    recvbuf: Array,
    count: int,
    op: str,
    backend: Backend,
    root: int = 0,
) -> list[Call]:
    """Bind NCCL's call for a whole vector of ``count`` elements; ``sendbuf`` None means in place. Collective.

    NCCL works on the stream that is current in the call, behind what the caller has started there: the host waits for
    it at the end alone. In place its reduce_scatter leaves a block where that lay, so that a copy to the start follows.
    Raises ValueError for blocks that are not all of one length, and see ``communicator``.
    """
    nranks, rank = comm.Get_size(), comm.Get_rank()
    sizes = block_sizes(count, nranks)
    if collective in ("reduce_scatter", "allgather") and min(sizes) != max(sizes):
        raise ValueError(f"nccl: {count} elements are no {nranks} blocks of one length, as {collective} wants them")
    own = communicator(comm, backend)
    nccl = backend.nccl()
    kind, redop = getattr(nccl, f"NCCL_{recvbuf.dtype.name.upper()}"), getattr(nccl, f"NCCL_{OPS[op]}")
    given = recvbuf if sendbuf is None else sendbuf
    result, block = recvbuf, slice(rank * sizes[0], (rank + 1) * sizes[0])
    send, recv = backend.extent(given)[0], backend.extent(recvbuf)[0]
    calls: list[Call] = []

    def run(call: Callable[..., object], *arguments: object) -> None:
        call(*arguments, backend.stream())

    if collective == "allreduce":
        calls.append((run, (own.allReduce, send, recv, count, kind, redop)))
    elif collective == "reduce_scatter":
        result = recvbuf[: sizes[0]]
        into = recvbuf[block] if sendbuf is None else recvbuf
        calls.append((run, (own.reduceScatter, send, backend.extent(into)[0], sizes[0], kind, redop)))
        if sendbuf is None and rank:
            calls.append((backend.copy, (result, into)))
    elif collective == "allgather":
        brought = recvbuf[block] if sendbuf is None else sendbuf
        calls.append((run, (own.allGather, backend.extent(brought)[0], recv, sizes[0], kind)))
    elif collective == "bcast":
        calls.append((run, (own.broadcast, send if rank == root else recv, recv, count, kind, root)))
    else:  # reduce, the last of NCCL_COLLECTIVES
        calls.append((run, (own.reduce, send, recv, count, kind, redop, root)))
        result = recvbuf if rank == root else recvbuf[:0]
    if op == "average" and collective in ("allreduce", "reduce_scatter", "reduce") and nranks > 1 and result.size:
        calls.append((backend.divide, (result, nranks)))
    return [*calls, (backend.synchronize, ())]

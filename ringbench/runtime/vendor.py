"""The MPI library's own collectives behind the same plan."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from ringbench.runtime.arrays import HALVES, Array, Backend
from ringbench.runtime.execute import MPI_TYPES, Call, buffer_spec
from ringbench.runtime.moves import MESSAGE_LIMIT
from ringbench.schedule.blocks import block_offsets, block_sizes
from ringbench.schedule.semantics import collective_named


def check_count(count: int) -> None:
    """Raise ValueError where one call cannot take ``count`` elements: before MPI 4 counts are C ints."""
    if count > MESSAGE_LIMIT and MPI.Get_version() < (4, 0):
        version = ".".join(map(str, MPI.Get_version()))
        raise ValueError(
            f"mpi: {count} elements exceed {MESSAGE_LIMIT} (INT_MAX), the limit of a call in MPI {version}"
        )


MPI_OPS = {
    "sum": MPI.SUM,
    "average": MPI.SUM,
    "prod": MPI.PROD,
    "min": MPI.MIN,
    "max": MPI.MAX,
    "land": MPI.LAND,
    "lor": MPI.LOR,
}


def reducible_type(dtype: str) -> MPI.Datatype:
    """Return the library's type for a reduction; raise ValueError where it has none.

    The types of two bytes are extensions of a library, or MPI 5; mpi4py knows them from version 4.1 on.
    """
    if dtype not in HALVES:
        return MPI_TYPES[dtype]
    found = getattr(MPI, f"{dtype.upper()}_T", MPI.DATATYPE_NULL)
    if found == MPI.DATATYPE_NULL:
        library = " ".join(MPI.Get_library_version().split(",")[0].split("\n")[0].strip("\0 ").split())
        raise ValueError(f"mpi: {library} has no reduction of {dtype}")
    return found


def vendor_calls(
    collective: str,
    comm: Any,
    sendbuf: Array | None,
    recvbuf: Array,
    count: int,
    op: str,
    backend: Backend,
    root: int = 0,
    staged: bool = False,
) -> list[Call]:
    """Bind the library's call for a whole vector of ``count`` elements; ``sendbuf`` None means in place.

    Buffer specs are made once, as for our own. An average is the library's sum, divided in place. MPI_Bcast knows one
    buffer only: out of place the root copies first. ``staged`` has the call see buffers of the host, with a copy of
    what the rank brings before it and of what it gets behind it. Raises ValueError for a dtype that the library cannot
    reduce.
    """
    nranks, rank = comm.Get_size(), comm.Get_rank()
    semantics = collective_named(collective)
    reduces, dtype = semantics.reduces, recvbuf.dtype.name
    datatype = reducible_type(dtype) if reduces else MPI_TYPES[dtype]
    sizes, offsets = block_sizes(count, nranks), block_offsets(count, nranks)
    in_place = sendbuf is None
    calls: list[Call] = []
    if collective == "bcast" and rank == root and sendbuf is not None:
        calls.append((backend.copy, (recvbuf, sendbuf)))
        sendbuf = None
    seen_send: Array | None = sendbuf
    seen_recv = recvbuf
    back: list[Call] = []
    if staged:
        seen_recv = backend.pinned(recvbuf.size, dtype)
        seen_send = None if sendbuf is None else backend.pinned(sendbuf.size, dtype)
        brought, got = semantics.brought(rank, nranks, root), semantics.got(rank, nranks, root)
        own = slice(offsets[brought.start], offsets[brought.stop]) if sendbuf is None else slice(None)
        given: Array = recvbuf if sendbuf is None else sendbuf
        there: Array = seen_recv if sendbuf is None else seen_send
        has = collective == "bcast" and rank == root  # already
        received = slice(0, 0 if has else offsets[got.stop] - offsets[got.start])
        calls.append((backend.copy_out, (there[own], given[own])))
        back.append((backend.copy_in, (recvbuf[received], seen_recv[received])))
        calls, back = ([call for call in some if call[1][0].size] for some in (calls, back))
    send: Any = MPI.IN_PLACE if seen_send is None else buffer_spec(seen_send, datatype)
    recv: Any = buffer_spec(seen_recv, datatype)
    if backend.asynchronous:
        calls.append((backend.synchronize, ()))
    result = recvbuf
    if collective == "allreduce":
        calls.append((comm.Allreduce, (send, recv, MPI_OPS[op])))
    elif collective == "reduce_scatter":
        calls.append((comm.Reduce_scatter, (send, recv, sizes, MPI_OPS[op])))
        result = recvbuf[: sizes[rank]]
    elif collective == "allgather" and min(sizes) == max(sizes):
        calls.append((comm.Allgather, (send, [recv[0], sizes[0], datatype])))
    elif collective == "allgather":
        calls.append((comm.Allgatherv, (send, [recv[0], sizes, datatype])))
    elif collective == "bcast":
        calls.append((comm.Bcast, (recv, root)))
    elif collective == "reduce":
        if rank != root:
            send, recv = recv if in_place else send, None
            result = recvbuf[:0]
        calls.append((comm.Reduce, (send, recv, MPI_OPS[op], root)))
    elif collective == "alltoall":
        send = send if in_place else [send[0], sizes[0], datatype]
        calls.append((comm.Alltoall, (send, [recv[0], sizes[0], datatype])))
    else:
        raise ValueError(f"mpi: {collective} is not bound")
    if op == "average" and reduces and nranks > 1 and len(result):
        back.append((backend.divide, (result, nranks)))
    if back and backend.asynchronous:
        back.append((backend.synchronize, ()))
    return [*calls, *back]

"""The MPI library's own collectives behind the same plan."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from ringbench.runtime.arrays import Array, Backend
from ringbench.runtime.execute import MPI_TYPES, Call, buffer_spec
from ringbench.runtime.moves import MESSAGE_LIMIT
from ringbench.schedule.blocks import block_sizes


def check_count(count: int) -> None:
    """Raise ValueError where one call cannot take ``count`` elements: before MPI 4 counts are C ints."""
    if count > MESSAGE_LIMIT and MPI.Get_version() < (4, 0):
        version = ".".join(map(str, MPI.Get_version()))
        raise ValueError(
            f"mpi: {count} elements exceed {MESSAGE_LIMIT} (INT_MAX), the limit of a call in MPI {version}"
        )


def vendor_calls(
    collective: str, comm: Any, sendbuf: Array | None, recvbuf: Array, count: int, average: bool, backend: Backend
) -> list[Call]:
    """Bind the library's call for a whole vector of ``count`` elements; ``sendbuf`` None means in place.

    Buffer specs are made once, as for our own. An average is the library's sum, divided in place.
    """
    nranks, rank = comm.Get_size(), comm.Get_rank()
    datatype = MPI_TYPES[recvbuf.dtype.name]
    sizes = block_sizes(count, nranks)
    send = MPI.IN_PLACE if sendbuf is None else buffer_spec(sendbuf, datatype)
    recv = buffer_spec(recvbuf, datatype)
    calls: list[Call] = [(backend.synchronize, ())] if backend.asynchronous else []
    result = recvbuf
    if collective == "allreduce":
        calls.append((comm.Allreduce, (send, recv, MPI.SUM)))
    elif collective == "reduce_scatter":
        calls.append((comm.Reduce_scatter, (send, recv, sizes, MPI.SUM)))
        result = recvbuf[: sizes[rank]]
    elif collective == "allgather" and min(sizes) == max(sizes):
        calls.append((comm.Allgather, (send, [recv[0], sizes[0], datatype])))
    elif collective == "allgather":
        calls.append((comm.Allgatherv, (send, [recv[0], sizes, datatype])))
    else:
        raise ValueError(f"mpi: {collective} is not bound")
    if average and nranks > 1:
        calls.append((backend.divide, (result, nranks)))
        if backend.asynchronous:
            calls.append((backend.synchronize, ()))
    return calls

"""NCCL made of MPI: its calls are kernels of the fake device, and see memory by its address."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ringbench.runtime.arrays import numpy_dtype

if TYPE_CHECKING:
    from fakecuda import FakeCudaBackend

DTYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
REDUCTIONS: dict[str, Any] = {"SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


class FakeNccl:
    """Stand for the module ``cupy.cuda.nccl``; ``events`` of the device name what was called."""

    def __init__(self, backend: FakeCudaBackend, refuses: str | None = None) -> None:
        self.backend, self.refuses, self.made = backend, refuses, 0
        for number, name in enumerate((*DTYPES, *REDUCTIONS)):
            setattr(self, f"NCCL_{name.upper()}", number)

    def get_unique_id(self) -> tuple[int, ...]:
        return tuple(range(128))

    def NcclCommunicator(self, nranks: int, name: tuple[int, ...], rank: int) -> Communicator:  # noqa: N802
        if self.refuses is not None:
            raise RuntimeError(self.refuses)
        assert name == tuple(range(128)), "not the identifier of rank 0"
        assert (nranks, rank) == (MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank())
        self.made += 1
        return Communicator(self.backend)


class Communicator:
    """Carry out NCCL's collectives on all ranks of the world, when the device gets to them."""

    def __init__(self, backend: FakeCudaBackend) -> None:
        self.backend, self.comm = backend, MPI.COMM_WORLD.Dup()

    def _start(self, name: str, send: int, recv: int, counts: tuple[int, int], kind: int, op: int, stream: int) -> None:
        """Queue what gathers every rank's vector, reduces them if ``op`` is one, and keeps what is this rank's."""
        assert stream == self.backend.stream(), "another stream than the kernels are on"
        dtype, rank = numpy_dtype(DTYPES[kind]), self.comm.Get_rank()
        ufunc = None if op < 0 else list(REDUCTIONS.values())[op - len(DTYPES)]

        def kernel() -> None:
            brought, got = (vector(at, count, dtype) for at, count in zip((send, recv), counts, strict=True))
            everything = [np.frombuffer(part, dtype) for part in self.comm.allgather(brought.tobytes())]
            whole = np.concatenate(everything) if ufunc is None else ufunc.reduce(everything, axis=0, dtype=dtype)
            if name == "reduceScatter":
                whole = whole[rank * counts[1] : (rank + 1) * counts[1]]
            elif name == "broadcast":
                whole = everything[-1 - op]
            got[...] = whole[: counts[1]]

        self.backend.launch(name, kernel)

    def allReduce(self, send: int, recv: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802
        self._start("allReduce", send, recv, (count, count), kind, op, stream)

    def reduceScatter(self, send: int, recv: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802
        self._start("reduceScatter", send, recv, (count * self.comm.Get_size(), count), kind, op, stream)

    def allGather(self, send: int, recv: int, count: int, kind: int, stream: int) -> None:  # noqa: N802
        self._start("allGather", send, recv, (count, count * self.comm.Get_size()), kind, -1, stream)

    def broadcast(self, send: int, recv: int, count: int, kind: int, root: int, stream: int) -> None:
        self._start("broadcast", send, recv, (count, count), kind, -1 - root, stream)

    def reduce(self, send: int, recv: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        got = count if self.comm.Get_rank() == root else 0
        self._start("reduce", send, recv, (count, got), kind, op, stream)


def vector(address: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the memory at an address."""
    nbytes = count * dtype.itemsize
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    return np.frombuffer(memory, dtype) if nbytes else np.empty(0, dtype)

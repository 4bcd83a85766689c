from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpi4py
import numpy as np
import pytest
from fakecuda import CudaArray, FakeCudaBackend

mpi4py.rc(initialize=False)  # its constants are enough

from mpi4py import MPI  # noqa: E402

from ringbench.runtime.arrays import NumpyBackend, numpy_dtype  # noqa: E402
from ringbench.runtime.demands import ITEMSIZE, OPS  # noqa: E402
from ringbench.runtime.execute import MPI_TYPES, Call  # noqa: E402
from ringbench.runtime.vendor import MPI_OPS, reducible_type, vendor_calls  # noqa: E402
from ringbench.schedule.semantics import COLLECTIVES  # noqa: E402

NRANKS, COUNT = 3, 12
CALLS = {
    "allreduce": "Allreduce",
    "reduce_scatter": "Reduce_scatter",
    "allgather": "Allgather",
    "bcast": "Bcast",
    "reduce": "Reduce",
    "alltoall": "Alltoall",
}


class Comm:
    """Stand for a communicator whose collectives are only noted down."""

    def __init__(self, rank: int, nranks: int = NRANKS) -> None:
        self.rank, self.nranks = rank, nranks

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return self.nranks

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            raise AssertionError(f"nobody calls {name} here")

        call.__name__ = name
        return call


def bound(
    collective: str,
    rank: int = 0,
    *,
    in_place: bool = True,
    op: str = "sum",
    dtype: str = "float32",
    root: int = 0,
    count: int = COUNT,
    nranks: int = NRANKS,
    backend: Any = None,
) -> tuple[list[Call], Any, Any]:
    """Return the calls, and the buffers they were bound to."""
    backend, semantics = backend or NumpyBackend(), COLLECTIVES[collective]
    received = count if in_place else semantics.recv_count(rank, nranks, count, root)
    recv = backend.empty(received, dtype)
    send = None if in_place else backend.empty(semantics.send_count(rank, nranks, count, root), dtype)
    return vendor_calls(collective, Comm(rank, nranks), send, recv, count, op, backend, root), send, recv


def names(calls: list[Call]) -> list[str]:
    return [getattr(call, "__name__", "?") for call, _ in calls]


def is_spec(spec: Any, array: Any, count: int | list[int] = COUNT, dtype: str = "float32") -> bool:
    """Say whether what mpi4py gets is that array, so many elements of the library's type."""
    memory = array.memory if isinstance(array, CudaArray) else array
    buffer = np.frombuffer(spec[0], dtype=np.uint8)
    same = buffer.nbytes == memory.nbytes and (not buffer.size or np.shares_memory(buffer, memory))
    return bool(same and spec[1] == count and spec[2] == MPI_TYPES[dtype])


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])
def test_every_collective_is_the_librarys_own(collective: str, in_place: bool) -> None:
    for rank in range(NRANKS):
        calls, _, _ = bound(collective, rank, in_place=in_place, root=1)
        copies = ["copyto"] if collective == "bcast" and rank == 1 and not in_place else []
        assert names(calls) == [*copies, CALLS[collective]]


def test_a_collective_without_a_call_is_named() -> None:
    one = np.zeros(2)
    with pytest.raises(ValueError, match="unknown collective 'gather'"):
        vendor_calls("gather", Comm(0), one, one, 2, "sum", NumpyBackend())


def test_in_place_is_said_in_mpis_way() -> None:
    for collective in ("allreduce", "reduce_scatter", "allgather", "alltoall"):
        ((_, arguments),), _, recv = bound(collective)
        part = COUNT // NRANKS if collective in ("allgather", "alltoall") else COUNT
        assert arguments[0] is MPI.IN_PLACE
        assert is_spec(arguments[1], recv, part), collective


def test_blocks_of_an_allgather_may_differ_by_one() -> None:
    ((call, (send, recv)),), own, whole = bound("allgather", 1, in_place=False, count=COUNT - 1)
    assert call.__name__ == "Allgatherv"
    assert is_spec(send, own, 4)
    assert is_spec(recv, whole, [4, 4, 3])


def test_an_alltoall_counts_what_goes_to_each_rank() -> None:
    ((_, (send, recv)),), one, other = bound("alltoall", in_place=False)
    assert is_spec(send, one, COUNT // NRANKS)
    assert is_spec(recv, other, COUNT // NRANKS)


@pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])
def test_a_reduce_gives_at_the_root_alone(in_place: bool) -> None:
    for rank in range(NRANKS):
        ((_, (send, recv, op, root)),), one, other = bound("reduce", rank, in_place=in_place, root=2, op="max")
        assert (op, root) == (MPI.MAX, 2)
        if rank == 2:
            assert send is MPI.IN_PLACE if in_place else is_spec(send, one)
            assert is_spec(recv, other)
        else:
            assert is_spec(send, other if in_place else one)
            assert recv is None


def test_a_bcast_knows_one_buffer_and_the_root_fills_it() -> None:
    calls, send, recv = bound("bcast", 1, in_place=False, root=1)
    (copy, to_and_from), (_, (spec, root)) = calls
    assert (copy, root) == (np.copyto, 1)
    assert to_and_from[0] is recv
    assert to_and_from[1] is send
    assert is_spec(spec, recv)


@pytest.mark.parametrize(
    ("op", "mpi_op"),
    [
        ("sum", MPI.SUM),
        ("average", MPI.SUM),
        ("prod", MPI.PROD),
        ("min", MPI.MIN),
        ("max", MPI.MAX),
        ("land", MPI.LAND),
        ("lor", MPI.LOR),
    ],
)
def test_operations_are_mpis(op: str, mpi_op: MPI.Op) -> None:
    calls, _, _ = bound("allreduce", op=op, dtype="int16")
    assert calls[0][1][2] == mpi_op
    assert set(MPI_OPS) == set(OPS)


# Averages.


@pytest.mark.parametrize(
    ("collective", "rank", "divided"),
    [
        ("allreduce", 0, slice(0, COUNT)),
        ("allreduce", 2, slice(0, COUNT)),
        ("reduce_scatter", 1, slice(0, COUNT // NRANKS)),
        ("reduce", 1, slice(0, COUNT)),
        ("reduce", 0, None),
    ],
)
@pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])
def test_an_average_is_divided_once_where_the_result_is(
    collective: str, rank: int, divided: slice | None, in_place: bool
) -> None:
    calls, _, recv = bound(collective, rank, op="average", root=1, in_place=in_place)
    divisions = [arguments for call, arguments in calls if getattr(call, "__name__", "") == "divide"]
    if divided is None:
        assert divisions == []
        return
    ((array, divisor),) = divisions
    assert divisor == NRANKS
    assert array.size == divided.stop
    assert np.shares_memory(array, recv)
    assert array.ctypes.data == recv.ctypes.data
    assert names(calls)[-1] == "divide"


def test_what_reduces_nothing_and_one_rank_alone_divide_nothing() -> None:
    for collective in ("bcast", "allgather", "alltoall"):
        assert names(bound(collective, op="average")[0]) == [CALLS[collective]]
    assert names(bound("allreduce", op="average", nranks=1)[0]) == ["Allreduce"]


# Types.


@pytest.mark.parametrize("dtype", list(ITEMSIZE))
def test_every_dtype_can_be_moved(dtype: str) -> None:
    for collective in ("bcast", "allgather", "alltoall"):
        calls, _, recv = bound(collective, dtype=dtype)
        part = COUNT if collective == "bcast" else COUNT // NRANKS
        spec = calls[-1][1][0 if collective == "bcast" else 1]
        assert is_spec(spec, recv, part, dtype)
        assert recv.dtype == numpy_dtype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_a_library_cannot_reduce_is_refused_by_its_name(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MPI, f"{dtype.upper()}_T", MPI.DATATYPE_NULL, raising=False)
    monkeypatch.setattr(MPI, "Get_library_version", lambda: "Some MPI v1.2, package: x\nmore\0")
    with pytest.raises(ValueError, match=rf"^mpi: Some MPI v1\.2 has no reduction of {dtype}$"):
        reducible_type(dtype)
    monkeypatch.delattr(MPI, f"{dtype.upper()}_T")
    with pytest.raises(ValueError, match=f"has no reduction of {dtype}$"):
        reducible_type(dtype)
    monkeypatch.setattr(MPI, f"{dtype.upper()}_T", MPI.SHORT, raising=False)
    assert reducible_type(dtype) == MPI.SHORT


# Devices.


@pytest.mark.parametrize(
    ("collective", "rank", "op", "wanted"),
    [
        ("allreduce", 0, "sum", ["synchronize", "Allreduce"]),
        ("allreduce", 0, "average", ["synchronize", "Allreduce", "divide", "synchronize"]),
        ("reduce", 0, "average", ["synchronize", "Reduce"]),
        ("reduce", 1, "average", ["synchronize", "Reduce", "divide", "synchronize"]),
        ("bcast", 0, "sum", ["synchronize", "Bcast"]),
        ("bcast", 1, "sum", ["copy", "synchronize", "Bcast"]),
        ("alltoall", 0, "sum", ["synchronize", "Alltoall"]),
    ],
)
def test_a_device_is_waited_for_before_each_message_and_at_the_end(
    collective: str, rank: int, op: str, wanted: list[str]
) -> None:
    calls, _, _ = bound(collective, rank, op=op, root=1, in_place=False, backend=FakeCudaBackend())
    assert names(calls) == wanted

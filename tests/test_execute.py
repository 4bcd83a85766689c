from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import mpi4py
import numpy as np
import pytest
from fakecuda import CudaArray, FakeCudaBackend

mpi4py.rc(initialize=False)  # its constants are enough

from mpi4py import MPI  # noqa: E402

import ringbench.collectives  # noqa: E402, F401  (registers the algorithms)
from ringbench.runtime.arrays import NumpyBackend  # noqa: E402
from ringbench.runtime.compile import compile_program  # noqa: E402
from ringbench.runtime.execute import MPI_TYPES, TAG, Call, Plan, bind  # noqa: E402
from ringbench.runtime.moves import Add, Copy, Divide, Exchange, Piece, Program  # noqa: E402
from ringbench.schedule.blocks import block_offsets  # noqa: E402
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms  # noqa: E402
from ringbench.schedule.semantics import collective_named  # noqa: E402

COUNT = 10


class Comm:
    """Stand for a communicator whose Sendrecv is carried out by ``play``."""

    def Sendrecv(self, *arguments: Any) -> None:  # noqa: N802
        raise AssertionError("the player carries out the messages")


def memory(buffer: Any) -> Any:
    return buffer.memory if isinstance(buffer, CudaArray) else buffer


def play(calls: Sequence[Sequence[Call]]) -> None:
    """Run the calls of all ranks in one process; MPI sees the memory as it is, whatever kernels are still to come."""
    rest = [list(reversed(of_rank)) for of_rank in calls]
    sending, receiving = [False] * len(rest), [False] * len(rest)

    def message(rank: int) -> tuple[Any, ...] | None:
        return rest[rank][-1][1] if rest[rank] and is_message(rest[rank][-1]) else None

    def advance(rank: int) -> None:
        while rest[rank] and not is_message(rest[rank][-1]):
            call, arguments = rest[rank].pop()
            call(*arguments)
        now = message(rank)
        if now:
            assert (now[2], now[5]) == (TAG, TAG)
            sending[rank], receiving[rank] = now[1] != MPI.PROC_NULL, now[4] != MPI.PROC_NULL

    for rank in range(len(rest)):
        advance(rank)
    moved = True
    while moved:
        moved = False
        for rank in range(len(rest)):
            now = message(rank)
            if now and sending[rank]:
                dest = now[1]
                there = message(dest)
                if there and receiving[dest] and there[4] == rank:
                    (source, sent, kind), (target, received, kind_there) = now[0], there[3]
                    assert (sent, kind) == (received, kind_there)
                    assert source.size == target.size == sent
                    memory(target)[...] = memory(source)
                    sending[rank] = receiving[dest] = False
                    moved = True
        for rank in range(len(rest)):
            if message(rank) and not sending[rank] and not receiving[rank]:
                rest[rank].pop()
                advance(rank)
                moved = True
    assert not any(rest), "deadlock"


def is_message(call: Call) -> bool:
    return getattr(call[0], "__func__", None) is Comm.Sendrecv


def kinds(calls: Sequence[Call]) -> list[str]:
    return [getattr(call, "__name__", "?") for call, _ in calls]


def values(rank: int, count: int = COUNT) -> Any:
    return np.arange(1, count + 1, dtype=np.float64) * (10 + 3 * rank * rank)  # no rank has the average


class Job:
    """Hold one collective on all ranks, each with a device of its own, and inputs that a kernel is still to write."""

    def __init__(self, algorithm: Algorithm, nranks: int, *, in_place: bool, average: bool, segment: int = COUNT):
        self.collective, self.nranks = collective_named(algorithm.collective), nranks
        self.average = average = average and self.collective.reduces  # as plan() does
        self.offsets = block_offsets(COUNT, nranks)
        self.devices = [FakeCudaBackend() for _ in range(nranks)]
        self.calls: list[list[Call]] = []
        self.results: list[CudaArray] = []
        for rank, device in enumerate(self.devices):
            program = compile_program(
                algorithm, rank, nranks, COUNT, in_place=in_place, average=average, segment=segment
            )
            own = slice(None) if self.collective.reduces else slice(self.offsets[rank], self.offsets[rank + 1])
            received = self.collective.recv_count(rank, nranks, COUNT)
            result = device.empty(COUNT if in_place else received, "float64")
            arrays = {"result": result}
            part = result[own]
            if not in_place:
                part = arrays["input"] = device.empty(len(values(rank)[own]), "float64")
            self.calls.append(bind(program, Comm(), arrays, device, nranks))
            self.results.append(result[:received])
            part[...] = device.from_host(values(rank)[own])

    def right(self) -> bool:
        """Run, and look at the results without waiting for anything."""
        play(self.calls)
        return all(np.array_equal(memory(result), self.answer(rank)) for rank, result in enumerate(self.results))

    def answer(self, rank: int) -> Any:
        if not self.collective.reduces:
            return np.concatenate([values(r)[self.offsets[r] : self.offsets[r + 1]] for r in range(self.nranks)])
        total = sum(values(r) for r in range(self.nranks)) / (self.nranks if self.average else 1)
        whole = self.collective.name == "allreduce"
        return total if whole else total[self.offsets[rank] : self.offsets[rank + 1]]


every = pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")
placements = pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])


# Synchronisation.


def test_the_ring_waits_at_the_start_and_before_each_message_behind_a_kernel() -> None:
    ring = algorithm_named("allreduce", "ring")
    calls = Job(ring, 3, in_place=True, average=False).calls[0]
    first, second = ["synchronize", "Sendrecv", "add"], ["synchronize", "Sendrecv", "add"]
    assert kinds(calls) == [*first, *second, "synchronize", "Sendrecv", "Sendrecv"]
    calls = Job(ring, 3, in_place=False, average=True).calls[0]
    assert kinds(calls) == [*first, *second, "divide", "synchronize", "Sendrecv", "Sendrecv"]


def test_what_ends_with_a_kernel_waits_at_the_end() -> None:
    naive = Job(algorithm_named("allreduce", "naive"), 3, in_place=True, average=True).calls[0]
    assert kinds(naive) == ["synchronize", "Sendrecv", "Sendrecv", "add", "add", "divide", "synchronize"]
    gather = Job(algorithm_named("allgather", "ring"), 2, in_place=False, average=False).calls[0]
    assert kinds(gather) == ["synchronize", "Sendrecv", "copy", "synchronize"]


def test_each_segment_is_waited_for() -> None:
    calls = Job(algorithm_named("allreduce", "ring"), 2, in_place=True, average=False, segment=3).calls[0]
    assert kinds(calls) == ["synchronize", "Sendrecv", "add"] * 2 + ["synchronize", "Sendrecv", "Sendrecv"]


@every
@placements
@pytest.mark.parametrize("average", [False, True], ids=["sum", "average"])
def test_results_are_there_without_waiting_any_further(algorithm: Algorithm, in_place: bool, average: bool) -> None:
    for nranks in range(1, 6):
        job = Job(algorithm, nranks, in_place=in_place, average=average)
        assert job.right(), nranks
        assert [device.pending for device in job.devices] == [[]] * nranks


@every
@placements
@pytest.mark.parametrize("nranks", [2, 3])
def test_without_any_one_wait_the_result_is_wrong(algorithm: Algorithm, in_place: bool, nranks: int) -> None:
    make = partial(Job, algorithm, nranks, in_place=in_place, average=True, segment=4)
    waits = [(r, i) for r, calls in enumerate(make().calls) for i, kind in enumerate(kinds(calls)) if kind[0] == "s"]
    assert len(waits) >= 2
    for rank, index in waits:
        job = make()
        assert kinds([job.calls[rank].pop(index)]) == ["synchronize"]
        if index == 0 and job.calls[rank][0][1][1] == MPI.PROC_NULL:
            continue  # what only arrives, in scratch, may do so while the input is still being written
        assert not job.right(), (rank, index)


def test_the_host_waits_for_nothing() -> None:
    for algorithm in algorithms():
        program = compile_program(algorithm, 0, 3, COUNT, in_place=True, average=True)
        calls = bind(program, Comm(), {"result": np.zeros(COUNT)}, NumpyBackend(), 3)
        assert "synchronize" not in kinds(calls)


# Binding.


def bound(
    *moves: Exchange | Add | Copy | Divide, dtype: str = "float32", nranks: int = 4, count: int = 8
) -> tuple[Any, list[Call]]:
    result = np.arange(count, dtype=dtype)
    program = Program(moves=moves, scratch={"temp": count}, sent=0, segment=9)
    return result, bind(program, Comm(), {"result": result}, NumpyBackend(), nranks)


def seen(spec: list[Any], dtype: str) -> Any:
    """Return the array behind what mpi4py is given."""
    buffer, count, datatype = spec
    array = np.frombuffer(buffer, dtype=dtype)
    assert (array.size, datatype) == (count, MPI_TYPES[dtype])
    return array


@pytest.mark.parametrize("dtype", sorted(MPI_TYPES))
def test_a_message_has_views_counts_types_and_peers(dtype: str) -> None:
    result, calls = bound(Exchange(Piece("result", 1, 3), 5, Piece("temp", 0, 4), 6), dtype=dtype)
    ((call, (send, dest, sendtag, recv, source, recvtag)),) = calls
    assert is_message((call, ()))
    assert (dest, source, sendtag, recvtag) == (5, 6, TAG, TAG)
    assert np.shares_memory(seen(send, dtype), result)
    assert seen(send, dtype).tolist() == [1, 2]
    result[1] = 9
    assert seen(send, dtype).tolist() == [9, 2]
    assert seen(recv, dtype).size == 4
    seen(recv, dtype)[...] = 1  # may be written


def test_a_half_message_has_no_peer_on_the_other_side() -> None:
    piece = Piece("result", 0, 2)
    _, calls = bound(Exchange(piece, 1, None, None), Exchange(None, None, piece, 1))
    (_, (_, dest, _, nothing, source, _)), (_, (none, no_dest, _, _, from_one, _)) = calls
    assert (dest, nothing, source) == (1, None, MPI.PROC_NULL)
    assert (none, no_dest, from_one) == (None, MPI.PROC_NULL, 1)


def test_kernels_are_numpys_own_on_views() -> None:
    half = 5
    result, calls = bound(
        Copy(Piece("result", half, 2 * half), Piece("temp", 1, half + 1)),
        Add(Piece("result", 0, half), Piece("temp", 1, half + 1), Piece("result", 0, half)),
        Divide(Piece("result", 0, 2)),
        count=2 * half,
    )
    assert [call for call, _ in calls][:2] == [np.copyto, np.add]
    for call, arguments in calls:
        call(*arguments)
    assert result.tolist()[:4] == [half / 4, (half + 2) / 4, half + 4, half + 6]
    assert result.tolist()[half - 1 :] == [3 * half - 2, *range(half, 2 * half)]


@pytest.mark.parametrize("dtype", sorted(MPI_TYPES))
def test_a_single_element_is_added_by_mpi_and_only_onto_itself(dtype: str) -> None:
    most = 1
    one, other, elsewhere = Piece("result", 0, most), Piece("temp", 0, most), Piece("result", most, 2 * most)
    result, calls = bound(Add(one, other, one), Add(one, other, elsewhere), dtype=dtype, count=2 * most)
    assert [call for call, _ in calls] == [MPI.SUM.Reduce_local, np.add]
    arrived, out = calls[0][1]
    assert np.shares_memory(seen(out, dtype), result)
    assert not np.shares_memory(seen(arrived, dtype), result)
    more = Piece("result", 0, most + 1)
    _, calls = bound(Add(more, Piece("temp", 0, most + 1), more), dtype=dtype, count=2 * most)
    assert [call for call, _ in calls] == [np.add]


def test_tags_are_below_the_smallest_limit_of_mpi() -> None:
    assert 0 < TAG <= 32767


def test_a_plan_makes_its_calls_in_order_each_time() -> None:
    seen: list[int] = []
    plan = Plan("allreduce", "ring", [(seen.append, (1,)), (seen.append, (2,))], in_place=True, bytes_sent=7)
    plan()
    plan()
    assert seen == [1, 2, 1, 2]
    assert (plan.collective, plan.algorithm, plan.in_place) == ("allreduce", "ring", True)
    assert (plan.bytes_sent, plan.segment_nbytes) == (7, None)


# The stand-in itself.


def test_the_device_is_late_and_says_what_it_did() -> None:
    device = FakeCudaBackend()
    array = device.empty(4, "float32")
    array[...] = 3
    device.add(array, array, array)
    device.divide(array[:2], 4)
    assert np.isnan(memory(array)).all()
    device.synchronize()
    assert memory(array).tolist() == [1.5, 1.5, 6, 6]
    assert device.events == ["fill", "add", "divide", "synchronize"]


def test_numpy_does_not_take_arrays_of_the_device() -> None:
    device = FakeCudaBackend()
    array = device.from_host(np.ones(3))
    takers: tuple[Any, ...] = (np.asarray, partial(np.add, np.ones(3)), partial(np.copyto, np.ones(3)), memoryview)
    for take in takers:
        with pytest.raises(TypeError):
            take(array)
    for kernel in (device.copy, partial(device.add, array)):
        with pytest.raises(TypeError, match="not a ndarray"):
            kernel(array, np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 float64"):
        device.copy(device.empty(2, "float64"), array)


def test_mpi_finds_arrays_of_the_device() -> None:
    array = FakeCudaBackend().from_host(np.arange(6, dtype=np.int64)).reshape(-1)[2:5]
    seen = MPI.buffer(array)
    assert (seen.address, seen.nbytes) == (memory(array).ctypes.data, 24)
    with pytest.raises(BufferError, match="not CPU-accessible"):
        seen.tobytes()

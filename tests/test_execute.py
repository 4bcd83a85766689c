from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import mpi4py
import numpy as np
import pytest
from fakecuda import KERNELS, CudaArray, FakeCudaBackend
from machine import brings, gets, own_block

mpi4py.rc(initialize=False)  # its constants are enough

from mpi4py import MPI  # noqa: E402

import ringbench.collectives  # noqa: E402, F401  (registers the algorithms)
from ringbench.runtime.arrays import NumpyBackend, numpy_dtype  # noqa: E402
from ringbench.runtime.compile import compile_program  # noqa: E402
from ringbench.runtime.demands import ITEMSIZE  # noqa: E402
from ringbench.runtime.execute import MPI_TYPES, TAG, Call, Plan, bind  # noqa: E402
from ringbench.runtime.moves import Combine, Copy, Divide, Exchange, Gather, Piece, Program  # noqa: E402
from ringbench.runtime.shared import Reach  # noqa: E402
from ringbench.schedule.parameters import pairs  # noqa: E402
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms  # noqa: E402
from ringbench.schedule.semantics import collective_named  # noqa: E402

COUNT = 10


class Comm:
    """Stand for a communicator whose Sendrecv is carried out by ``play``."""

    def Sendrecv(self, *arguments: Any) -> None:  # noqa: N802
        raise AssertionError("the player carries out the messages")


def memory(buffer: Any) -> Any:
    """Return the memory behind an array, or the bytes behind what mpi4py made of one."""
    if isinstance(buffer, MPI.buffer):
        return np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]
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
                    assert source.nbytes == target.nbytes
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


def values(rank: int, count: int = COUNT, dtype: str = "float64") -> Any:
    """Return what a rank brings: in float64 none has the average; else many places have one rank's value alone."""
    if dtype == "float64":
        return np.arange(1, count + 1) * (10.0 + 3 * rank * rank)
    random = np.random.default_rng(rank)
    if dtype == "bool":
        return random.random(count) < 0.3
    whole = random.integers(-9, 9, count)
    return (whole + (1j * random.integers(1, 9, count) if dtype.startswith("complex") else 0)).astype(dtype)


class Job:
    """Hold one collective on all ranks, each with a device of its own.

    Kernels are still to write the inputs, and before them something else into the whole buffer of each result.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        nranks: int,
        *,
        in_place: bool,
        op: str = "sum",
        dtype: str = "float64",
        segment: int = COUNT,
        count: int = COUNT,
        staged: bool = False,
    ):
        self.algorithm, self.nranks, self.op, self.dtype = algorithm, nranks, op, dtype
        self.reduces = collective_named(algorithm.collective).reduces
        average = self.reduces and op == "average"  # as plan() does
        self.count = count = -(-count // nranks) * nranks if algorithm.collective == "alltoall" else count
        self.devices = [FakeCudaBackend() for _ in range(nranks)]
        self.calls: list[list[Call]] = []
        self.results: list[CudaArray] = []
        self.buffers: list[list[Any]] = []
        for rank, device in enumerate(self.devices):
            program = compile_program(
                algorithm, rank, nranks, count, in_place=in_place, average=average, segment=segment
            )
            mine, yours = brings(algorithm, rank, nranks, count), gets(algorithm, rank, nranks, count)
            received = yours.stop - (yours.start or 0)
            result = device.empty(count if in_place else received, dtype)
            arrays = {"result": result}
            part = result[mine]
            if not in_place:
                part = arrays["input"] = device.empty(len(values(rank, count)[mine]), dtype)
            self.calls.append(bind(program, Comm(), arrays, device, nranks, op, staged=staged))
            self.results.append(result[:received])
            self.buffers.append([memory(array) for array in arrays.values()])
            result[...] = 1
            part[...] = device.from_host(values(rank, count, dtype)[mine])

    def right(self) -> bool:
        """Run, and look at the results without waiting for anything, and again when the device has come to rest."""
        play(self.calls)
        found = self.as_they_are()
        for device in self.devices:
            device.synchronize()
        return found and self.as_they_are()

    def as_they_are(self) -> bool:
        return all(np.array_equal(memory(result), self.answer(rank)) for rank, result in enumerate(self.results))

    def answer(self, rank: int) -> Any:
        algorithm, nranks, count = self.algorithm, self.nranks, self.count
        everybodys = [values(r, count, self.dtype) for r in range(nranks)]
        if algorithm.collective == "bcast":
            return everybodys[algorithm.root]
        if not self.reduces:
            blocks = range(nranks) if algorithm.collective == "allgather" else [rank] * nranks
            return np.concatenate(
                [own[own_block(block, nranks, count)] for own, block in zip(everybodys, blocks, strict=True)]
            )
        total = reduce(KERNELS[self.op], everybodys)
        return (total / nranks if self.op == "average" else total)[gets(algorithm, rank, nranks, count)]


def with_all(algorithm: Algorithm, nranks: int) -> Algorithm:
    """Return an algorithm with arguments that make it do all that it can."""
    return algorithm.given(root=nranks - 1, chunks=2, groups=pairs(nranks))


OF_MESSAGES = [algorithm for algorithm in algorithms() if algorithm.shared is None]
every = pytest.mark.parametrize("algorithm", OF_MESSAGES, ids=lambda a: f"{a.collective}-{a.name}")
placements = pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])


# Synchronisation.


def test_the_ring_waits_at_the_start_and_before_each_message_behind_a_kernel() -> None:
    ring = algorithm_named("allreduce", "ring")
    calls = Job(ring, 3, in_place=True, op="max").calls[0]
    first, second = ["synchronize", "Sendrecv", "max"], ["synchronize", "Sendrecv", "max"]
    assert kinds(calls) == [*first, *second, "synchronize", "Sendrecv", "Sendrecv"]
    calls = Job(ring, 3, in_place=False, op="average").calls[0]
    first = second = ["synchronize", "Sendrecv", "average"]
    assert kinds(calls) == [*first, *second, "synchronize", "Sendrecv", "Sendrecv"]  # the last divides too


def test_what_ends_with_a_kernel_waits_at_the_end() -> None:
    naive = Job(algorithm_named("allreduce", "naive"), 3, in_place=True, op="average").calls[0]
    assert kinds(naive) == ["synchronize", "Sendrecv", "Sendrecv", "average", "synchronize"]  # all of it in one kernel
    gather = Job(algorithm_named("allgather", "ring"), 2, in_place=False).calls[0]
    assert kinds(gather) == ["synchronize", "Sendrecv", "copy", "synchronize"]


def test_a_rank_that_only_takes_waits_once() -> None:
    """Whatever was to be written there before must not come after the message."""
    taker = Job(algorithm_named("bcast", "binomial"), 2, in_place=True).calls[1]
    assert kinds(taker) == ["synchronize", "Sendrecv"]


def test_each_segment_is_waited_for() -> None:
    calls = Job(algorithm_named("allreduce", "ring"), 2, in_place=True, segment=3).calls[0]
    # The first segment's sum was waited for before the second arrived where the first had: it can go on at once.
    assert kinds(calls) == ["synchronize", "Sendrecv", "sum"] * 2 + ["Sendrecv", "synchronize", "Sendrecv"]


#: Each operation and each kind of dtype once.
TYPES = [("sum", "float64"), ("average", "float64"), ("max", "float32"), ("lor", "bool"), ("prod", "complex64")]


@every
@placements
@pytest.mark.parametrize(("op", "dtype"), TYPES)
@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_results_are_there_without_waiting_any_further(
    algorithm: Algorithm, in_place: bool, op: str, dtype: str, staged: bool
) -> None:
    for nranks in range(1, 6):
        job = Job(with_all(algorithm, nranks), nranks, in_place=in_place, op=op, dtype=dtype, staged=staged)
        play(job.calls)
        assert job.as_they_are(), nranks
        assert [device.pending for device in job.devices] == [[]] * nranks


@every
@placements
@pytest.mark.parametrize(("op", "dtype"), [("average", "float64"), ("lor", "bool"), ("min", "float32")])
@pytest.mark.parametrize("nranks", [2, 3, 4])
@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_without_any_one_wait_the_result_is_wrong(
    algorithm: Algorithm, in_place: bool, op: str, dtype: str, nranks: int, staged: bool
) -> None:
    count = COUNT if dtype == "float64" else 30 * COUNT
    make = partial(Job, with_all(algorithm, nranks), nranks, in_place=in_place, op=op, dtype=dtype, staged=staged)
    make = partial(make, segment=count // 3, count=count)
    waits = [
        (r, i) for r, calls in enumerate(make().calls) for i, kind in enumerate(kinds(calls)) if kind == "synchronize"
    ]
    assert len(waits) >= nranks
    missed = 0
    for rank, index in waits:
        job = make()
        assert kinds([job.calls[rank].pop(index)]) == ["synchronize"]
        wrong = not job.right()
        assert wrong or staged, (rank, index, kinds(job.calls[rank]))
        missed += wrong
    assert missed >= nranks  # what comes to the host twice is the same both times: such a wait is missed by nobody


def test_the_host_waits_for_nothing() -> None:
    for algorithm in OF_MESSAGES:
        program = compile_program(with_all(algorithm, 3), 0, 3, 12, in_place=True, average=True)
        calls = bind(program, Comm(), {"result": np.zeros(12)}, NumpyBackend(), 3)
        assert "synchronize" not in kinds(calls)


# Binding.


DTYPES = sorted(MPI_TYPES)


def bound(
    *moves: Exchange | Combine | Copy | Divide,
    dtype: str = "float32",
    nranks: int = 4,
    count: int = 8,
    op: str = "sum",
) -> tuple[Any, list[Call]]:
    result = np.arange(count).astype(numpy_dtype(dtype))
    program = Program(moves=moves, scratch={"temp": count}, sent=0, segment=9)
    return result, bind(program, Comm(), {"result": result}, NumpyBackend(), nranks, op)


def seen(spec: list[Any], dtype: str) -> Any:
    """Return the array behind what mpi4py is given."""
    buffer, count, datatype = spec
    array = np.frombuffer(buffer, dtype=np.uint8).view(numpy_dtype(dtype))
    assert (array.size, datatype) == (count, MPI_TYPES[dtype])
    return array


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_message_has_views_counts_types_and_peers(dtype: str) -> None:
    result, calls = bound(Exchange(Piece("result", 1, 3), 5, Piece("temp", 0, 4), 6), dtype=dtype)
    ((call, (send, dest, sendtag, recv, source, recvtag)),) = calls
    assert is_message((call, ()))
    assert (dest, source, sendtag, recvtag) == (5, 6, TAG, TAG)
    assert np.shares_memory(seen(send, dtype), result)
    assert seen(send, dtype).tolist() == result[1:3].tolist()
    result[1] = 0
    assert seen(send, dtype).tolist() == [0, result[2]]
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
        Combine(Piece("result", 0, half), Piece("temp", 1, half + 1), Piece("result", 0, half)),
        Divide(Piece("result", 0, 2)),
        count=2 * half,
    )
    assert [call for call, _ in calls][:2] == [np.copyto, np.add]
    for call, arguments in calls:
        call(*arguments)
    assert result.tolist()[:4] == [half / 4, (half + 2) / 4, half + 4, half + 6]
    assert result.tolist()[half - 1 :] == [3 * half - 2, *range(half, 2 * half)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_shared_is_reached_between_barriers(dtype: str) -> None:
    own, other = (np.arange(4).astype(numpy_dtype(dtype)) for _ in range(2))
    seen: list[tuple[int, ...]] = []
    beyond = Reach(theirs={("result", 1): other}, own={"temp": own[:2]}, meet=lambda ranks: partial(seen.append, ranks))
    here, there = Piece("result", 0, 2), Piece("result", 2, 4, 1)
    program = Program(
        moves=(Gather((0, 1)), Copy(there, here), Copy(here, there), Copy(there, Piece("temp", 0, 2)), Gather((1, 2))),
        scratch={"temp": 2},
        sent=0,
        segment=9,
    )
    for call, arguments in bind(program, Comm(), {"result": own}, NumpyBackend(), 2, "sum", beyond=beyond):
        call(*arguments)
    assert own.tolist() == [*np.arange(4).astype(numpy_dtype(dtype))[2:].tolist()] * 2
    assert seen == [(0, 1), (1, 2)]


def test_every_dtype_can_be_moved() -> None:
    assert set(MPI_TYPES) == set(ITEMSIZE)


ONE, OTHER, ELSEWHERE = Piece("result", 0, 1), Piece("temp", 0, 1), Piece("result", 1, 2)


@pytest.mark.parametrize("op", ["sum", "average"])
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("float16", "bfloat16", "bool")])
def test_a_single_element_is_added_by_mpi_and_only_onto_itself(dtype: str, op: str) -> None:
    result, calls = bound(Combine(ONE, OTHER, ONE), Combine(ONE, OTHER, ELSEWHERE), dtype=dtype, count=2, op=op)
    assert [call for call, _ in calls] == [MPI.SUM.Reduce_local, np.add]
    arrived, out = calls[0][1]
    assert np.shares_memory(seen(out, dtype), result)
    assert not np.shares_memory(seen(arrived, dtype), result)
    more = Piece("result", 0, 2)
    _, calls = bound(Combine(more, Piece("temp", 0, 2), more), dtype=dtype, count=2, op=op)
    assert [call for call, _ in calls] == [np.add]


@pytest.mark.parametrize(
    ("dtype", "op", "kernel"),
    [
        ("float16", "sum", np.add),  # what MPI moves them as is no number
        ("float32", "prod", np.multiply),
        ("bool", "lor", np.logical_or),
        ("int8", "land", np.logical_and),
    ],
)
def test_a_single_element_of_what_mpi_would_not_add_is_reduced_as_others_are(dtype: str, op: str, kernel: Any) -> None:
    _, calls = bound(Combine(ONE, OTHER, ONE), dtype=dtype, count=2, op=op)
    assert [call for call, _ in calls] == [kernel]


@pytest.mark.parametrize(("op", "right"), [("min", [0, 1, 2]), ("max", [4, 5, 6]), ("prod", [0, 5, 12])])
def test_the_operation_is_that_of_the_collective(op: str, right: list[int]) -> None:
    result, calls = bound(
        Copy(Piece("result", 4, 7), Piece("temp", 0, 3)),
        Combine(Piece("result", 0, 3), Piece("temp", 0, 3), Piece("result", 0, 3)),
        op=op,
    )
    for call, arguments in calls:
        call(*arguments)
    assert result.tolist() == [*right, 3, 4, 5, 6, 7]


def test_tags_are_below_the_smallest_limit_of_mpi() -> None:
    assert 0 < TAG <= 32767


def test_a_plan_makes_its_calls_in_order_each_time() -> None:
    seen: list[int] = []
    plan = Plan("allreduce", "ring", [(seen.append, (1,)), (seen.append, (2,))], in_place=True, bytes_sent=7)
    plan()
    plan()
    assert seen == [1, 2, 1, 2]
    assert (plan.collective, plan.algorithm, plan.in_place) == ("allreduce", "ring", True)
    assert (plan.bytes_sent, plan.segment_nbytes, plan.remark, plan.steps) == (7, None, None, ())


# The stand-in itself.


def test_the_device_is_late_and_says_what_it_did() -> None:
    device = FakeCudaBackend()
    array = device.empty(4, "float32")
    array[...] = 3
    device.kernel("sum")(array, array, array)
    device.divide(array[:2], 4)
    assert np.isnan(memory(array)).all()
    device.synchronize()
    assert memory(array).tolist() == [1.5, 1.5, 6, 6]
    assert device.events == ["fill", "sum", "divide", "synchronize"]


def test_numpy_does_not_take_arrays_of_the_device() -> None:
    device = FakeCudaBackend()
    array = device.from_host(np.ones(3))
    takers: tuple[Any, ...] = (np.asarray, partial(np.add, np.ones(3)), partial(np.copyto, np.ones(3)), memoryview)
    for take in takers:
        with pytest.raises(TypeError):
            take(array)
    for kernel in (device.copy, partial(device.kernel("max"), array)):
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

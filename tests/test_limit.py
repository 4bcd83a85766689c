from __future__ import annotations

from typing import Any

import mpi4py
import numpy as np
import pytest
from fakecuda import CudaArray, FakeCudaBackend

mpi4py.rc(initialize=False)  # its constants are enough

from mpi4py import MPI  # noqa: E402

import ringbench.collectives  # noqa: E402, F401  (fills the registry)
from ringbench.runtime.arrays import NumpyBackend  # noqa: E402
from ringbench.runtime.compile import compile_program  # noqa: E402
from ringbench.runtime.execute import MPI_TYPES, TAG  # noqa: E402
from ringbench.runtime.limit import Limits  # noqa: E402
from ringbench.schedule.registry import algorithm_named  # noqa: E402

MESSAGE, REDUCTION = 0, 1
Steps = tuple[tuple[int, int], ...]


class Comm:
    """Stand for one rank's communicator; ``others`` are what the other ranks say, one after the other."""

    def __init__(self, rank: int = 1, nranks: int = 3, others: Any = (), slowest: float = 0.0) -> None:
        self.rank, self.nranks, self.others, self.slowest = rank, nranks, others, slowest
        self.sent: list[tuple[Any, ...]] = []

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return self.nranks

    def allgather(self, own: Any) -> list[Any]:
        return [own, *self.others]

    def allreduce(self, value: float, op: MPI.Op) -> float:
        assert op == MPI.MAX
        return max(value, self.slowest)

    def Sendrecv(self, *arguments: Any) -> None:  # noqa: N802
        self.sent.append(arguments)


def limits(steps: list[Steps], comm: Comm | None = None, dtype: str = "float32", op: str = "sum") -> Limits:
    return Limits(comm or Comm(), steps, dtype, op, NumpyBackend())


def test_every_length_is_measured_once_whatever_plan_it_is_of() -> None:
    found = limits([((5, 5), (5, 0), (3, 2)), ((3, 3), (5, 0))])
    assert sorted(found.bare) == [(MESSAGE, 3), (MESSAGE, 5), (REDUCTION, 2), (REDUCTION, 3), (REDUCTION, 5)]
    assert found.contestants == [found.bare[key] for key in sorted(found.bare)]


def test_the_order_is_the_same_on_ranks_with_other_steps() -> None:
    """They run together: each takes part in what any of them needs."""
    one, other = ((4, 4), (2, 0)), ((7, 0),)
    needed = [{(MESSAGE, 4), (REDUCTION, 4), (MESSAGE, 2)}, {(MESSAGE, 7)}]
    first = limits([one], Comm(0, 2, needed[1:]))
    second = limits([other], Comm(1, 2, needed[:1]))
    assert list(first.bare) == list(second.bare) == [(MESSAGE, 2), (MESSAGE, 4), (MESSAGE, 7), (REDUCTION, 4)]


def test_the_longest_addition_of_any_rank_is_told_by_itself() -> None:
    found = limits([((5, 5), (3, 2))], Comm(slowest=5))
    for (kind, length), contestant in found.bare.items():
        contestant.samples_s = [] if kind == MESSAGE else [length * 1e-6, length * 2e-6, length * 9e-6]
    for own in (((5, 5), (3, 2)), ((3, 2),)):  # another rank has the longer one
        elements, seconds = found.addition(own)
        assert elements == 5
        assert seconds == pytest.approx(10e-6)
    assert limits([((5, 0),)]).addition(((5, 0),)) == (None, None)
    found.bare[REDUCTION, 5].samples_s = []
    assert found.addition(((5, 5),)) == (None, None)


def test_empty_messages_are_not_measured() -> None:
    assert limits([((0, 0), (0, 0)), ()]).contestants == []
    assert limits([]).contestants == []


@pytest.mark.parametrize(("rank", "dest", "source"), [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_a_bare_message_goes_round_the_ring_uncut_between_two_buffers(rank: int, dest: int, source: int) -> None:
    comm = Comm(rank)
    found = limits([((2**20, 0), (10, 0))], comm)
    for contestant in found.contestants:
        contestant.prepare()
        contestant.run()
    assert [sent[0][1] for sent in comm.sent] == [10, 2**20]
    for send, to, sendtag, recv, of, recvtag in comm.sent:
        assert (to, of, sendtag, recvtag) == (dest, source, TAG, TAG)
        assert (send[1], send[2]) == (recv[1], MPI_TYPES["float32"]) == (send[1], recv[2])
        one, other = np.frombuffer(send[0], dtype=np.uint8), np.frombuffer(recv[0], dtype=np.uint8)
        assert one.size == other.size == 4 * send[1]
        assert not np.shares_memory(one, other)


@pytest.mark.parametrize(
    ("op", "dtype", "right"),
    [("sum", "float32", 7), ("max", "int8", 5), ("prod", "complex64", 10), ("lor", "bool", 1), ("sum", "float16", 7)],
)
def test_a_bare_reduction_is_that_of_the_plan_in_place(op: str, dtype: str, right: object) -> None:
    comm = Comm()
    found = limits([((0, 3), (0, 4))], comm, dtype, op)
    found.one[...], found.other[...] = 5, 2
    assert found.one.size == found.other.size == 4
    found.bare[REDUCTION, 3].run()
    assert found.one.tolist() == [right] * 3 + [1 if dtype == "bool" else 5]
    assert found.other.tolist() == [1 if dtype == "bool" else 2] * 4
    assert comm.sent == []


def test_buffers_are_written_before_the_clock_starts() -> None:
    found = limits([((3, 3),)])
    assert found.one.tolist() == found.other.tolist() == [0, 0, 0]
    for _ in range(100):
        found.bare[REDUCTION, 3].run()
    assert found.one.tolist() == [0, 0, 0]


def test_a_device_is_waited_for_behind_a_reduction_and_holds_nothing_back_before_a_message() -> None:
    device, comm = FakeCudaBackend(), Comm()
    found = Limits(comm, [((3, 3),)], "complex64", "average", device)
    assert device.pending == []
    assert isinstance(found.one, CudaArray)
    device.events.clear()
    found.bare[MESSAGE, 3].run()
    assert device.events == []
    (message,) = comm.sent
    assert np.frombuffer(message[0][0], np.uint8).ctypes.data == found.one.memory.ctypes.data
    found.bare[REDUCTION, 3].run()
    assert device.events == ["average", "synchronize"]


def test_what_the_steps_add_up_to_is_the_median_of_each_on_the_slowest_rank() -> None:
    steps = ((4, 4), (4, 0), (2, 2), (0, 0))
    found = limits([steps])
    times: dict[tuple[int, int], list[float]] = {
        (MESSAGE, 4): [1, 2, 9],
        (REDUCTION, 4): [0.5],
        (MESSAGE, 2): [3, 1],
        (REDUCTION, 2): [0.25] * 3,
    }
    for key, samples in times.items():
        found.bare[key].samples_s.extend(samples)
    assert found.of(steps) == (2 + 0.5) + 2 + (2 + 0.25)
    assert found.of(()) == 0
    assert isinstance(found.of(()), float)
    assert limits([], Comm(slowest=4.5)).of(()) == 4.5


def test_the_steps_of_a_plan_are_those_of_the_textbook() -> None:
    """The ring on 4 ranks: 3 blocks that are added, 3 that are not, whatever the segments."""
    program = compile_program(algorithm_named("allreduce", "ring"), 0, 4, 400, in_place=True, segment=7)
    assert program.steps == ((100, 100),) * 3 + ((100, 0),) * 3
    found = limits([program.steps])
    for (kind, _), contestant in found.bare.items():
        contestant.samples_s.append(0.5 if kind == REDUCTION else 1.0)
    assert found.of(program.steps) == 6 * 1.0 + 3 * 0.5

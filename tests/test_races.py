from __future__ import annotations

from dataclasses import replace

import pytest

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.schedule.mutate import SCHEDULE_MUTANTS, mutated
from ringbench.schedule.races import find_race
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.step import Meet, Operation, Operations, Step, combine, copy, peer, temp, work
from ringbench.schedule.verify import ScheduleError, verify

ALL = Meet((0, 1))
SHARED = [algorithm for algorithm in algorithms() if algorithm.shared is not None]


def made(*programs: list[Operation], like: str = "shared_memory", blocks: int = 1, ntemp: int = 0) -> Algorithm:
    def generator(rank: int, nranks: int) -> Operations:
        return programs[rank]

    base = algorithm_named("allreduce", like)
    return replace(base, generator=generator, blocks=lambda nranks: blocks, temp=lambda nranks: ntemp)


@pytest.mark.parametrize(
    ("programs", "race"),
    [
        ([[ALL, copy(peer(1, work(0)), work(0)), ALL], [ALL, ALL]], None),
        (
            [[copy(peer(1, work(0)), work(0)), ALL], [ALL]],
            "rank 1, round 0: writes block 0 without having met rank 0, which touched it",
        ),
        (
            [[ALL, copy(peer(1, work(0)), work(0))], [ALL]],
            "rank 1, round 1: writes block 0 without having met rank 0, which touched it",
        ),
        (
            [[ALL, copy(work(0), peer(1, work(0))), ALL], [ALL, copy(work(0), temp(0)), ALL]],
            "rank 1, round 1: reads block 0 without having met rank 0, which touched it",
        ),
        ([[ALL, copy(work(0), peer(1, work(0))), ALL], [ALL, ALL, copy(work(0), temp(0))]], None),
    ],
)
def test_who_must_have_met_whom(programs: list[list[Operation]], race: str | None) -> None:
    assert find_race(programs, 1, 1) == race


def test_scratch_memory_that_is_shared_is_still_read_when_the_next_call_writes_it() -> None:
    once: list[list[Operation]] = [[copy(work(0), temp(0)), ALL], [ALL, copy(peer(0, temp(0)), work(0))]]
    found = find_race(once, 1, 1)
    assert found is not None
    assert "temp block 0 without having met rank" in found
    assert find_race([[*once[0], ALL], [*once[1], ALL]], 1, 1) is None


def test_ranks_hear_of_each_other_through_a_third() -> None:
    one, other = Meet((0, 1)), Meet((1, 2))
    everyone = Meet((0, 1, 2))
    through: list[list[Operation]] = [[everyone, one], [everyone, one, other], [everyone, other]]
    through[0].insert(1, copy(work(0), peer(2, work(1))))
    through[2] += [copy(work(1), temp(0))]
    for program in through:
        program.append(everyone)
    assert find_race(through, 2, 1) is None
    through[1][1:3] = [other, one]  # now rank 1 has heard nothing when it meets rank 2
    assert "without having met rank 0" in str(find_race(through, 2, 1))


def test_a_message_orders_nothing_in_memory() -> None:
    """It may have gone by another way than the write, and MPI asks for a synchronisation of the window beside."""
    told: list[list[Operation]] = [
        [ALL, copy(work(0), peer(1, work(0))), Step(dest=1, send=work(1)), ALL],
        [ALL, Step(source=0, recv=temp(1)), copy(work(0), temp(0)), ALL],
    ]
    assert "reads block 0 without having met rank 0" in str(find_race(told, 2, 2))


@pytest.mark.parametrize("nranks", [2, 3, 4, 7])
@pytest.mark.parametrize("algorithm", SHARED, ids=lambda a: f"{a.collective}-{a.name}")
def test_no_meet_of_any_algorithm_can_be_spared(algorithm: Algorithm, nranks: int) -> None:
    programs = [algorithm.operations(rank, nranks) for rank in range(nranks)]
    meets = [at for at, operation in enumerate(op for op in programs[0] if isinstance(op, Meet))]
    assert len(meets) >= 2
    for lost in meets:

        def generator(rank: int, nranks: int, *, lost: int = lost, **arguments: object) -> Operations:
            number = -1
            for operation in algorithm.operations(rank, nranks):
                number += isinstance(operation, Meet)
                if not (isinstance(operation, Meet) and number == lost):
                    yield operation

        with pytest.raises(ScheduleError, match=r"without having met|has not got"):
            verify(replace(algorithm, generator=generator), nranks)


@pytest.mark.parametrize("name", ["early", "hasty"])
@pytest.mark.parametrize("algorithm", SHARED, ids=lambda a: f"{a.collective}-{a.name}")
def test_the_self_test_knows_schedules_without_a_meet(algorithm: Algorithm, name: str) -> None:
    mutant = next(mutant for mutant in SCHEDULE_MUTANTS if mutant.name == name)
    assert mutant.race
    assert mutant.applies(algorithm, 3)
    assert not mutant.applies(algorithm_named("allreduce", "ring"), 3)
    with pytest.raises(ScheduleError):
        verify(mutated(algorithm, mutant), 3)


# What else may be wrong with a schedule that shares memory.


@pytest.mark.parametrize(
    ("programs", "fault"),
    [
        ([[ALL], []], "rank 0, round 0: waits to meet rank 1, which never comes"),
        ([[ALL], [Meet((0,))]], r"rank 1, round 0: meets ranks 0$"),
        ([[Meet((0, 2))], []], "rank 0, round 0: meets ranks 0, 2"),
        ([[Meet((0, 0))], []], "rank 0, round 0: meets ranks 0, 0"),
        ([[Meet((0, 1)), ALL], [Meet((1, 0)), ALL]], "rank 0, round 0: deadlock: waits to meet rank 1"),
        (
            [[ALL, Step(source=1, recv=work(0))], [Step(dest=0, send=work(0)), ALL]],
            "rank 0, round 0: deadlock: waits to meet rank 1; ranks 0 -> 1 -> 0 wait",
        ),
        ([[copy(peer(2, work(0)), work(0))], []], "reaches into rank 2's block 0, which no other rank can"),
        ([[copy(peer(1, temp(0)), work(0))], []], "reaches into rank 1's temp block 0, which no other rank can"),
        ([[combine(peer(0, work(0)), work(0))], []], "reads and writes block 0 in one combine"),
        (
            [[Step(dest=1, send=peer(1, work(0)))], [Step(source=0, recv=work(0))]],
            "sends rank 1's block 0: messages are of one's own memory",
        ),
    ],
)
def test_a_schedule_is_refused(programs: list[list[Operation]], fault: str) -> None:
    with pytest.raises(ScheduleError, match=fault):
        verify(made(*programs, ntemp=1), 2)


def test_who_shares_nothing_reaches_into_nothing() -> None:
    ring = replace(made([copy(peer(1, work(0)), work(0))], []), shared=None)
    with pytest.raises(ScheduleError, match="which no other rank can"):
        verify(ring, 2)

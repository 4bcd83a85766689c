"""Whatever is asked for, within reason: schedules are proved, and what they compile to gives the right result."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import MOST_RANKS, REDUCING, answer, run_programs

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.runtime.compile import scratch_sizes
from ringbench.runtime.moves import MESSAGE_LIMIT
from ringbench.schedule.cost import check_formulas, cost
from ringbench.schedule.parameters import INNERS, Groups, Value
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.verify import verify

#: The same examples each time, and no judgement of how long one takes.
STABLE = settings(deadline=None, derandomize=True, database=None)

OUTERS = [
    a.name
    for a in algorithms("allreduce")
    if "groups" not in dict(a.arguments) and a.identical_bits and a.shared is None
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    algorithm: Algorithm
    nranks: int
    count: int
    segment: int
    cache: int | None
    in_place: bool
    average: bool


@st.composite
def layouts(draw: st.DrawFn, nranks: int) -> Groups:
    """Draw who shares a node: any split of any order of the ranks, or nodes of equal size, placed in turn."""
    if draw(st.booleans()):
        nodes = draw(st.sampled_from([k for k in range(1, nranks + 1) if nranks % k == 0]))
        return tuple(tuple(range(node, nranks, nodes)) for node in range(nodes))
    ranks = draw(st.permutations(range(nranks)))
    cuts = sorted(draw(st.sets(st.integers(1, nranks - 1), max_size=6))) if nranks > 1 else []
    return tuple(tuple(ranks[i:j]) for i, j in zip([0, *cuts], [*cuts, nranks], strict=True))


@st.composite
def drawn(draw: st.DrawFn, algorithm: Algorithm) -> tuple[Algorithm, int]:
    """Draw a number of ranks, and a value for every argument."""
    nranks = draw(st.integers(1, MOST_RANKS))
    strategies: dict[str, st.SearchStrategy[Value]] = {
        "root": st.integers(0, nranks - 1),
        "chunks": st.integers(1, 9),
        "groups": layouts(nranks),
        "outer": st.sampled_from(OUTERS),
        "inner": st.sampled_from(INNERS),
    }
    return algorithm.given(**{name: draw(strategies[name]) for name, _ in algorithm.arguments}), nranks


@st.composite
def cases(draw: st.DrawFn, algorithm: Algorithm) -> Case:
    algorithm, nranks = draw(drawn(algorithm))
    count = draw(st.integers(0, 3 * nranks + 10))
    if algorithm.collective == "alltoall":
        count = count // 4 * nranks
    return Case(
        algorithm=algorithm,
        nranks=nranks,
        count=count,
        segment=draw(st.sampled_from([MESSAGE_LIMIT, 1, 2, 3, 5, 16])),
        cache=draw(st.sampled_from([None, 1, 6, 17])),
        in_place=draw(st.booleans()),
        average=algorithm.collective in REDUCING and draw(st.booleans()),
    )


every = pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")


@every
def test_every_schedule_is_proved(algorithm: Algorithm) -> None:
    @settings(STABLE, max_examples=15)
    @given(drawn(algorithm))
    def proved(choice: tuple[Algorithm, int]) -> None:
        verify(*choice)
        check_formulas(*choice)

    proved()


@every
def test_compiled_programs_give_the_right_result(algorithm: Algorithm) -> None:
    @settings(STABLE, max_examples=25)
    @given(cases(algorithm))
    def right(case: Case) -> None:
        found, programs = run_programs(
            case.algorithm,
            case.nranks,
            case.count,
            in_place=case.in_place,
            average=case.average,
            segment=case.segment,
            cache=case.cache,
        )
        for rank, (result, program) in enumerate(zip(found, programs, strict=True)):
            assert result == answer(case.algorithm, rank, case.nranks, case.count, case.average)
            assert program.scratch == scratch_sizes(
                case.algorithm, rank, case.nranks, case.count, in_place=case.in_place, segment=case.segment
            )
        assert tuple(program.sent for program in programs) == cost(case.algorithm, case.nranks, case.count).sent

    right()


@settings(STABLE, max_examples=40)
@given(st.integers(1, MOST_RANKS).flatmap(lambda nranks: st.tuples(st.just(nranks), layouts(nranks))), st.data())
def test_a_hierarchy_sends_no_more_in_all_than_a_ring(choice: tuple[int, Groups], data: st.DataObject) -> None:
    nranks, groups = choice
    name = data.draw(st.sampled_from(["hierarchical", "hierarchical_leaders"]))
    algorithm = algorithm_named("allreduce", name).given(groups=groups)
    count = data.draw(st.integers(0, 1000))
    assert sum(cost(algorithm, nranks, count).sent) == 2 * (nranks - 1) * count
    shared = cost(algorithm.given(inner="shared_memory"), nranks, count)
    moved = sum(map(sum, (shared.sent, shared.read, shared.written)))
    assert moved == 2 * (nranks - 1) * count
    assert sum(shared.sent) == 2 * (len(groups) - 1) * count


@every
def test_costs_grow_with_the_vector_and_in_proportion(algorithm: Algorithm) -> None:
    """Where all blocks are of one size, twice as many elements are twice the bytes in the same rounds."""

    @settings(STABLE, max_examples=5)
    @given(drawn(algorithm), st.integers(2, 5))
    def proportional(choice: tuple[Algorithm, int], times: int) -> None:
        chosen, nranks = choice
        count = lcm(chosen.blocks(nranks), nranks)
        one, many = cost(chosen, nranks, count), cost(chosen, nranks, times * count)
        assert many.rounds == one.rounds
        assert (many.critical_sent, many.critical_reduced) == (times * one.critical_sent, times * one.critical_reduced)
        assert many.sent == tuple(times * sent for sent in one.sent)

    proportional()

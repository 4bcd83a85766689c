from __future__ import annotations

from fractions import Fraction

import pytest

from ringbench.schedule.semantics import COLLECTIVES, collective_named


@pytest.mark.parametrize(
    ("name", "nranks", "factor"),
    [
        ("allreduce", 1, Fraction(0)),
        ("allreduce", 2, Fraction(1)),
        ("allreduce", 3, Fraction(4, 3)),
        ("allreduce", 4, Fraction(3, 2)),
        ("allreduce", 8, Fraction(7, 4)),
        ("reduce_scatter", 4, Fraction(3, 4)),
        ("allgather", 8, Fraction(7, 8)),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(name: str, nranks: int, factor: Fraction) -> None:
    assert collective_named(name).bus_factor(nranks) == factor


def test_who_contributes() -> None:
    assert collective_named("allreduce").contributors(2, 4) == 0b1111
    assert collective_named("reduce_scatter").contributors(0, 3) == 0b111
    assert collective_named("allgather").contributors(2, 4) == 0b100


def test_who_brings_and_gets_what() -> None:
    table = {
        name: ([c.brings(1, block) for block in range(3)], [c.gets(1, block) for block in range(3)])
        for name, c in COLLECTIVES.items()
    }
    everything, own = [True, True, True], [False, True, False]
    assert table["allreduce"] == (everything, everything)
    assert table["reduce_scatter"] == (everything, own)
    assert table["allgather"] == (own, everything)


@pytest.mark.parametrize(
    ("name", "sends", "receives"),
    [
        ("allreduce", [10, 10, 10, 10], [10, 10, 10, 10]),
        ("reduce_scatter", [10, 10, 10, 10], [3, 3, 2, 2]),
        ("allgather", [3, 3, 2, 2], [10, 10, 10, 10]),
    ],
)
def test_counts_of_each_rank(name: str, sends: list[int], receives: list[int]) -> None:
    collective = collective_named(name)
    assert [collective.send_count(rank, 4, 10) for rank in range(4)] == sends
    assert [collective.recv_count(rank, 4, 10) for rank in range(4)] == receives


def test_only_collectives_that_add_reduce() -> None:
    assert {name for name, c in COLLECTIVES.items() if c.reduces} >= {"allreduce", "reduce_scatter"}
    assert not collective_named("allgather").reduces


def test_an_unknown_collective_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown collective 'all_reduce'; known: allreduce, reduce_scatter, allg"):
        collective_named("all_reduce")

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.schedule import registry
from ringbench.schedule.registry import RESERVED, Algorithm, algorithm_named, algorithms, register
from ringbench.schedule.step import Operations, Step, combine, original, scale, work


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ALGORITHMS", {})


def exchange(rank: int, nranks: int) -> Operations:
    """Swap. Nobody 1999.

    More text.
    """
    yield Step(dest=1 - rank, send=work(0), source=1 - rank, recv=work(0), combine=True)


def add(collective: str, name: str) -> Algorithm:
    decorate = register(collective, name, blocks=lambda nranks: 1, rounds=lambda nranks: 1, sent=lambda nranks: 1)
    assert decorate(exchange) is exchange
    return algorithm_named(collective, name)


@pytest.mark.usefixtures("empty")
def test_a_decorated_generator_is_found_by_its_name() -> None:
    algorithm = add("allreduce", "swap")
    assert algorithms() == algorithms("allreduce") == [algorithm]
    assert algorithms("allgather") == []
    assert algorithm.summary == "Swap. Nobody 1999."
    assert algorithm.sent(2) == Fraction(1)
    assert isinstance(algorithm.sent(2), Fraction)
    assert (algorithm.temp(2), algorithm.identical_bits, algorithm.segmentable) == (0, True, True)


@pytest.mark.usefixtures("empty")
def test_algorithms_come_in_the_order_of_registration() -> None:
    for name in ("z", "a", "m"):
        add("allreduce", name)
    assert [algorithm.name for algorithm in algorithms()] == ["z", "a", "m"]


@pytest.mark.usefixtures("empty")
def test_a_name_is_taken_once_for_each_collective() -> None:
    add("allreduce", "swap")
    add("reduce_scatter", "swap")
    with pytest.raises(ValueError, match="'swap' of allreduce is taken"):
        add("allreduce", "swap")


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.usefixtures("empty")
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' of allreduce is taken"):
        add("allreduce", name)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown algorithm 'rign' for allreduce; known: .*ring.*, mpi"):
        algorithm_named("allreduce", "rign")
    with pytest.raises(ValueError, match=r"unknown collective 'allreduced'; known: allreduce"):
        algorithm_named("allreduced", "ring")
    with pytest.raises(ValueError, match="unknown collective 'gossip'"):
        add("gossip", "swap")


@pytest.mark.usefixtures("empty")
def test_one_rank_has_nothing_to_do() -> None:
    algorithm = add("allreduce", "swap")
    assert algorithm.operations(0, 1) == []
    assert len(algorithm.operations(0, 2)) == 1


@pytest.mark.usefixtures("empty")
def test_an_algorithm_scales_where_any_rank_divides() -> None:
    def divides_at_the_root(rank: int, nranks: int) -> Operations:
        if rank == 0:
            yield scale(work(0))

    def adds_only(rank: int, nranks: int) -> Operations:
        yield combine(original(0), work(0))

    algorithm = add("allreduce", "swap")
    assert not algorithm.scales
    assert not replace(algorithm, generator=adds_only).scales
    assert replace(algorithm, generator=divides_at_the_root).scales


def test_every_algorithm_has_a_line_that_says_what_it_is_and_where_it_is_from() -> None:
    assert {("allreduce", "ring"), ("allreduce", "naive"), ("allreduce", "parameter_server")} <= {
        (algorithm.collective, algorithm.name) for algorithm in algorithms()
    }
    for algorithm in algorithms():
        assert algorithm.summary.endswith("."), algorithm.name
        assert len(algorithm.summary) > 30, algorithm.name


def test_a_schedule_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(rank: int, nranks: int) -> Operations:
        while True:
            yield Step()

    monkeypatch.setattr(registry, "MAX_OPERATIONS", 100)
    algorithm = replace(algorithm_named("allreduce", "ring"), generator=endless)
    with pytest.raises(ValueError, match="allreduce ring, 3 ranks: rank 1 does not come to an end"):
        algorithm.operations(1, 3)

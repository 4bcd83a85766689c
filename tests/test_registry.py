from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.schedule import registry
from ringbench.schedule.registry import RESERVED, Algorithm, algorithm_named, algorithms, register
from ringbench.schedule.semantics import COLLECTIVES
from ringbench.schedule.step import Operations, Step, combine, original, scale, work


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ALGORITHMS", {})


def exchange(rank: int, nranks: int) -> Operations:
    """Swap. Nobody 1999.

    More text.
    """
    yield Step(dest=1 - rank, send=work(0), source=1 - rank, recv=work(0), combine=True)


def add(collective: str, name: str, **more: Any) -> Algorithm:
    decorate = register(
        collective, name, blocks=lambda nranks: 1, rounds=lambda nranks: 1, sent=lambda nranks: 1, **more
    )
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


# Arguments.


def pipelined(rank: int, nranks: int, chunks: int = 1, root: int = 0) -> Operations:
    """Hand chunks down. Nobody 1999."""
    for chunk in range(chunks):
        if rank == root:
            yield Step(dest=1 - rank, send=work(chunk))
        else:
            yield Step(source=root, recv=work(chunk))


@pytest.fixture
def pipeline(empty: None) -> Algorithm:
    register(
        "bcast",
        "pipeline",
        blocks=lambda nranks, chunks: chunks,
        rounds=lambda nranks, chunks: chunks,
        sent=lambda nranks: 1,
        remark=lambda nranks, root: f"from {root} of {nranks}",
        arguments=("root", "chunks"),
    )(pipelined)
    return algorithm_named("bcast", "pipeline")


def test_arguments_have_values_from_the_start(pipeline: Algorithm) -> None:
    assert pipeline.arguments == (("root", 0), ("chunks", 4))
    assert pipeline.title == "bcast pipeline"
    assert (pipeline.blocks(2), pipeline.rounds(2), pipeline.temp(2), pipeline.root) == (4, 4, 0, 0)
    assert len(pipeline.operations(0, 2)) == 4


def test_an_algorithm_is_given_other_values(pipeline: Algorithm) -> None:
    given = pipeline.given(root=1, chunks=2)
    assert given.arguments == (("root", 1), ("chunks", 2))
    assert given.title == "bcast pipeline root=1 chunks=2"
    assert (given.blocks(2), given.rounds(2), given.root, given.remark(2)) == (2, 2, 1, "from 1 of 2")
    assert given.operations(1, 2) == [Step(dest=0, send=work(0)), Step(dest=0, send=work(1))]
    assert pipeline.blocks(2) == 4  # as it was


def test_an_algorithm_of_the_same_values_is_the_same(pipeline: Algorithm) -> None:
    assert pipeline.given(root=1).given(chunks=2) is pipeline.given(chunks=2, root=1)
    assert pipeline.given() is pipeline.given(root=0, chunks=4) is pipeline
    assert pipeline.given(root=1).given(root=0) is pipeline


def test_values_that_an_algorithm_does_not_take_are_left_out(pipeline: Algorithm) -> None:
    assert pipeline.given(outer="ring", groups=((0, 1),)) is pipeline
    assert add("allreduce", "swap").given(root=1).arguments == ()


@pytest.mark.parametrize(
    ("values", "message"),
    [({"root": -1}, "root -1: must be a rank"), ({"chunks": 0}, "chunks 0: must be a number from 1 to 4096")],
)
def test_values_that_make_no_sense_are_refused(pipeline: Algorithm, values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pipeline.given(**values)


def test_a_root_that_is_no_rank_is_refused_before_anything_is_done(pipeline: Algorithm) -> None:
    pipeline.given(root=2).check(3)
    with pytest.raises(ValueError, match=r"^root 2: there are 2 ranks$"):
        pipeline.given(root=2).check(2)
    with pytest.raises(ValueError, match=r"^root 2: there are 2 ranks$"):
        pipeline.given(root=2).operations(0, 2)
    with pytest.raises(ValueError, match=r"^root 2: there are 1 ranks$"):
        pipeline.given(root=2).operations(0, 1)


def test_every_argument_is_varied_where_all_that_is_registered_has_to_be_proved(pipeline: Algorithm) -> None:
    titles = ["", " root=2", " chunks=1", " chunks=2", " chunks=5"]
    assert [variant.title for variant in pipeline.variants(3)] == [f"bcast pipeline{title}" for title in titles]
    swap = add("allreduce", "swap")
    assert swap.variants(3) == [swap]
    assert [variant.root for variant in pipeline.variants(1)] == [0] * 4


def test_what_runs_between_nodes_is_varied_where_there_are_nodes() -> None:
    variants = algorithm_named("allreduce", "hierarchical").variants(6)
    assert len(variants) == len(set(variants))
    values = [dict(variant.arguments) for variant in variants]
    outers = {value["outer"] for value in values if value["groups"] not in (None, (tuple(range(6)),))}
    assert outers >= {"ring", "recursive_doubling", "naive", "rabenseifner", "double_binary_tree"}
    # Chunks count where what runs between nodes has any.
    chunked = {value["chunks"] for value in values if value["outer"] == "double_binary_tree" and value["groups"]}
    assert chunked == {1, 2, 5}


@pytest.mark.parametrize("collective", ["bcast", "reduce"])
@pytest.mark.usefixtures("empty")
def test_a_collective_with_a_root_needs_one(collective: str) -> None:
    with pytest.raises(ValueError, match=f"^algorithm 'swap': {collective} needs the argument 'root'$"):
        add(collective, "swap")
    assert algorithms() == []


@pytest.mark.usefixtures("empty")
def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unknown argument 'colour' of a schedule; known: root, chunks"):
        add("allreduce", "swap", arguments=("colour",))


@pytest.mark.usefixtures("empty")
def test_nothing_is_said_of_what_needs_no_remark() -> None:
    assert add("allreduce", "swap").remark(4) is None


def test_averages_and_reads_of_the_input_are_known_whatever_the_values() -> None:
    """All variants of an algorithm divide by themselves or none does, so asking with the defaults is enough."""
    for algorithm in algorithms():
        for variant in algorithm.variants(6):
            programs = [variant.operations(rank, 6) for rank in range(6)]
            scaled = any(getattr(operation, "action", "") == "scale" for program in programs for operation in program)
            assert scaled == algorithm.scales == variant.scales, variant.title
    reading = {a.title for a in algorithms() if a.reads_original}
    assert {"allreduce naive", "alltoall pairwise"} <= reading
    assert not {"allreduce ring", "alltoall bruck"} & reading


def test_formulas_are_written_for_the_docs() -> None:
    for algorithm in algorithms():
        rounds, sent = algorithm.formulas
        assert rounds, algorithm.title
        assert sent, algorithm.title
        assert algorithm.exact or "at most" in rounds + sent or "groups" in dict(algorithm.arguments), algorithm.title


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
    assert {algorithm.collective for algorithm in algorithms()} == set(COLLECTIVES)
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

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.schedule import cost as counting
from ringbench.schedule.cost import Cost, Path, _played_path, check_formulas, cost, critical_path
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.step import Local, Operations, Step, combine, copy, scale, temp, work


def counted(name: str, nranks: int, count: int) -> Cost:
    return cost(algorithm_named("allreduce", name), nranks, count)


def made(*programs: list[Step | Local], blocks: int = 1, ntemp: int = 0) -> Algorithm:
    def generator(rank: int, nranks: int) -> Operations:
        return programs[rank]

    ring = algorithm_named("allreduce", "ring")
    return replace(ring, generator=generator, blocks=lambda nranks: blocks, temp=lambda nranks: ntemp)


@pytest.mark.parametrize(("name", "megabytes"), [("ring", 1.5), ("naive", 3.0), ("parameter_server", 3.0)])
def test_bytes_of_the_busiest_of_four_ranks_for_one_megabyte(name: str, megabytes: float) -> None:
    assert counted(name, 4, 125_000).sent_max * 8 == megabytes * 1e6


@pytest.mark.parametrize("nranks", [2, 3, 4, 8, 17])
def test_critical_paths(nranks: int) -> None:
    count = 12 * nranks
    ring, naive, server = (counted(name, nranks, count) for name in ("ring", "naive", "parameter_server"))
    others = nranks - 1
    assert (ring.rounds, ring.critical_sent, ring.critical_reduced) == (2 * others, 24 * others, 12 * others)
    assert (naive.rounds, naive.critical_sent, naive.critical_reduced) == (others, others * count, others * count)
    assert (server.rounds, server.critical_sent) == (2 * others, 2 * others * count)
    assert server.critical_reduced == others * count


def test_what_each_rank_sends_and_reduces() -> None:
    server = counted("parameter_server", 4, 10)
    assert server.sent == (30, 10, 10, 10)
    assert server.reduced == (30, 0, 0, 0)
    assert counted("ring", 4, 8).reduced == (6, 6, 6, 6)


def test_one_rank_costs_nothing() -> None:
    assert counted("ring", 1, 7) == Cost(
        rounds=0, critical_sent=0, critical_reduced=0, sent=(0,), reduced=(0,), read=(0,), written=(0,)
    )


def test_sizes_above_the_limits_of_c_integers_are_counted_without_allocating() -> None:
    assert counted("ring", 4, 3_221_225_472).sent_max == 6 * 805_306_368


def test_rounds_follow_dependence_and_not_the_index() -> None:
    late = made([Step(), Step(), Step(dest=1, send=work(0))], [Step(source=0, recv=work(0))])
    assert cost(late, 2, 5).rounds == 1
    chain = made(
        [Step(dest=1, send=work(0))],
        [Step(source=0, recv=work(0)), Step(dest=2, send=work(0))],
        [Step(source=1, recv=work(0))],
    )
    assert (cost(chain, 3, 5).rounds, cost(chain, 3, 5).critical_sent) == (2, 10)
    apart = made(
        [Step(dest=1, send=work(0))],
        [Step(source=0, recv=work(0))],
        [Step(dest=3, send=work(0))],
        [Step(source=2, recv=work(0))],
    )
    assert (cost(apart, 4, 5).rounds, cost(apart, 4, 5).critical_sent) == (1, 5)


def test_both_halves_of_a_sendrecv_are_one_round() -> None:
    def swap(rank: int) -> list[Step | Local]:
        return [Step(dest=1 - rank, send=work(0), source=1 - rank, recv=work(0), combine=True)]

    assert cost(made(swap(0), swap(1)), 2, 6) == Cost(
        rounds=1, critical_sent=6, critical_reduced=6, sent=(6, 6), reduced=(6, 6), read=(0, 0), written=(0, 0)
    )


def test_only_what_arrives_is_reduced() -> None:
    sender = Step(dest=1, send=work(0), recv=work(0), combine=True)
    assert cost(made([sender], [Step(source=0, recv=temp(0))], ntemp=1), 2, 5).reduced == (0, 0)


def test_local_additions_count_as_reduced_and_copies_do_not() -> None:
    receive = Step(source=0, recv=(temp(0), temp(1)))
    both = made(
        [Step(dest=1, send=work(0, 2))],
        [receive, combine(temp(0), work(0)), copy(temp(1), work(1)), scale(work(0))],
        blocks=2,
        ntemp=2,
    )
    counters = cost(both, 2, 5)
    assert counters.reduced == (0, 3)
    assert counters.sent == (5, 0)
    assert counters.critical_reduced == 3


def test_a_schedule_that_cannot_end_is_an_error() -> None:
    stuck = made([Step(dest=1, send=work(0))], [])
    with pytest.raises(ValueError, match="allreduce ring, 2 ranks: rank 0, round 0 never ends"):
        cost(stuck, 2, 4)


def test_formulas_that_are_not_the_schedule_are_refused() -> None:
    right = algorithm_named("allreduce", "ring")
    check_formulas(right, 5)
    with pytest.raises(ValueError, match="allreduce ring, 5 ranks: registered with rounds = 7, but the schedule has 8"):
        check_formulas(replace(right, rounds=lambda nranks: 7), 5)
    with pytest.raises(ValueError, match="registered with sent = 2, but the schedule has 8/5"):
        check_formulas(replace(right, sent=lambda nranks: Fraction(2)), 5)
    with pytest.raises(ValueError, match="registered with moved = 2, but the schedule has 8/5"):
        check_formulas(replace(right, critical=lambda nranks: (2, Fraction(4, 5))), 5)
    with pytest.raises(ValueError, match="registered with reduced = 0, but the schedule has 4/5"):
        check_formulas(replace(right, critical=lambda nranks: (Fraction(8, 5), 0)), 5)
    check_formulas(replace(right, critical=lambda nranks: None), 5)


def test_formulas_that_are_bounds_may_not_be_exceeded() -> None:
    """Where no closed form is exact, a schedule may be cheaper than registered, but not dearer."""
    bound = replace(algorithm_named("allreduce", "ring"), exact=False)
    check_formulas(replace(bound, rounds=lambda nranks: 9, sent=lambda nranks: Fraction(2)), 5)
    check_formulas(bound, 5)
    with pytest.raises(ValueError, match="5 ranks: registered with rounds = at most 7, but the schedule has 8"):
        check_formulas(replace(bound, rounds=lambda nranks: 7), 5)
    with pytest.raises(ValueError, match="registered with sent = at most 3/2, but the schedule has 8/5"):
        check_formulas(replace(bound, sent=lambda nranks: Fraction(3, 2)), 5)


def test_an_error_names_the_arguments() -> None:
    chain = algorithm_named("bcast", "chain").given(root=2, chunks=3)
    with pytest.raises(ValueError, match=r"^bcast chain root=2 chunks=3, 5 ranks: registered with rounds = 7, but"):
        check_formulas(replace(chain, rounds=lambda nranks: 7), 5)


def test_the_root_sends_what_it_has_wherever_it_is() -> None:
    for root in range(4):
        chain = cost(algorithm_named("bcast", "chain").given(root=root, chunks=2), 4, 10)
        assert chain.sent == tuple(0 if rank == (root - 1) % 4 else 10 for rank in range(4))
        assert (chain.rounds, chain.critical_sent, chain.critical_reduced) == (4, 20, 0)
        server = cost(algorithm_named("reduce", "binomial").given(root=root), 4, 10)
        assert server.reduced[root] == max(server.reduced) == 20


def test_spans_around_the_end_of_work_and_of_temp_are_counted_whole() -> None:
    sizes = [3, 2, 2]  # of 7 elements; temp blocks 3 to 5 are as large as blocks 0 to 2
    step = Step(dest=1, send=(work(2, 2), temp(5, 2)))
    both = made([step], [Step(source=0, recv=(work(2, 2), temp(5, 2)), combine=True)], blocks=3, ntemp=6)
    moved = 2 * (sizes[2] + sizes[0])
    assert cost(both, 2, 7).sent == (moved, 0)
    assert cost(both, 2, 7).reduced == (0, moved)


OF_MESSAGES = [algorithm for algorithm in algorithms() if algorithm.shared is None]


@pytest.mark.parametrize("algorithm", OF_MESSAGES, ids=lambda a: f"{a.collective}-{a.name}")
@pytest.mark.parametrize("nranks", [2, 3, 4, 6, 8, 13])
def test_the_critical_path_has_all_rounds_and_bytes(algorithm: Algorithm, nranks: int) -> None:
    """One path has them all, but in schedules with several of unlike kind."""
    path = critical_path(algorithm, nranks)
    nblocks = algorithm.blocks(nranks)
    counted = cost(algorithm, nranks, 2 * nblocks)
    assert path.rounds <= counted.rounds
    assert path.sent == Fraction(counted.critical_sent, 2 * nblocks)
    assert path.reduced <= Fraction(counted.critical_reduced, 2 * nblocks)
    assert path == _played_path(algorithm, nranks)
    if "chunks" not in dict(algorithm.arguments):
        assert path.rounds == counted.rounds
        assert path.reduced == Fraction(counted.critical_reduced, 2 * nblocks)


def test_what_passes_through_shared_memory_is_counted_apart_from_messages() -> None:
    counters = cost(algorithm_named("allreduce", "shared_memory"), 4, 8)
    assert (counters.sent, counters.read, counters.written) == ((0,) * 4, (6,) * 4, (6,) * 4)
    assert (counters.rounds, counters.critical_sent, counters.critical_reduced) == (4, 12, 6)
    copied = cost(algorithm_named("bcast", "shared_copy").given(root=1, chunks=2), 3, 8)
    assert (copied.sent, copied.read, copied.written) == ((0,) * 3, (8, 0, 8), (0,) * 3)
    assert copied.rounds == 2 * 2
    with pytest.raises(ValueError, match="its ranks share memory"):
        critical_path(algorithm_named("allreduce", "shared_memory"), 4)


def test_the_messages_of_a_path() -> None:
    halves = critical_path(algorithm_named("allreduce", "rabenseifner"), 8)
    assert halves.messages == ((Fraction(1, 8), 2), (Fraction(1, 4), 2), (Fraction(1, 2), 2))
    assert halves.reduced == Fraction(7, 8)
    assert critical_path(algorithm_named("allreduce", "ring"), 5).messages == ((Fraction(1, 5), 8),)
    folded = critical_path(algorithm_named("allreduce", "rabenseifner"), 5)
    assert folded.messages == ((Fraction(1, 4), 2), (Fraction(1, 2), 2), (Fraction(1), 2))
    assert critical_path(algorithm_named("allreduce", "ring"), 1) == Path(messages=(), reduced=Fraction(0))


@pytest.mark.parametrize("algorithm", [a for a in OF_MESSAGES if a.collective == "allreduce"], ids=lambda a: a.name)
@pytest.mark.parametrize("nranks", [8, 11])
def test_what_is_not_played_is_what_would_be_played(
    algorithm: Algorithm, nranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = critical_path(algorithm, nranks)
    monkeypatch.setattr(counting, "MOST_PLAYED", 0)
    if algorithm.name == "double_binary_tree":  # no rank of it takes part in every round
        with pytest.raises(ValueError, match="too many messages"):
            critical_path.__wrapped__(algorithm, nranks)
    else:
        assert critical_path.__wrapped__(algorithm, nranks) == played


def test_the_critical_path_of_very_many_ranks() -> None:
    ring = critical_path(algorithm_named("allreduce", "ring"), 4096)
    assert (ring.messages, ring.reduced) == (((Fraction(1, 4096), 2 * 4095),), Fraction(4095, 4096))
    assert critical_path(algorithm_named("allreduce", "recursive_doubling"), 1024).messages == ((Fraction(1), 10),)

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import ceil, log2

import pytest
from playthrough import contribution, fault, play_elements

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Step, block_numbers, spans
from ringbench.schedule.verify import verify

every = pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")


@every
def test_proved_for_1_to_33_ranks(algorithm: Algorithm) -> None:
    for nranks in range(1, 34):
        verify(algorithm, nranks)


@every
def test_proved_for_64_ranks(algorithm: Algorithm) -> None:
    verify(algorithm, 64)


@every
def test_the_closed_forms_are_what_the_schedule_costs(algorithm: Algorithm) -> None:
    for nranks in range(1, 34):
        count = 2 * nranks * algorithm.blocks(nranks)
        counters = cost(algorithm, nranks, count)
        assert algorithm.rounds(nranks) == counters.rounds, nranks
        assert algorithm.sent(nranks) * count == counters.sent_max, nranks


@every
def test_nothing_beats_the_lower_bounds(algorithm: Algorithm) -> None:
    for nranks in range(2, 34):
        count = algorithm.blocks(nranks) * nranks
        counters = cost(algorithm, nranks, count)
        assert counters.rounds >= ceil(log2(nranks))
        least = (nranks - 1) * count
        assert sum(counters.sent) >= (2 * least if algorithm.collective == "allreduce" else least)
        if collective_named(algorithm.collective).reduces:
            assert sum(counters.reduced) >= least


@every
def test_every_element_holds_every_contribution_once(algorithm: Algorithm) -> None:
    for nranks in range(1, 9):
        for count in range(18):
            memories, layout = play_elements(algorithm, nranks, count)
            for rank, memory in enumerate(memories):
                wanted = layout.wanted(rank, partial(contribution, nranks))
                found = {i: memory["work"][i] for i in wanted}
                assert found == wanted, (nranks, count, rank)


@every
@pytest.mark.parametrize("nranks", [2, 3, 5, 6])
def test_sums_averages_and_bits_are_right_in_whole_messages_and_in_segments(algorithm: Algorithm, nranks: int) -> None:
    assert fault(algorithm, nranks) is None


BYTES_SENT_BY_ALL: dict[tuple[str, str], Callable[[int, int], int]] = {
    ("allreduce", "ring"): lambda nranks, count: 2 * (nranks - 1) * count,
    ("allreduce", "parameter_server"): lambda nranks, count: 2 * (nranks - 1) * count,
    ("allreduce", "naive"): lambda nranks, count: nranks * (nranks - 1) * count,
    ("reduce_scatter", "ring"): lambda nranks, count: (nranks - 1) * count,
    ("allgather", "ring"): lambda nranks, count: (nranks - 1) * count,
}


@pytest.mark.parametrize(("collective", "name"), BYTES_SENT_BY_ALL)
def test_what_all_ranks_send_together_holds_for_every_size(collective: str, name: str) -> None:
    total = BYTES_SENT_BY_ALL[collective, name]
    for nranks in range(1, 14):
        for count in [*range(18), 1003]:
            counters = cost(algorithm_named(collective, name), nranks, count)
            assert sum(counters.sent) == total(nranks, count), (nranks, count)


@pytest.mark.parametrize(
    ("nranks", "rounds", "most", "fewest", "total"), [(5, 8, 1606, 1604, 8024), (7, 12, 1720, 1718, 12036)]
)
def test_exact_counters_of_the_ring_for_1003_elements(
    nranks: int, rounds: int, most: int, fewest: int, total: int
) -> None:
    counters = cost(algorithm_named("allreduce", "ring"), nranks, 1003)
    assert (counters.rounds, max(counters.sent), min(counters.sent), sum(counters.sent)) == (
        rounds,
        most,
        fewest,
        total,
    )


def steps(collective: str, name: str, rank: int, nranks: int) -> list[Step]:
    operations = algorithm_named(collective, name).operations(rank, nranks)
    return [operation for operation in operations if isinstance(operation, Step)]


@pytest.mark.parametrize("nranks", [2, 3, 4, 5, 8])
def test_the_ring_follows_the_index_rule_of_the_textbook(nranks: int) -> None:
    for i in range(nranks):
        ring = steps("allreduce", "ring", i, nranks)
        assert len(ring) == 2 * (nranks - 1)
        for k, step in enumerate(ring):
            first = k < nranks - 1
            shift = i - k if first else i + 1 - (k - (nranks - 1))
            assert (step.dest, step.source) == ((i + 1) % nranks, (i - 1) % nranks)
            assert block_numbers(step.send, nranks, 0) == [("work", shift % nranks)]
            assert block_numbers(step.recv, nranks, 0) == [("work", (shift - 1) % nranks)]
            assert step.combine is first


def test_the_first_half_of_the_ring_leaves_the_next_block_complete_and_reduce_scatter_the_own_one() -> None:
    for i in range(5):
        last = steps("allreduce", "ring", i, 5)[3]
        assert block_numbers(last.recv, 5, 0) == [("work", (i + 1) % 5)]
        last = steps("reduce_scatter", "ring", i, 5)[-1]
        assert block_numbers(last.recv, 5, 0) == [("work", i)]


def test_the_naive_exchange_sends_its_input_and_never_the_sum_so_far() -> None:
    for rank in range(5):
        naive = steps("allreduce", "naive", rank, 5)
        assert {span.place for step in naive for span in spans(step.send)} == {"original"}
        assert not any(step.combine for step in naive)
        assert sorted(step.dest for step in naive if step.dest is not None) == [r for r in range(5) if r != rank]


def test_the_workers_of_the_parameter_server_talk_to_rank_0_only() -> None:
    for rank in range(1, 5):
        assert {step.dest for step in steps("allreduce", "parameter_server", rank, 5)} == {0, None}
    assert algorithm_named("allreduce", "parameter_server").sent(5) == Fraction(4)

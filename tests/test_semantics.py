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
        ("alltoall", 8, Fraction(7, 8)),
        ("bcast", 8, Fraction(1)),
        ("reduce", 8, Fraction(1)),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(name: str, nranks: int, factor: Fraction) -> None:
    assert collective_named(name).bus_factor(nranks) == factor


def test_who_contributes() -> None:
    assert collective_named("allreduce").contributors(2, 4, 0) == 0b1111
    assert collective_named("reduce_scatter").contributors(0, 3, 0) == 0b111
    assert collective_named("allgather").contributors(2, 4, 0) == 0b100
    assert collective_named("bcast").contributors(2, 4, 3) == 0b1000
    assert collective_named("reduce").contributors(2, 4, 3) == 0b1111
    assert collective_named("alltoall").contributors(2, 4, 0) == 0b100


def test_who_brings_and_gets_what() -> None:
    table = {
        name: ([c.brings(1, block, 0) for block in range(3)], [c.gets(1, block, 0) for block in range(3)])
        for name, c in COLLECTIVES.items()
    }
    everything, own = [True, True, True], [False, True, False]
    assert table["allreduce"] == (everything, everything)
    assert table["reduce_scatter"] == (everything, own)
    assert table["allgather"] == (own, everything)
    assert table["alltoall"] == (everything, everything)
    nothing = [False, False, False]
    assert table["bcast"] == (nothing, everything)
    assert table["reduce"] == (everything, nothing)
    bcast, reduce = collective_named("bcast"), collective_named("reduce")
    assert [bcast.brings(1, block, 1) for block in range(3)] == everything
    assert [reduce.gets(1, block, 1) for block in range(3)] == everything


def test_an_alltoall_turns_rows_into_columns_and_no_other_collective_does() -> None:
    for name, collective in COLLECTIVES.items():
        origins = [[collective.origin(rank, block) for block in range(3)] for rank in range(3)]
        assert origins == ([[0] * 3, [1] * 3, [2] * 3] if name == "alltoall" else [[0, 1, 2]] * 3)


def test_blocks_held_are_neighbours_whatever_the_number_of_blocks() -> None:
    """Asked block by block, a collective says the same as its ranges do."""
    for collective in COLLECTIVES.values():
        for nranks in range(1, 6):
            for nblocks in (nranks,) if collective.per_rank else (1, 2, nranks, 7):
                for rank in range(nranks):
                    for root in range(nranks) if collective.rooted else (0,):
                        brings = [block for block in range(nblocks) if collective.brings(rank, block, root)]
                        gets = [block for block in range(nblocks) if collective.gets(rank, block, root)]
                        assert list(collective.brought(rank, nblocks, root)) == brings
                        assert list(collective.got(rank, nblocks, root)) == gets


def test_only_an_alltoall_needs_as_many_elements_for_each_rank() -> None:
    for name, collective in COLLECTIVES.items():
        for count in (0, 4, 12):
            collective.check_count(4, count)
        for count, elements in ((1, "1 element"), (5, "5 elements"), (11, "11 elements")):
            if name == "alltoall":
                with pytest.raises(
                    ValueError, match=f"^alltoall of {elements}: needs a multiple of 4, as many for each rank$"
                ):
                    collective.check_count(4, count)
            else:
                collective.check_count(4, count)


@pytest.mark.parametrize(
    ("name", "sends", "receives"),
    [
        ("allreduce", [10, 10, 10, 10], [10, 10, 10, 10]),
        ("reduce_scatter", [10, 10, 10, 10], [3, 3, 2, 2]),
        ("allgather", [3, 3, 2, 2], [10, 10, 10, 10]),
        ("alltoall", [10, 10, 10, 10], [10, 10, 10, 10]),
    ],
)
def test_counts_of_each_rank(name: str, sends: list[int], receives: list[int]) -> None:
    collective = collective_named(name)
    assert [collective.send_count(rank, 4, 10) for rank in range(4)] == sends
    assert [collective.recv_count(rank, 4, 10) for rank in range(4)] == receives


@pytest.mark.parametrize("root", range(4))
def test_counts_at_the_root_and_elsewhere(root: int) -> None:
    bcast, reduce = collective_named("bcast"), collective_named("reduce")
    at_root = [10 if rank == root else 0 for rank in range(4)]
    assert [bcast.send_count(rank, 4, 10, root) for rank in range(4)] == at_root
    assert [bcast.recv_count(rank, 4, 10, root) for rank in range(4)] == [10] * 4
    assert [reduce.send_count(rank, 4, 10, root) for rank in range(4)] == [10] * 4
    assert [reduce.recv_count(rank, 4, 10, root) for rank in range(4)] == at_root


def test_counts_of_one_rank() -> None:
    for collective in COLLECTIVES.values():
        assert collective.send_count(0, 1, 7) == collective.recv_count(0, 1, 7) == 7


def test_only_collectives_that_add_reduce() -> None:
    assert {name for name, c in COLLECTIVES.items() if c.reduces} == {"allreduce", "reduce_scatter", "reduce"}
    assert {name for name, c in COLLECTIVES.items() if c.rooted} == {"bcast", "reduce"}
    assert {name for name, c in COLLECTIVES.items() if c.per_rank} == {"reduce_scatter", "allgather", "alltoall"}


def test_an_unknown_collective_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown collective 'all_reduce'; known: allreduce, reduce_scatter, allg"):
        collective_named("all_reduce")

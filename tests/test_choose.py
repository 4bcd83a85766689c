from __future__ import annotations

from typing import Any

import pytest

from ringbench.model.choose import choose_by, fastest
from ringbench.records.row import Row


def row(algorithm: str, nranks: int, nbytes: int, time: float, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": nranks,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": (time * 0.9, time, time * 1.1),
        "wrong": 0,
    }
    return Row(**{**values, **changes})


ROWS = [
    row("ring", 4, 8, 3e-6),
    row("swing", 4, 8, 2e-6),
    row("ring", 4, 2**20, 1e-4),
    row("swing", 4, 2**20, 2e-4),
    row("naive", 16, 1024, 1e-5),
    row("pairwise", 4, 64, 1e-5, collective="alltoall"),
]


def test_the_fastest_of_each_cell_is_found() -> None:
    assert fastest(ROWS) == {
        "allreduce": {4: {8: "swing", 2**20: "ring"}, 16: {1024: "naive"}},
        "alltoall": {4: {64: "pairwise"}},
    }
    assert fastest(ROWS[::-1]) == fastest(ROWS)


@pytest.mark.parametrize(
    "better",
    [
        row("mpi", 4, 8, 1e-9),
        row("auto", 4, 8, 1e-9),
        row("naive", 4, 8, 1e-9, wrong=1),
        row("naive", 4, 8, 1e-9, samples_s=()),
        row("naive", 4, 8, 0.0),
        row("naive", 1, 8, 1e-9),
        row("naive", 4, 0, 1e-9),
    ],
    ids=lambda one: f"{one.algorithm}-{one.nranks}-{one.nbytes}-{one.wrong}-{len(one.samples_s)}",
)
def test_what_cannot_be_chosen_or_believed_does_not_count(better: Row) -> None:
    assert fastest([*ROWS, better]) == fastest(ROWS)
    with pytest.raises(ValueError, match=r"^no right and measured row of a hand-written algorithm to choose by$"):
        fastest([better])


def test_the_median_decides_and_an_equal_one_goes_by_name() -> None:
    slow = row("ring", 2, 8, 1e-6, samples_s=(1e-9, 5e-6, 5e-6))
    assert fastest([slow, row("swing", 2, 8, 4e-6)])["allreduce"][2] == {8: "swing"}
    equal = [row(name, 2, 8, 1e-6) for name in ("swing", "naive", "ring")]
    assert fastest(equal) == fastest(equal[::-1]) == {"allreduce": {2: {8: "naive"}}}


def test_nothing_to_choose_by() -> None:
    with pytest.raises(ValueError, match="to choose by"):
        fastest([])


@pytest.mark.parametrize(
    ("nranks", "nbytes", "name"),
    [
        (4, 8, "swing"),
        (4, 2**20, "ring"),
        (4, 0, "swing"),
        (4, 2**11, "swing"),
        (4, 2**12, "ring"),  # 8 B are as far as 2^9, 1 MiB as 2^8
        (4, 2**40, "ring"),
        (2, 8, "swing"),
        (1, 8, "swing"),
        (7, 8, "swing"),  # 7/4 is less than 16/7
        (8, 2**20, "ring"),  # as far from 4 as from 16
        (9, 8, "naive"),
        (1000, 2**30, "naive"),
    ],
)
def test_the_nearest_number_of_ranks_goes_before_the_nearest_size(nranks: int, nbytes: int, name: str) -> None:
    assert choose_by(fastest(ROWS))("allreduce", nranks, nbytes) == name


def test_of_two_sizes_as_near_the_smaller_is_taken() -> None:
    table = {"bcast": {2: {64: "binomial", 1024: "chain"}}}
    assert choose_by(table)("bcast", 2, 256) == "binomial"
    assert choose_by(table)("bcast", 2, 257) == "chain"


def test_a_collective_that_was_not_measured_is_named_with_those_that_were() -> None:
    wanted = r"^auto: the run to choose by has no rows of bcast, but of allreduce, alltoall$"
    with pytest.raises(ValueError, match=wanted):
        choose_by(fastest(ROWS))("bcast", 4, 8)

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from ringbench.records.settings import Settings
from ringbench.runtime.demands import VERIFY_LIMIT, check_schedules, check_settings, check_types, memory_needed
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.step import Operations, Step, work

MIB = 2**20
TIB = 2**40


def test_what_is_known_is_taken() -> None:
    for dtype in ("float32", "float64", "int32", "int64"):
        check_types("allreduce", "sum", dtype)
    for dtype in ("float32", "float64"):
        check_types("reduce_scatter", "average", dtype)
    check_types("allgather", "sum", "int32")
    with pytest.raises(ValueError, match="op 'average': allgather reduces nothing"):
        check_types("allgather", "average", "float32")
    check_settings(Settings(algorithms=("ring", "naive", "parameter_server", "mpi")))
    check_settings(Settings(collective="allgather", sizes=(0, 8, 16), dtype="int64"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("allreduc", "sum", "float32"), "unknown collective 'allreduc'; known: allreduce, reduce_scatter, allgather"),
        (("allreduce", "max", "float32"), "unknown op 'max'; known: sum, average"),
        (("allreduce", "sum", "float16"), "unknown dtype 'float16'; known: float32, float64, int32, int64"),
        (("allreduce", "sum", "complex64"), "unknown dtype 'complex64'; known: float32, float64, int32, int64"),
        (("allreduce", "sum", ">f4"), "unknown dtype '>f4'; known: "),
        (("allreduce", "average", "int32"), "op 'average' of dtype 'int32': refused"),
        (("reduce_scatter", "average", "int64"), "op 'average' of dtype 'int64': refused"),
    ],
)
def test_what_is_unknown_is_named_with_what_is_known(values: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        check_types(*values)


@pytest.mark.parametrize("op", ["sum", "average"])
def test_case_10_the_sum_of_truths_is_refused_and_says_what_is_meant(op: str) -> None:
    for collective in ("allreduce", "reduce_scatter"):
        with pytest.raises(ValueError, match=r"dtype 'bool' has no sum: .* land and lor"):
            check_types(collective, op, "bool")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithms": ("ring", "rings")},
            "unknown algorithm 'rings' for allreduce; known: naive, parameter_server, ",
        ),
        (
            {"collective": "allgather", "algorithms": ("naive",)},
            "unknown algorithm 'naive' for allgather; known: ring, ",
        ),
        ({"sizes": (8, 10)}, r"size 10: not a whole number of float32 \(4 bytes each\)"),
        ({"sizes": (12,), "dtype": "float64"}, r"size 12: not a whole number of float64 \(8 bytes each\)"),
        ({"dtype": "bool"}, "dtype 'bool' has no sum"),
        ({"op": "prod"}, "unknown op 'prod'"),
    ],
)
def test_settings_that_no_number_of_ranks_can_run(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_settings(replace(Settings(), **changes))


# Memory of rank 0.


def needed(nranks: int, *algorithms: str, nbytes: int = 64 * MIB, **changes: Any) -> int:
    need, largest = memory_needed(Settings(algorithms=algorithms, sizes=(8, nbytes, 16), **changes), nranks)
    assert largest == nbytes
    return need


def test_in_place_the_library_needs_the_vector_alone() -> None:
    assert needed(4, "mpi") == 64 * MIB
    assert needed(4, "mpi", placement="out") == needed(4, "mpi", placement="both") == 128 * MIB


def test_the_ring_needs_one_segment_more() -> None:
    assert needed(4, "ring") == 64 * MIB + DEFAULT_SEGMENT
    assert needed(4, "ring", nbytes=4 * MIB) == 4 * MIB + MIB
    assert needed(4, "ring", segment=0) == 64 * MIB + 16 * MIB
    assert needed(4, "ring", segment=4096) == 64 * MIB + 4096
    assert needed(1, "ring") == 64 * MIB
    assert needed(4, "ring", placement="out") == 128 * MIB + DEFAULT_SEGMENT


@pytest.mark.parametrize("nranks", [2, 4, 100])
def test_case_39_the_naive_exchange_needs_a_vector_for_each_rank(nranks: int) -> None:
    assert needed(nranks, "naive") == (1 + nranks) * 64 * MIB
    assert needed(nranks, "naive", placement="both") == (2 + nranks) * 64 * MIB


def test_all_algorithms_of_a_size_are_there_at_once() -> None:
    assert needed(4, "ring", "naive", "mpi") == 64 * MIB + DEFAULT_SEGMENT + 4 * 64 * MIB


def test_blocks_of_the_other_collectives() -> None:
    assert needed(4, "mpi", collective="reduce_scatter", placement="out") == (64 + 16) * MIB
    assert needed(4, "ring", collective="reduce_scatter", placement="out") == (64 + 16 + 64) * MIB + DEFAULT_SEGMENT
    assert needed(4, "ring", collective="reduce_scatter") == 64 * MIB + DEFAULT_SEGMENT
    assert needed(4, "ring", collective="allgather", placement="out") == (16 + 64) * MIB
    assert needed(4, "ring", collective="allgather") == 64 * MIB


@pytest.mark.parametrize("nranks", [1, 2, 64, 1024])
def test_case_39_a_tebibyte_is_weighed_without_spelling_out_its_half_million_segments(nranks: int) -> None:
    assert needed(nranks, "ring", nbytes=TIB) == TIB + (DEFAULT_SEGMENT if nranks > 1 else 0)
    assert needed(nranks, "naive", nbytes=TIB) == (1 + nranks if nranks > 1 else 1) * TIB


# Schedules.


def broken(rank: int, nranks: int) -> Operations:
    if rank == 0:
        yield Step(source=1, recv=work(0), combine=True)


def test_a_schedule_that_would_never_end_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(algorithms=("mpi", "ring"))
    check_schedules(settings, 4)
    algorithm = Algorithm(
        collective="allreduce",
        name="ring",
        generator=broken,
        blocks=lambda nranks: 1,
        temp=lambda nranks: 0,
        rounds=lambda nranks: 0,
        sent=lambda nranks: Fraction(0),
        identical_bits=True,
        segmentable=True,
    )
    monkeypatch.setattr("ringbench.runtime.demands.algorithm_named", lambda collective, name: algorithm)
    for nranks in (2, VERIFY_LIMIT):
        with pytest.raises(ValueError, match=f"allreduce ring, {nranks} ranks: .*never sends"):
            check_schedules(settings, nranks)
    check_schedules(settings, VERIFY_LIMIT + 1)  # left to the check of every result
    check_schedules(replace(settings, algorithms=("mpi",)), 2)


def test_algorithms_are_known_without_numpy_or_mpi() -> None:
    code = (
        "import sys, ringbench.runtime.demands as d; from ringbench.records.settings import Settings\n"
        "d.check_settings(Settings()); d.memory_needed(Settings(), 4); d.check_schedules(Settings(), 4)\n"
        "sys.exit(len({'numpy', 'mpi4py', 'cupy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_segment_that_cuts_a_vector_into_dust_is_refused() -> None:
    with pytest.raises(ValueError, match="segment 4: cuts 8388608 bytes into 2097152 pieces, 100000 at most"):
        check_settings(Settings(sizes=(2**23,), segment=4))
    check_settings(Settings(sizes=(2**23,), segment=2**10))
    check_settings(Settings(sizes=(2**40,), segment=0))

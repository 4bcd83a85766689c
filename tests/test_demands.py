from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from ringbench.records.settings import Settings
from ringbench.runtime.demands import (
    ITEMSIZE,
    OPS,
    VERIFY_LIMIT,
    check_schedules,
    check_settings,
    check_types,
    configured,
    memory_needed,
)
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.step import Operations, Step, work

MIB = 2**20
FLAT = (
    "must be a flat allreduce with identical bits: swing, bine, binomial_tree, ring, double_binary_tree, naive, "
    "parameter_server, recursive_doubling, rabenseifner"
)
TIB = 2**40


FLOATING = ("float16", "float32", "float64")
WHOLE = ("int8", "int16", "int32", "int64", "uint8")
COMPLEX = ("complex64", "complex128")


@pytest.fixture
def with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringbench.runtime.demands.find_spec", lambda name: name)


def test_what_is_known_is_taken(with_bfloat16: None) -> None:
    floating = (*FLOATING, "bfloat16")
    taken = {
        "sum": (*floating, *WHOLE, *COMPLEX),
        "average": (*floating, *COMPLEX),
        "prod": (*floating, *WHOLE, *COMPLEX),
        "min": (*floating, *WHOLE),
        "max": (*floating, *WHOLE),
        "land": (*WHOLE, "bool"),
        "lor": (*WHOLE, "bool"),
    }
    assert set(taken) == set(OPS)
    for collective in ("allreduce", "reduce_scatter", "reduce"):
        for op, dtypes in taken.items():
            for dtype in ITEMSIZE:
                if dtype in dtypes:
                    check_types(collective, op, dtype)
                else:
                    with pytest.raises(ValueError, match=f"dtype '{dtype}'"):
                        check_types(collective, op, dtype)


@pytest.mark.parametrize("collective", ["bcast", "allgather", "alltoall"])
def test_what_reduces_nothing_takes_every_dtype_and_no_operation(collective: str, with_bfloat16: None) -> None:
    for dtype in ITEMSIZE:
        check_types(collective, "sum", dtype)
        for op in OPS[1:]:
            with pytest.raises(ValueError, match=f"^op '{op}': {collective} reduces nothing$"):
                check_types(collective, op, dtype)


def test_settings_of_every_kind_are_taken() -> None:
    check_settings(Settings(algorithms=("ring", "naive", "parameter_server", "mpi", "auto")))
    check_settings(Settings(collective="allgather", sizes=(0, 8, 16), dtype="int64"))
    check_settings(Settings(collective="bcast", algorithms=("chain",), root=3, chunks=7, dtype="bool", sizes=(1, 3)))
    check_settings(Settings(algorithms=("hierarchical",), groups="0,2/1,3", outer="rabenseifner"))


def test_every_dtype_has_its_size() -> None:
    sizes = {
        1: ("int8", "uint8", "bool"),
        2: ("float16", "bfloat16", "int16"),
        4: ("float32", "int32"),
        8: ("float64", "int64", "complex64"),
        16: ("complex128",),
    }
    assert {dtype: size for size, dtypes in sizes.items() for dtype in dtypes} == ITEMSIZE


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ("allreduc", "sum", "float32"),
            "unknown collective 'allreduc'; known: allreduce, reduce_scatter, allgather, bcast, reduce, alltoall",
        ),
        (
            ("allreduce", "mean", "float32"),
            "unknown op 'mean'; known: sum, average, prod, min, max, land, lor",
        ),
        (("bcast", "mean", "float32"), "unknown op 'mean'; known: sum, average, prod, min, max, land, lor"),
        (
            ("allreduce", "sum", "float128"),
            "unknown dtype 'float128'; known: float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, "
            "complex64, complex128, bool",
        ),
        (("allreduce", "sum", ">f4"), "unknown dtype '>f4'; known: float16, bfloat16, float32, float64, int8, int16, "),
        (
            ("reduce", "average", "int32"),
            "op 'average' of dtype 'int32': refused, how to round whole numbers is not defined",
        ),
        (
            ("reduce_scatter", "average", "uint8"),
            "op 'average' of dtype 'uint8': refused, how to round whole numbers is not defined",
        ),
        (("allreduce", "min", "complex64"), "op 'min' of dtype 'complex64': refused, complex numbers have no order"),
        (("allreduce", "max", "complex128"), "op 'max' of dtype 'complex128': refused, complex numbers have no order"),
        (
            ("allreduce", "land", "float32"),
            "op 'land' of dtype 'float32': refused, logical operations are for integers and bool",
        ),
        (
            ("allreduce", "lor", "complex64"),
            "op 'lor' of dtype 'complex64': refused, logical operations are for integers and bool",
        ),
    ],
)
def test_what_is_refused_is_named_with_the_rule(values: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message) as caught:
        check_types(*values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("op", ["sum", "average", "prod", "min", "max"])
def test_case_10_the_sum_of_truths_is_refused_and_says_what_is_meant(op: str) -> None:
    for collective in ("allreduce", "reduce_scatter", "reduce"):
        with pytest.raises(ValueError, match="dtype 'bool' has no") as caught:
            check_types(collective, op, "bool")
        wanted = f"dtype 'bool' has no {op}: MPI refuses it and NumPy would say True; land and lor are meant"
        assert str(caught.value) == wanted


def test_case_9_bfloat16_needs_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr("ringbench.runtime.demands.find_spec", asked.append)  # which returns None
    wanted = "dtype 'bfloat16': NumPy has none of its own; install ml_dtypes (extra bfloat16)"
    for collective in ("allreduce", "bcast"):
        with pytest.raises(ValueError, match="bfloat16") as caught:
            check_types(collective, "sum", "bfloat16")
        assert str(caught.value) == wanted
    with pytest.raises(ValueError, match="install ml_dtypes"):
        check_settings(Settings(dtype="bfloat16"))
    assert set(asked) == {"ml_dtypes"}
    check_types("allreduce", "sum", "float16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithms": ("ring", "rings")},
            r"^unknown algorithm 'rings' for allreduce; known: .*\bring, .*\bnaive, .*, mpi$",
        ),
        (
            {"collective": "allgather", "algorithms": ("naive",)},
            r"^unknown algorithm 'naive' for allgather; known: .*\bring, .*, mpi$",
        ),
        ({"sizes": (8, 10)}, r"size 10: not a whole number of float32 \(4 bytes each\)"),
        ({"sizes": (12,), "dtype": "float64"}, r"size 12: not a whole number of float64 \(8 bytes each\)"),
        ({"dtype": "bool"}, "dtype 'bool' has no sum"),
        ({"dtype": "complex64", "sizes": (8, 12)}, r"size 12: not a whole number of complex64 \(8 bytes each\)"),
        ({"op": "mean"}, "unknown op 'mean'"),
        ({"collective": "bcast", "op": "max"}, "op 'max': bcast reduces nothing"),
    ],
)
def test_settings_that_no_number_of_ranks_can_run(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_settings(replace(Settings(), **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"root": 1}, "root 1: allreduce has none"),
        ({"root": 2, "algorithms": ("auto",), "collective": "allgather"}, "root 2: allgather has none"),
        ({"chunks": 8}, "chunks 8: not for ring, mpi of allreduce"),
        ({"chunks": 8, "algorithms": ("mpi",)}, "chunks 8: not for mpi of allreduce"),
        ({"chunks": 8, "algorithms": ("auto",), "collective": "alltoall"}, "chunks 8: not for auto of alltoall"),
        ({"groups": "0,1", "algorithms": ("ring", "swing")}, "groups 0,1: not for ring, swing of allreduce"),
        (
            {"groups": "0/1", "algorithms": ("auto", "chain"), "collective": "bcast"},
            "groups 0/1: not for auto, chain of bcast",
        ),
        (
            {"outer": "naive", "algorithms": ("double_binary_tree",)},
            "outer naive: not for double_binary_tree of allreduce",
        ),
        ({"choose_from": "best"}, "choose from best: only 'auto' chooses, and it is not measured"),
    ],
)
def test_what_nothing_that_is_measured_takes_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message + "$"):
        check_settings(Settings(**changes))


def test_what_something_that_is_measured_takes_is_taken() -> None:
    check_settings(Settings(algorithms=("ring", "double_binary_tree"), chunks=8))
    check_settings(Settings(algorithms=("ring", "hierarchical_leaders"), groups="0/1", outer="naive", chunks=8))
    check_settings(Settings(algorithms=("auto",), groups="0/1", outer="naive", chunks=8, choose_from="best"))
    check_settings(Settings(collective="bcast", algorithms=("auto", "mpi"), root=2, chunks=8))
    check_settings(Settings(collective="reduce", algorithms=("mpi",), root=2))
    check_settings(Settings(outer="ring", root=0))  # as where nothing was said


# Memory of the rank that needs most.


def needed(nranks: int, *algorithms: str, nbytes: int = 64 * MIB, **changes: Any) -> int:
    need, largest = memory_needed(Settings(algorithms=algorithms, sizes=(8, nbytes, 16), **changes), nranks)
    assert largest == nbytes
    return need


def test_the_library_reduces_with_a_vector_of_its_own() -> None:
    assert needed(4, "mpi") == 2 * 64 * MIB
    assert needed(4, "mpi", placement="out") == needed(4, "mpi", placement="both") == 3 * 64 * MIB
    assert needed(1, "mpi") == 64 * MIB


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
    assert needed(4, "ring", "naive", "mpi") == 64 * MIB + DEFAULT_SEGMENT + 5 * 64 * MIB


def test_blocks_of_the_other_collectives() -> None:
    assert needed(4, "mpi", collective="reduce_scatter", placement="out") == (64 + 16 + 64) * MIB
    assert needed(4, "ring", collective="reduce_scatter", placement="out") == (64 + 16 + 64) * MIB + DEFAULT_SEGMENT
    assert needed(4, "ring", collective="reduce_scatter") == 64 * MIB + DEFAULT_SEGMENT
    assert needed(4, "ring", collective="allgather", placement="out") == (16 + 64) * MIB
    assert needed(4, "ring", collective="allgather") == 64 * MIB


def test_the_root_needs_more_than_the_others() -> None:
    for root in (0, 1, 3):
        assert needed(4, "mpi", collective="bcast", placement="out", root=root) == 2 * 64 * MIB
        assert needed(4, "mpi", collective="reduce", placement="out", root=root) == 3 * 64 * MIB
    assert needed(4, "binomial", collective="bcast") == 64 * MIB
    assert needed(4, "binomial", collective="reduce") == 64 * MIB + DEFAULT_SEGMENT


def test_a_root_that_takes_part_twice_is_counted_where_it_is() -> None:
    """Of three ranks with root 1 only the root gathers what the others have."""
    everywhere = [needed(3, "rabenseifner", collective="reduce", placement="out", root=root) for root in range(3)]
    assert min(everywhere) >= 2 * 64 * MIB
    assert needed(3, "rabenseifner", collective="reduce", root=1) < min(everywhere)


def test_chunks_make_what_arrives_shorter() -> None:
    whole = needed(3, "double_binary_tree", segment=0, chunks=1)
    pieces = needed(3, "double_binary_tree", segment=0, chunks=32)
    assert 64 * MIB < pieces < whole
    assert needed(3, "double_binary_tree", segment=0) == needed(
        3, "double_binary_tree", segment=0, chunks=64
    )  # by size


def test_an_alltoall_is_weighed_for_what_can_be_cut() -> None:
    assert needed(4, "mpi", collective="alltoall") == 64 * MIB
    assert needed(3, "mpi", collective="alltoall") == 64 * MIB // 12 * 12
    assert needed(4, "pairwise", collective="alltoall", placement="out") >= 2 * 64 * MIB


def test_groups_are_those_of_the_settings() -> None:
    together = needed(4, "hierarchical", groups=None)
    assert needed(4, "hierarchical", groups="0,1,2,3") == together
    assert needed(4, "hierarchical_leaders", groups="0,1/2,3", outer="naive") > together
    with pytest.raises(ValueError, match="groups 0,1/2: must hold each of the ranks 0 to 3 once"):
        needed(4, "hierarchical", groups="0,1/2")


def test_what_the_bare_messages_need_comes_on_top() -> None:
    for names in (("ring",), ("ring", "mpi")):
        assert needed(4, *names, limit=True) == needed(4, *names) + 2 * 64 * MIB


def test_sets_of_buffers_add_up() -> None:
    assert needed(4, "ring", buffers=3) == 3 * needed(4, "ring")


def test_cold_data_have_no_hot_limit() -> None:
    with pytest.raises(ValueError, match="buffers 2: not with limit"):
        check_settings(Settings(limit=True, buffers=2))


def test_auto_needs_a_plan_of_its_own() -> None:
    bare, ring = 64 * MIB, needed(4, "ring")
    assert needed(4, "auto") == ring  # which the rule says at this size
    assert needed(4, "ring", "auto") - bare == 2 * (ring - bare)


@pytest.mark.parametrize("dtype", sorted(ITEMSIZE))
def test_bytes_are_counted_and_not_elements(dtype: str, with_bfloat16: None) -> None:
    op = "lor" if dtype == "bool" else "sum"
    assert needed(4, "ring", dtype=dtype, op=op) == 64 * MIB + DEFAULT_SEGMENT


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collective": "bcast", "algorithms": ("binomial",), "root": 4}, "^root 4: not one of 4 ranks$"),
        ({"collective": "reduce", "algorithms": ("mpi",), "root": 9}, "^root 9: not one of 4 ranks$"),
        (
            {"algorithms": ("mpi", "hierarchical"), "groups": "0,1/2,4"},
            "^groups 0,1/2,4: must hold each of the ranks 0 to 3 once$",
        ),
        ({"algorithms": ("hierarchical",), "groups": "0,1/1,2/3"}, "must hold each of the ranks 0 to 3 once$"),
        (
            {"algorithms": ("hierarchical",), "groups": "0,1/2,3", "outer": "hierarchical_leaders"},
            f"^outer 'hierarchical_leaders': {FLAT}$",
        ),
        (
            {"algorithms": ("hierarchical",), "outer": "rings"},
            f"^outer 'rings': {FLAT}$",
        ),
        (
            {"algorithms": ("hierarchical",), "groups": "0,1/2,3", "outer": "swing_latency"},
            f"^outer 'swing_latency': {FLAT}$",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_ranks_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_schedules(Settings(**changes), 4)


def test_arguments_that_no_algorithm_asks_for_are_left_alone() -> None:
    check_schedules(Settings(algorithms=("ring",), groups="0,1", root=7, chunks=3), 4)
    check_schedules(Settings(algorithms=("auto", "mpi")), 4)
    check_schedules(Settings(algorithms=("double_binary_tree",), chunks=4096), VERIFY_LIMIT + 1)


def test_an_algorithm_is_configured_by_the_settings() -> None:
    settings = Settings(algorithms=("hierarchical",), groups="2,3/0,1", outer="naive", chunks=9, root=2)
    found = dict(configured(settings, "hierarchical").arguments)
    assert found == {"groups": ((0, 1), (2, 3)), "outer": "naive", "chunks": 9, "inner": "ring"}
    trees = [configured(Settings(), "double_binary_tree", 4, nbytes) for nbytes in (8, 2**20, 2**30)]
    assert [dict(algorithm.arguments) for algorithm in trees] == [{"chunks": 1}, {"chunks": 2}, {"chunks": 64}]
    assert dict(configured(replace(settings, collective="bcast"), "binomial").arguments) == {"root": 2}


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

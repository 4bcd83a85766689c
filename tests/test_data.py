from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from fakecuda import CudaArray, FakeCudaBackend

from ringbench.runtime.arrays import NumpyBackend
from ringbench.runtime.data import (
    PERIOD,
    Answer,
    Mismatch,
    Probe,
    fill,
    input_table,
    mismatches,
    rank_values,
    reduced_answer,
    rounding_bound,
)
from ringbench.runtime.demands import ITEMSIZE
from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.semantics import COLLECTIVES

DTYPES = sorted(ITEMSIZE)
REPEAT = PERIOD * PERIOD
SALTS = (1, 2, 3)
Vector = Any


def brought(rank: int, salt: int, count: int, dtype: str, start: int = 0) -> Vector:
    """Return a rank's input element by element, from the description of the pattern."""
    values = rank_values(rank, salt)
    places = [(i // PERIOD + i % PERIOD) % PERIOD for i in range(start, start + count)]
    return values[places].astype(dtype)


# The pattern.


def test_tables_of_any_two_ranks_differ() -> None:
    for salt in SALTS:
        assert len({rank_values(rank, salt).tobytes() for rank in range(600)}) == 600


def test_tables_of_any_two_salts_differ_at_every_place() -> None:
    for rank in range(600):
        first, second, third = (rank_values(rank, salt) for salt in SALTS)
        assert (first != second).all()
        assert (second != third).all()
        assert (first != third).all()


def test_values_are_small_whole_numbers_that_no_float_rounds() -> None:
    values = np.stack([rank_values(rank, 1) for rank in range(600)])
    assert (values.shape, values.min(), values.max()) == ((600, PERIOD), 1, PERIOD)


@pytest.mark.parametrize("dtype", DTYPES)
def test_case_16_the_sum_is_exact_in_any_order(dtype: str) -> None:
    inputs = [rank_values(rank, 2).astype(dtype) for rank in range(600)]
    exact = np.sum([rank_values(rank, 2) for rank in range(600)], axis=0)
    forwards, backwards = np.zeros(PERIOD, dtype), np.zeros(PERIOD, dtype)
    for one, other in zip(inputs, reversed(inputs), strict=True):
        forwards, backwards = forwards + one, backwards + other
    assert forwards.astype(np.int64).tolist() == backwards.astype(np.int64).tolist() == exact.tolist()
    assert np.array_equal(reduced_answer(600, 2, False, dtype, False).table[:PERIOD], forwards)


def test_the_table_moves_on_by_one_place_at_each_repetition() -> None:
    table = input_table(3, 1, False, "int64")
    assert table.size == REPEAT
    assert np.array_equal(table, brought(3, 1, REPEAT, "int64"))


@pytest.mark.parametrize("count", [0, 1, PERIOD, REPEAT - 1, REPEAT, REPEAT + 1, 2 * REPEAT + 5])
@pytest.mark.parametrize("start", [0, 1, REPEAT - 1, REPEAT, 3 * REPEAT + 7])
def test_filling_goes_on_where_the_table_ends(count: int, start: int) -> None:
    view = np.full(count, -1)
    fill(view, np.arange(REPEAT), start)
    assert np.array_equal(view, (start + np.arange(count)) % REPEAT)
    assert mismatches(view, Answer(np.arange(REPEAT), None), start) == (0, None)


# The answers.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nranks", [1, 2, 3, 7])
def test_the_answer_is_the_sum_of_all_inputs(dtype: str, nranks: int) -> None:
    total = sum(brought(rank, 1, 1000, "int64") for rank in range(nranks))
    assert np.array_equal(reduced_answer(nranks, 1, False, dtype, False).table[:1000], total)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nranks", [1, 2, 3, 7])
def test_the_answer_of_an_average_is_rounded_once(dtype: str, nranks: int) -> None:
    total = sum(brought(rank, 1, 1000, "int64") for rank in range(nranks))
    once = (np.asarray(total, dtype=np.longdouble) / nranks).astype(dtype)
    found = reduced_answer(nranks, 1, False, dtype, True)
    assert np.array_equal(found.table[:1000], once)
    assert found.table.dtype == np.dtype(dtype)
    assert found.bound is None


def test_data_that_round_are_held_to_a_bound_around_the_exact_sum() -> None:
    nranks, dtype = 5, "float32"
    inputs = [(rank_values(rank, 1) / 10).astype(dtype) for rank in range(nranks)]
    wide = sum(one.astype(np.float64) for one in inputs)
    for average in (False, True):
        answer = reduced_answer(nranks, 1, True, dtype, average)
        assert answer.bound is not None
        assert np.allclose(answer.table[:PERIOD], wide / (nranks if average else 1), rtol=1e-15, atol=0)
        rounded = sum(inputs[1:], inputs[0])
        result = rounded / np.float32(nranks) if average else rounded
        assert result.dtype == np.dtype(dtype)
        assert not np.array_equal(result, answer.table[:PERIOD])
        assert mismatches(result, answer, 0).wrong == 0
        assert mismatches(result * np.float32(1 + 1e-5), answer, 0).wrong == PERIOD


def test_case_14_the_bound_accepts_cancellation() -> None:
    bound = rounding_bound(3, np.full(3, 2e8 + 1), "float32")
    assert bound == pytest.approx([47.7] * 3, abs=0.05)
    answer = Answer(np.ones(3), bound)
    ring = np.float32(1e8) + np.float32(1) + np.float32(-1e8), np.float32(1e8) + np.float32(-1e8) + np.float32(1)
    assert ring == (0, 1)
    assert mismatches(np.array([0, 0, 1], dtype="float32"), answer, 0).wrong == 0
    assert mismatches(np.array([0, 60, 1], dtype="float32"), answer, 0).wrong == 1


# Finding what is wrong.


@pytest.mark.parametrize("at", [0, 1, 250, REPEAT - 1, REPEAT, REPEAT + 999])
def test_case_17_one_wrong_element_is_found_and_described(at: int) -> None:
    answer = reduced_answer(3, 1, False, "int32", False)
    count = REPEAT + 1000
    result = np.empty(count, dtype="int32")
    fill(result, answer.table, 5)
    right = int(result[at])
    result[at] += 1
    assert mismatches(result, answer, 5) == (1, f"element {5 + at} is {right + 1}, not {right}")  # of the whole


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_wrong(rounding: bool, poison: float) -> None:
    answer = reduced_answer(2, 1, rounding, "float32", False)
    result = answer.table[:100].astype("float32")
    result[[7, 9]] = poison
    wrong, first = mismatches(result, answer, 0)
    assert wrong == 2
    assert str(first).startswith(f"element 7 is {poison}, not ")


def test_all_wrong_elements_are_counted_over_the_repetitions() -> None:
    answer = reduced_answer(2, 1, False, "float64", False)
    result = np.zeros(2 * REPEAT + 3)
    assert mismatches(result, answer, 11).wrong == result.size


# Probes.


def probes(
    collective: str, nranks: int, count: int, dtype: str = "int32", *, in_place: bool = True, op: str = "sum"
) -> list[Probe]:
    host = NumpyBackend()
    return [Probe(collective, op, dtype, rank, nranks, count, in_place, host) for rank in range(nranks)]


def collect(ready: list[Probe], change: Callable[[int, Vector], Vector] = lambda rank, x: x) -> None:
    """Carry a collective out by its definition on what lies in the probes' inputs, each changed first if wanted."""
    semantics, nranks = ready[0].semantics, len(ready)
    inputs = [change(rank, np.array(probe.input)) for rank, probe in enumerate(ready)]
    for rank, probe in enumerate(ready):
        if semantics.reduces:
            whole = sum(inputs[1:], inputs[0])
            if probe.average:
                whole = whole / whole.dtype.type(nranks)
            offsets = block_offsets(whole.size, nranks)
            part = slice(None) if semantics.name == "allreduce" else slice(offsets[rank], offsets[rank + 1])
            probe.result[...] = whole[part]
        else:
            probe.result[...] = np.concatenate(inputs)


def found(ready: list[Probe], salt: int = 1, rounding: bool = False) -> list[Mismatch]:
    return [probe.check(salt, rounding) for probe in ready]


every = pytest.mark.parametrize("collective", sorted(COLLECTIVES))
placements = pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])


@every
@placements
@pytest.mark.parametrize("nranks", [1, 2, 3, 8])
def test_what_is_right_is_found_right(collective: str, in_place: bool, nranks: int) -> None:
    for count, dtype in product((0, 1, nranks - 1, nranks + 1, 100, REPEAT + 1), ("int32", "float64")):
        ready = probes(collective, nranks, count, dtype, in_place=in_place)
        for salt in SALTS:
            for probe in ready:
                probe.write_all(salt)
            collect(ready)
            assert found(ready, salt) == [(0, None)] * nranks
    for count, op in ((9, "sum"), (100, "average")):
        ready = probes(collective, nranks, count, "float32", in_place=in_place, op=op)
        for rounding in (False, True):
            for probe in ready:
                probe.write_all(1, rounding)
            collect(ready)
            assert found(ready, 1, rounding) == [(0, None)] * nranks


@every
@placements
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_around_the_period(collective: str, in_place: bool, dtype: str) -> None:
    for count in (REPEAT - 1, REPEAT, REPEAT + 1):
        ready = probes(collective, 2, count, dtype, in_place=in_place)
        for probe in ready:
            probe.write_all(3)
        collect(ready)
        assert found(ready, 3) == [(0, None)] * 2
        ready[1].result[-1] += 1
        assert found(ready, 3)[1].wrong == 1


@every
@placements
def test_what_no_collective_wrote_is_wrong(collective: str, in_place: bool) -> None:
    ready = probes(collective, 3, 50, in_place=in_place)
    for rank, probe in enumerate(ready):
        probe.write_all(1)
        own = len(probe.input) if in_place and collective == "allgather" else 0
        assert probe.check(1).wrong == len(probe.result) - own, rank


def drop(rank: int, x: Vector) -> Vector:
    return x * 0 if rank == 1 else x


def double(rank: int, x: Vector) -> Vector:
    return x * 2 if rank == 1 else x


def shift(rank: int, x: Vector) -> Vector:
    return np.roll(x, 1) if rank == 1 else x


def swap_in_another(rank: int, x: Vector) -> Vector:
    return brought(0, 1, x.size, "int64").astype(x.dtype) if rank == 1 else x


def stale(rank: int, x: Vector) -> Vector:
    return brought(1, 2, x.size, "int64").astype(x.dtype) if rank == 1 else x


def off_by_a_block(rank: int, x: Vector) -> Vector:
    return np.roll(x, x.size // 4) if rank == 1 else x


@pytest.mark.parametrize("broken", [drop, double, shift, swap_in_another, stale, off_by_a_block])
@pytest.mark.parametrize("dtype", DTYPES)
def test_case_17_a_broken_contribution_of_one_rank_is_seen_by_all(
    broken: Callable[[int, Vector], Vector], dtype: str
) -> None:
    for collective, nranks, count, op in (
        ("allreduce", 2, 8, "sum"),
        ("allreduce", 5, 1000, "sum"),
        ("allreduce", 4, 4 * PERIOD, "sum"),
        ("allreduce", 4, 400, "average"),
        ("reduce_scatter", 4, 400, "sum"),
        ("allgather", 4, 400, "sum"),
    ):
        ready = probes(collective, nranks, count, dtype, op=op if dtype.startswith("float") else "sum")
        for probe in ready:
            probe.write_all(1)
        collect(ready, broken)
        seen = found(ready)
        assert all(one.wrong for one in seen), (collective, nranks, count, seen)


@every
def test_the_result_before_is_wrong_for_the_next_data(collective: str) -> None:
    ready = probes(collective, 3, 300)
    for before, now in ((1, 2), (2, 3), (1, 3)):
        for probe in ready:
            probe.write_all(before)
        collect(ready)
        assert found(ready, before) == [(0, None)] * 3
        assert all(one.wrong > 0.9 * probe.result.size for one, probe in zip(found(ready, now), ready, strict=True))


def test_a_changed_input_is_said_to_be_one() -> None:
    for collective in COLLECTIVES:
        ready = probes(collective, 2, 20, in_place=False)
        for probe in ready:
            probe.write_all(1)
        collect(ready)
        right = int(ready[1].sendbuf[3])
        ready[1].sendbuf[3] = 0
        assert ready[0].check(1) == (0, None)
        at = 13 if collective == "allgather" else 3  # in the whole vector
        assert ready[1].check(1) == (1, f"sendbuf changed: element {at} is 0, not {right}")
        ready[1].result[0] = -7
        wrong, first = ready[1].check(1)
        assert wrong == 2
        at = 10 if collective == "reduce_scatter" else 0
        assert str(first).startswith(f"element {at} is -7, not ")


@every
def test_buffers_have_the_sizes_of_mpi(collective: str) -> None:
    whole, part = 10, [4, 3, 3]
    for rank, probe in enumerate(probes(collective, 3, whole, in_place=False)):
        sizes = {"allreduce": (10, 10), "reduce_scatter": (10, part[rank]), "allgather": (part[rank], 10)}[collective]
        assert (probe.sendbuf.size, probe.recvbuf.size) == sizes
        assert not np.shares_memory(probe.sendbuf, probe.recvbuf)
        assert not probe.consumes_input
    for rank, probe in enumerate(probes(collective, 3, whole)):
        assert probe.recvbuf is probe.sendbuf
        assert probe.recvbuf.size == whole
        assert probe.result.size == (part[rank] if collective == "reduce_scatter" else whole)
        assert probe.consumes_input == (collective != "allgather")


def test_an_allgather_in_place_has_its_block_where_it_belongs() -> None:
    probe = probes("allgather", 3, 10)[1]
    probe.write_all(2)
    assert probe.recvbuf.tolist() == [-1] * 4 + brought(1, 2, 3, "int32", start=4).tolist() + [-1] * 3


def test_writing_the_input_leaves_the_rest_alone() -> None:
    probe = probes("reduce_scatter", 2, 6, in_place=False)[0]
    probe.recvbuf[...] = 5
    probe.write_input(1)
    assert probe.recvbuf.tolist() == [5, 5, 5]
    assert probe.sendbuf.tolist() == brought(0, 1, 6, "int32").tolist()


def test_digests_are_equal_for_equal_bits_alone() -> None:
    one, other = probes("allreduce", 2, 9, "float64")
    for probe in (one, other):
        probe.result[...] = 0.0
    assert one.digest() == other.digest()
    other.result[3] = -0.0
    assert np.array_equal(one.result, other.result)
    assert one.digest() != other.digest()


def test_on_a_device_the_input_is_there_before_the_clock_starts() -> None:
    device = FakeCudaBackend()
    probe = Probe("allreduce", "sum", "float32", 1, 2, 300, False, device)
    probe.write_all(1)
    assert device.pending == []
    assert isinstance(probe.sendbuf, CudaArray)
    assert np.array_equal(probe.sendbuf.memory, brought(1, 1, 300, "float32"))
    assert (probe.recvbuf.memory == -1).all()
    assert probe.check(1).wrong == 300
    probe.recvbuf[...] = device.from_host(reduced_answer(2, 1, False, "float32", False).table[:300])
    assert probe.check(1) == (0, None)

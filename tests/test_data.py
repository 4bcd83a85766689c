from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate, product
from random import Random
from typing import Any

import numpy as np
import pytest
from fakecuda import CudaArray, FakeCudaBackend

from ringbench.runtime.arrays import NumpyBackend, numpy_dtype
from ringbench.runtime.data import (
    EPS,
    PERIOD,
    POISON,
    Answer,
    Mismatch,
    Probe,
    fill,
    input_table,
    mismatches,
    rank_values,
    reduced_answer,
    rounding_bound,
    rounds,
)
from ringbench.runtime.demands import COMPLEX, FLOATS, ITEMSIZE, OPS, check_types
from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.semantics import COLLECTIVES

REPEAT = PERIOD * PERIOD
SALTS = (1, 2, 3)
Vector = Any

#: The operations, spelled out once more.
KERNELS: dict[str, Callable[..., Vector]] = {
    "sum": np.add,
    "average": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
}


def taken(collective: str, op: str, dtype: str) -> bool:
    try:
        check_types(collective, op, dtype)
    except ValueError:
        return False
    return True


MOVED = [dtype for dtype in ITEMSIZE if taken("bcast", "sum", dtype)]
REDUCED = [(op, dtype) for op in OPS for dtype in ITEMSIZE if taken("allreduce", op, dtype)]
ROUNDED = [(op, dtype) for op, dtype in REDUCED if rounds(op, dtype)]

reduced = pytest.mark.parametrize(("op", "dtype"), REDUCED)
rounded = pytest.mark.parametrize(("op", "dtype"), ROUNDED)


def places(count: int, start: int = 0) -> Vector:
    """Return which of the 251 values stands at each element, from the description of the pattern."""
    return np.array([(i // PERIOD + i % PERIOD) % PERIOD for i in range(start, start + count)], dtype=int)


def brought(
    rank: int, salt: int, count: int, dtype: str, start: int = 0, *, nranks: int = 1, op: str = "sum"
) -> Vector:
    return cast(rank_values(rank, salt, nranks, op, dtype)[places(count, start)], dtype)


def inputs(nranks: int, salt: int, op: str, dtype: str) -> list[Vector]:
    """Return the 251 values of every rank in the dtype."""
    return [cast(rank_values(rank, salt, nranks, op, dtype), dtype) for rank in range(nranks)]


def cast(values: Vector, dtype: str) -> Vector:
    return (values if dtype in COMPLEX else np.real(values)).astype(numpy_dtype(dtype))


def rounding_inputs(nranks: int, op: str, dtype: str) -> list[Vector]:
    return [input_table(rank, 1, True, nranks, op, dtype)[:PERIOD] for rank in range(nranks)]


def wide(values: Vector, dtype: str) -> Vector:
    """Return values in a type that holds the results of many ranks, and all between, exactly."""
    if dtype in COMPLEX:
        return values.astype(np.complex128)
    return values.astype(np.float64)


def combined(op: str, one: Vector, other: Vector) -> Vector:
    """Reduce as a step of a schedule does: rounded to the dtype, or wrapped around."""
    with np.errstate(over="raise", invalid="raise"):
        return KERNELS[op](one, other).astype(one.dtype)


# The pattern.


def test_every_type_has_its_data() -> None:
    assert len(REDUCED) >= 51
    assert {dtype for _, dtype in REDUCED} == set(MOVED)
    assert {op for op, _ in REDUCED} == set(OPS)
    assert len(MOVED) >= 11


def test_what_may_round_is_what_has_fractions_and_is_added_or_multiplied() -> None:
    assert {op for op, _ in ROUNDED} == {"sum", "average", "prod"}
    assert {dtype for _, dtype in ROUNDED} | {"bfloat16"} == {*FLOATS, *COMPLEX}
    assert not rounds("max", "float16")
    assert not rounds("sum", "int8")


def test_tables_of_any_two_ranks_differ() -> None:
    for salt in SALTS:
        assert len({rank_values(rank, salt).tobytes() for rank in range(600)}) == 600


@pytest.mark.parametrize("dtype", MOVED)
def test_tables_of_any_two_ranks_differ_in_what_is_moved(dtype: str) -> None:
    for salt in SALTS:
        assert len({input_table(rank, salt, False, 1, "sum", dtype).tobytes() for rank in range(32)}) == 32


def test_tables_of_any_two_salts_differ_at_every_place() -> None:
    for rank in range(600):
        first, second, third = (rank_values(rank, salt) for salt in SALTS)
        assert (first != second).all()
        assert (second != third).all()
        assert (first != third).all()


@pytest.mark.parametrize("dtype", MOVED)
def test_what_is_moved_has_another_salt_at_most_places(dtype: str) -> None:
    for rank in range(8):
        tables = [input_table(rank, salt, False, 1, "sum", dtype)[:PERIOD] for salt in SALTS]
        for one, other in ((0, 1), (1, 2), (0, 2)):
            assert (tables[one] != tables[other]).sum() > (PERIOD // 3 if dtype == "bool" else PERIOD - 10)


def test_values_are_small_whole_numbers_that_no_float_rounds() -> None:
    values = np.stack([rank_values(rank, 1) for rank in range(600)])
    assert (values.shape, values.min(), values.max()) == ((600, PERIOD), 1, PERIOD)


@reduced
def test_no_cast_changes_a_value(op: str, dtype: str) -> None:
    for nranks in (1, 2, 5, 100, 600):
        for rank in {0, nranks - 1}:
            plain, table = rank_values(rank, 3, nranks, op, dtype), input_table(rank, 3, False, nranks, op, dtype)
            assert np.array_equal(wide(table[:PERIOD], dtype), plain), rank


@reduced
@pytest.mark.parametrize("nranks", [2, 3, 7, 100, 600])
def test_case_16_the_result_is_exact_in_any_order_and_nothing_overflows(op: str, dtype: str, nranks: int) -> None:
    """Whatever is combined first, each partial result is the right one of the wide type."""
    random = Random(f"{op} {dtype} {nranks}")
    exact = reduce(KERNELS[op], [wide(values, dtype) for values in inputs(nranks, 2, op, dtype)])
    kept = [(values, wide(values, dtype)) for values in inputs(nranks, 2, op, dtype)]
    for draw in (lambda many: 0, lambda many: many - 1, random.randrange, random.randrange):
        parts = list(kept)
        while len(parts) > 1:
            one, other = parts.pop(draw(len(parts))), parts.pop(draw(len(parts)))
            both = combined(op, one[0], other[0]), KERNELS[op](one[1], other[1])
            assert np.array_equal(wide(both[0], dtype), both[1])
            parts.append(both)
        if op != "average":
            assert np.array_equal(reduced_answer(nranks, 2, False, op, dtype).table[:PERIOD], parts[0][0])
        assert np.array_equal(parts[0][1], exact)


@reduced
def test_dropping_or_doubling_any_rank_changes_the_answer_somewhere(op: str, dtype: str) -> None:
    """Doubling cannot show in what is the same however often it is done."""
    for nranks in (*range(2, 18), 23, 31, 32, 33, 63, 64, 81, 100):
        own = inputs(nranks, 1, op, dtype)
        before = list(accumulate(own, lambda one, other: combined(op, one, other)))
        after = list(accumulate(reversed(own), lambda one, other: combined(op, one, other)))
        whole = before[-1]
        for rank in range(nranks):
            others = [before[rank - 1]] if rank else []
            others += [after[nranks - 2 - rank]] if rank < nranks - 1 else []
            without = reduce(lambda one, other: combined(op, one, other), others)
            assert (without != whole).any(), (nranks, rank)
            if op in ("sum", "average", "prod"):
                assert (KERNELS[op](whole, own[rank]) != whole).any(), (nranks, rank)


@reduced
def test_the_answer_of_another_salt_is_wrong_at_many_places(op: str, dtype: str) -> None:
    for nranks in (2, 3, 8, 32, 100):
        answers = [reduced_answer(nranks, salt, False, op, dtype).table[:PERIOD] for salt in SALTS]
        for one, other in ((0, 1), (1, 2), (0, 2)):
            assert (answers[one] != answers[other]).sum() > PERIOD / 3, (nranks, one, other)


def test_the_table_moves_on_by_one_place_at_each_repetition() -> None:
    table = input_table(3, 1, False, 1, "sum", "int64")
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


@reduced
@pytest.mark.parametrize("nranks", [1, 2, 3, 7])
def test_the_answer_is_what_all_inputs_reduce_to(op: str, dtype: str, nranks: int) -> None:
    own = [wide(brought(rank, 1, 1000, dtype, nranks=nranks, op=op), dtype) for rank in range(nranks)]
    right = reduce(KERNELS[op], own)
    answer = reduced_answer(nranks, 1, False, op, dtype)
    assert (answer.table.dtype, answer.bound) == (numpy_dtype(dtype), None)
    if op == "average":
        right = right / nranks
        assert np.allclose(wide(answer.table[:1000], dtype), right, rtol=EPS[dtype], atol=0)
    else:
        assert np.array_equal(wide(answer.table[:1000], dtype), right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nranks", [1, 2, 3, 7])
def test_the_answer_of_an_average_is_rounded_once(dtype: str, nranks: int) -> None:
    total = sum(brought(rank, 1, 1000, "int64") for rank in range(nranks))
    once = (np.asarray(total, dtype=np.longdouble) / nranks).astype(dtype)
    found = reduced_answer(nranks, 1, False, "average", dtype)
    assert np.array_equal(found.table[:1000], once)
    assert found.table.dtype == np.dtype(dtype)
    assert found.bound is None


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_parts_of_a_complex_average_are_each_rounded_once(dtype: str) -> None:
    total = reduced_answer(3, 1, False, "sum", dtype).table[:PERIOD]
    found = reduced_answer(3, 1, False, "average", dtype).table[:PERIOD]
    kind = total.real.dtype
    for one, other in ((found.real, total.real), (found.imag, total.imag)):
        assert np.array_equal(one, (other.astype(np.longdouble) / 3).astype(kind))


def test_data_that_round_are_held_to_a_bound_around_the_exact_sum() -> None:
    nranks, dtype = 5, "float32"
    own = [(rank_values(rank, 1) / 10).astype(dtype) for rank in range(nranks)]
    right = sum(one.astype(np.float64) for one in own)
    for op in ("sum", "average"):
        answer = reduced_answer(nranks, 1, True, op, dtype)
        assert answer.bound is not None
        assert np.allclose(answer.table[:PERIOD], right / (nranks if op == "average" else 1), rtol=1e-15, atol=0)
        total = sum(own[1:], own[0])
        result = total / np.float32(nranks) if op == "average" else total
        assert result.dtype == np.dtype(dtype)
        assert not np.array_equal(result, answer.table[:PERIOD])
        assert mismatches(result, answer, 0).wrong == 0
        assert mismatches(result * np.float32(1 + 1e-5), answer, 0).wrong == PERIOD


def divided(total: Vector, nranks: int) -> Vector:
    parts = total.view(total.real.dtype) if total.dtype.kind == "c" else total
    return (parts / parts.dtype.type(nranks)).view(total.dtype)


@rounded
@pytest.mark.parametrize("nranks", [2, 3, 5, 16, 64])
def test_what_rounds_is_right_in_any_order_and_wrong_a_little_beside(op: str, dtype: str, nranks: int) -> None:
    answer = reduced_answer(nranks, 1, True, op, dtype)
    assert answer.bound is not None
    random, seen = Random(nranks), set()
    own = rounding_inputs(nranks, op, dtype)
    for draw in (lambda many: 0, lambda many: many - 1, random.randrange, random.randrange, random.randrange):
        parts = list(own)
        while len(parts) > 1:
            one, other = parts.pop(draw(len(parts))), parts.pop(draw(len(parts)))
            parts.append(combined(op, one, other))
        result = divided(parts[0], nranks) if op == "average" else parts[0]
        seen.add(result.tobytes())
        assert mismatches(result, answer, 0) == (0, None)
        off = 1 + max(1e-2, 12 * (nranks + 2) * EPS[dtype])
        beside = (wide(result, dtype) * off).astype(result.dtype)
        assert mismatches(beside, answer, 0).wrong > 0.9 * PERIOD
    assert len(seen) > 1 or nranks == 2, "no order rounds otherwise: the bits say nothing"


@rounded
def test_a_rank_more_or_less_is_no_rounding(op: str, dtype: str) -> None:
    for nranks in (2, 3, 4):
        answer = reduced_answer(nranks, 1, True, op, dtype)
        own = rounding_inputs(nranks, op, dtype)
        for rank in range(nranks):
            for changed in (own[:rank] + own[rank + 1 :], [*own, own[rank]]):
                total = reduce(lambda one, other: combined(op, one, other), changed)
                result = divided(total, nranks) if op == "average" else total
                assert mismatches(result, answer, 0).wrong > PERIOD / 8, (nranks, rank)


def test_case_14_the_bound_accepts_cancellation() -> None:
    bound = rounding_bound(3, np.full(3, 2e8 + 1), "float32")
    assert bound == pytest.approx([47.7] * 3, abs=0.05)
    answer = Answer(np.ones(3), bound)
    ring = np.float32(1e8) + np.float32(1) + np.float32(-1e8), np.float32(1e8) + np.float32(-1e8) + np.float32(1)
    assert ring == (0, 1)
    assert mismatches(np.array([0, 0, 1], dtype="float32"), answer, 0).wrong == 0
    assert mismatches(np.array([0, 60, 1], dtype="float32"), answer, 0).wrong == 1


def test_case_9_the_bound_accepts_both_ways_to_add_up_halves() -> None:
    answer = Answer(np.array([2050.0]), rounding_bound(3, np.array([2050.0]), "float16"))
    for result, wrong in ((2048, 0), (2050, 0), (2040, 1), (2056, 1)):
        assert mismatches(np.array([result], dtype="float16"), answer, 0).wrong == wrong


# Finding what is wrong.


@pytest.mark.parametrize("at", [0, 1, 250, REPEAT - 1, REPEAT, REPEAT + 999])
def test_case_17_one_wrong_element_is_found_and_described(at: int) -> None:
    answer = reduced_answer(3, 1, False, "sum", "int32")
    count = REPEAT + 1000
    result = np.empty(count, dtype="int32")
    fill(result, answer.table, 5)
    right = int(result[at])
    result[at] += 1
    assert mismatches(result, answer, 5) == (1, f"element {5 + at} is {right + 1}, not {right}")  # of the whole


@pytest.mark.parametrize("dtype", [dtype for dtype in MOVED if dtype in FLOATS or dtype in COMPLEX])
@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_wrong(dtype: str, rounding: bool, poison: float) -> None:
    answer = reduced_answer(2, 1, rounding, "sum", dtype)
    result = answer.table[:100].astype(numpy_dtype(dtype))
    result[[7, 9]] = poison
    with np.errstate(invalid="ignore"):
        wrong, first = mismatches(result, answer, 0)
    assert wrong == 2
    assert str(first).startswith(f"element 7 is {result[7]}, not ")


def test_all_wrong_elements_are_counted_over_the_repetitions() -> None:
    answer = reduced_answer(2, 1, False, "sum", "float64")
    result = np.zeros(2 * REPEAT + 3)
    assert mismatches(result, answer, 11).wrong == result.size


# Probes.


def probes(
    collective: str,
    nranks: int,
    count: int,
    dtype: str = "int32",
    *,
    in_place: bool = True,
    op: str = "sum",
    root: int = 0,
) -> list[Probe]:
    host = NumpyBackend()
    return [Probe(collective, op, dtype, rank, nranks, count, in_place, host, root) for rank in range(nranks)]


def collect(ready: list[Probe], change: Callable[[Probe, Vector], Vector] = lambda probe, x: x) -> None:
    """Carry a collective out by its definition on what lies in the probes' inputs, each changed first if wanted."""
    name, nranks, root = ready[0].semantics.name, len(ready), ready[0].root
    own = [change(probe, np.array(probe.input)) for probe in ready]
    for rank, probe in enumerate(ready):
        if name == "allgather":
            probe.result[...] = np.concatenate(own)
        elif name == "bcast":
            probe.result[...] = own[root]
        elif name == "alltoall":
            probe.result[...] = np.concatenate([np.split(values, nranks)[rank] for values in own])
        elif name != "reduce" or rank == root:
            whole = reduce(lambda one, other: combined(probe.op, one, other), own)
            whole = divided(whole, nranks) if probe.op == "average" else whole
            offsets = block_offsets(whole.size, nranks)
            probe.result[...] = whole[offsets[rank] : offsets[rank + 1]] if name == "reduce_scatter" else whole


def found(ready: list[Probe], salt: int = 1, rounding: bool = False) -> list[Mismatch]:
    return [probe.check(salt, rounding) for probe in ready]


def written(ready: list[Probe], salt: int = 1, rounding: bool = False) -> list[Probe]:
    for probe in ready:
        probe.write_all(salt, rounding)
    return ready


def fitting(collective: str, nranks: int, count: int) -> int:
    return count // nranks * nranks if collective == "alltoall" else count


def right_place(ready: list[Probe]) -> Probe:
    """Return a probe that gets a result, the last one of those."""
    return [probe for probe in ready if probe.semantics.name != "reduce" or probe.rank == probe.root][-1]


every = pytest.mark.parametrize("collective", sorted(COLLECTIVES))
placements = pytest.mark.parametrize("in_place", [True, False], ids=["in", "out"])


@every
@placements
@pytest.mark.parametrize("nranks", [1, 2, 3, 8])
def test_what_is_right_is_found_right(collective: str, in_place: bool, nranks: int) -> None:
    for count, dtype in product((0, 1, nranks - 1, nranks + 1, 100, REPEAT + 1), ("int32", "float64")):
        whole = fitting(collective, nranks, count)
        ready = probes(collective, nranks, whole, dtype, in_place=in_place, root=nranks - 1)
        for salt in SALTS:
            collect(written(ready, salt))
            assert found(ready, salt) == [(0, None)] * nranks
    for count, op in ((9, "sum"), (100, "average")):
        if op == "average" and not COLLECTIVES[collective].reduces:
            continue
        whole = fitting(collective, nranks, count)
        ready = probes(collective, nranks, whole, "float32", in_place=in_place, op=op)
        for rounding in (False, True):
            collect(written(ready, 1, rounding))
            assert found(ready, 1, rounding) == [(0, None)] * nranks


@reduced
def test_every_type_is_found_right_and_a_wrong_element_wrong(op: str, dtype: str) -> None:
    for collective in ("allreduce", "reduce_scatter", "reduce"):
        for nranks in (1, 2, 5):
            ready = probes(collective, nranks, 300, dtype, op=op, in_place=nranks == 2, root=nranks // 2)
            for rounding in {False, rounds(op, dtype)}:
                collect(written(ready, 2, rounding))
                assert found(ready, 2, rounding) == [(0, None)] * nranks
                one = right_place(ready)
                one.result[3] = not one.result[3] if dtype == "bool" else one.result[3] == 0
                assert sum(seen.wrong for seen in found(ready, 2, rounding)) == 1


@every
@placements
@pytest.mark.parametrize("dtype", MOVED)
def test_sizes_around_the_period(collective: str, in_place: bool, dtype: str) -> None:
    op = "lor" if dtype == "bool" and COLLECTIVES[collective].reduces else "sum"
    for count in (REPEAT - 1, REPEAT, REPEAT + 1):
        count += count % 2 if collective == "alltoall" else 0
        ready = probes(collective, 2, count, dtype, in_place=in_place, op=op, root=1)
        collect(written(ready, 3))
        assert found(ready, 3) == [(0, None)] * 2
        ready[1].result[-1] = ready[1].result[-1] == 0
        assert found(ready, 3)[1].wrong == 1


@every
@placements
@pytest.mark.parametrize("dtype", MOVED)
def test_what_no_collective_wrote_is_wrong(collective: str, in_place: bool, dtype: str) -> None:
    """Of bool half the places have the value that stands for nothing."""
    op = "land" if dtype == "bool" and COLLECTIVES[collective].reduces else "sum"
    ready = written(probes(collective, 3, 60, dtype, in_place=in_place, op=op, root=2))
    for rank, probe in enumerate(ready):
        wrong, size = probe.check(1).wrong, len(probe.result)
        if in_place and collective == "allgather":
            size -= len(probe.input)
        elif in_place and collective == "bcast" and rank == probe.root:
            size = 0
        elif in_place and collective == "alltoall":
            size -= len(probe.input) // 3
        if dtype == "bool":
            assert size / 5 <= wrong <= size, rank
        elif in_place and COLLECTIVES[collective].reduces:
            assert size / 2 <= wrong <= size, rank  # where others have nothing to add
        elif in_place and collective == "alltoall":
            assert 0.9 * size <= wrong <= size, rank  # two blocks of one rank may agree somewhere
        else:
            assert wrong == size, rank


@pytest.mark.parametrize("op", ["sum", "average", "prod", "min", "max", "land", "lor"])
def test_a_reduce_in_place_that_does_nothing_is_wrong_at_the_smallest_sizes(op: str) -> None:
    """The root starts from its own input, so its own values must not pass for the answer, at one element even."""
    dtype = "int32" if op in ("land", "lor") else "float32"
    for nranks, count in ((n, count) for n in (2, 3, 4, 5) for count in (1, 2, 3, n, 2 * n, 4 * n)):
        for root in range(nranks):
            ready = probes("reduce", nranks, count, dtype, in_place=True, op=op, root=root)[root]
            wrong = 0
            for salt in (1, 3):  # the first check and the last
                ready.write_all(salt)
                wrong += ready.check(salt).wrong
            assert wrong, (nranks, count, root)


@pytest.mark.parametrize(("dtype", "nranks"), [("bfloat16", 257), ("float16", 2049), ("bfloat16", 300)])
def test_an_average_over_more_ranks_than_the_dtype_can_count_is_rounded_once(dtype: str, nranks: int) -> None:
    values = np.arange(1, 200).astype(numpy_dtype(dtype))
    right = (values.astype(np.float64) / nranks).astype(numpy_dtype(dtype))
    NumpyBackend().divide(values, nranks)
    assert (values == right).all()


def test_poison_is_no_right_value() -> None:
    for dtype in MOVED:
        poison = np.array([POISON.get(dtype, -1)]).astype(numpy_dtype(dtype))[0]
        tables = [input_table(rank, 1, False, 1, "sum", dtype)[:PERIOD] for rank in range(4)]
        assert sum(int((table == poison).sum()) for table in tables) <= (4 * PERIOD * 0.6 if dtype == "bool" else 0)


def drop(probe: Probe, x: Vector) -> Vector:
    return x * 0 if probe.rank == 1 else x


def double(probe: Probe, x: Vector) -> Vector:
    return x * 2 if probe.rank == 1 else x


def shift(probe: Probe, x: Vector) -> Vector:
    return np.roll(x, 1) if probe.rank == 1 else x


def swap_in_another(probe: Probe, x: Vector) -> Vector:
    return as_moved(probe, 0, 1, x) if probe.rank == 1 else x


def stale(probe: Probe, x: Vector) -> Vector:
    return as_moved(probe, 1, 2, x) if probe.rank == 1 else x


def off_by_a_block(probe: Probe, x: Vector) -> Vector:
    return np.roll(x, x.size // 4) if probe.rank == 1 else x


def as_moved(probe: Probe, rank: int, salt: int, x: Vector) -> Vector:
    """Return another rank's or an earlier input in place of this one."""
    nranks = probe.nranks if probe.semantics.reduces else 1
    return brought(rank, salt, x.size, probe.dtype, probe.start, nranks=nranks, op=probe.op)


CASES = [
    ("allreduce", 2, 24),
    ("allreduce", 5, 1000),
    ("allreduce", 4, 4 * PERIOD),
    ("reduce_scatter", 4, 400),
    ("reduce", 4, 400),
    ("allgather", 4, 400),
    ("alltoall", 4, 400),
    ("bcast", 3, 400),
]


def all_saw(ready: list[Probe], salt: int = 1) -> bool:
    """Say whether every rank that gets a result found it wrong."""
    at_root = ready[0].semantics.name == "reduce"
    return all(one.wrong for rank, one in enumerate(found(ready, salt)) if not at_root or rank == ready[0].root)


@pytest.mark.parametrize("broken", [drop, double, shift, swap_in_another, stale, off_by_a_block])
@pytest.mark.parametrize("dtype", [dtype for dtype in MOVED if dtype != "bool"])
def test_case_17_a_broken_contribution_of_one_rank_is_seen_by_all(
    broken: Callable[[Probe, Vector], Vector], dtype: str
) -> None:
    for collective, nranks, count in CASES:
        reduces = COLLECTIVES[collective].reduces
        for op in ("sum", "average") if reduces and taken("allreduce", "average", dtype) else ("sum",):
            ready = written(probes(collective, nranks, count, dtype, op=op, root=1))
            collect(ready, broken)
            assert all_saw(ready), (collective, nranks, count, op)


@pytest.mark.parametrize("broken", [shift, stale, off_by_a_block])
@reduced
def test_a_broken_contribution_is_seen_with_every_operation(
    broken: Callable[[Probe, Vector], Vector], op: str, dtype: str
) -> None:
    for nranks, count in ((2, 200), (5, 1100), (4, 4 * PERIOD), (32, 3 * PERIOD)):
        ready = written(probes("allreduce", nranks, count, dtype, op=op))
        collect(ready, broken)
        assert all_saw(ready), (nranks, count)


@pytest.mark.parametrize("broken", [drop, shift, swap_in_another, stale, off_by_a_block])
def test_a_broken_contribution_of_truths_is_seen_where_they_are_moved(
    broken: Callable[[Probe, Vector], Vector],
) -> None:
    for collective, nranks, count in CASES:
        if not COLLECTIVES[collective].reduces:
            ready = written(probes(collective, nranks, count, "bool", root=1))
            collect(ready, broken)
            assert all_saw(ready), (collective, nranks, count)


def test_an_alltoall_that_gives_blocks_in_another_order_is_wrong() -> None:
    for dtype in MOVED:
        ready = written(probes("alltoall", 4, 400, dtype))
        own = [np.split(np.array(probe.input), 4) for probe in ready]
        for rank, probe in enumerate(ready):
            probe.result[...] = np.concatenate([own[rank][source] for source in range(4)])  # it kept its own
        assert all_saw(ready)


def test_a_bcast_from_another_root_is_wrong() -> None:
    for dtype in MOVED:
        ready = written(probes("bcast", 3, 60, dtype, root=2))
        for probe in ready:
            probe.result[...] = brought(0, 1, 60, dtype)
        assert all_saw(ready)


@every
def test_the_result_before_is_wrong_for_the_next_data(collective: str) -> None:
    ready = probes(collective, 3, 300, root=1)
    for before, now in ((1, 2), (2, 3), (1, 3)):
        collect(written(ready, before))
        assert found(ready, before) == [(0, None)] * 3
        for one, probe in zip(found(ready, now), ready, strict=True):
            assert one.wrong >= 0.9 * probe.result.size
        assert all_saw(ready, now)


def test_a_changed_input_is_said_to_be_one() -> None:
    for collective in COLLECTIVES:
        ready = written(probes(collective, 2, 20, in_place=False, root=1))
        collect(ready)
        right = int(ready[1].sendbuf[3])
        ready[1].sendbuf[3] = 0
        assert ready[0].check(1) == (0, None)
        at = 13 if collective == "allgather" else 3  # in the whole vector
        assert ready[1].check(1) == (1, f"sendbuf changed: element {at} is 0, not {right}"), collective
        ready[1].result[0] = -7
        wrong, first = ready[1].check(1)
        assert wrong == 2
        at = 10 if collective == "reduce_scatter" else 0  # in the whole vector again
        assert str(first).startswith(f"element {at} is -7, not ")


@every
def test_buffers_have_the_sizes_of_mpi(collective: str) -> None:
    whole, part, root = 12, [4, 4, 4], 1
    if collective in ("reduce_scatter", "allgather"):
        whole, part = 10, [4, 3, 3]
    for rank, probe in enumerate(probes(collective, 3, whole, in_place=False, root=root)):
        sizes = {
            "allreduce": (whole, whole),
            "reduce_scatter": (whole, part[rank]),
            "allgather": (part[rank], whole),
            "bcast": (whole if rank == root else 0, whole),
            "reduce": (whole, whole if rank == root else 0),
            "alltoall": (whole, whole),
        }[collective]
        assert (probe.sendbuf.size, probe.recvbuf.size) == sizes
        assert not np.shares_memory(probe.sendbuf, probe.recvbuf)
        assert not probe.consumes_input
    for rank, probe in enumerate(probes(collective, 3, whole, root=root)):
        assert probe.recvbuf is probe.sendbuf
        assert probe.recvbuf.size == whole
        received = {"reduce_scatter": part[rank], "reduce": whole if rank == root else 0}.get(collective, whole)
        assert probe.result.size == received
        assert probe.consumes_input == (collective not in ("allgather", "bcast"))


def test_an_allgather_in_place_has_its_block_where_it_belongs() -> None:
    probe = probes("allgather", 3, 10)[1]
    probe.write_all(2)
    assert probe.recvbuf.tolist() == [-1] * 4 + brought(1, 2, 3, "int32", start=4).tolist() + [-1] * 3


def test_only_the_root_of_a_bcast_has_an_input() -> None:
    first, second = written(probes("bcast", 2, 4, root=1))
    assert first.recvbuf.tolist() == [-1] * 4
    assert second.recvbuf.tolist() == brought(1, 1, 4, "int32").tolist()


@pytest.mark.parametrize(("dtype", "value"), [("int8", -1), ("uint8", 255), ("bool", True), ("complex64", -1)])
def test_where_a_result_must_come_stands_what_is_none(dtype: str, value: object) -> None:
    op = "lor" if dtype == "bool" else "sum"
    probe = written(probes("allreduce", 2, 5, dtype, in_place=False, op=op))[0]
    assert probe.recvbuf.tolist() == [value] * 5


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


@pytest.mark.parametrize("dtype", [*MOVED])
def test_on_a_device_the_input_is_there_before_the_clock_starts(dtype: str) -> None:
    device = FakeCudaBackend()
    op = "lor" if dtype == "bool" else "sum"
    probe = Probe("allreduce", op, dtype, 1, 2, 300, False, device)
    probe.write_all(1)
    assert device.pending == []
    assert isinstance(probe.sendbuf, CudaArray)
    assert np.array_equal(probe.sendbuf.memory, brought(1, 1, 300, dtype, nranks=2, op=op))
    assert (probe.recvbuf.memory == np.array(POISON.get(dtype, -1)).astype(numpy_dtype(dtype))).all()
    assert probe.check(1).wrong >= (100 if dtype == "bool" else 300)
    probe.recvbuf[...] = device.from_host(reduced_answer(2, 1, False, op, dtype).table[:300])
    assert probe.check(1) == (0, None)

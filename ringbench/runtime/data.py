"""Data with a known answer, and the check against it.

Every rank's input repeats a table of 251 values, moved by one place at each repetition; the tables of two ranks differ,
and so do those of two salts. What they reduce to over all ranks is again such a table, so that the answer is known
without any communication. The values are whole numbers, or powers of two for a product, such that no order of the
operation rounds or overflows in any dtype: a dropped, doubled, shifted or stale contribution cannot hide (of min, max,
land and lor: on up to 125 ranks). Where the dtype is too narrow for all ranks' values, some contribute the neutral
element at each place. (MPI does not say what an overflow gives: NumPy wraps around, Open MPI's sums of int8, uint8 and
int16 stop at the greatest value.)

For floats a second kind does round: it is held to the bound (N-1) * eps * sum |x| (Higham, Accuracy and Stability of
Numerical Algorithms, 2002, section 4.2), or (N-1) * eps times the product, and its bits are compared over the ranks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from ringbench.runtime.arrays import UFUNCS, Array, Backend, numpy_dtype
from ringbench.runtime.demands import COMPLEX, FLOATS, INTEGERS
from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.semantics import collective_named

PERIOD = 251  # prime, so that two ranks' polynomials below differ, and no power of two is a multiple
Table = np.ndarray[Any, np.dtype[Any]]


#: Up to this whole number all are exact.
EXACT = {"float16": 2**11, "bfloat16": 2**8, "int8": 2**7 - 1, "uint8": 2**8 - 1, "int16": 2**15 - 1}

#: The distance from 1 to the next larger number.
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
EPS |= {"complex64": EPS["float32"], "complex128": EPS["float64"]}

#: Ranks that bring another value than 1 or -1 to a product: half and double at most, so that it is never more than
#: 2^12, or 2^6 of integers.
FACTORS, WHOLE_FACTORS = 12, 6

#: What is written where a result must come, if -1 is no value of the dtype.
POISON = {"uint8": 255, "bool": 1}

#: Elements behind ``recvbuf`` that nobody may write.
GUARD = 16


def rounds(op: str, dtype: str) -> bool:
    """Say whether the operation may round in the dtype, so that bits can depend on the order."""
    return op in ("sum", "average", "prod") and (dtype in FLOATS or dtype in COMPLEX)


def _mixed(rank: int, salt: int) -> Table:
    """Return 251 numbers from 0 to 250: a polynomial of the place modulo 251, another for each rank below 251^2."""
    place = np.arange(1, PERIOD + 1, dtype=np.int64)
    mixed = place * (rank % PERIOD + 3) + place * place * (rank // PERIOD) + 37 * rank + 5 * rank * rank + 101 * salt
    return np.asarray(mixed % PERIOD)


def _bits(rank: int, salt: int) -> Table:
    """Return zeros and ones, of any two salts in a row from 2 on the opposite: one alone must not pass for the next."""
    return (_mixed(rank, int(salt == 1)) + salt) % 2


def _takes_part(rank: int, stride: int) -> Table:
    """Say at which places a rank brings more than the neutral element: at one in ``stride``."""
    return np.asarray((np.arange(PERIOD) + rank) % stride == 0)


def _summands(rank: int, salt: int, nranks: int, dtype: str) -> Table:
    """Return whole numbers from 1 on whose sum over the ranks is exact, in steps of at least four values."""
    exact = EXACT.get(dtype)
    if exact is None:
        return 1 + _mixed(rank, salt)
    stride = -(-4 * nranks // exact)
    most = min(PERIOD, exact // -(-nranks // stride))
    return np.where(_takes_part(rank, stride), 1 + _mixed(rank, salt) % most, 0)


def _factors(rank: int, salt: int, nranks: int, dtype: str) -> Table:
    """Return factors whose product is exact: signs (or powers of i) and powers of 2."""
    mixed = _mixed(rank, salt)
    if dtype in INTEGERS:
        doubles = mixed * mixed % PERIOD % 2  # of mixed itself all places of one rank may be even
        whole = np.where(_takes_part(rank, -(-nranks // WHOLE_FACTORS)), 1 + doubles, 1)
        return whole if dtype == "uint8" else np.where(mixed // 2 % 2, whole, -whole)
    power = np.where(_takes_part(rank, -(-nranks // FACTORS)), mixed % 3 - 1, 0)
    turns = mixed // 3 % 4 if dtype in COMPLEX else mixed // 3 % 2 * 2
    return np.asarray(np.array([1, 1j, -1, -1j])[turns] * 2.0**power)


def _truths(rank: int, salt: int, nranks: int, neutral: int) -> Table:
    """Return the neutral element but where it is this rank's turn, at half of the places nobody's."""
    several = min(nranks, PERIOD // 2)
    somebodys = _bits(0, salt) == 0
    somebodys[0] |= salt == 1
    turn = (np.cumsum(somebodys) - 1 + salt // 2) % several
    return np.where(somebodys & (turn == rank % several), 1 - neutral, neutral)


def _extremes(rank: int, salt: int, nranks: int) -> Table:
    """Return numbers from 0 to 119; at each place one rank has the least and the next one the greatest, in turns.

    So that no rank's own values can pass for the answer: not at the first place either, whose turn moves with the salt.
    """
    mixed, turn = _mixed(rank, salt), np.arange(PERIOD) + salt // 2
    values = 20 + mixed % 80
    values = np.where((turn + 1) % nranks == rank, 100 + mixed % 20, values)
    return np.where(turn % nranks == rank, mixed % 20, values)


def rank_values(rank: int, salt: int, nranks: int = 1, op: str = "sum", dtype: str = "float64") -> Table:
    """Return one rank's 251 values, before they are cast to the dtype."""
    if op == "sum" and dtype == "bool":  # only to be moved
        return _bits(rank, salt)
    if op in ("sum", "average"):
        values = _summands(rank, salt, nranks, dtype)
        return values + 1j * _summands(rank, salt + 7, nranks, dtype) if dtype in COMPLEX else values
    if op == "prod":
        return _factors(rank, salt, nranks, dtype)
    if op in ("min", "max"):
        return _extremes(rank, salt, nranks) - (0 if dtype == "uint8" else 60)
    return _truths(rank, salt, nranks, neutral=int(op == "land"))


def _rounding_values(rank: int, salt: int, nranks: int, op: str, dtype: str) -> Table:
    mixed = _mixed(rank, salt)
    if op == "prod":
        values = np.where(_takes_part(rank, -(-nranks // FACTORS)), 0.8 + mixed / 600, 1.0)
    else:
        values = (1 + mixed) / 10
    return values + 1j * (1 + _mixed(rank, salt + 7)) / 1000 if dtype in COMPLEX else values


def _unroll(values: Table) -> Table:
    """Return 251 repetitions of a table, each moved on by one place."""
    twice = np.concatenate((values, values))
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(twice, PERIOD)[:PERIOD]).reshape(-1)


class Answer(NamedTuple):
    """Hold the right result as a repeating table, and how far off each element may be (None: not at all)."""

    table: Table
    bound: Table | None


def _inputs(rank: int, salt: int, rounding: bool, nranks: int, op: str, dtype: str) -> Table:
    values = _rounding_values(rank, salt, nranks, op, dtype) if rounding else rank_values(rank, salt, nranks, op, dtype)
    if dtype not in COMPLEX and np.iscomplexobj(values):
        values = values.real
    return values.astype(numpy_dtype(dtype))


@lru_cache(maxsize=64)
def input_table(rank: int, salt: int, rounding: bool, nranks: int, op: str, dtype: str) -> Table:
    """Return the repeating table of one rank's input."""
    return _unroll(_inputs(rank, salt, rounding, nranks, op, dtype))


@lru_cache(maxsize=16)
def reduced_answer(nranks: int, salt: int, rounding: bool, op: str, dtype: str) -> Answer:
    """Return what all ranks' inputs reduce to, without communication."""
    inputs = [_inputs(rank, salt, rounding, nranks, op, dtype) for rank in range(nranks)]
    if not rounding:
        if dtype in EXACT:  # added up where nothing rounds, whatever the order
            exact = reduce(UFUNCS[op], [values.astype(np.float64) for values in inputs])
            exact = exact.astype(numpy_dtype(dtype))
        else:
            exact = reduce(UFUNCS[op], inputs).astype(inputs[0].dtype)
        if op == "average":
            parts = exact.view(exact.real.dtype) if dtype in COMPLEX else exact
            if dtype in FLOATS and dtype in EXACT:  # the divisor may be no number of the dtype
                parts[...] = (parts.astype(np.float64) / nranks).astype(parts.dtype)
            else:
                np.divide(parts, parts.dtype.type(nranks), parts)
        return Answer(_unroll(exact), None)
    wide = np.clongdouble if dtype in COMPLEX else np.longdouble
    values = [value.astype(np.complex128 if dtype in COMPLEX else np.float64).astype(wide) for value in inputs]
    right = reduce(UFUNCS[op], values)
    if op == "prod":  # each complex product rounds three times in either part
        bound = rounding_bound(nranks, np.abs(right), dtype) * (4 if dtype in COMPLEX else 1) * 1.01
    else:
        magnitude = np.sum(np.abs(values), axis=0)
        bound = rounding_bound(nranks, magnitude, dtype)
        if op == "average":
            right, bound = right / nranks, bound / nranks + EPS[dtype] * magnitude / nranks
    plain = right.astype(np.complex128 if dtype in COMPLEX else np.float64)
    return Answer(_unroll(plain), _unroll(bound.astype(np.float64)))


def rounding_bound(nranks: int, magnitude: Table, dtype: str) -> Table:
    """Return how far a sum over ranks in any order may be from the exact one: (N-1) * eps * sum |x|."""
    return (nranks - 1) * EPS[dtype] * magnitude


def fill(view: Array, table: Array, start: int) -> None:
    """Fill a vector from a repeating table, as elements ``start`` and on of the endless repetition."""
    for here, part in _tiles(view.size, len(table), start):
        view[here] = table[part]


def _tiles(count: int, period: int, start: int) -> list[tuple[slice, slice]]:
    """Cut a vector where the table begins anew: slices of the vector beside slices of the table."""
    tiles, done = [], 0
    while done < count:
        phase = (start + done) % period
        length = min(period - phase, count - done)
        tiles.append((slice(done, done + length), slice(phase, phase + length)))
        done += length
    return tiles


class Mismatch(NamedTuple):
    """Count wrong elements and describe the first."""

    wrong: int
    first: str | None


def mismatches(result: Table, answer: Answer, start: int, number: int | None = None) -> Mismatch:
    """Compare a vector in host memory with elements ``start`` and on of the right answer.

    ``number`` is what the first element is called (``start`` unless given).
    """
    wrong, first = 0, None
    number = start if number is None else number
    for here, part in _tiles(result.size, len(answer.table), start):
        expected = answer.table[part]
        if answer.bound is None:
            bad = result[here] != expected
        else:
            found_here = result[here].astype(expected.dtype)
            bad = ~(np.abs(found_here - expected) <= answer.bound[part])  # catches NaN
        found = int(np.count_nonzero(bad))
        if found and first is None:
            at = int(np.argmax(bad))
            first = f"element {number + here.start + at} is {result[here][at]}, not {expected[at]}"
        wrong += found
    return Mismatch(wrong, first)


class Probe:
    """Hold one rank's buffers for a collective: fill them with its input, check what came out.

    ``empty`` allocates them (None: as the backend does).
    """

    def __init__(
        self,
        collective: str,
        op: str,
        dtype: str,
        rank: int,
        nranks: int,
        count: int,
        in_place: bool,
        backend: Backend,
        root: int = 0,
        empty: Callable[[int, str], Array] | None = None,
    ) -> None:
        self.semantics = semantics = collective_named(collective)
        self.op, self.dtype, self.rank, self.nranks, self.in_place = op, dtype, rank, nranks, in_place
        self.backend = backend
        self.offsets = block_offsets(count, nranks)
        brought, got = semantics.brought(rank, nranks, root), semantics.got(rank, nranks, root)
        self.start, end = self.offsets[brought.start], self.offsets[brought.stop]
        received = self.offsets[got.stop] - self.offsets[got.start]
        length = count if in_place else received
        empty = backend.empty if empty is None else empty
        memory = empty(length + GUARD, dtype)
        self.recvbuf, self.guard = memory[:length], memory[length:]
        self.sendbuf = self.recvbuf if in_place else empty(end - self.start, dtype)
        self.result = self.recvbuf[:received]
        self.result_start = self.offsets[got.start]
        self.input = self.recvbuf[self.start : end] if in_place else self.sendbuf
        self.consumes_input = in_place and (semantics.reduces or semantics.transposes)
        self.root = root

    def _table(self, rank: int, salt: int, rounding: bool) -> Table:
        nranks = self.nranks if self.semantics.reduces else 1  # what is only moved need not leave room for a sum
        return input_table(rank, salt, rounding, nranks, self.op, self.dtype)

    def write_input(self, salt: int, rounding: bool = False) -> None:
        """Write this rank's input of one kind where the collective takes it, and wait until it is there."""
        fill(self.input, self.backend.from_host(self._table(self.rank, salt, rounding)), self.start)
        self.backend.synchronize()  # or a plan's first synchronisation would wait for it within the timed part

    def write_all(self, salt: int, rounding: bool = False) -> None:
        """Write the input, and -1 wherever else a result must come, so that what is not written shows."""
        self.recvbuf[...] = self.guard[...] = POISON.get(self.dtype, -1)
        self.write_input(salt, rounding)

    def check(self, salt: int, rounding: bool = False) -> Mismatch:
        """Compare the result, what lies behind it, and out of place the input too, with what they must be."""
        result = self.backend.to_host(self.result)
        if self.semantics.reduces:
            answer = reduced_answer(self.nranks, salt, rounding, self.op, self.dtype)
            found = mismatches(result, answer, self.result_start)
        else:
            found = Mismatch(0, None)
            for part, owner, start in self._sources():
                answer = Answer(self._table(owner, salt, rounding), None)
                found = _both(found, mismatches(result[part], answer, start, part.start))
        if not self.in_place:
            own = Answer(self._table(self.rank, salt, rounding), None)
            changed = mismatches(self.backend.to_host(self.sendbuf), own, self.start)
            found = _both(found, changed._replace(first=changed.first and f"sendbuf changed: {changed.first}"))
        poison = Answer(np.full(GUARD, POISON.get(self.dtype, -1)).astype(numpy_dtype(self.dtype)), None)
        beyond = mismatches(self.backend.to_host(self.guard), poison, 0)
        return _both(found, beyond._replace(first=beyond.first and f"written behind recvbuf: {beyond.first}"))

    def _sources(self) -> list[tuple[slice, int, int]]:
        """Return for each part of a result that is not reduced whose input it is, and from which element on."""
        if self.semantics.name == "bcast":
            return [(slice(0, self.result.size), self.root, 0)]
        return [
            (
                slice(self.offsets[block], self.offsets[block + 1]),
                block,
                self.offsets[self.semantics.origin(self.rank, block)],
            )
            for block in range(self.nranks)
        ]

    def digest(self) -> int:
        """Return a checksum of the result's bits."""
        return zlib.crc32(self.backend.to_host(self.result).view(np.uint8).data)  # no copy: memory is counted


def _both(one: Mismatch, other: Mismatch) -> Mismatch:
    return Mismatch(one.wrong + other.wrong, one.first or other.first)

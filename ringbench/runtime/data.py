"""Data with a known answer, and the check against it.

Every rank's input repeats a table of 251 whole numbers between 1 and 251, moved by one place at each repetition; the
tables of two ranks differ, and so do those of two salts. The sum over ranks is again such a table, so that the answer
is known without any communication, and it is exact in every dtype here: a dropped, doubled, shifted or stale
contribution cannot hide in rounding. For floats a second kind, divided by 10, does round: it is held to the bound
(N-1) * eps * sum |x| (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2), and its bits are
compared over the ranks.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ringbench.runtime.arrays import Array, Backend
from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.semantics import collective_named

PERIOD = 251  # prime, so that two ranks' polynomials below differ, and no power of two is a multiple
Table = np.ndarray[Any, np.dtype[Any]]


def rank_values(rank: int, salt: int) -> Table:
    """Return one rank's 251 whole numbers: a polynomial of the place modulo 251, another for each rank below 251^2."""
    place = np.arange(1, PERIOD + 1, dtype=np.int64)
    mixed = place * (rank % PERIOD + 3) + place * place * (rank // PERIOD) + 37 * rank + 101 * salt
    return 1 + mixed % PERIOD


def _unroll(values: Table) -> Table:
    """Return 251 repetitions of a table, each moved on by one place."""
    twice = np.concatenate((values, values))
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(twice, PERIOD)[:PERIOD]).reshape(-1)


class Answer(NamedTuple):
    """Hold the right result as a repeating table, and how far off each element may be (None: not at all)."""

    table: Table
    bound: Table | None


def _inputs(rank: int, salt: int, rounding: bool, dtype: str) -> Table:
    values = rank_values(rank, salt)
    return (values / 10 if rounding else values).astype(dtype)


@lru_cache(maxsize=64)
def input_table(rank: int, salt: int, rounding: bool, dtype: str) -> Table:
    """Return the repeating table of one rank's input."""
    return _unroll(_inputs(rank, salt, rounding, dtype))


@lru_cache(maxsize=16)
def reduced_answer(nranks: int, salt: int, rounding: bool, dtype: str, average: bool) -> Answer:
    """Return the sum, or average, of all ranks' inputs, without communication."""
    if not rounding:
        total = sum((rank_values(rank, salt) for rank in range(nranks)), np.zeros(PERIOD, dtype=np.int64))
        exact = total.astype(dtype)
        if average:
            exact = np.divide(exact, exact.dtype.type(nranks))
        return Answer(_unroll(exact), None)
    inputs = [_inputs(rank, salt, rounding, dtype).astype(np.longdouble) for rank in range(nranks)]
    total, magnitude = np.sum(inputs, axis=0), np.sum(np.abs(inputs), axis=0)
    bound = rounding_bound(nranks, magnitude, dtype)
    if average:
        total, bound = total / nranks, bound / nranks + np.finfo(dtype).eps * magnitude / nranks
    return Answer(_unroll(total.astype(np.float64)), _unroll(bound.astype(np.float64)))


def rounding_bound(nranks: int, magnitude: Table, dtype: str) -> Table:
    """Return how far a sum over ranks in any order may be from the exact one: (N-1) * eps * sum |x|."""
    return (nranks - 1) * float(np.finfo(dtype).eps) * magnitude


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


def mismatches(result: Table, answer: Answer, start: int) -> Mismatch:
    """Compare a vector in host memory with elements ``start`` and on of the right answer."""
    wrong, first = 0, None
    for here, part in _tiles(result.size, len(answer.table), start):
        expected = answer.table[part]
        if answer.bound is None:
            bad = result[here] != expected
        else:
            bad = ~(np.abs(result[here].astype(np.float64) - expected) <= answer.bound[part])  # catches NaN
        found = int(np.count_nonzero(bad))
        if found and first is None:
            at = int(np.argmax(bad))
            first = f"element {start + here.start + at} is {result[here][at]}, not {expected[at]}"
        wrong += found
    return Mismatch(wrong, first)


class Probe:
    """Hold one rank's buffers for a collective: fill them with its input, check what came out."""

    def __init__(
        self, collective: str, op: str, dtype: str, rank: int, nranks: int, count: int, in_place: bool, backend: Backend
    ) -> None:
        self.semantics = collective_named(collective)
        self.average = op == "average" and self.semantics.reduces
        self.dtype, self.rank, self.nranks, self.in_place = dtype, rank, nranks, in_place
        self.backend = backend
        self.offsets = block_offsets(count, nranks)
        received = self.semantics.recv_count(rank, nranks, count)
        self.recvbuf = backend.empty(count if in_place else received, dtype)
        self.sendbuf = (
            self.recvbuf if in_place else backend.empty(self.semantics.send_count(rank, nranks, count), dtype)
        )
        self.result = self.recvbuf[:received]
        self.start = 0 if self.semantics.reduces else self.offsets[rank]
        own = slice(self.offsets[rank], self.offsets[rank + 1])
        self.input = self.recvbuf[own] if in_place and not self.semantics.reduces else self.sendbuf
        self.consumes_input = in_place and self.semantics.reduces

    def write_input(self, salt: int, rounding: bool = False) -> None:
        """Write this rank's input of one kind where the collective takes it, and wait until it is there."""
        table = input_table(self.rank, salt, rounding, self.dtype)
        fill(self.input, self.backend.from_host(table), self.start)
        self.backend.synchronize()  # or a plan's first synchronisation would wait for it within the timed part

    def write_all(self, salt: int, rounding: bool = False) -> None:
        """Write the input, and -1 wherever else a result must come, so that what is not written shows."""
        self.recvbuf[...] = -1
        self.write_input(salt, rounding)

    def check(self, salt: int, rounding: bool = False) -> Mismatch:
        """Compare the result, and out of place the input too, with what they must be."""
        result = self.backend.to_host(self.result)
        if self.semantics.reduces:
            answer = reduced_answer(self.nranks, salt, rounding, self.dtype, self.average)
            start = self.offsets[self.rank] if self.semantics.name == "reduce_scatter" else 0
            found = mismatches(result, answer, start)
        else:
            found = Mismatch(0, None)
            for rank in range(self.nranks):
                start, stop = self.offsets[rank], self.offsets[rank + 1]
                answer = Answer(input_table(rank, salt, rounding, self.dtype), None)
                found = _both(found, mismatches(result[start:stop], answer, start))
        if not self.in_place:
            own = Answer(input_table(self.rank, salt, rounding, self.dtype), None)
            changed = mismatches(self.backend.to_host(self.sendbuf), own, self.start)
            found = _both(found, changed._replace(first=changed.first and f"sendbuf changed: {changed.first}"))
        return found

    def digest(self) -> int:
        """Return a checksum of the result's bits."""
        return zlib.crc32(self.backend.to_host(self.result).tobytes())


def _both(one: Mismatch, other: Mismatch) -> Mismatch:
    return Mismatch(one.wrong + other.wrong, one.first or other.first)

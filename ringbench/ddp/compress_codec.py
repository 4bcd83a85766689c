"""What the compressions share: phases, memory that is allocated once, times, bytes, and what is not finite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil, prod
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from ringbench.ddp.hooks import MakePlan, Piece, Stage
from ringbench.runtime.arrays import NumpyBackend
from ringbench.schedule.semantics import collective_named

Vector: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Elements of two bytes are compressed already, and no compression here counts in integers.
DTYPES = ("float32", "float64")

#: What one rank sends in a collective, in units of the whole vector: called with the collective and N.
Volume: TypeAlias = Callable[[str, int], Fraction]

empty = NumpyBackend().empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Say what one collective of a step reduces or gathers: elements of the whole vector, and bytes of one."""

    collective: str
    count: int
    itemsize: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Say which collective runs in place on a buffer between two pieces of work."""

    collective: str
    buffer: Vector
    op: str = "sum"


class Work:
    """Do a part of the compression that needs no message, and keep its time.

    ``what`` is ``encode`` or ``decode``, ``seconds`` the time of all calls so far. Numbers that are not finite are
    counted by the codec, so NumPy need not warn of them.
    """

    __slots__ = ("codec", "function", "seconds", "what")

    def __init__(self, codec: Codec, what: str, function: Callable[[], object]) -> None:
        self.codec, self.what, self.function, self.seconds = codec, what, function, 0.0

    def __call__(self) -> None:
        """Run it."""
        start = perf_counter()
        with np.errstate(all="ignore"):
            self.function()
        self.seconds += perf_counter() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Hold what the compression of a run took on this rank: steps of buckets, seconds, and what was not finite.

    ``nonfinite`` counts the elements of averages that were NaN or infinite: because gradients were, on any rank, or
    because numbers were too large for the wire. It is the same on all ranks.
    """

    steps: int
    encode_s: float
    decode_s: float
    nonfinite: int


class Codec:
    """Hold the state of one bucket on one rank: what is carried from step to step, and all memory.

    ``phases`` are run in order: work, and the collectives between. ``vector`` is the bucket, read by the first phase
    and overwritten with the average by the last. ``residual`` is what error feedback carries into the next step, as
    large as the bucket, or empty where nothing is carried.
    """

    def __init__(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int, *, feedback: bool) -> None:
        self.vector, self.pieces, self.rank, self.nranks = vector, tuple(pieces), rank, nranks
        self.residual: Vector = empty(vector.size if feedback else 0, vector.dtype.name)
        self.mask = empty(vector.size, "bool")
        self.steps = self.nonfinite = 0
        self.phases: tuple[Work | Exchange, ...] = ()
        self.reset()

    def reset(self) -> None:
        """Forget what was carried from earlier steps."""
        self.residual.fill(0)

    def plan(self, *parts: tuple[str, Callable[[], object]] | Exchange) -> None:
        """Set the phases; collectives of nothing are left out, and the last part is followed by the count."""
        found: list[Work | Exchange] = []
        for part in parts:
            if not isinstance(part, Exchange):
                found.append(Work(self, *part))
            elif part.buffer.size:
                found.append(part)
        last = found[-1]
        assert isinstance(last, Work)
        last.function = partial(self._finish, last.function)
        self.phases = tuple(found)

    def _finish(self, decode: Callable[[], object]) -> None:
        """Decode, then count what is not finite; a residual keeps nothing of it, or no later step would be finite."""
        decode()
        self.steps += 1
        np.isfinite(self.vector, out=self.mask)
        found = self.vector.size - int(np.count_nonzero(self.mask))
        if found:
            self.residual[~np.isfinite(self.residual)] = 0
        self.nonfinite += found

    def carry(self) -> Vector:
        """Add the gradients to the residual, and return it: it holds what is to be sent until that is subtracted."""
        np.add(self.vector, self.residual, out=self.residual)
        return self.residual

    def account(self) -> Account:
        """Return what all steps so far took."""
        work = [phase for phase in self.phases if isinstance(phase, Work)]
        seconds = {what: sum(one.seconds for one in work if one.what == what) for what in ("encode", "decode")}
        return Account(
            steps=self.steps, encode_s=seconds["encode"], decode_s=seconds["decode"], nonfinite=self.nonfinite
        )


class Compression(ABC):
    """Replace the reduction of every bucket by one of fewer bytes: a hook.

    ``codecs`` are the buckets that it was asked for, one reducer's.
    """

    name: str

    def __init__(self) -> None:
        self.codecs: list[Codec] = []

    def __repr__(self) -> str:
        """Return the name, which says all."""
        return f"<compression {self.name}>"

    def codec(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> Codec:
        """Return the state for one bucket, without MPI; raise ValueError for one that cannot be compressed."""
        check_bucket(vector, pieces)
        return self.bind(vector, pieces, rank, nranks)

    @abstractmethod
    def bind(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> Codec:
        """Return the state for one bucket that has been checked."""

    @abstractmethod
    def messages(self, pieces: Sequence[Piece], itemsize: int, nranks: int) -> tuple[Message, ...]:
        """Return the collectives of one step, in order."""

    def stages(self, comm: Any, vector: Vector, pieces: Sequence[Piece], make_plan: MakePlan) -> tuple[Stage, ...]:
        """Return what reduces a bucket. Collective; see ``codec`` for errors."""
        codec = self.codec(vector, pieces, comm.Get_rank(), comm.Get_size())
        self.codecs.append(codec)
        return planned(codec, make_plan)

    def wire_bytes(self, pieces: Sequence[Piece], itemsize: int, nranks: int, volume: Volume | None = None) -> int:
        """Return the bytes that the busiest rank sends per step, by default with collectives that send the least."""
        return sent_bytes(self.messages(pieces, itemsize, nranks), nranks, volume)

    def loses_from(
        self, pieces: Sequence[Piece], itemsize: int, most: int = 4096, volume: Volume | None = None
    ) -> int | None:
        """Return the least number of ranks with which it sends more than no compression; None up to ``most`` ranks."""
        for nranks in range(2, most + 1):
            plain = sent_bytes(plain_messages(pieces, itemsize), nranks, volume)
            if self.wire_bytes(pieces, itemsize, nranks, volume) > plain:
                return nranks
        return None

    def reset(self) -> None:
        """Forget what was carried from earlier steps, in all buckets."""
        for codec in self.codecs:
            codec.reset()

    def account(self) -> Account:
        """Return what all steps of all buckets so far took on this rank."""
        each = [codec.account() for codec in self.codecs]
        return Account(
            steps=sum(one.steps for one in each),
            encode_s=sum(one.encode_s for one in each),
            decode_s=sum(one.decode_s for one in each),
            nonfinite=sum(one.nonfinite for one in each),
        )


def planned(codec: Codec, make_plan: MakePlan) -> tuple[Stage, ...]:
    """Return the phases of a codec with each collective planned. Collective."""
    return tuple(
        make_plan(phase.collective, phase.buffer, phase.buffer, phase.op) if isinstance(phase, Exchange) else phase
        for phase in codec.phases
    )


def check_bucket(vector: Vector, pieces: Iterable[Piece]) -> None:
    """Raise ValueError for a bucket of another kind, or that its parameters do not fill one after the other."""
    if not isinstance(vector, np.ndarray):
        raise ValueError(f"a bucket of {type(vector).__name__}: only NumPy arrays are compressed")
    if vector.dtype.name not in DTYPES:
        raise ValueError(f"a bucket of dtype {vector.dtype.name!r}: only {' and '.join(DTYPES)} are compressed")
    if vector.ndim != 1 or not vector.flags.c_contiguous:
        raise ValueError(f"a bucket of shape {vector.shape} and strides {vector.strides}: must be flat and contiguous")
    end = 0
    for offset, shape in pieces:
        if offset != end:
            raise ValueError(f"a parameter of shape {shape} at {offset}: the one before it ends at {end}")
        end += prod(shape)
    if end != vector.size:
        raise ValueError(f"the parameters end at {end}, the bucket at {vector.size}")


def plain_messages(pieces: Sequence[Piece], itemsize: int) -> tuple[Message, ...]:
    """Return the collective of one step without compression."""
    return (Message(collective="allreduce", count=elements(pieces), itemsize=itemsize),)


def elements(pieces: Iterable[Piece]) -> int:
    """Return the elements of all parameters."""
    return sum(prod(shape) for _, shape in pieces)


def least_volume(collective: str, nranks: int) -> Fraction:
    """Return what a rank sends at least, in units of the vector: 2(N-1)/N for an allreduce, (N-1)/N an allgather."""
    return collective_named(collective).bus_factor(nranks)


def sent_bytes(messages: Iterable[Message], nranks: int, volume: Volume | None = None) -> int:
    """Return the bytes that the busiest rank sends; a part of a byte counts as one."""
    factor = least_volume if volume is None else volume
    return ceil(sum(factor(one.collective, nranks) * one.count * one.itemsize for one in messages))

"""Ask a generator for the steps of all ranks at once.

A generator written in arithmetic of ``rank`` takes an array of ranks as it is. Where it branches on its rank, the ranks
are parted into those that go one way and those that go the other, and the generator is asked anew for each part: a
tree on N ranks is asked for log N kinds of ranks instead of N ranks. So every algorithm is written once, for one rank.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import MAX_OPERATIONS, Algorithm
from ringbench.schedule.step import Local, Meet, Operations, Spans, Step, spans

#: A generator that parts its ranks more often than this asks for one after the other: it is asked rank by rank.
MAX_PARTINGS = 64

#: Spans of one message, over all ranks that are asked together.
MAX_SPANS = 1 << 25

#: No rank on that side of a step.
NOBODY = -1


class _PartedError(Exception):
    """Report that a generator does not treat all its ranks alike: those with the same value go the same way."""

    def __init__(self, values: NDArray[Any]) -> None:
        super().__init__()
        self.values = values


def _same(values: NDArray[Any]) -> Any:
    """Return the value that all have."""
    first = values.flat[0]
    if not (values == first).all():
        raise _PartedError(values)
    return first


class Ranks(np.ndarray):
    """Stand for many ranks where a generator expects one."""

    def __bool__(self) -> bool:
        return bool(_same(np.asarray(self) != 0))

    def __index__(self) -> int:
        return int(_same(np.asarray(self)))

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.__index__())

    def bit_length(self) -> int:
        """Return what an int does: the bits of the number that all ranks have here."""
        return self.__index__().bit_length()

    def entries(self, table: tuple[int, ...]) -> Ranks:
        """Return the entry of a table for each rank, see ``schedule.parameters.entry``."""
        found: Ranks = np.asarray(table)[np.asarray(self)].view(Ranks)
        return found


class Operation(NamedTuple):
    """Hold one operation of some ranks as numbers or arrays: peers, bytes sent, and bytes reduced when it is over.

    ``reached`` are the bytes then read and written in the memory of other ranks.
    """

    dest: Any
    source: Any
    nbytes: Any
    reduced: Any
    reached: Any = 0

    @property
    def is_local(self) -> bool:
        """Say whether it has no message."""
        return self.dest is NOBODY and self.source is NOBODY


class Sizes:
    """Count the bytes of spans of a vector of ``nbytes`` bytes, for one rank or for many."""

    def __init__(self, nbytes: int, nblocks: int, ntemp: int) -> None:
        self.nbytes, self.nblocks, self.ntemp = nbytes, nblocks, ntemp
        self.size, self.larger = divmod(nbytes, nblocks)

    def __call__(self, value: Spans) -> Any:
        """Return the bytes of all spans together."""
        total: Any = 0
        for span in spans(value):
            if self.larger == 0:
                total = total + span.count * self.size  # blocks of one size: no matter which
            else:
                first = np.asarray(span.first) % (self.ntemp if span.place == "temp" else self.nblocks)
                total = total + self._before(first + np.asarray(span.count)) - self._before(first)
        return total

    def _before(self, block: NDArray[np.int64]) -> NDArray[np.int64]:
        turns, block = np.divmod(block, self.nblocks)
        found: NDArray[np.int64] = turns * self.nbytes + block * self.size + np.minimum(block, self.larger)
        return found


class Crowd:
    """Hold some ranks that have done the same until now, and the operations asked for but not yet played."""

    def __init__(self, members: NDArray[np.int64], asking: _Asking, *, partings: int = 0) -> None:
        self.members, self.asking, self.partings = members, asking, partings
        self.queue: list[Operation] = []
        self.asked = 0
        self.ended = False
        self.steps = iter(asking.generator(int(members[0]) if len(members) == 1 else members.view(Ranks)))

    def pull(self, count: int) -> list[Crowd]:
        """Ask for up to ``count`` operations more; return the crowds that take part from now on, itself or others.

        Raises ValueError where the generator does not come to an end.
        """
        known, size_of = len(self.queue), self.asking.size_of
        try:
            for _ in range(count):
                step = next(self.steps, None)
                if step is None:
                    self.ended = True
                    break
                self.asked += 1
                if self.asked == MAX_OPERATIONS:
                    raise ValueError(f"{self.asking.title}: rank {self.members[0]} does not come to an end")
                if isinstance(step, Step):
                    self.queue.append(_numbers(step, size_of))
                elif isinstance(step, Meet):
                    self.queue.extend(_barrier(step, self.members))
                else:
                    self._local(step, known)
        except _PartedError as parted:
            return [crowd for part in self._parts(parted.values) for crowd in part.pull(count)]
        return [self]

    def _local(self, step: Local, known: int) -> None:
        """Note what takes time: sums, and what is in the memory of others. One after the other are one."""
        size_of = self.asking.size_of
        reduced = size_of(step.dest) if step.action == "combine" else 0
        theirs = tuple(span for span in (*spans(step.dest), *spans(step.source)) if span.rank is not None)
        if step.action != "combine" and not theirs:
            return
        reached = size_of(theirs)
        if len(self.queue) > known and self.queue[-1].is_local:  # or a naive exchange would hold N sums a rank
            last = self.queue.pop()
            reduced, reached = reduced + last.reduced, reached + last.reached
        self.queue.append(Operation(NOBODY, NOBODY, 0, reduced, reached))

    def _parts(self, values: NDArray[Any]) -> list[Crowd]:
        members = np.arange(len(self.members))
        if self.partings >= MAX_PARTINGS or values.shape != members.shape:
            values = members
        _, kind = np.unique(values, return_inverse=True)
        order = np.argsort(kind, kind="stable")
        return [self._part(places) for places in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)]

    def _part(self, places: NDArray[np.int64]) -> Crowd:
        """Return some of the members as a crowd that stands where this one does."""

        def of(value: Any) -> Any:
            return value if np.ndim(value) == 0 else np.asarray(value)[places if len(places) > 1 else places[0]]

        part = Crowd(self.members[places], self.asking, partings=self.partings + 1)
        part.queue = [Operation(*map(of, operation)) for operation in self.queue]
        part.asked = self.asked
        for _ in range(self.asked):
            next(part.steps)
        return part


class _Asking(NamedTuple):
    """Hold whom to ask: a generator of (rank) alone, what its spans weigh, and its name for messages."""

    generator: Callable[[Any], Operations]
    size_of: Sizes
    title: str


def operations(algorithm: Algorithm, nranks: int, nbytes: int) -> list[Crowd]:
    """Return all ranks, to be asked for the steps of an algorithm on a vector of ``nbytes`` bytes.

    They are one crowd, or more where messages have so many spans that arrays of all ranks would not fit. Blocks are cut
    at whole bytes. Copies within a rank's own memory and divisions take no time in the model and are left out. Raises
    ValueError where an argument of the algorithm does not fit the number of ranks.
    """
    algorithm.check(nranks)
    arguments = dict(algorithm.arguments)

    def generator(rank: Any) -> Operations:
        return algorithm.generator(rank, nranks, **arguments) if nranks > 1 else ()

    size_of = Sizes(nbytes, algorithm.blocks(nranks), algorithm.temp(nranks))
    asking = _Asking(generator, size_of, f"{algorithm.title}, {nranks} ranks")
    steps = (step for step in islice(generator(0), MAX_OPERATIONS) if isinstance(step, Step))
    size = max(1, MAX_SPANS // max((len(spans(step.send)) for step in steps if step.send), default=1))
    return [Crowd(np.arange(first, min(first + size, nranks)), asking) for first in range(0, nranks, size)]


def _numbers(step: Step, size_of: Sizes) -> Operation:
    receives = step.source is not None
    return Operation(
        NOBODY if step.dest is None else step.dest,
        step.source if receives else NOBODY,
        0 if step.dest is None else size_of(step.send),
        size_of(step.recv) if receives and step.combine else 0,
    )


def _barrier(step: Meet, members: NDArray[np.int64]) -> list[Operation]:
    """Return a meet as the empty messages of a dissemination barrier: in ceil(lg g) rounds each hears from all."""
    size = len(step.ranks)
    if isinstance(step.ranks, range):
        table: Any = np.asarray(step.ranks)[:, None]
        place = members - step.ranks.start
    else:
        table = np.stack([np.broadcast_to(np.asarray(rank), members.shape) for rank in step.ranks])
        place = (table == members).argmax(axis=0)
    table = np.broadcast_to(table, (size, len(members)))
    columns = np.arange(len(members))
    found = []
    for k in range(ceil_log2(size)):
        dest, source = (table[(place + away) % size, columns] for away in (2**k, -(2**k)))
        if len(members) == 1:
            dest, source = int(dest[0]), int(source[0])
        found.append(Operation(dest, source, 0, 0))
    return found

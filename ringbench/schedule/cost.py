"""Count what a schedule costs: rounds, elements sent, elements reduced, and those that pass through shared memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Any

from ringbench.schedule.blocks import block_sizes
from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.rendezvous import Observer, play
from ringbench.schedule.step import Local, Meet, Spans, Step, block_numbers, ranges
from ringbench.schedule.step import spans as all_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Hold the exact counters of one schedule at one size, in elements.

    ``rounds``, ``critical_sent`` and ``critical_reduced`` are the longest chains of dependent messages, elements moved
    and elements reduced: the factors of alpha, beta and gamma. ``sent`` and ``reduced`` hold one entry for each rank,
    and so do ``read`` and ``written``: what it reads from and writes to the memory of other ranks, which is moved too.
    A meet takes the rounds in which each of its ranks can hear from all: ceil(lg N).
    """

    rounds: int
    critical_sent: int
    critical_reduced: int
    sent: tuple[int, ...]
    reduced: tuple[int, ...]
    read: tuple[int, ...]
    written: tuple[int, ...]

    @property
    def sent_max(self) -> int:
        """Return what the busiest rank sends."""
        return max(self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Hold one critical path of a schedule, in units of the whole vector.

    ``messages`` has the length of each message that must wait for the one before it, and how many are so long;
    ``reduced`` is what is added on the way.
    """

    messages: tuple[tuple[Fraction, int], ...]
    reduced: Fraction

    @property
    def rounds(self) -> int:
        """Return how many messages the path has."""
        return sum(number for _, number in self.messages)

    @property
    def sent(self) -> Fraction:
        """Return what they carry together."""
        return sum((length * number for length, number in self.messages), Fraction(0))


class _Lengths(Observer):
    """Know how many elements the spans of a schedule have."""

    def __init__(self, sizes: Sequence[int], ntemp: int) -> None:
        self.sizes, self.ntemp = sizes, ntemp
        self.offsets = [0, *accumulate(sizes)]

    def elements(self, spans: Spans) -> int:
        nblocks = len(self.sizes)
        total = 0
        for span in all_spans(spans):
            if span.place == "temp":
                total += sum(self.sizes[block % nblocks] for _, block in block_numbers(span, nblocks, self.ntemp))
            else:
                total += sum(self.offsets[end] - self.offsets[first] for first, end in ranges(span, nblocks))
        return total

    def reduce(self, rank: int, size: int) -> None:
        """Note that a rank adds so many elements."""

    def reach(self, rank: int, read: int, written: int) -> None:
        """Note that a rank reads and writes so many elements in the memory of others."""

    def theirs(self, rank: int, value: Spans) -> int:
        """Return how many elements of some spans are in the memory of others."""
        return sum(self.elements(span) for span in all_spans(value) if span.rank not in (None, rank))

    def finish(self, rank: int, round: int, step: Step) -> None:
        if step.combine and step.source is not None:
            self.reduce(rank, self.elements(step.recv))

    def local(self, rank: int, round: int, action: Local) -> None:
        read, written = self.theirs(rank, action.source), self.theirs(rank, action.dest)
        if read or written:
            self.reach(rank, read, written)
        if action.action == "combine":
            self.reduce(rank, self.elements(action.dest))


class _Clock(_Lengths):
    """Keep for every rank the longest chain that ends there, in three units at once: rounds, elements, reductions."""

    def __init__(self, nranks: int, sizes: Sequence[int], ntemp: int) -> None:
        super().__init__(sizes, ntemp)
        self.now = [(0, 0, 0)] * nranks
        self.later = [(0, 0, 0)] * nranks
        self.sent, self.reduced = [0] * nranks, [0] * nranks
        self.read, self.written = [0] * nranks, [0] * nranks

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        depth, moved, reduced = map(max, zip(*(self.now[rank] for rank in ranks), strict=True))
        for rank in ranks:
            self.now[rank] = self.later[rank] = depth + ceil_log2(len(ranks)), moved, reduced

    def reach(self, rank: int, read: int, written: int) -> None:
        rounds, moved, reduced = self.now[rank]
        self.now[rank] = rounds, moved + read + written, reduced
        self.read[rank] += read
        self.written[rank] += written

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        size = self.elements(sent.send)
        self.sent[sender] += size
        rounds, moved, reduced = map(max, self.now[sender], self.now[receiver])
        arrival = (rounds + 1, moved + size, reduced)
        for rank in (sender, receiver):
            self.later[rank] = _latest(self.later[rank], arrival)

    def finish(self, rank: int, round: int, step: Step) -> None:
        self.now[rank] = _latest(self.now[rank], self.later[rank])
        super().finish(rank, round, step)

    def reduce(self, rank: int, size: int) -> None:
        rounds, moved, reduced = self.now[rank]
        self.now[rank] = (rounds, moved, reduced + size)
        self.reduced[rank] += size


def _latest(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


#: Elements moved, messages, elements reduced; and the messages' lengths, the last one first.
_Chain = tuple[int, int, int, Any]


class _Trail(_Lengths):
    """Keep for every rank the one chain that moves most (of equals the one with most messages, then additions)."""

    def __init__(self, nranks: int, sizes: Sequence[int], ntemp: int) -> None:
        super().__init__(sizes, ntemp)
        self.now: list[_Chain] = [(0, 0, 0, None)] * nranks
        self.later: list[_Chain] = [(0, 0, 0, None)] * nranks

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        size = self.elements(sent.send)
        moved, rounds, reduced, before = max(self.now[sender], self.now[receiver], key=_weight)
        arrival = (moved + size, rounds + 1, reduced, (size, before))
        for rank in (sender, receiver):
            self.later[rank] = max(self.later[rank], arrival, key=_weight)

    def finish(self, rank: int, round: int, step: Step) -> None:
        self.now[rank] = max(self.now[rank], self.later[rank], key=_weight)
        super().finish(rank, round, step)

    def reduce(self, rank: int, size: int) -> None:
        moved, rounds, reduced, before = self.now[rank]
        self.now[rank] = (moved, rounds, reduced + size, before)


def _weight(chain: _Chain) -> tuple[int, int, int]:
    return chain[:3]


#: Playing more messages than this takes seconds.
MOST_PLAYED = 100_000


@cache
def critical_path(algorithm: Algorithm, nranks: int) -> Path:
    """Return the messages of the critical path of a vector that all blocks divide, and what is added on it.

    Where some rank takes part in as many rounds, and moves and adds as much, as the closed forms say, what that rank
    does is the path. Other schedules are played; those of very many messages are not, and rounds alone decide. Raises
    ValueError where no rank takes part in all of them, where one that is played cannot end, and where ranks share
    memory: what passes through that is no message.
    """
    if algorithm.shared is not None:
        raise ValueError(f"{algorithm.title}: its ranks share memory, so that messages do not tell what it takes")
    asked = sorted({0, 1, 2, nranks // 2, nranks - 1} & set(range(nranks)))
    paths = [_own_path(algorithm, rank, nranks) for rank in asked]
    path = max(paths, key=lambda path: (path.sent, path.rounds, path.reduced))
    whole = path.rounds == algorithm.rounds(nranks)
    if whole and (path.sent, path.reduced) == algorithm.critical(nranks):
        return path
    if nranks * max(len(algorithm.operations(rank, nranks)) for rank in asked) <= MOST_PLAYED:
        return _played_path(algorithm, nranks)
    if not whole:
        raise ValueError(f"{algorithm.title}, {nranks} ranks: too many messages to find the critical path")
    return path


def _played_path(algorithm: Algorithm, nranks: int) -> Path:
    nblocks = algorithm.blocks(nranks)
    trail = _Trail(nranks, [1] * nblocks, algorithm.temp(nranks))
    if play([algorithm.operations(rank, nranks) for rank in range(nranks)], trail):
        raise ValueError(f"{algorithm.title}, {nranks} ranks: never ends")
    _, _, reduced, chain = max(trail.now, key=_weight)
    found = Counter[int]()
    while chain is not None:
        found[chain[0]] += 1
        chain = chain[1]
    messages = tuple((Fraction(length, nblocks), number) for length, number in sorted(found.items()))
    return Path(messages=messages, reduced=Fraction(reduced, nblocks))


def own_steps(algorithm: Algorithm, rank: int, nranks: int) -> list[tuple[tuple[int, ...], Fraction, Fraction]]:
    """Return what one rank does, in order: its peers, the longer message and what is added, in units of the vector.

    What it does alone has no peers. All blocks are taken to be equal.
    """
    nblocks = algorithm.blocks(nranks)
    reader = _Lengths([1] * nblocks, algorithm.temp(nranks))
    found = []
    for operation in algorithm.operations(rank, nranks):
        peers, length, reduced = [], 0, 0
        if isinstance(operation, Step):
            if operation.dest is not None:
                peers.append(operation.dest)
                length = reader.elements(operation.send)
            if operation.source is not None:
                peers.append(operation.source)
                arriving = reader.elements(operation.recv)
                length, reduced = max(length, arriving), arriving if operation.combine else 0
        elif isinstance(operation, Meet):
            raise ValueError(f"{algorithm.title}: its ranks share memory, so that messages do not tell what it takes")
        elif operation.action == "combine":
            reduced = reader.elements(operation.dest)
        found.append((tuple(peers), Fraction(length, nblocks), Fraction(reduced, nblocks)))
    return found


def _own_path(algorithm: Algorithm, rank: int, nranks: int) -> Path:
    """Return what one rank does as a path."""
    messages, reduced = Counter[Fraction](), Fraction(0)
    for peers, length, added in own_steps(algorithm, rank, nranks):
        messages[length] += bool(peers)
        reduced += added
    return Path(
        messages=tuple((length, number) for length, number in sorted(messages.items()) if number), reduced=reduced
    )


def check_formulas(algorithm: Algorithm, nranks: int) -> None:
    """Raise ValueError where the registered rounds or bytes are not what the schedule has."""
    count = 4 * algorithm.blocks(nranks)  # divisible, so that the closed forms are exact
    counted = cost(algorithm, nranks, count)
    path = algorithm.critical(nranks)
    for name, registered, found, exact in (
        ("rounds", Fraction(algorithm.rounds(nranks)), Fraction(counted.rounds), algorithm.exact),
        ("sent", algorithm.sent(nranks), Fraction(counted.sent_max, count), algorithm.exact),
        ("moved", path and path[0], Fraction(counted.critical_sent, count), True),
        ("reduced", path and path[1], Fraction(counted.critical_reduced, count), True),
    ):
        if registered is not None and (registered != found if exact else registered < found):
            most = "" if exact else " at most"
            title = f"{algorithm.title}, {nranks} ranks"
            raise ValueError(f"{title}: registered with {name} ={most} {registered}, but the schedule has {found}")


def cost(algorithm: Algorithm, nranks: int, count: int) -> Cost:
    """Count the rounds, elements sent and elements reduced of a vector of ``count`` elements on ``nranks`` ranks.

    A round is a message in a chain of dependent ones, so schedules that number their steps differently are counted
    alike. Raises ValueError where the schedule cannot end.
    """
    clock = _Clock(nranks, block_sizes(count, algorithm.blocks(nranks)), algorithm.temp(nranks))
    blocked = play([algorithm.operations(rank, nranks) for rank in range(nranks)], clock)
    if blocked:
        where = f"rank {blocked[0].rank}, round {blocked[0].round}"
        raise ValueError(f"{algorithm.title}, {nranks} ranks: {where} never ends")
    rounds, moved, reduced = (max(column) for column in zip(*clock.now, strict=True))
    return Cost(
        rounds=rounds,
        critical_sent=moved,
        critical_reduced=reduced,
        sent=tuple(clock.sent),
        reduced=tuple(clock.reduced),
        read=tuple(clock.read),
        written=tuple(clock.written),
    )

"""Count what a schedule costs: rounds, elements sent, elements reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from ringbench.schedule.blocks import block_sizes
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.rendezvous import Observer, play
from ringbench.schedule.step import Local, Spans, Step, block_numbers, ranges
from ringbench.schedule.step import spans as all_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Hold the exact counters of one schedule at one size, in elements.

    ``rounds``, ``critical_sent`` and ``critical_reduced`` are the longest chains of dependent messages, elements moved
    and elements reduced: the factors of alpha, beta and gamma. ``sent`` and ``reduced`` hold one entry for each rank.
    """

    rounds: int
    critical_sent: int
    critical_reduced: int
    sent: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def sent_max(self) -> int:
        """Return what the busiest rank sends."""
        return max(self.sent)


class _Clock(Observer):
    """Keep for every rank the longest chain that ends there, in three units at once: rounds, elements, reductions."""

    def __init__(self, nranks: int, sizes: Sequence[int], ntemp: int) -> None:
        self.sizes, self.ntemp = sizes, ntemp
        self.offsets = [0, *accumulate(sizes)]
        self.now = [(0, 0, 0)] * nranks
        self.later = [(0, 0, 0)] * nranks
        self.sent, self.reduced = [0] * nranks, [0] * nranks

    def elements(self, spans: Spans) -> int:
        nblocks = len(self.sizes)
        total = 0
        for span in all_spans(spans):
            if span.place == "temp":
                total += sum(self.sizes[block % nblocks] for _, block in block_numbers(span, nblocks, self.ntemp))
            else:
                total += sum(self.offsets[end] - self.offsets[first] for first, end in ranges(span, nblocks))
        return total

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        size = self.elements(sent.send)
        self.sent[sender] += size
        rounds, moved, reduced = map(max, self.now[sender], self.now[receiver])
        arrival = (rounds + 1, moved + size, reduced)
        for rank in (sender, receiver):
            self.later[rank] = _latest(self.later[rank], arrival)

    def finish(self, rank: int, round: int, step: Step) -> None:
        self.now[rank] = _latest(self.now[rank], self.later[rank])
        if step.combine and step.source is not None:
            self.reduce(rank, self.elements(step.recv))

    def local(self, rank: int, round: int, action: Local) -> None:
        if action.action == "combine":
            self.reduce(rank, self.elements(action.dest))

    def reduce(self, rank: int, size: int) -> None:
        rounds, moved, reduced = self.now[rank]
        self.now[rank] = (rounds, moved, reduced + size)
        self.reduced[rank] += size


def _latest(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


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
    )

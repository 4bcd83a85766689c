"""What several algorithms are made of: folding to a power of two, and one schedule inside another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from ringbench.schedule.step import Local, Meet, Operation, Operations, Span, Spans, Step, peer, ranges, spans, work


def floor_log2(number: int) -> int:
    """Return the largest f with 2^f <= number."""
    return number.bit_length() - 1


def floor_power(number: int) -> int:
    """Return the largest power of two up to a number: the ranks that remain of so many once they are folded."""
    return 1 << floor_log2(number)


def is_power(number: int) -> bool:
    """Say whether a number is a power of two."""
    return number == floor_power(number)


def ceil_log2(number: int) -> int:
    """Return the smallest L with number <= 2^L: the rounds in which one rank can reach all."""
    return (number - 1).bit_length()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Say where a rank stands once N ranks are folded to ``power`` = 2^f of them (Thakur et al. 2005).

    Of the first 2r ranks, r = N - 2^f, one of each pair of neighbours leaves its part to the other. ``index`` numbers
    those that remain (None for one that left); ``partner`` is the other of the pair (None beyond the first 2r).
    """

    power: int
    rest: int
    index: int | None
    partner: int | None
    keep: int

    def rank(self, index: int) -> int:
        """Return the rank that has an index."""
        return 2 * index + self.keep if index < self.rest else index + self.rest


def fold(rank: int, nranks: int, keep: int = 1) -> Fold:
    """Fold the ranks to a power of two; the odd one of each pair remains, or with ``keep`` 0 the even one."""
    power = floor_power(nranks)
    rest = nranks - power
    if rank >= 2 * rest:
        return Fold(power=power, rest=rest, index=rank - rest, partner=None, keep=keep)
    index = rank // 2 if rank % 2 == keep else None
    return Fold(power=power, rest=rest, index=index, partner=rank ^ 1, keep=keep)


def folded(rank: int, nranks: int, nblocks: int, inner: Callable[[int, int], Operations]) -> Operations:
    """Run an allreduce made for powers of two on any N: ``inner(index, power)`` between those that remain.

    Costs those that left two more rounds, and two more messages of the whole vector.
    """
    here, whole = fold(rank, nranks), work(0, nblocks)
    if here.index is None:
        yield Step(dest=here.partner, send=whole)
        yield Step(source=here.partner, recv=whole)
        return
    if here.partner is not None:
        yield Step(source=here.partner, recv=whole, combine=True)
    yield from renamed(inner(here.index, here.power), here.rank)
    if here.partner is not None:
        yield Step(dest=here.partner, send=whole)


def folded_rounds(rounds: int, nranks: int) -> int:
    """Return the rounds of a folded algorithm that takes ``rounds`` on a power of two."""
    return rounds if is_power(nranks) else rounds + 2


def folded_critical(moved: int | Fraction, reduced: int | Fraction, nranks: int) -> tuple[Fraction, Fraction]:
    """Return what a folded algorithm moves and reduces on its critical path, given both for a power of two."""
    outside = 0 if is_power(nranks) else 1
    return Fraction(moved + 2 * outside), Fraction(reduced + outside)


def halving_critical(nranks: int) -> tuple[Fraction, Fraction]:
    """Return the same of an allreduce that halves, then doubles."""
    half = Fraction(floor_power(nranks) - 1, floor_power(nranks))
    return folded_critical(2 * half, half, nranks)


def renamed(operations: Operations, rank: Callable[[int], int]) -> Iterator[Operation]:
    """Give the peers of a schedule other ranks."""

    def owned(value: Spans) -> Spans:
        if isinstance(value, tuple):
            return tuple(span if span.rank is None else peer(rank(span.rank), span) for span in value)
        return value if value.rank is None else peer(rank(value.rank), value)

    for operation in operations:
        if isinstance(operation, Step):
            dest = None if operation.dest is None else rank(operation.dest)
            source = None if operation.source is None else rank(operation.source)
            yield Step(dest=dest, send=operation.send, source=source, recv=operation.recv, combine=operation.combine)
        elif isinstance(operation, Meet):
            yield Meet(tuple(rank(member) for member in operation.ranks))
        else:
            yield Local(operation.action, owned(operation.dest), owned(operation.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Place a schedule on ``size`` blocks, from ``first`` on, of a vector that is cut into ``nblocks``.

    Its temp has ``ntemp`` blocks; what it reads as its original input was copied to the temp blocks behind those.
    """

    first: int
    size: int
    nblocks: int
    ntemp: int

    def spans(self, value: Spans) -> tuple[Span, ...]:
        """Translate spans of the schedule to spans of the whole."""
        found: list[Span] = []
        for span in spans(value):
            for start, end in ranges(span, self.ntemp if span.place == "temp" else self.size):
                if span.place == "work":
                    found.append(Span("work", self.first + start, end - start, span.rank))
                elif span.place == "original":
                    found.append(self.saved(start, end - start))
                else:
                    found.extend(Span("temp", first, count, span.rank) for first, count in self._temp(start, end))
        return tuple(found)

    def saved(self, start: int, count: int) -> Span:
        """Return where blocks of its input are kept."""
        return Span("temp", self.ntemp // self.size * self.nblocks + self.first + start, count)

    def _temp(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        while start < end:
            slot, block = divmod(start, self.size)
            stop = min(end, (slot + 1) * self.size)
            yield slot * self.nblocks + self.first + block, stop - start
            start = stop


def placed(operations: Operations, part: Part) -> Iterator[Operation]:
    """Put a schedule on a part of a vector; what it scales is left to whoever uses it."""
    for operation in operations:
        if isinstance(operation, Step):
            yield Step(
                dest=operation.dest,
                send=part.spans(operation.send),
                source=operation.source,
                recv=part.spans(operation.recv),
                combine=operation.combine,
            )
        elif isinstance(operation, Meet):
            yield operation
        elif operation.action != "scale":
            yield Local(operation.action, part.spans(operation.dest), part.spans(operation.source))

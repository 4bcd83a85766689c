"""Play schedules with real numbers, one element at a time, and judge them without help from ``verify``.

Two players: ``play_elements`` leaves the order of messages to ``ringbench.schedule.rendezvous.play``; ``execute`` finds
it by itself, cuts messages into segments where asked, and takes every liberty that MPI forbids as a failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.rendezvous import Observer, Program, play
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Local, Meet, Spans, Step, block_numbers
from ringbench.schedule.step import spans as all_spans

Memory = dict[str, list[Any]]
Element = tuple[str, int]


class WrongError(Exception):
    """Say why a schedule may not be run."""


def contribution(nranks: int, rank: int, element: int) -> int:
    """Return what a rank brings for one element: a bit that no other rank and no other element has."""
    return 1 << (rank + nranks * element)


class Layout:
    """Turn spans into element numbers for one count."""

    def __init__(self, algorithm: Algorithm, nranks: int, count: int) -> None:
        self.algorithm, self.nranks, self.count = algorithm, nranks, count
        self.collective = collective_named(algorithm.collective)
        self.nblocks, self.ntemp = algorithm.blocks(nranks), algorithm.temp(nranks)
        self.offsets = block_offsets(count, self.nblocks)
        self.temp_offsets = [0]
        for block in range(self.ntemp):
            size = self.offsets[block % self.nblocks + 1] - self.offsets[block % self.nblocks]
            self.temp_offsets.append(self.temp_offsets[-1] + size)

    def elements(self, spans: Spans) -> list[Element]:
        named: list[Element] = []
        for place, block in block_numbers(spans, self.nblocks, self.ntemp):
            offsets = self.temp_offsets if place == "temp" else self.offsets
            named.extend((place, index) for index in range(offsets[block], offsets[block + 1]))
        return named

    def owners(self, spans: Spans, rank: int) -> list[int]:
        """Return whose memory each element is in."""
        found: list[int] = []
        for span in all_spans(spans):
            owner = rank if span.rank is None else span.rank
            if span.rank is not None and (span.place != self.algorithm.shared or owner == rank):
                raise WrongError(f"rank {rank} reaches into {span}")
            found += [owner] * len(self.elements(span))
        return found

    def memory(self, rank: int, value: Callable[[int, int], Any]) -> Memory:
        start: list[Any] = [None] * self.count
        for block in range(self.nblocks):
            if self.collective.brings(rank, block, self.algorithm.root):
                for index in range(self.offsets[block], self.offsets[block + 1]):
                    start[index] = value(rank, index)
        return {"work": start, "original": list(start), "temp": [None] * self.temp_offsets[-1]}

    def wanted(self, rank: int, value: Callable[[int, int], Any]) -> dict[int, Any]:
        """Return the right result of one rank by element."""
        right = {}
        for block in range(self.nblocks):
            if self.collective.gets(rank, block, self.algorithm.root):
                for index in range(self.offsets[block], self.offsets[block + 1]):
                    right[index] = self._right(rank, block, index, value)
        return right

    def _right(self, rank: int, block: int, index: int, value: Callable[[int, int], Any]) -> Any:
        """Say what an element must be, from the definition of each collective in MPI alone."""
        if self.collective.name == "bcast":
            return value(self.algorithm.root, index)
        if self.collective.name == "allgather":
            return value(block, index)
        if self.collective.name == "alltoall":  # all blocks are of one size
            return value(block, index - self.offsets[block] + self.offsets[rank])
        assert self.collective.reduces
        return sum(value(contributor, index) for contributor in range(self.nranks))


class _Elements(Observer):
    def __init__(self, layout: Layout, memories: list[Memory]) -> None:
        self.layout, self.memories = layout, memories
        self.arrived: list[list[Any]] = [[] for _ in memories]

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        self.arrived[receiver] = [self.memories[sender][place][i] for place, i in self.layout.elements(sent.send)]

    def finish(self, rank: int, round: int, step: Step) -> None:
        if step.source is not None:
            targets = self.layout.elements(step.recv)
            for (place, i), value in zip(targets, self.arrived[rank], strict=True):
                self.memories[rank][place][i] = self.memories[rank][place][i] + value if step.combine else value

    def local(self, rank: int, round: int, action: Local) -> None:
        if action.action != "scale":
            _local(self.layout, self.memories, rank, action, 1)


def play_elements(algorithm: Algorithm, nranks: int, count: int) -> tuple[list[Memory], Layout]:
    """Play a schedule where rank r brings its own bit for each element; return every rank's memory at the end."""
    layout = Layout(algorithm, nranks, count)
    memories = [layout.memory(rank, partial(contribution, nranks)) for rank in range(nranks)]
    blocked = play([algorithm.operations(rank, nranks) for rank in range(nranks)], _Elements(layout, memories))
    assert not blocked
    return memories, layout


def _local(layout: Layout, memories: Sequence[Memory], rank: int, action: Local, divisor: int) -> None:
    targets = layout.elements(action.dest)
    if any(place == "original" for place, _ in targets):
        raise WrongError("the input is changed")
    memory = memories[rank]
    if action.action == "scale":
        for place, i in targets:
            memory[place][i] = _known(memory[place][i]) / divisor if divisor != 1 else _known(memory[place][i])
        return
    sources = layout.elements(action.source)
    if len(sources) != len(targets):
        raise WrongError("a local action changes its length")
    givers, holders = layout.owners(action.source, rank), layout.owners(action.dest, rank)
    moves = zip(targets, holders, sources, givers, strict=True)
    for (place, i), holder, (source_place, j), giver in moves:  # one after the other, as a loop would
        value = _known(memories[giver][source_place][j])
        memory = memories[holder]
        memory[place][i] = _known(memory[place][i]) + value if action.action == "combine" else value


def _known(value: Any) -> Any:
    if value is None:
        raise WrongError("reads what was never written")
    return value


class _Rank:
    """Walk through one rank's program, segment by segment."""

    def __init__(
        self,
        layout: Layout,
        memories: Sequence[Memory],
        rank: int,
        program: Program,
        segment: int | None,
        divisor: int,
    ) -> None:
        self.layout, self.memories, self.rank, self.divisor = layout, memories, rank, divisor
        self.memory, self.meeting = memories[rank], tuple[int, ...]()
        self.rest = list(program)
        self.segment = segment or max(1, layout.count + layout.temp_offsets[-1])
        self.pieces: list[tuple[list[Element] | None, list[Element] | None]] = []
        self.step: Step | None = None
        self.arrived: list[Any] = []
        self.sending: list[Element] | None = None
        self.receiving: list[Element] | None = None
        self.advance()

    def cut(self, peer: int | None, spans: Spans) -> list[list[Element] | None]:
        if peer is None:
            return []
        named = self.layout.elements(spans)
        return [named[i : i + self.segment] for i in range(0, max(len(named), 1), self.segment)]

    def advance(self) -> None:
        """Go on to the next segment that has a message, if any."""
        while True:
            if self.pieces:
                self.sending, self.receiving = self.pieces.pop(0)
                self.target = self.receiving
                self.check()
                return
            self.step = None
            if not self.rest:
                return
            operation = self.rest.pop(0)
            if isinstance(operation, Local):
                _local(self.layout, self.memories, self.rank, operation, self.divisor)
                continue
            if isinstance(operation, Meet):
                self.meeting = tuple(operation.ranks)
                return
            self.step = operation
            sends, receives = self.cut(operation.dest, operation.send), self.cut(operation.source, operation.recv)
            length = max(len(sends), len(receives))
            sends += [None] * (length - len(sends))
            receives += [None] * (length - len(receives))
            self.pieces = list(zip(sends, receives, strict=True))

    def check(self) -> None:
        """Refuse buffers that MPI forbids."""
        if self.receiving is None:
            return
        if any(place == "original" for place, _ in self.receiving):
            raise WrongError("the input is overwritten")
        assert self.step is not None
        if not self.step.combine and len(set(self.receiving)) < len(self.receiving):
            raise WrongError("two parts of a message land in one place")
        if not self.step.combine and set(self.receiving) & set(self.sending or ()) and not self.exchanges():
            raise WrongError("sends and receives the same memory")

    def exchanges(self) -> bool:
        """Say whether a step sends just what it overwrites, in the same order: then what arrives can be kept apart."""
        assert self.step is not None
        return self.layout.elements(self.step.send) == self.layout.elements(self.step.recv)

    def land(self) -> None:
        """Store what has arrived, then go on."""
        assert self.step is not None
        if self.target is not None:
            for (place, i), value in zip(self.target, self.arrived, strict=True):
                self.memory[place][i] = _known(self.memory[place][i]) + value if self.step.combine else value
        self.advance()


def execute(
    layout: Layout,
    programs: Sequence[Program],
    value: Callable[[int, int], Any],
    segment: int | None = None,
    divisor: int = 1,
) -> list[Memory]:
    """Run all programs under synchronous sends; raise WrongError for a deadlock and for what MPI forbids."""
    memories = [layout.memory(rank, value) for rank in range(len(programs))]
    ranks = [_Rank(layout, memories, r, program, segment, divisor) for r, program in enumerate(programs)]
    moved = True
    while moved:
        moved = False
        for number, rank in enumerate(ranks):
            if rank.sending is not None and rank.step is not None:
                dest = rank.step.dest
                if dest is None or dest == number or not 0 <= dest < len(ranks):
                    raise WrongError(f"no rank {dest}")
                other = ranks[dest]
                if other.receiving is not None and other.step is not None and other.step.source == number:
                    if len(rank.sending) != len(other.receiving):
                        raise WrongError("a message has another length than its receive")
                    other.arrived = [_known(rank.memory[place][i]) for place, i in rank.sending]
                    rank.sending = other.receiving = None
                    moved = True
        for members in {rank.meeting for rank in ranks if rank.meeting}:
            if all(ranks[member].meeting == members for member in members):
                for member in members:
                    ranks[member].meeting = ()
                for member in members:
                    ranks[member].advance()
                moved = True
        for rank in ranks:
            while rank.step is not None and rank.sending is None and rank.receiving is None:
                rank.land()
                moved = True
    if any(rank.step is not None or rank.meeting for rank in ranks):
        raise WrongError("deadlock")
    return memories


def fault(algorithm: Algorithm, nranks: int) -> str | None:
    """Say what is wrong with a schedule by running it with numbers; None if nothing was found."""
    programs = [algorithm.operations(rank, nranks) for rank in range(nranks)]
    scales = any(isinstance(op, Local) and op.action == "scale" for program in programs for op in program)
    nblocks = algorithm.blocks(nranks)
    whole: list[tuple[int, int | None]] = [(1, None), (3 * nblocks + 1, None)]
    cut: list[tuple[int, int | None]] = [(3 * nblocks + 1, 2), (10 * nblocks, 1)]
    try:
        for count, segment in whole + cut if algorithm.segmentable else whole:
            if collective_named(algorithm.collective).transposes:
                count = -(-count // nranks) * nranks
            layout = Layout(algorithm, nranks, count)
            for divisor in (1, nranks) if scales or algorithm.scales else (1,):
                wrong = _wrong_element(layout, programs, segment, divisor)
                if wrong:
                    return wrong
        if algorithm.identical_bits and not collective_named(algorithm.collective).transposes:
            return _differing_bits(Layout(algorithm, nranks, 10 * nblocks), programs)
    except WrongError as error:
        return str(error)
    return None


def _wrong_element(layout: Layout, programs: Sequence[Program], segment: int | None, divisor: int) -> str | None:
    def bits(rank: int, i: int) -> Fraction | int:
        number = contribution(layout.nranks, rank, i)
        return number if divisor == 1 else Fraction(number)

    divided = divisor if layout.algorithm.scales else 1  # where the schedule does not, each rank divides afterwards
    for rank, memory in enumerate(execute(layout, programs, bits, segment, divisor)):
        for i, right in layout.wanted(rank, bits).items():
            found = memory["work"][i]
            if found is None or found * divided != right:
                return f"rank {rank}, element {i}: {found}, not {right}/{divided}"
    return None


def _differing_bits(layout: Layout, programs: Sequence[Program]) -> str | None:
    noise = random.Random(1)
    table = [
        [noise.uniform(1, 2) * 2.0 ** noise.randint(-2, 2) for _ in range(layout.count)] for _ in range(layout.nranks)
    ]
    memories = execute(layout, programs, lambda rank, i: table[rank][i])
    wanted = [layout.wanted(rank, lambda rank, i: 0) for rank in range(layout.nranks)]
    for i in range(layout.count):
        if len({memory["work"][i] for rank, memory in enumerate(memories) if i in wanted[rank]}) > 1:
            return f"element {i}: the bits differ"
    return None

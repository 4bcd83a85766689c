"""Prove a schedule right by playing it with symbols instead of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ringbench.schedule.blocks import block_offsets
from ringbench.schedule.races import find_race
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.rendezvous import Blocked, Observer, Program, play
from ringbench.schedule.semantics import Collective, collective_named
from ringbench.schedule.step import Local, Meet, Place, Spans, Step, block_numbers, owners, spans
from ringbench.schedule.step import describe as describe_spans


class ScheduleError(ValueError):
    """Report a schedule that is wrong, naming the rank, the round and the block."""


class _Symbols:
    """Stand for values: two sums are the same symbol only where they are the same bits in any arithmetic.

    Addition commutes bit for bit but does not associate, so a sum is named by the unordered pair of what was added.
    Every symbol knows which ranks it contains (a bit mask) and whether it was divided for an average.
    """

    def __init__(self) -> None:
        self.names: dict[tuple[object, ...], int] = {}
        self.ranks: list[int] = []
        self.scaled: list[bool] = []

    def intern(self, name: tuple[object, ...], ranks: int, scaled: bool) -> int:
        symbol = self.names.setdefault(name, len(self.ranks))
        if symbol == len(self.ranks):
            self.ranks.append(ranks)
            self.scaled.append(scaled)
        return symbol

    def leaf(self, rank: int, block: int) -> int:
        return self.intern(("input", rank, block), 1 << rank, False)

    def add(self, one: int, other: int) -> int:
        low, high = sorted((one, other))
        return self.intern(("sum", low, high), self.ranks[one] | self.ranks[other], self.scaled[one])

    def divide(self, symbol: int) -> int:
        return self.intern(("average", symbol), self.ranks[symbol], True)


class _Blocks(NamedTuple):
    """Hold what some spans name: the blocks in order, their numbers in the vector, and the set of them."""

    named: list[tuple[Place, int]]
    numbers: list[int]
    together: frozenset[tuple[Place, int]]


NOTHING = _Blocks([], [], frozenset())


class _Prover(Observer):
    """Hold every rank's memory as symbols and refuse the first thing that is wrong."""

    def __init__(
        self,
        title: str,
        collective: Collective,
        nranks: int,
        nblocks: int,
        ntemp: int,
        root: int,
        shared: Place | None,
    ) -> None:
        self.title, self.collective, self.nblocks, self.ntemp = title, collective, nblocks, ntemp
        self.symbols = _Symbols()
        self.memory: list[dict[Place, list[int | None]]] = []
        for rank in range(nranks):
            start: list[int | None] = [
                self.symbols.leaf(rank, block) if collective.brings(rank, block, root) else None
                for block in range(nblocks)
            ]
            self.memory.append({"work": start, "original": list(start), "temp": [None] * ntemp})
        self.arrived: list[list[int]] = [[] for _ in range(nranks)]
        self.couplings: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self.shared = shared
        self.seen: dict[Spans, _Blocks] = {}  # the same few spans are named by all ranks

    def error(self, rank: int, round: int, text: str) -> ScheduleError:
        return ScheduleError(f"{self.title}: rank {rank}, round {round}: {text}")

    def describe(self, spans: Spans) -> str:
        return describe_spans(spans, self.nblocks, self.ntemp)

    def blocks(self, rank: int, round: int, spans: Spans) -> _Blocks:
        found = self.seen.get(spans)
        if found is None:
            try:
                named = block_numbers(spans, self.nblocks, self.ntemp)
            except ValueError as error:
                raise self.error(rank, round, str(error)) from None
            numbers = [block % self.nblocks for _, block in named]
            found = self.seen[spans] = _Blocks(named, numbers, frozenset(named))
        return found

    def alike(self, source: _Blocks, target: _Blocks) -> bool:
        """Say whether blocks may travel into others: of the same number, or as many where all are of one size."""
        if self.collective.transposes:
            return len(source.named) == len(target.named)
        return source.numbers == target.numbers

    def read(self, rank: int, round: int, place: Place, block: int) -> int:
        symbol = self.memory[rank][place][block]
        if symbol is None:
            raise self.error(rank, round, f"reads {_name(place, block)}, which it has not got")
        return symbol

    def write(self, rank: int, round: int, place: Place, block: int, symbol: int, combine: bool) -> None:
        if place == "original":
            raise self.error(rank, round, f"changes {_name(place, block)}")
        if combine:
            here = self.read(rank, round, place, block)
            twice = self.symbols.ranks[here] & self.symbols.ranks[symbol]
            if twice:
                raise self.error(rank, round, f"{_name(place, block)} counts {_ranks(twice)} twice")
            if self.symbols.scaled[here] or self.symbols.scaled[symbol]:
                raise self.error(rank, round, f"{_name(place, block)} is added to after it was averaged")
            symbol = self.symbols.add(here, symbol)
        self.memory[rank][place][block] = symbol

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        source = self.blocks(sender, send_round, sent.send)
        target = self.blocks(receiver, recv_round, received.recv)
        if not self.alike(source, target):
            raise self.error(
                sender,
                send_round,
                f"sends {self.describe(sent.send)} to rank {receiver}, "
                f"which receives it in round {recv_round} as {self.describe(received.recv)}",
            )
        self.arrived[receiver] = [self.read(sender, send_round, place, block) for place, block in source.named]
        self.couplings.append(((sender, send_round), (receiver, recv_round)))

    def finish(self, rank: int, round: int, step: Step) -> None:
        if step.source is None:
            return
        received = self.blocks(rank, round, step.recv)
        if len(received.together) < len(received.named):
            place, block = next(name for name in received.named if received.named.count(name) > 1)
            raise self.error(rank, round, f"receives {_name(place, block)} twice in one message")
        sent = self.blocks(rank, round, step.send) if step.dest is not None else NOTHING
        if not sent.together.isdisjoint(received.together) and sent.named != received.named:
            place, block = min(sent.together & received.together)
            raise self.error(rank, round, f"sends and receives {_name(place, block)} in one step")
        for (place, block), symbol in zip(received.named, self.arrived[rank], strict=True):
            self.write(rank, round, place, block, symbol, step.combine)

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        first, *rest = zip(ranks, rounds, strict=True)
        self.couplings.extend((first, other) for other in rest)

    def local(self, rank: int, round: int, action: Local) -> None:
        for span in (*spans(action.dest), *spans(action.source)):
            if span.rank is not None and (span.place != self.shared or not 0 <= span.rank < len(self.memory)):
                raise self.error(rank, round, f"reaches into {self.describe(span)}, which no other rank can")
        targets = self.blocks(rank, round, action.dest)
        if action.action == "scale":
            if not self.collective.reduces:
                raise self.error(rank, round, f"averages {self.describe(action.dest)} where nothing is added")
            for place, block in targets.named:
                symbol = self.read(rank, round, place, block)
                if self.symbols.scaled[symbol]:
                    raise self.error(rank, round, f"{_name(place, block)} is averaged twice")
                self.write(rank, round, place, block, self.symbols.divide(symbol), False)
            return
        sources = self.blocks(rank, round, action.source)
        if not self.alike(sources, targets):
            raise self.error(
                rank, round, f"{action.action} of {self.describe(action.source)} to {self.describe(action.dest)}"
            )
        givers, holders = owners(action.source, rank), owners(action.dest, rank)
        both = {*zip(givers, sources.named, strict=True)} & {*zip(holders, targets.named, strict=True)}
        if both:
            _, (place, block) = min(both)
            raise self.error(rank, round, f"reads and writes {_name(place, block)} in one {action.action}")
        values = [self.read(owner, round, *named) for owner, named in zip(givers, sources.named, strict=True)]
        for owner, (place, block), symbol in zip(holders, targets.named, values, strict=True):
            self.write(owner, round, place, block, symbol, action.action == "combine")


def verify(algorithm: Algorithm, nranks: int, max_count: int | None = None) -> None:
    """Prove an algorithm right on ``nranks`` ranks for vectors of 0 to ``max_count`` elements (3N unless given).

    Plays all ranks with symbols under synchronous sends and demands that messages meet in order, that no rank reads
    what it has not got, that every result block holds every contribution exactly once, and the same bits on all ranks
    where the algorithm claims so. Where ranks share memory, nothing that one of them writes may be touched by another
    without a meet between. Blocks travel only into blocks of the same number, so what holds for blocks holds
    for every number of elements; that the blocks tile the vector is checked for each. Raises ScheduleError.
    """
    collective = collective_named(algorithm.collective)
    title = f"{algorithm.title}, {nranks} ranks"
    nblocks, ntemp = algorithm.blocks(nranks), algorithm.temp(nranks)
    if nblocks < 1:
        raise ScheduleError(f"{title}: {nblocks} blocks, but there must be at least one")
    if collective.per_rank and nblocks != nranks:
        raise ScheduleError(f"{title}: {nblocks} blocks, but {algorithm.collective} has one for each rank")
    if ntemp < 0 or ntemp % nblocks:
        raise ScheduleError(f"{title}: {ntemp} blocks of temp are not a multiple of {nblocks}")
    for count in range((3 * nranks if max_count is None else max_count) + 1):
        _check_tiling(title, count, nblocks)

    programs = [algorithm.operations(rank, nranks) for rank in range(nranks)]
    prover = _Prover(title, collective, nranks, nblocks, ntemp, algorithm.root, algorithm.shared)
    for rank, program in enumerate(programs):
        _check_peers(prover, rank, nranks, program)
    blocked = play(programs, prover)
    if blocked:
        raise _stuck(prover, blocked)
    race = find_race(programs, nblocks, ntemp) if algorithm.shared is not None else None
    if race is not None:
        raise ScheduleError(f"{title}: {race}")
    if algorithm.segmentable:
        _check_segments(prover, programs)
    _check_result(prover, collective, algorithm, programs)


def _check_tiling(title: str, count: int, nblocks: int) -> None:
    offsets = block_offsets(count, nblocks)
    sizes = [end - start for start, end in pairwise(offsets)]
    if offsets[0] != 0 or offsets[-1] != count or min(sizes) < 0 or max(sizes) - min(sizes) > 1:
        raise ScheduleError(f"{title}: {count} elements in {nblocks} blocks do not tile the vector: {offsets}")


def _check_peers(prover: _Prover, rank: int, nranks: int, program: Program) -> None:
    for number, step in enumerate(step for step in program if not isinstance(step, Local)):
        if isinstance(step, Meet):
            members = list(step.ranks)
            known = len(set(members)) == len(members) and all(0 <= member < nranks for member in members)
            if rank not in members or not known:
                raise prover.error(rank, number, f"meets ranks {', '.join(map(str, members))}")
            continue
        for verb, peer, named in (("sends", step.dest, step.send), ("receives", step.source, step.recv)):
            if peer is not None and (peer == rank or not 0 <= peer < nranks):
                raise prover.error(rank, number, f"{verb} {prover.describe(named)} with rank {peer} as its peer")
            if any(span.rank is not None for span in spans(named)):
                raise prover.error(rank, number, f"{verb} {prover.describe(named)}: messages are of one's own memory")


def _stuck(prover: _Prover, blocked: Sequence[Blocked]) -> ScheduleError:
    """Name the message that never passes: one whose peer has ended, else one of the ring of ranks that wait."""
    by_rank = {state.rank: state for state in blocked}
    for state in blocked:
        if isinstance(state.step, Meet):
            if state.waits_for not in by_rank:
                return prover.error(state.rank, state.round, f"waits to meet rank {state.waits_for}, which never comes")
            continue
        if state.sending and state.step.dest not in by_rank:
            text = f"sends {prover.describe(state.step.send)} to rank {state.step.dest}, which never receives it"
            return prover.error(state.rank, state.round, text)
        if state.receiving and state.step.source not in by_rank:
            text = f"receives {prover.describe(state.step.recv)} from rank {state.step.source}, which never sends it"
            return prover.error(state.rank, state.round, text)
    chain = [blocked[0].rank]
    while (peer := by_rank[chain[-1]].waits_for) not in chain:
        chain.append(peer)
    chain = chain[chain.index(peer) :]
    first = by_rank[min(chain)]
    if isinstance(first.step, Meet):
        what = f"meet rank {first.waits_for}"
    elif first.receiving:
        what = f"receive {prover.describe(first.step.recv)}"
    else:
        what = f"send {prover.describe(first.step.send)}"
    start = chain.index(first.rank)
    cycle = " -> ".join(str(rank) for rank in [*chain[start:], *chain[:start], first.rank])
    return prover.error(first.rank, first.round, f"deadlock: waits to {what}; ranks {cycle} wait")


def _check_segments(prover: _Prover, programs: Sequence[Program]) -> None:
    """Refuse a schedule that would deadlock once its messages are cut into many segments.

    Segments of two steps joined by a message advance together, and so do those of all steps joined to them; a meet
    joins those of all its ranks. If the steps joined in this way are taken as one, the order within each rank must
    still be free of circles.
    """
    rounds = [sum(not isinstance(operation, Local) for operation in program) for program in programs]
    first = [sum(rounds[:rank]) for rank in range(len(programs))]
    parent = list(range(sum(rounds)))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for (one, one_round), (other, other_round) in prover.couplings:
        parent[find(first[one] + one_round)] = find(first[other] + other_round)
    after: dict[int, list[int]] = {}
    waiting: dict[int, int] = {find(node): 0 for node in range(len(parent))}
    for rank, count in enumerate(rounds):
        for node in range(first[rank], first[rank] + count - 1):
            after.setdefault(find(node), []).append(find(node + 1))
            waiting[find(node + 1)] += 1
    free = [group for group, count in waiting.items() if count == 0]
    for group in free:  # grows while it is read
        for follower in after.get(group, ()):
            waiting[follower] -= 1
            if waiting[follower] == 0:
                free.append(follower)
    for rank, program in enumerate(programs):
        for number, step in enumerate(step for step in program if not isinstance(step, Local)):
            if isinstance(step, Step) and waiting[find(first[rank] + number)]:
                text = f"{prover.describe(step.send or step.recv)} deadlocks once messages are cut into segments"
                raise prover.error(rank, number, text + " (register with segmentable=False)")


def _check_result(prover: _Prover, collective: Collective, algorithm: Algorithm, programs: Sequence[Program]) -> None:
    nranks, root, scales = len(programs), algorithm.root, algorithm.scales
    symbols = prover.symbols
    expected = [collective.contributors(block, nranks, root) for block in range(prover.nblocks)]
    results: dict[int, tuple[int, int]] = {}
    for rank in range(nranks):
        last = sum(not isinstance(operation, Local) for operation in programs[rank])
        for block in range(prover.nblocks):
            if not collective.gets(rank, block, root):
                continue
            symbol = prover.read(rank, last, "work", block)
            wanted, found = expected[block], symbols.ranks[symbol]
            if found != wanted:
                lacking = f"lacks {_ranks(wanted & ~found)}" if wanted & ~found else f"holds {_ranks(found & ~wanted)}"
                raise prover.error(rank, last, f"block {block} ends wrong: it {lacking}")
            if not collective.reduces:
                owner, origin = collective.owner(block, root), collective.origin(rank, block)
                if owner is not None and symbol != symbols.leaf(owner, origin):
                    raise prover.error(
                        rank, last, f"block {block} ends wrong: it is not block {origin} of rank {owner}"
                    )
                continue
            if nranks > 1 and symbols.scaled[symbol] != scales:
                text = "ends as a sum in a schedule that averages" if scales else "is averaged at this N only"
                raise prover.error(rank, last, f"block {block} {text}")
            other, first_symbol = results.setdefault(block, (rank, symbol))
            if algorithm.identical_bits and first_symbol != symbol:
                text = f"block {block} is summed in another order than on rank {other}: bits differ"
                raise prover.error(rank, last, text)


def _name(place: str, block: int) -> str:
    return f"block {block}" if place == "work" else f"{place} block {block}"


def _ranks(mask: int) -> str:
    ranks = [str(rank) for rank in range(mask.bit_length()) if mask >> rank & 1]
    shown = ", ".join(ranks[:8]) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"

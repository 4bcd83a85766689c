"""Write down what happens when in a schedule, and what every block holds: what a drawing shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

from ringbench.schedule.compose import ceil_log2
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.rendezvous import Observer, play
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Local, Place, Spans, Step, block_numbers, describe, owners

#: What a block holds: the inputs (rank, block) that were copied or added into it; empty where nothing was written yet.
Content: TypeAlias = "frozenset[tuple[int, int]]"
Named: TypeAlias = "tuple[Place, int]"
Sign: TypeAlias = Literal["+", "=", "/"]

MAX_LIST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Hold one message (``peer`` sent it to ``rank``) or one local action (no peer), and what the targets hold after.

    ``round`` is when a message travels, ``done`` when the receiver leaves its step: only then does it add. What moves
    between the memories of two ranks without a message has a peer too.
    """

    round: int
    done: int
    rank: int
    peer: int | None
    sign: Sign
    sources: tuple[Named, ...]
    targets: tuple[Named, ...]
    after: tuple[Content, ...]


def _brings(algorithm: Algorithm, rank: int, block: int) -> bool:
    return collective_named(algorithm.collective).brings(rank, block, algorithm.root)


class Trace(Observer):
    """Play a schedule and write down its moves, each in its round: the depth in the order of dependence.

    ``start`` and ``memory`` hold for each rank what is in its blocks before and after, ``meets`` who met in which
    round; ``shares`` says that ranks reach into each other's memory. Raises ValueError for fewer than 1 or more than
    ``limit`` ranks, for messages that do not fit, and for a schedule that cannot end.
    """

    def __init__(self, algorithm: Algorithm, nranks: int, limit: int, what: str = "") -> None:
        if not 1 <= nranks <= limit:
            raise ValueError(f"nranks = {nranks}: can draw 1 to {limit} ranks{what}")
        algorithm.check(nranks)
        collective = collective_named(algorithm.collective)
        self.title, self.nranks, self.reduces = algorithm.title, nranks, collective.reduces
        self.nblocks, self.ntemp = algorithm.blocks(nranks), algorithm.temp(nranks)
        blocks, ranks = range(self.nblocks), range(nranks)
        self.bringers = [[rank for rank in ranks if _brings(algorithm, rank, block)] for block in blocks]
        places: tuple[Place, ...] = ("original", "work")
        self.start: list[dict[Named, Content]] = [
            {
                (place, block): frozenset({(rank, block)} if rank in self.bringers[block] else ())
                for place in places
                for block in blocks
            }
            | {("temp", slot): frozenset() for slot in range(self.ntemp)}
            for rank in ranks
        ]
        self.memory = [dict(memory) for memory in self.start]
        self.moves: list[Move] = []
        self.meets: list[tuple[int, tuple[int, ...]]] = []
        self.shares = algorithm.shared is not None
        self.now, self.later = [0] * nranks, [0] * nranks
        self.arrived: dict[int, tuple[int, int, tuple[Named, ...], list[Content]]] = {}

        programs = [algorithm.operations(rank, nranks) for rank in ranks]
        for rank, program in enumerate(programs):
            for peer in (peer for step in program if isinstance(step, Step) for peer in (step.dest, step.source)):
                if peer is not None and (peer == rank or peer not in ranks):
                    raise ValueError(f"{self.title}, {nranks} ranks: rank {rank} has rank {peer} as its peer")
        for blocked in play(programs, self):
            where = f"rank {blocked.rank}, round {blocked.round}"
            raise ValueError(f"{self.title}, {nranks} ranks: {where} waits for rank {blocked.waits_for} for ever")
        self.places = {place for move in self.moves for place, _ in (*move.sources, *move.targets)} | {"work"}
        self.moves.sort(key=lambda move: (move.round, move.peer is None))
        counts = [
            f"{n} {word}" + "s" * (n != 1)
            for n, word in ((nranks, "rank"), (self.nblocks, "block"), (max(self.now), "round"))
        ]
        counts[1] += f" ({runs(blocks, letter)})"
        self.headline = f"{self.title}: {', '.join(counts)}"

    def named(self, spans: Spans) -> tuple[Named, ...]:
        """Spell out some spans."""
        return tuple(block_numbers(spans, self.nblocks, self.ntemp))

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        """Take what the sender holds; what the receiver does with it waits until its step is over."""
        sources = self.named(sent.send)
        if len(sources) != len(self.named(received.recv)):
            out, into = (describe(spans, self.nblocks, self.ntemp) for spans in (sent.send, received.recv))
            where = f"{self.title}, {self.nranks} ranks: rank {sender}, round {send_round}"
            raise ValueError(f"{where}: sends {out} to rank {receiver}, which receives {into}")
        depth = max(self.now[sender], self.now[receiver]) + 1
        for rank in (sender, receiver):
            self.later[rank] = max(self.later[rank], depth)
        self.arrived[receiver] = (depth, sender, sources, [self.memory[sender][source] for source in sources])

    def finish(self, rank: int, round: int, step: Step) -> None:
        """Write what has arrived."""
        self.now[rank] = max(self.now[rank], self.later[rank])
        if step.source is not None:
            arrival, sender, sources, values = self.arrived.pop(rank)
            self._write(rank, arrival, sender, "+" if step.combine else "=", sources, self.named(step.recv), values)

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        """Have the ranks go on together: a meet takes the rounds in which each can hear from all."""
        depth = max(self.now[rank] for rank in ranks) + ceil_log2(len(ranks))
        for rank in ranks:
            self.now[rank] = self.later[rank] = depth
        self.meets.append((depth, ranks))

    def local(self, rank: int, round: int, action: Local) -> None:
        """Write what a rank does without a message, in the round of its last one."""
        sources, targets = self.named(action.source), self.named(action.dest)
        sign: Sign = "+" if action.action == "combine" else "=" if action.action == "copy" else "/"
        holders = owners(action.dest, rank)
        givers = holders if sign == "/" else owners(action.source, rank)
        read = targets if sign == "/" else sources
        values = [self.memory[giver][named] for giver, named in zip(givers, read, strict=True)]
        places = range(len(targets))
        for (giver, holder), part in groupby(places, key=lambda at: (givers[at], holders[at])):
            own = list(part)
            peer = None if giver == holder else giver
            taken, put = tuple(sources[at] for at in own if sources), tuple(targets[at] for at in own)
            self._write(holder, self.now[rank], peer, sign, taken, put, [values[at] for at in own])

    def _write(
        self,
        rank: int,
        round: int,
        peer: int | None,
        sign: Sign,
        sources: tuple[Named, ...],
        targets: tuple[Named, ...],
        values: list[Content],
    ) -> None:
        memory = self.memory[rank]
        for to, value in zip(targets, values, strict=True):
            if sign == "+" and memory[to] & value:
                twice = runs(sorted({other for other, _ in memory[to] & value}), str)
                where = f"{self.title}, {self.nranks} ranks: rank {rank}, round {round}"
                raise ValueError(f"{where}: {self.spell([to])} would count what rank {twice} brings twice")
        after = [memory[to] | value if sign == "+" else value for to, value in zip(targets, values, strict=True)]
        memory.update(zip(targets, after, strict=True))
        move = Move(
            round=round,
            done=max(round, self.now[rank]),
            rank=rank,
            peer=peer,
            sign=sign,
            sources=sources,
            targets=targets,
            after=tuple(after),
        )
        self.moves.append(move)

    def complete(self, block: int, content: Content) -> bool:
        """Say whether nothing is missing in a block: it has every contribution, or where nothing is added, any."""
        return len(content) == (len(self.bringers[block]) if self.reduces else 1)

    def mark(self, block: int, content: Content) -> str:
        """Say what a block holds: ``*`` all contributions, ``:0,3`` those of two ranks, ``:1B`` another block."""
        if not content:
            return "?"
        if self.reduces:
            # A long list says no more than how many they are.
            ranks = runs(sorted({rank for rank, _ in content}), str)
            some = ranks if len(ranks) <= MAX_LIST else f"{len(content)}/{len(self.bringers[block])}"
            return "*" if self.complete(block, content) else f":{some}"
        # Where one rank alone brings a block, and it is in its own place, the name of the place says all.
        told = all(number == block for _, number in content) and len(self.bringers[block]) == 1
        return "" if told else ":" + ",".join(f"{rank}{letter(number)}" for rank, number in sorted(content))

    def spell(self, named: Sequence[Named], contents: Sequence[Content] | None = None) -> str:
        """Name blocks, those alike as ranges, and what they hold where that is given: ``A-C:0 D*``, ``oA``, ``t2A``."""
        groups: dict[tuple[str, str], list[int]] = {}
        for position, (place, number) in enumerate(named):
            slot, block = divmod(number, self.nblocks)
            prefix = {"work": "", "original": "o", "temp": f"t{slot}" if self.ntemp > self.nblocks else "t"}[place]
            mark = "" if contents is None else self.mark(block, contents[position])
            groups.setdefault((prefix, mark), []).append(block)
        return " ".join(f"{prefix}{runs(blocks, letter)}{mark}" for (prefix, mark), blocks in groups.items()) or "-"

    def explain_places(self) -> list[tuple[str, str]]:
        """Explain the names of those places beyond ``work`` that occur."""
        slot = (
            ("t2A", "slot 2 for block A in scratch memory")
            if self.ntemp > self.nblocks
            else ("tA", "block A in scratch memory")
        )
        original = ("oA", "block A of this rank's own input, which never changes")
        return [original] * ("original" in self.places) + [slot] * ("temp" in self.places)

    def action(self, move: Move, after: Sequence[Content] | None = None) -> str:
        """Spell a local action as an assignment."""
        source = "N" if move.sign == "/" else self.spell(move.sources)
        return f"{self.spell(move.targets, after)} {move.sign.strip('=')}= {source}"


def letter(block: int) -> str:
    """Name a block: A to Z, A1 to Z1, A2 ..."""
    return chr(ord("A") + block % 26) + (str(block // 26) if block > 25 else "")


def stretches(numbers: Iterable[int]) -> list[list[int]]:
    """Split numbers into stretches of consecutive ones, in the order given."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def runs(numbers: Iterable[int], name: Callable[[int], str]) -> str:
    """Name numbers in order, three and more in a row by their ends only: ``A-C,E,F``."""
    return ",".join(
        f"{name(run[0])}-{name(run[-1])}" if len(run) > 2 else ",".join(map(name, run)) for run in stretches(numbers)
    )

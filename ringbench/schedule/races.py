"""Find what ranks that share memory do to each other's blocks without having met."""

from __future__ import annotations

from collections.abc import Sequence

from ringbench.schedule.rendezvous import Observer, Program, play
from ringbench.schedule.step import Local, Place, Span, Spans, Step, block_numbers, copy, describe, owners, work

#: Whose memory, which place, which block.
_Block = tuple[int, Place, int]


class _Clocks(Observer):
    """Keep for every rank how many meets of each rank it knows to be over, and for every block who touched it when.

    Vector clocks as in FastTrack (Flanagan and Freund 2009): what was written or read is safe from a rank that has
    heard, through meets, of a later time of whoever did it. Messages order nothing here: they may pass by another way.
    """

    def __init__(self, nranks: int, nblocks: int, ntemp: int) -> None:
        self.nblocks, self.ntemp = nblocks, ntemp
        self.known = [[0] * nranks for _ in range(nranks)]
        for rank in range(nranks):
            self.known[rank][rank] = 1
        self.written: dict[_Block, tuple[int, int]] = {}
        self.readers: dict[_Block, dict[int, int]] = {}
        self.race: str | None = None

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        together = list(map(max, *(self.known[rank] for rank in ranks))) if len(ranks) > 1 else self.known[ranks[0]]
        for rank in ranks:
            self.known[rank] = list(together)
            self.known[rank][rank] += 1

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        self.touch(sender, send_round, sent.send, writes=False)

    def finish(self, rank: int, round: int, step: Step) -> None:
        if step.source is not None:
            self.touch(rank, round, step.recv, writes=True)

    def local(self, rank: int, round: int, action: Local) -> None:
        self.touch(rank, round, action.source, writes=False)
        self.touch(rank, round, action.dest, writes=True)

    def touch(self, rank: int, round: int, value: Spans, *, writes: bool) -> None:
        """Note that a rank reads or writes some blocks; note the first race."""
        known, named = self.known[rank], block_numbers(value, self.nblocks, self.ntemp)
        for owner, (place, block) in zip(owners(value, rank), named, strict=True):
            if place == "original":
                continue
            at = (owner, place, block)
            readers = self.readers.setdefault(at, {})
            before = [self.written.get(at, (rank, 0))] + (list(readers.items()) if writes else [])
            other = next((who for who, when in before if who != rank and known[who] < when), None)
            if other is not None and self.race is None:
                verb = "writes" if writes else "reads"
                what = describe(Span(place, block, 1, None if owner == rank else owner), self.nblocks, self.ntemp)
                whom = f"rank {other}, which touched it"
                self.race = f"rank {rank}, round {round}: {verb} {what} without having met {whom}"
            if writes:
                self.written[at] = rank, known[rank]
                readers.clear()
            else:
                readers[rank] = known[rank]


def find_race(programs: Sequence[Program], nblocks: int, ntemp: int) -> str | None:
    """Return what goes wrong where programs that end are called twice in a row, None where nothing can.

    Before, between and after the calls every rank writes its own vector: so may its caller.
    """
    clocks = _Clocks(len(programs), nblocks, ntemp)
    caller = copy((), work(0, nblocks))
    play([[caller, *program, caller, *program, caller] for program in programs], clocks)
    return clocks.race

"""Play a schedule's messages in the order that synchronous sends would allow.

The one engine behind ``verify`` and ``cost``. A message passes when its sender and its receiver both stand at the
step that names it, and a rank leaves a step when both its messages have passed: the strictest progress MPI allows
(no buffering at all), so what finishes here finishes under every eager limit. Ranks leave a meet when all that it
names stand at one that names the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringbench.schedule.step import Local, Meet, Operation, Step

Program = Sequence[Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Say where a rank stands that cannot go on: its step, the step's round, and which halves are still open.

    ``waits_for`` is the peer of the open half (of the receive where both are open), or the first that a meet lacks.
    """

    rank: int
    round: int
    step: Step | Meet
    sending: bool
    receiving: bool
    waits_for: int


class Observer:
    """Take part in a play; every method may be overridden."""

    def local(self, rank: int, round: int, action: Local) -> None:
        """See a local action, before step ``round`` of this rank."""

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        """See a message pass."""

    def finish(self, rank: int, round: int, step: Step) -> None:
        """See a rank leave a step."""

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        """See ranks meet, each in a round of its own."""


def play(programs: Sequence[Program], observer: Observer) -> list[Blocked]:
    """Play the programs of all ranks to the end; return the ranks that are blocked for ever, none if it ended."""
    nranks = len(programs)
    position, rounds = [0] * nranks, [0] * nranks
    current: list[Step | Meet | None] = [None] * nranks
    waiting: dict[tuple[int, ...], int] = {}
    sending, receiving = [False] * nranks, [False] * nranks
    ready = list(range(nranks - 1, -1, -1))
    message, finish, local = observer.message, observer.finish, observer.local

    def enter(rank: int) -> None:
        """Run local actions up to the next step and open its halves."""
        program = programs[rank]
        while position[rank] < len(program):
            operation = program[position[rank]]
            position[rank] += 1
            if isinstance(operation, Step):
                current[rank] = operation
                sending[rank] = operation.dest is not None
                receiving[rank] = operation.source is not None
                return
            if isinstance(operation, Meet):
                current[rank] = operation
                if rank in operation.ranks:
                    members = tuple(operation.ranks)
                    waiting[members] = waiting.get(members, 0) + 1
                return
            local(rank, rounds[rank], operation)
        current[rank] = None

    for rank in range(nranks):
        enter(rank)

    def match(sender: int, receiver: int) -> bool:
        sent, received = current[sender], current[receiver]
        if not (isinstance(sent, Step) and isinstance(received, Step)):
            return False
        if sent.dest != receiver or received.source != sender:
            return False
        if not (sending[sender] and receiving[receiver]):
            return False
        message(sender, rounds[sender], sent, receiver, rounds[receiver], received)
        sending[sender] = receiving[receiver] = False
        return True

    while ready:
        rank = ready.pop()
        step = current[rank]
        if step is None:
            continue
        if isinstance(step, Meet):
            members = tuple(step.ranks)
            if waiting.get(members, 0) == len(members):
                del waiting[members]
                observer.meet(members, tuple(rounds[member] for member in members))
                for member in members:
                    rounds[member] += 1
                    enter(member)
                    ready.append(member)
            continue
        if step.dest is not None and match(rank, step.dest):
            ready.append(step.dest)
        if step.source is not None and match(step.source, rank):
            ready.append(step.source)
        if not sending[rank] and not receiving[rank]:
            finish(rank, rounds[rank], step)
            rounds[rank] += 1
            enter(rank)
            ready.append(rank)

    def lacking(rank: int, step: Step | Meet) -> int:
        if isinstance(step, Meet):
            absent = [member for member in step.ranks if current[member] != step]
            return absent[0] if absent else rank
        peer = step.source if receiving[rank] else step.dest
        assert peer is not None
        return peer

    return [
        Blocked(
            rank=rank,
            round=rounds[rank],
            step=step,
            sending=sending[rank],
            receiving=receiving[rank],
            waits_for=lacking(rank, step),
        )
        for rank, step in enumerate(current)
        if step is not None
    ]

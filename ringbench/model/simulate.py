"""Play schedules on a network, for thousands of ranks, without MPI.

The model: a message starts once its sender and its receiver both stand at the step that names it (rendezvous), and
takes alpha + bytes * beta of its link; the two messages of a Sendrecv go on side by side, each for its own time, and
the rank leaves the step when the later one is over. Then it adds what came: gamma for each byte. Links are not shared.
What a rank reads or writes in the memory of others takes beta of the links inside the node for each byte, and a meet
the rounds of a dissemination barrier: ceil(lg g) times alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbench.model.closed import closed_form
from ringbench.model.crowd import NOBODY, Crowd, Operation, operations
from ringbench.model.network import Network, Wires
from ringbench.schedule.parameters import groups_of, places_of
from ringbench.schedule.registry import Algorithm

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Operations held at a time: as many over all ranks, and of each rank at least the second number.
HELD = 1 << 20
FEWEST = 64

#: What a critical path is made of, in the order of the rows of ``_Play.path``.
PARTS = ("alpha", "beta", "gamma", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Hold what one schedule took on one network.

    ``simulated_s`` runs from the first start to the last end. ``rounds`` is the longest chain of dependent messages,
    ``bytes_sent_max`` what the busiest rank sends, ``bytes_reached_max`` what the busiest one reads and writes in the
    memory of others. ``closed_s`` is the closed form for links that are all alike (None
    where there is none) and ``over_closed`` by which fraction the simulation is above it. The four shares are those of
    the critical path: messages, bytes moved, bytes reduced, and waiting for a rank that started late; they add up to 1
    (all 0 where nothing takes time). ``idle_share`` is the share of all ranks' time in which they neither send,
    receive nor reduce. ``last_rank`` is the one that ends last.
    """

    collective: str
    algorithm: str
    nranks: int
    nbytes: int
    simulated_s: float
    rounds: int
    bytes_sent_max: int
    bytes_reached_max: int
    closed_s: float | None
    over_closed: float | None
    alpha_share: float
    beta_share: float
    gamma_share: float
    waiting_share: float
    idle_share: float
    last_rank: int
    remark: str | None
    network: str

    def to_json(self) -> dict[str, Any]:
        """Return the simulation as one flat dictionary, units in the names."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Hold what a rank did from ``start_s`` to ``end_s``: a step with its peers (None: none) and bytes, or sums."""

    rank: int
    start_s: float
    end_s: float
    dest: int | None
    source: int | None
    nbytes: int


def simulate(
    algorithm: Algorithm, nranks: int, nbytes: int, network: Network, record: Callable[[Event], None] | None = None
) -> Simulation:
    """Play an algorithm on a vector of ``nbytes`` bytes; tell ``record`` of everything that takes time.

    Takes time with the steps of all ranks together, in arrays over the ranks. Raises ValueError for a rank that there
    is not, for an argument of the algorithm that does not fit, and for a schedule that cannot end.
    """
    if nranks < 1:
        raise ValueError(f"nranks = {nranks}: must be at least 1")
    if nbytes < 0:
        raise ValueError(f"nbytes = {nbytes}: must not be negative")
    _check_nodes(algorithm, nranks, network)
    play = _Play(Wires(network, nranks), nranks, record)
    play.run(operations(algorithm, nranks, nbytes), algorithm.title)
    last = int(play.now.argmax())
    begin = float(play.wires.starts_s.min())
    total = float(play.now[last]) - begin
    path = play.path[:, last] - [0.0, 0.0, 0.0, begin]
    shares = dict(zip(PARTS, path / total if total > 0 else np.zeros(len(PARTS)), strict=True))
    closed = closed_form(algorithm, nranks, nbytes, network)
    return Simulation(
        collective=algorithm.collective,
        algorithm=algorithm.name,
        nranks=nranks,
        nbytes=nbytes,
        simulated_s=total,
        rounds=int(play.depth.max()),
        bytes_sent_max=int(play.sent.max()),
        bytes_reached_max=int(play.reach.max()),
        closed_s=closed,
        over_closed=total / closed - 1 if closed else None,
        **{f"{name}_share": float(share) for name, share in shares.items()},
        idle_share=max(0.0, 1 - float(play.busy.sum()) / (nranks * total)) if total > 0 else 0.0,
        last_rank=last,
        remark=algorithm.remark(nranks),
        network=network.describe(),
    )


def _check_nodes(algorithm: Algorithm, nranks: int, network: Network) -> None:
    if algorithm.shared is None or network.groups is None or len(network.groups) == 1:
        return
    arguments = dict(algorithm.arguments)
    together = groups_of(arguments.get("groups"), nranks)
    nodes = places_of(network.groups).node
    if any(len({nodes[rank] for rank in group}) > 1 for group in together):
        raise ValueError(f"{algorithm.title}: its ranks share memory, but are on {len(network.groups)} nodes")


class _Play:
    """Keep where every rank stands: the operation it is at, when it came there, and by which path."""

    def __init__(self, wires: Wires, nranks: int, record: Callable[[Event], None] | None) -> None:
        self.wires, self.record, self.nranks = wires, record, nranks
        self.now: Array = wires.starts_s.copy()
        self.path: Array = np.zeros((len(PARTS), nranks))
        self.path[-1] = self.now
        self.depth: Indices = np.zeros(nranks, dtype=np.int64)
        self.sent, self.busy = np.zeros(nranks, dtype=np.int64), np.zeros(nranks)
        self.reach: Indices = np.zeros(nranks, dtype=np.int64)
        # The operation at which a rank stands, and which of its halves are still open.
        self.dest, self.source = np.full(nranks, NOBODY), np.full(nranks, NOBODY)
        self.nbytes, self.reduced, self.reached = np.zeros((3, nranks), dtype=np.int64)
        self.sending, self.receiving = np.zeros(nranks, dtype=bool), np.zeros(nranks, dtype=bool)
        # When the messages of this step began and end so far, and the path of the one that ends last.
        self.first, self.last = np.full(nranks, np.inf), np.full(nranks, -np.inf)
        self.later, self.deeper = np.zeros((len(PARTS), nranks)), np.zeros(nranks, dtype=np.int64)
        # Where each rank's next operation is in the table, how far it is to the one after, and how many are left.
        self.at, self.stride, self.left = (np.zeros(nranks, dtype=np.int64) for _ in range(3))
        self.table: Indices = np.zeros((len(Operation._fields), 0), dtype=np.int64)

    def run(self, everyone: Sequence[Crowd], title: str) -> None:
        """Play until all ranks have ended; raise ValueError where some never do."""
        crowds = self.refill(everyone)
        moved = self.load(np.arange(self.nranks))
        while True:
            while len(moved):
                moved = self.load(self.advance(moved))
            standing = self.sending | self.receiving
            if all(crowd.ended or self.left[crowd.members].all() for crowd in crowds):
                if standing.any():
                    raise ValueError(f"{title}, {self.nranks} ranks: rank {standing.argmax()} never ends")
                return
            crowds = self.refill(crowds)
            moved = self.load(np.flatnonzero(~standing))

    def refill(self, crowds: Sequence[Crowd]) -> list[Crowd]:
        """Ask for more operations, and lay all that are not yet played into the table, crowd after crowd."""
        found: list[Crowd] = []
        for crowd in crowds:
            keep = int(self.left[crowd.members].max())
            del crowd.queue[: len(crowd.queue) - keep]
            parts = [crowd] if self.left[crowd.members].all() else crowd.pull(max(FEWEST, HELD // self.nranks))
            for part in parts:
                self.left[part.members] += len(part.queue) - keep
            found.extend(parts)
        table = np.empty(
            (len(Operation._fields), sum(len(crowd.queue) * len(crowd.members) for crowd in found)), dtype=np.int64
        )
        start = 0
        for crowd in found:
            members, length, size = crowd.members, len(crowd.queue), len(crowd.members)
            self.stride[members] = size
            self.at[members] = start + np.arange(size) + (length - self.left[members]) * size
            if length and size == 1:
                table[:, start : start + length] = np.array(crowd.queue, dtype=np.int64).T
            for number, operation in enumerate(crowd.queue if size > 1 else ()):
                for column, value in zip(table, operation, strict=True):
                    column[start + number * size : start + (number + 1) * size] = value
            start += length * size
        self.table = table
        return found

    def load(self, ranks: Indices) -> Indices:
        """Bring ranks to their next operation; return those for which there is one in the table."""
        ranks = ranks[self.left[ranks] > 0]
        at, here = self.at[ranks], _here(ranks, self.nranks)
        columns = (self.dest, self.source, self.nbytes, self.reduced, self.reached)
        for column, values in zip(columns, np.take(self.table, at, axis=1), strict=True):
            column[here] = values
        self.sending[here], self.receiving[here] = self.dest[here] >= 0, self.source[here] >= 0
        self.at[here] += self.stride[here]
        self.left[here] -= 1
        return ranks

    def advance(self, moved: Indices) -> Indices:
        """Pass those messages that have become possible since some ranks moved on; return the ranks that are done."""
        fresh = np.zeros(self.nranks, dtype=bool)
        fresh[moved] = True
        senders = moved[self.sending[moved]]
        receivers = self.dest[senders]
        both = self.receiving[receivers] & (self.source[receivers] == senders)
        senders, receivers = senders[both], receivers[both]
        waiting = moved[self.receiving[moved]]
        ready = self.source[waiting]
        old = ~fresh[ready]  # the others were found as senders
        if old.any():
            waiting, ready = waiting[old], ready[old]
            both = self.sending[ready] & (self.dest[ready] == waiting)
            senders, receivers = np.append(senders, ready[both]), np.append(receivers, waiting[both])
        self.transfer(senders, receivers)
        fresh[senders] = fresh[receivers] = True
        done = np.flatnonzero(fresh & ~self.sending & ~self.receiving)
        self.finish(done)
        return done

    def transfer(self, senders: Indices, receivers: Indices) -> None:
        """Pass one message from each sender to its receiver."""
        here = _here(senders, self.nranks)
        alpha, beta = self.wires.cost(senders, receivers)
        moving = self.nbytes[here] * beta
        one, other = self.now[here], self.now[receivers]
        start = np.maximum(one, other)
        end = start + alpha + moving
        path = np.take(self.path, np.where(other > one, receivers, senders), axis=1)
        path[0] += alpha
        path[1] += moving
        depth = np.maximum(self.depth[here], self.depth[receivers]) + 1
        self.sent[here] += self.nbytes[here]
        self.sending[here] = self.receiving[receivers] = False
        ends = [(here, start, end, path, depth)]
        if isinstance(here, slice):  # all send, so all receive: in the order of the receivers there is less to look up
            by = self.source
            ends.append((here, start[by], end[by], np.take(path, by, axis=1), depth[by]))
        else:
            ends.append((receivers, start, end, path, depth))
        for ranks, start, end, path, depth in ends:
            first, last = self.first[ranks], self.last[ranks]
            twice = np.maximum(np.minimum(end, last) - np.maximum(start, first), 0.0)
            self.busy[ranks] += end - start - twice
            self.later[:, ranks] = np.where(end > last, path, self.later[:, ranks])
            self.first[ranks], self.last[ranks] = np.minimum(first, start), np.maximum(last, end)
            self.deeper[ranks] = np.maximum(self.deeper[ranks], depth)

    def finish(self, ranks: Indices) -> None:
        """Have ranks leave their operation, and add what came."""
        here = _here(ranks, self.nranks)
        gamma = self.wires.gamma if np.ndim(self.wires.gamma) == 0 else self.wires.gamma[here]
        adding, reaching = self.reduced[here] * gamma, self.reached[here] * self.wires.near(here)
        self.reach[here] += self.reached[here]
        if self.record is not None:
            self.tell(ranks, self.record, adding + reaching)
        self.path[:, here] = np.where(self.last[here] >= self.now[here], self.later[:, here], self.path[:, here])
        self.path[1, here] += reaching
        self.path[2, here] += adding
        self.now[here] = np.maximum(self.now[here], self.last[here]) + adding + reaching
        self.busy[here] += adding + reaching
        self.depth[here] = np.maximum(self.depth[here], self.deeper[here])
        self.first[here], self.last[here] = np.inf, -np.inf

    def tell(self, ranks: Indices, record: Callable[[Event], None], adding: Array) -> None:
        """Report the operation that ranks are about to leave."""
        for rank, spent in zip(map(int, ranks), map(float, adding), strict=True):
            over = max(float(self.now[rank]), float(self.last[rank]))
            dest, source = (int(peers[rank]) for peers in (self.dest, self.source))
            if dest >= 0 or source >= 0:
                record(
                    Event(
                        rank=rank,
                        start_s=float(self.first[rank]),
                        end_s=over,
                        dest=dest if dest >= 0 else None,
                        source=source if source >= 0 else None,
                        nbytes=int(self.nbytes[rank]),
                    )
                )
            if spent > 0:
                nbytes = int(self.reduced[rank] or self.reached[rank])
                record(Event(rank=rank, start_s=over, end_s=over + spent, dest=None, source=None, nbytes=nbytes))


def _here(ranks: Indices, nranks: int) -> Any:
    """Return an index for distinct ranks: a slice where they are all, in order, since that is much faster."""
    return slice(None) if len(ranks) == nranks and ranks[0] == 0 and (ranks[1:] > ranks[:-1]).all() else ranks

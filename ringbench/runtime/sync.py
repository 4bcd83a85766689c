"""How ranks are aligned before a sample, and what a sample is then: barriers, or a common time on compared clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.records.row import ESTIMAND

Clock = Callable[[], int]
Times = np.ndarray[Any, np.dtype[np.int64]]

TAG = 8

#: Exchanges in which one clock is compared with another, and how long a comparison is good for.
EXCHANGES = 16
COMPARE_EVERY_NS = 1_000_000_000

#: Between the first two comparisons, so that there is a drift to go by at once.
FIRST_SPAN_S = 0.1

#: Drift is taken from comparisons of this long at most: clocks that are disciplined change their rate.
WINDOW_NS = 30_000_000_000

#: How far ahead a common start is fixed at most, and the share of late rounds from which on that is moved.
MOST_SLACK_NS = 20_000_000
LATE_SHARE = 0.1


class Alignment:
    """Align ranks before a sample, which is the maximum over ranks of the local duration unless a subclass says else.

    ``align`` is called before each timed call, and says whether this rank was late, if it can be.
    """

    estimand = ESTIMAND
    calls = 1  # in a row make a sample, their mean

    def __init__(self, comm: Any, clock: Clock | None = None) -> None:
        self.comm = comm
        self.clock = time.perf_counter_ns if clock is None else clock
        self.align: Callable[[], object] = comm.Barrier  # the barrier of the library

    def begin(self) -> None:
        """Get ready for a batch of rounds. Collective."""

    def samples(self, starts: Times, ends: Times, late: Times) -> tuple[Any, Any]:
        """Return the samples in seconds, a row for each round, and which of the rounds given count. Collective."""
        local = (ends - starts) * 1e-9
        self.comm.Allreduce(MPI.IN_PLACE, local, MPI.MAX)
        return local.round(9), np.ones(len(local), bool)

    def describe(self) -> list[dict[str, float]] | None:
        """Return what is known of every rank's clock against that of rank 0, on all ranks. Collective."""
        return None

    def error_s(self) -> float | None:
        """Return how far apart two ranks' clocks may be in a sample, in s; None where none are compared. Collective."""
        return None


class Dissemination(Alignment):
    """Align ranks by a dissemination barrier: every library's ranks leave it alike.

    Round k: rank r tells rank r + 2^k and hears from rank r - 2^k. Hensgen, Finkel and Manber, Two Algorithms for
    Barrier Synchronization, 1988.
    """

    estimand = "max over ranks of the local duration after a dissemination barrier"

    def __init__(self, comm: Any, clock: Clock | None = None) -> None:
        super().__init__(comm, clock)
        rank, nranks = comm.Get_rank(), comm.Get_size()
        nothing = [bytearray(0), MPI.BYTE]
        distances = [2**k for k in range((nranks - 1).bit_length())]
        peers = [((rank + distance) % nranks, (rank - distance) % nranks) for distance in distances]
        exchange = comm.Sendrecv

        def align() -> None:
            for dest, source in peers:
                exchange(nothing, dest, TAG, nothing, source, TAG)

        self.align = align


class Loop(Alignment):
    """Align ranks once for many calls in a row, as loops without a barrier do: nccl-tests' default (-z 0), OMB-Py.

    A rank may be a call ahead of another, so latencies overlap that a barrier would show.
    """

    calls = 20  # nccl-tests' -n
    estimand = f"max over ranks of the mean of {calls} calls in a row after a barrier"


@dataclass(frozen=True, slots=True)
class Point:
    """Hold one comparison, in ns: at ``local`` on this clock it was ahead of rank 0's by ``offset`` ± ``error``."""

    local: int
    offset: int
    error: float


def offset_bounds(exchanges: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Return the least and greatest offset (other - own) that all exchanges (sent, other's clock, received) allow.

    The other clock was read between the two readings of one's own, however long either way took: each exchange bounds
    the offset, and all of them together by the intersection. Cristian, Probabilistic clock synchronization, 1989.
    """
    low = max(other - received for _, other, received in exchanges)
    high = min(other - sent for sent, other, _ in exchanges)
    return (low, high) if low <= high else (high, low)  # clocks that drift apart within the exchanges: the gap


class ClockModel:
    """Turn this rank's clock into rank 0's and back, from comparisons with it."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def add(self, point: Point) -> None:
        """Take in a comparison."""
        self.points.append(point)

    def forget(self) -> None:
        """Drop the comparisons that are long over, but for the latest before: no time before now is asked for again."""
        while len(self.points) > 2 and self.points[-1].local - self.points[1].local > WINDOW_NS:
            del self.points[0]

    def drift(self) -> tuple[float, float]:
        """Return by how much this clock is faster than rank 0's, in s/s, and how far off that may be.

        From the last comparison and the earliest in the window before it (the one before, where none is).
        """
        last = self.points[-1]
        first = next((point for point in self.points if last.local - point.local <= WINDOW_NS), last)
        if first is last and len(self.points) > 1:
            first = self.points[-2]
        span = last.local - first.local
        if span <= 0:
            return 0.0, 0.0
        return (last.offset - first.offset) / span, (first.error + last.error) / span

    def local(self, reference: int) -> int:
        """Return what this clock will show when rank 0's shows ``reference``; drift that may be none is taken as such.

        Made for times after the last comparison.
        """
        last = self.points[-1]
        drift, error = self.drift()
        ahead = reference + last.offset
        return ahead + (round(drift * (ahead - last.local)) if abs(drift) > error else 0)

    def reference(self, local: Times) -> Times:
        """Return what rank 0's clock showed at these times of this one, interpolated between comparisons."""
        base = self.points[0]
        at = np.array([point.local - base.local for point in self.points], float)
        ahead = np.array([point.offset - base.offset for point in self.points], float)
        moved = np.interp((local - base.local).astype(float), at, ahead)
        return np.asarray(local - base.offset - np.rint(moved).astype(np.int64))


class RoundTime(Alignment):
    """Start all ranks at one time: a sample is from the first start to the last end, on clocks that were compared.

    Rank 0 fixes each start; a round in which some rank was late does not count. Clocks are compared by ping-pong at
    the start, before and after each batch of rounds, and every second within. After the Round-Time scheme of Hunold
    and Carpen-Amarie, Hierarchical Clock Synchronization in MPI, 2018.
    """

    estimand = "last end - first start over ranks that start at one time"

    def __init__(self, comm: Any, clock: Clock | None = None) -> None:
        super().__init__(comm, clock)
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()
        self.model = ClockModel()
        self._message = np.zeros(3, np.int64)
        self._spec = [self._message, MPI.INT64_T]
        self._worst, self._latest = 0.0, 0
        self.compare()
        self.slack = self._first_slack()
        time.sleep(FIRST_SPAN_S)
        self.compare()
        self.align = self._wait_for_start

    def compare(self) -> None:
        """Compare every rank's clock with rank 0's, one after the other."""
        if self.rank == 0:
            self.model.add(Point(self.clock(), 0, 0.0))
            for peer in range(1, self.nranks):
                self._compare_with(peer)
            return
        message, spec = self._message, self._spec
        for _ in range(EXCHANGES):
            self.comm.Recv(spec, 0, TAG)
            message[0] = self.clock()
            self.comm.Send(spec, 0, TAG)
        self.comm.Recv(spec, 0, TAG)
        local, low, high = message.tolist()
        self.model.add(Point(local, (low + high) // 2, (high - low) / 2))
        self._worst = max(self._worst, (high - low) / 2)

    def _compare_with(self, peer: int) -> None:
        message, spec, found = self._message, self._spec, []
        for _ in range(EXCHANGES):
            sent = self.clock()
            self.comm.Send(spec, peer, TAG)
            self.comm.Recv(spec, peer, TAG)
            received = self.clock()
            found.append((sent, int(message[0]), received))
        message[:] = found[-1][1], *offset_bounds(found)
        self.comm.Send(spec, peer, TAG)

    def _first_slack(self) -> int:
        """Return, on rank 0, twice the time in which all ranks have heard of a start."""
        took = []
        for _ in range(9):
            self.comm.Barrier()
            start = self.clock()
            self.comm.Bcast(self._spec, 0)
            self.comm.Barrier()
            took.append(self.clock() - start)
        return min(MOST_SLACK_NS, 2 * sorted(took)[4] + 10_000)

    def _wait_for_start(self) -> bool:
        """Wait for the time that rank 0 fixes; return whether it was over when this rank heard of it."""
        clock, message, compared = self.clock, self._message, False
        while True:
            self.comm.Barrier()  # some may still be at the last round, with which rank 0 was done long ago
            if self.rank == 0:
                now = clock()
                stale = now - self.model.points[-1].local > COMPARE_EVERY_NS
                message[:2] = now + self.slack, stale and not compared
            self.comm.Bcast(self._spec, 0)
            if not message[1]:
                break
            self.compare()
            compared = True  # once is enough, however long it took
        start = self.model.local(int(message[0]))
        if (now := clock()) > start:
            self._latest = max(self._latest, now - start)
            return True
        while clock() < start:
            pass
        return False

    def begin(self) -> None:
        """Compare the clocks. Collective."""
        self.model.forget()
        self.compare()

    def samples(self, starts: Times, ends: Times, late: Times) -> tuple[Any, Any]:
        """Return last end - first start in seconds, and in which rounds all ranks were on time. Collective."""
        self.compare()
        both = np.stack([-self.model.reference(starts), self.model.reference(ends), late])
        self.comm.Allreduce(MPI.IN_PLACE, both, MPI.MAX)
        missed = both[2].any(axis=1)
        latest = self.comm.allreduce(self._latest, MPI.MAX)
        if both[2].mean() > LATE_SHARE:
            self.slack = min(MOST_SLACK_NS, 2 * self.slack + latest)
        self._latest = 0
        return ((both[0] + both[1]) * 1e-9).round(9), ~missed

    def describe(self) -> list[dict[str, float]]:
        """Return every rank's offset (s) and drift (s/s) against rank 0's clock, each with its uncertainty."""
        last, (drift, drift_error) = self.model.points[-1], self.model.drift()
        own = {
            "offset_s": round(last.offset * 1e-9, 9),
            "offset_error_s": round(last.error * 1e-9, 10),
            "drift": round(drift, 12),
            "drift_error": round(drift_error, 12),
        }
        found: list[dict[str, float]] = self.comm.allgather(own)
        return found

    def error_s(self) -> float:
        """Return the worst error of an offset so far over all ranks, in s. Collective."""
        return round(float(self.comm.allreduce(self._worst, MPI.MAX)) * 1e-9, 10)


METHODS: dict[str, type[Alignment]] = {
    "barrier": Alignment,
    "dissemination": Dissemination,
    "roundtime": RoundTime,
    "loop": Loop,
}


def alignment(comm: Any, method: str, clock: Clock | None = None) -> Alignment:
    """Return the way to align ranks that has this name; ``clock`` counts ns (None: the monotonic one). Collective."""
    return METHODS[method](comm, clock)

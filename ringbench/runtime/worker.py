"""What a job does: measure and check every size and algorithm, one row each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mpi4py import MPI

from ringbench.records.doubts import row_warnings
from ringbench.records.guards import GUARDS
from ringbench.records.row import Row
from ringbench.records.settings import Settings
from ringbench.records.units import format_size
from ringbench.runtime.arrays import Backend, backend_for
from ringbench.runtime.choices import Choose, choose_by_rule
from ringbench.runtime.data import Mismatch, Probe, rounds
from ringbench.runtime.demands import COMPLEX, ITEMSIZE, memory_needed
from ringbench.runtime.execute import Plan
from ringbench.runtime.limit import Limits
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.runtime.plan import plan
from ringbench.runtime.timing import Contestant, clock_tick, nothing, run_rounds, sample
from ringbench.schedule.parameters import parse_groups
from ringbench.schedule.registry import algorithm_named

#: Salts of the inputs: each check has data of its own, so that a result left over from before is wrong.
FIRST, TIMED, LAST = 1, 2, 3


def check_memory(comm: Any, settings: Settings, available: int, hosts: Sequence[str]) -> None:
    """Raise ValueError on all ranks where the ranks of some host together need more bytes than it has."""
    least = dict(zip(reversed(hosts), reversed(comm.allgather(available)), strict=True))
    need, nbytes = memory_needed(settings, comm.Get_size())
    for host, free in least.items():
        here = hosts.count(host) * need
        if here > free:
            names = ",".join(settings.algorithms)
            raise ValueError(
                f"size {format_size(nbytes)}: {hosts.count(host)} of the ranks, on {host}, need {here / 2**30:.1f} GiB "
                f"for {names}, but {free / 2**30:.1f} GiB are free"
            )


@dataclass(slots=True)
class _Cell:
    """Hold one algorithm at one size while it is measured."""

    algorithm: str
    probe: Probe
    plan: Plan | None = None
    reason: str | None = None
    contestant: Contestant | None = None
    warmup_s: list[float] = field(default_factory=list)
    wrong: int = 0
    detail: str | None = None
    identical: bool | None = None

    def note(self, comm: Any, found: Mismatch, what: str) -> None:
        """Add up wrong elements over ranks and checks; keep the first description."""
        counts = comm.allgather((found.wrong, found.first))
        self.wrong += sum(count for count, _ in counts)
        bad = [(rank, first) for rank, (count, first) in enumerate(counts) if count]
        if bad and self.detail is None:
            self.detail = f"{what}, rank {bad[0][0]}: {bad[0][1]}"


def measure(
    comm: Any,
    settings: Settings,
    *,
    launch: int = 0,
    warnings: tuple[str, ...] = (),
    choose: Choose = choose_by_rule,
) -> Iterator[Row]:
    """Measure every size and algorithm of the settings; yield the finished rows, the same on all ranks.

    A wrong result is a row that says so, a case that cannot run a row with a reason. Each size gets an equal share of
    what is left of the time budget; when it is used up, what remains gets one warm-up and the fewest samples.
    """
    backend = backend_for(settings.device)
    tick = comm.allreduce(clock_tick(), MPI.MAX)
    groups = [(nbytes, in_place) for nbytes in sorted(settings.sizes) for in_place in settings.placements]
    end = time.perf_counter() + settings.time_budget_s
    for done, (nbytes, in_place) in enumerate(groups):
        now = time.perf_counter()
        deadline = now + max(0.0, end - now) / (len(groups) - done)
        group = _Group(comm, settings, nbytes, in_place, backend, choose)
        group.check_first()
        group.warm_up(1 if comm.bcast(now > end, root=0) else settings.warmup)
        group.sample(deadline, launch)
        group.check_last()
        yield from group.rows(launch, warnings, tick)


class _Group:
    """Measure all algorithms of one size and placement in turns."""

    def __init__(
        self, comm: Any, settings: Settings, nbytes: int, in_place: bool, backend: Backend, choose: Choose
    ) -> None:
        self.choose = choose
        self.comm, self.settings, self.nbytes, self.in_place = comm, settings, nbytes, in_place
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()
        self.count = nbytes // ITEMSIZE[settings.dtype]
        self.backend = backend
        probe = Probe(
            settings.collective,
            settings.op,
            settings.dtype,
            self.rank,
            self.nranks,
            self.count,
            in_place,
            backend,
            settings.root,
        )
        self.probe = probe
        self.rounds = probe.semantics.reduces and rounds(settings.op, settings.dtype)
        self.cells = [self._plan(name) for name in settings.algorithms]
        self.live = [cell for cell in self.cells if cell.plan is not None]
        self.limits: Limits | None = None
        if settings.limit:
            steps = [cell.plan.steps for cell in self.live if cell.plan is not None]
            self.limits = Limits(comm, steps, settings.dtype, settings.op, backend)

    def _plan(self, name: str) -> _Cell:
        cell = _Cell(name, self.probe)
        send = MPI.IN_PLACE if self.in_place else self.probe.sendbuf
        segment = DEFAULT_SEGMENT if self.settings.segment is None else self.settings.segment
        try:
            cell.plan = plan(
                self.settings.collective,
                name,
                self.comm,
                send,
                self.probe.recvbuf,
                self.settings.op,
                segment,
                root=self.settings.root,
                chunks=self.settings.chunks,
                groups=None if self.settings.groups is None else parse_groups(self.settings.groups),
                outer=self.settings.outer,
                choose=self.choose,
            )
        except ValueError as error:  # the same on all ranks
            cell.reason = str(error)
            return cell
        prepare = partial(self.probe.write_input, TIMED) if self.probe.consumes_input else nothing
        cell.contestant = Contestant(prepare=prepare, run=cell.plan)
        return cell

    def check_first(self) -> None:
        """Run each algorithm on exact data, and floats on data that round, whose bits are compared over the ranks."""
        for cell in self.live:
            self._check(cell, FIRST, rounding=False, what="first check")
            if self.rounds:
                self._check(cell, FIRST, rounding=True, what="check of rounding")
                if self.settings.collective == "allreduce":
                    self._compare_bits(cell)

    def _compare_bits(self, cell: _Cell) -> None:
        """Count a result whose bits differ over the ranks as wrong where the algorithm claims that they never do."""
        digests = self.comm.allgather(self.probe.digest())
        other = next((rank for rank, digest in enumerate(digests) if digest != digests[0]), None)
        cell.identical = other is None
        ran = cell.plan.algorithm if cell.plan else "mpi"
        claimed = ran != "mpi" and algorithm_named("allreduce", ran).identical_bits
        # A product of complex numbers does not commute bit by bit where additions and products are fused.
        claimed = claimed and not (self.settings.op == "prod" and self.settings.dtype in COMPLEX)
        if claimed and other is not None:
            cell.wrong = max(cell.wrong, 1)  # which elements differ is not known
            cell.detail = cell.detail or f"check of rounding: the bits on rank {other} are not those on rank 0"

    def check_last(self) -> None:
        """Run each algorithm once more, on data it has not seen."""
        for cell in self.live:
            self._check(cell, LAST, rounding=False, what="last check")

    def _check(self, cell: _Cell, salt: int, *, rounding: bool, what: str) -> None:
        assert cell.plan is not None
        self.probe.write_all(salt, rounding)
        self.comm.Barrier()
        start = time.perf_counter_ns()
        cell.plan()
        seconds = (time.perf_counter_ns() - start) * 1e-9
        cell.warmup_s.append(round(self.comm.allreduce(seconds, MPI.MAX), 9))
        cell.note(self.comm, self.probe.check(salt, rounding), what)

    def warm_up(self, rounds: int) -> None:
        """Run each algorithm some times more, in turns, after writing the data that are timed."""
        self.probe.write_all(TIMED)
        contestants = self._contestants()
        if not contestants or not rounds:
            return
        values = run_rounds(self.comm, contestants, rounds)
        own = values[:, : len(self.live)]  # the bare ones come behind
        for cell, column in zip(self.live, own.T, strict=True):
            cell.warmup_s.extend(column.tolist())

    def _contestants(self) -> list[Contestant]:
        own = [cell.contestant for cell in self.live if cell.contestant]
        return own + self.limits.contestants if self.limits else own

    def sample(self, deadline: float, launch: int) -> None:
        """Take the samples; the order is drawn anew for each run's seed, rank count, size, placement and launch."""
        contestants = self._contestants()
        seed = f"{self.settings.seed} {self.nranks} {self.nbytes} {self.in_place} {launch}"
        sample(self.comm, contestants, self.settings, deadline, seed)

    def rows(self, launch: int, warnings: tuple[str, ...], tick: float) -> Iterator[Row]:
        """Return one finished row for each algorithm."""
        for cell in self.cells:
            row = Row(
                collective=self.settings.collective,
                algorithm=cell.algorithm,
                op=self.settings.op if self.probe.semantics.reduces else "none",
                dtype=self.settings.dtype,
                device=self.settings.device,
                nranks=self.nranks,
                nbytes=self.nbytes,
                count=self.count,
                in_place=self.in_place,
                launch=launch,
                samples_s=tuple(cell.contestant.samples_s) if cell.contestant else (),
                rank_means_s=self._rank_means(cell),
                warmup_s=tuple(cell.warmup_s),
                wrong=cell.wrong if cell.plan else None,
                wrong_detail=cell.detail,
                identical_bits=cell.identical,
                bytes_sent_max=self._bytes_sent_max(cell),
                segment_nbytes=cell.plan.segment_nbytes if cell.plan else None,
                stop=cell.contestant.stop if cell.contestant else None,
                reason=cell.reason,
                remark=cell.plan.remark if cell.plan else None,
                limit_s=self.limits.of(cell.plan.steps) if self.limits and cell.plan and cell.plan.steps else None,
            )
            library = (cell.plan.algorithm if cell.plan else cell.algorithm) == "mpi"
            said = tuple(name for name in warnings if library or not GUARDS[name].library)
            yield replace(row, warnings=said + row_warnings(row, tick))

    def _rank_means(self, cell: _Cell) -> tuple[float, ...]:
        """Return every rank's mean over the iterations; nothing where nothing was sampled."""
        if cell.contestant is None or not cell.contestant.samples_s:
            return ()
        return tuple(self.comm.allgather(round(cell.contestant.own_s / len(cell.contestant.samples_s), 9)))

    def _bytes_sent_max(self, cell: _Cell) -> int | None:
        if cell.plan is None or cell.plan.bytes_sent is None:
            return None
        return int(self.comm.allreduce(cell.plan.bytes_sent, MPI.MAX))

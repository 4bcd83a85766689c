"""What a job does: measure and check every size and algorithm, one row each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from mpi4py import MPI

from ringbench.records.doubts import row_warnings
from ringbench.records.guards import GUARDS
from ringbench.records.need import weights
from ringbench.records.row import Row
from ringbench.records.settings import Settings
from ringbench.records.straggler import parse_straggler
from ringbench.records.units import format_size
from ringbench.runtime.arrays import Backend, backend_for
from ringbench.runtime.choices import Choose, choose_by_rule, default_segment
from ringbench.runtime.data import Mismatch, Probe, rounds
from ringbench.runtime.demands import COMPLEX, ITEMSIZE, memory_needed, memory_of, transfer_of
from ringbench.runtime.execute import Plan
from ringbench.runtime.late import Delays, LateCall
from ringbench.runtime.limit import Limits
from ringbench.runtime.plan import plan
from ringbench.runtime.sync import Alignment, alignment
from ringbench.runtime.timing import Contestant, clock_tick, nothing, run_rounds, sample
from ringbench.runtime.windows import empty_shared
from ringbench.schedule.parameters import parse_groups
from ringbench.schedule.registry import RESERVED, algorithm_named
from ringbench.schedule.semantics import collective_named

#: Salts of the inputs: each check has data of its own, so that a result left over from before is wrong. At the end
#: there are two in a row, or what is wrong in every other call could be right in all that are checked.
FIRST, TIMED, LAST, VERY_LAST = 1, 2, 3, 4


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
class _Buffers:
    """Hold the sets of buffers that some algorithms of a size use in turns, all in one kind of memory."""

    memory: str
    probes: list[Probe] = field(default_factory=list)
    reason: str | None = None
    at: int = 0  # the set whose turn it is


@dataclass(slots=True)
class _Cell:
    """Hold one algorithm at one size while it is measured: a plan for each set of buffers, none where it cannot run."""

    algorithm: str
    buffers: _Buffers
    plans: list[Plan] = field(default_factory=list)
    reason: str | None = None
    contestant: Contestant | None = None
    calm: Contestant | None = None  # the same without delays, where a straggler disturbs
    late: LateCall | None = None
    warmup_s: list[float] = field(default_factory=list)
    wrong: int = 0
    detail: str | None = None
    identical: bool | None = None

    @property
    def plan(self) -> Plan | None:
        """Return the plan for the first set of buffers, which says what all of them do."""
        return self.plans[0] if self.plans else None

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
    aligned: Alignment | None = None,
    known: Mapping[tuple[int, bool], float] | None = None,
    make_plan: Callable[..., Plan] | None = None,
) -> Iterator[Row]:
    """Measure every size and algorithm of the settings; yield the finished rows, the same on all ranks.

    A wrong result is a row that says so, a case that cannot run a row with a reason. Each size gets a share of what is
    left of the time budget by its need: by ``known`` seconds of each size and placement, else by its bytes. When the
    budget is used up, what remains gets one warm-up and the fewest samples. ``aligned`` aligns ranks (None: as
    the settings say); ``make_plan`` stands in for ``plan``, to try the checks on collectives that are broken.
    """
    aligned = alignment(comm, settings.sync) if aligned is None else aligned
    backend = backend_for(settings.device)
    tick = comm.allreduce(clock_tick(), MPI.MAX)
    groups = settings.cells
    need = weights(groups, known or {})
    end = time.perf_counter() + settings.time_budget_s
    for done, (nbytes, in_place) in enumerate(groups):
        now = time.perf_counter()
        share = need[nbytes, in_place] / sum(need[group] for group in groups[done:])
        deadline = now + max(0.0, end - now) * share
        group = _Group(aligned, settings, nbytes, in_place, backend, choose, make_plan or plan)
        group.check_first()
        group.warm_up(1 if comm.bcast(now > end, root=0) else settings.warmup)
        group.sample(deadline, launch)
        group.check_last()
        yield from group.rows(launch, warnings, tick)
        del group  # its buffers go before those of the next one come


class _Group:
    """Measure all algorithms of one size and placement in turns."""

    def __init__(
        self,
        aligned: Alignment,
        settings: Settings,
        nbytes: int,
        in_place: bool,
        backend: Backend,
        choose: Choose,
        make_plan: Callable[..., Plan],
    ) -> None:
        self.choose, self.make_plan = choose, make_plan
        self.aligned, self.comm = aligned, aligned.comm
        self.settings, self.nbytes, self.in_place = settings, nbytes, in_place
        self.rank, self.nranks = self.comm.Get_rank(), self.comm.Get_size()
        self.count = nbytes // ITEMSIZE[settings.dtype]
        self.backend = backend
        memories = dict.fromkeys(memory_of(settings, name) for name in settings.algorithms)
        self.buffers = {memory: self._buffers(memory) for memory in memories}
        self.delays: Callable[[], Delays] | None = None
        if settings.straggler is not None:
            late, seed = parse_straggler(settings.straggler), f"{settings.seed} {nbytes} {in_place}"
            self.delays = partial(Delays, late, self.rank, self.nranks, seed)
        semantics = collective_named(settings.collective)
        self.reduces = semantics.reduces
        self.rounds = semantics.reduces and rounds(settings.op, settings.dtype)
        self.cells = [self._plan(name) for name in settings.algorithms]
        self.live = [cell for cell in self.cells if cell.plans]
        self.calm = [cell.calm for cell in self.live if cell.calm]
        self.limits: Limits | None = None
        if settings.limit:
            steps = [cell.plan.steps for cell in self.live if cell.plan is not None]
            staged = settings.staging == "host"
            self.limits = Limits(self.comm, steps, settings.dtype, settings.op, backend, staged)

    def _buffers(self, memory: str) -> _Buffers:
        found = _Buffers(memory)
        try:
            if memory == "shared" and self.backend.device != "cpu":
                raise ValueError(f"device {self.backend.device!r}: only the memory of the cpu is shared by a node")
            found.probes = [self._probe(memory) for _ in range(self.settings.buffers)]
        except ValueError as error:  # no room in shared memory, or none that is shared: the same on all ranks
            found.probes, found.reason = [], str(error)
        return found

    def _probe(self, memory: str) -> Probe:
        settings = self.settings
        return Probe(
            settings.collective,
            settings.op,
            settings.dtype,
            self.rank,
            self.nranks,
            self.count,
            self.in_place,
            self.backend,
            settings.root,
            empty=partial(empty_shared, self.comm) if memory == "shared" else None,
        )

    def _plan(self, name: str) -> _Cell:
        cell = _Cell(name, self.buffers[memory_of(self.settings, name)])
        probes = cell.buffers.probes
        if not probes:
            cell.reason = cell.buffers.reason
            return cell
        segment = default_segment(self.settings.device) if self.settings.segment is None else self.settings.segment
        try:
            for probe in probes:
                made = self.make_plan(
                    self.settings.collective,
                    name,
                    self.comm,
                    MPI.IN_PLACE if self.in_place else probe.sendbuf,
                    probe.recvbuf,
                    self.settings.op,
                    segment,
                    root=self.settings.root,
                    chunks=self.settings.chunks,
                    groups=None if self.settings.groups is None else parse_groups(self.settings.groups),
                    outer=self.settings.outer,
                    inner=self.settings.inner,
                    choose=self.choose,
                    staged=self.settings.staging == "host",
                )
                cell.plans.append(made)
        except ValueError as error:  # the same on all ranks
            cell.reason = str(error)
            return cell
        calls = self.aligned.calls
        contestant = Contestant(prepare=nothing, run=cell.plans[0] if calls == 1 else cell.plans[0].repeated(calls))
        if len(probes) > 1:
            contestant.prepare = partial(self._take_turn, cell, contestant)
        elif probes[0].consumes_input:
            contestant.prepare = partial(probes[0].write_input, TIMED)
        cell.contestant = contestant
        if self.delays is not None:
            cell.calm = replace(contestant, samples_s=[])
            cell.late = LateCall(cell.plans[0], self.delays())
            contestant.run = cell.late
        return cell

    def _take_turn(self, cell: _Cell, contestant: Contestant) -> None:
        """Restore the set of buffers that was used last, and have the next one used: it was left alone the longest."""
        buffers = cell.buffers
        last = buffers.probes[buffers.at]
        if last.consumes_input:
            last.write_input(TIMED)
        buffers.at = (buffers.at + 1) % len(buffers.probes)
        contestant.run = cell.plans[buffers.at]

    def check_first(self) -> None:
        """Run each algorithm on exact data, and floats on data that round, whose bits are compared over the ranks."""
        for cell in self.live:
            for probe, ready in zip(cell.buffers.probes, cell.plans, strict=True):
                self._check(cell, probe, ready, FIRST, rounding=False, what="first check")
                if self.rounds:
                    self._check(cell, probe, ready, FIRST, rounding=True, what="check of rounding")
                    if self.settings.collective == "allreduce":
                        self._compare_bits(cell, probe)

    def _compare_bits(self, cell: _Cell, probe: Probe) -> None:
        """Count a result whose bits differ over the ranks as wrong where the algorithm claims that they never do."""
        digests = self.comm.allgather(probe.digest())
        other = next((rank for rank, digest in enumerate(digests) if digest != digests[0]), None)
        cell.identical = other is None and cell.identical is not False
        ran = cell.plan.algorithm if cell.plan else "mpi"
        claimed = ran not in RESERVED and algorithm_named("allreduce", ran).identical_bits
        # A product of complex numbers does not commute bit by bit where additions and products are fused.
        claimed = claimed and not (self.settings.op == "prod" and self.settings.dtype in COMPLEX)
        if claimed and other is not None:
            cell.wrong = max(cell.wrong, 1)  # which elements differ is not known
            cell.detail = cell.detail or f"check of rounding: the bits on rank {other} are not those on rank 0"

    def check_last(self) -> None:
        """Run each algorithm twice more, on data it has not seen."""
        for cell in self.live:
            for probe, ready in zip(cell.buffers.probes, cell.plans, strict=True):
                for salt in (LAST, VERY_LAST):
                    self._check(cell, probe, ready, salt, rounding=False, what="last check")

    def _check(self, cell: _Cell, probe: Probe, ready: Plan, salt: int, *, rounding: bool, what: str) -> None:
        probe.write_all(salt, rounding)
        self.comm.Barrier()
        start = time.perf_counter_ns()
        ready()
        seconds = (time.perf_counter_ns() - start) * 1e-9
        cell.warmup_s.append(round(self.comm.allreduce(seconds, MPI.MAX), 9))
        cell.note(self.comm, probe.check(salt, rounding), what)

    def warm_up(self, rounds: int) -> None:
        """Run each algorithm some times more, in turns, after writing the data that are timed."""
        for buffers in self.buffers.values():
            for probe in buffers.probes:
                probe.write_all(TIMED)
        contestants = self._contestants()
        if not contestants or not rounds:
            return
        values = run_rounds(self.aligned, contestants, rounds)
        own = values[:, : len(self.live)]  # the bare ones come behind
        for cell, column in zip(self.live, own.T, strict=True):
            cell.warmup_s.extend(column.tolist())

    def _contestants(self) -> list[Contestant]:
        own = [cell.contestant for cell in self.live if cell.contestant] + self.calm
        return own + self.limits.contestants if self.limits else own

    def sample(self, deadline: float, launch: int) -> None:
        """Take the samples; the order is drawn anew for each run's seed, rank count, size, placement and launch."""
        contestants = self._contestants()
        for cell in self.live:
            if cell.late:
                cell.late.begin(median(cell.warmup_s))  # of calls without delays, the same on all ranks
        seed = f"{self.settings.seed} {self.nranks} {self.nbytes} {self.in_place} {launch}"
        sample(self.aligned, contestants, self.settings, deadline, seed)

    def rows(self, launch: int, warnings: tuple[str, ...], tick: float) -> Iterator[Row]:
        """Return one finished row for each algorithm."""
        clock_error_s = self.aligned.error_s()
        for cell in self.cells:
            steps = cell.plan.steps if self.limits and cell.plan else None
            added, addition_s = self.limits.addition(steps) if self.limits and steps else (None, None)
            row = Row(
                collective=self.settings.collective,
                algorithm=cell.algorithm,
                op=self.settings.op if self.reduces else "none",
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
                reason=cell.reason or _unsampled(cell),
                remark=cell.plan.remark if cell.plan else None,
                limit_s=self.limits.of(steps) if self.limits and steps else None,
                addition_nbytes=added * ITEMSIZE[self.settings.dtype] if added else None,
                addition_s=addition_s,
                late=cell.contestant.late if cell.contestant else 0,
                clock_error_s=clock_error_s,
                buffers=self.settings.buffers,
                estimand=self.aligned.estimand,
                memory=cell.buffers.memory,
                transfer=transfer_of(self.settings, cell.algorithm),
                **self._lateness(cell),
            )
            library = (cell.plan.algorithm if cell.plan else cell.algorithm) == "mpi"
            said = tuple(name for name in warnings if library or not GUARDS[name].library)
            yield replace(row, warnings=said + row_warnings(row, tick))

    def _lateness(self, cell: _Cell) -> dict[str, Any]:
        """Return what a row says of who was late, who waited, and how long the same took without."""
        if cell.late is None or cell.calm is None or cell.contestant is None or not cell.contestant.samples_s:
            return {} if self.settings.straggler is None else {"straggler": self.settings.straggler}
        late = cell.late.late_s / cell.late.made
        calm = cell.calm.own_s / len(cell.calm.samples_s)
        waited = max(0.0, cell.contestant.own_s / len(cell.contestant.samples_s) - late - calm)
        both = self.comm.allgather((round(late, 9), round(waited, 9)))
        return {
            "straggler": self.settings.straggler,
            "calm_s": median(cell.calm.samples_s),
            "late_s": tuple(one for one, _ in both),
            "waits_s": tuple(one for _, one in both),
        }

    def _rank_means(self, cell: _Cell) -> tuple[float, ...]:
        """Return every rank's mean over the iterations; nothing where nothing was sampled."""
        if cell.contestant is None or not cell.contestant.samples_s:
            return ()
        return tuple(self.comm.allgather(round(cell.contestant.own_s / len(cell.contestant.samples_s), 9)))

    def _bytes_sent_max(self, cell: _Cell) -> int | None:
        if cell.plan is None or cell.plan.bytes_sent is None:
            return None
        return int(self.comm.allreduce(cell.plan.bytes_sent, MPI.MAX))


def _unsampled(cell: _Cell) -> str | None:
    if cell.contestant is None or cell.contestant.samples_s:
        return None
    return f"in none of {cell.contestant.late} rounds were all ranks on time"

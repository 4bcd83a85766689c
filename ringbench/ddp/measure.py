"""Measure training steps on the ranks of a job: engines in turns, beside computing and communicating alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from ringbench.ddp.choices import CALLING, LIBRARYS_OWN, can_run, takes_private
from ringbench.ddp.compress import hook_named
from ringbench.ddp.compute import Compute, compute_named
from ringbench.ddp.layout import bucket_memory
from ringbench.ddp.reducer import DataParallel
from ringbench.ddp.timeline import parameters_of, ready_times
from ringbench.ddp.workloads import Workload
from ringbench.records.ddp_row import DdpRow
from ringbench.records.ddp_settings import DdpSettings
from ringbench.records.straggler import NOBODY, parse_straggler
from ringbench.runtime.arrays import Array, backend_for
from ringbench.runtime.late import Delays, pause

#: What happened in a step on one rank: what it was, its start and its end in seconds after the step's start.
Event = tuple[str, str, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Say how gradients are reduced: one group of rows, whose engines are measured in turns."""

    accumulate: int
    cap_nbytes: int
    first_nbytes: int
    compress: str
    algorithm: str


def ways(settings: DdpSettings) -> list[Way]:
    """Return all combinations but that of engines, those that share buckets one after the other."""
    return [
        Way(
            accumulate=accumulate,
            cap_nbytes=cap,
            first_nbytes=min(cap, settings.first_bucket),
            compress=compress,
            algorithm=algorithm,
        )
        for accumulate, compress, algorithm, cap in product(
            settings.accumulate, settings.compress, settings.algorithms, settings.bucket_sizes
        )
    ]


def engines_of(settings: DdpSettings, way: Way) -> list[str]:
    """Return the engines of a way; those that run the library's own collectives stand with the first algorithm."""
    first = way.algorithm == settings.algorithms[0]
    reachable = way.compress == "none" or takes_private(way.algorithm)
    return [
        engine
        for engine in settings.engines
        if (first if engine in (*LIBRARYS_OWN, "none") else reachable and can_run(engine, way.algorithm))
    ]


def algorithm_of(engine: str, way: Way) -> str:
    """Return the name under which a row stands."""
    return "none" if engine == "none" else "mpi" if engine in LIBRARYS_OWN else way.algorithm


def keys_of(settings: DdpSettings, workload: Workload, nranks: int) -> dict[tuple[Any, ...], tuple[Way, str]]:
    """Return the key of every row that the settings ask for, and the way and engine that it has."""
    return {
        (
            workload.name,
            settings.dtype,
            settings.device,
            nranks,
            engine,
            algorithm_of(engine, way),
            way.cap_nbytes,
            way.accumulate,
            way.compress,
            settings.compute,
            settings.straggler or NOBODY,
        ): (way, engine)
        for way in ways(settings)
        for engine in engines_of(settings, way)
    }


@dataclass(slots=True)
class _Runner:
    """Hold one contestant of a group and what was seen of it on this rank, a row for each step."""

    model: DataParallel
    delays: Delays | None = None
    steps: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    finish: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def measure(
    comm: Any,
    settings: DdpSettings,
    workload: Workload,
    *,
    wanted: Callable[[tuple[Any, ...]], bool] = lambda key: True,
    warnings: Sequence[str] = (),
    library: str = "",
    traced: Callable[[DdpRow, list[Event]], None] | None = None,
) -> Iterator[DdpRow]:
    """Measure the rows that are ``wanted`` by their keys; yield them as they come, the same on all ranks.

    ``traced`` gets what happened in the last step of each row on this rank. Raises ValueError, on all ranks, for what
    cannot be run.
    """
    compute = compute_named(settings.compute, settings.device, settings.polls)
    asked = {key: value for key, value in keys_of(settings, workload, comm.Get_size()).items() if wanted(key)}
    for way in ways(settings):
        engines = {engine: key for key, (of, engine) in asked.items() if of == way}
        if engines:
            group = _Group(comm, settings, workload, way, list(engines), compute)
            try:
                group.check()
                group.sample()
                for engine in engines:
                    row = group.row(engine, warnings, library)
                    if traced is not None:
                        traced(row, group.runners[engine].events)
                    yield row
            finally:
                group.release()


class _Group:
    """Measure the engines of one way in turns, on the same memory."""

    def __init__(
        self,
        comm: Any,
        settings: DdpSettings,
        workload: Workload,
        way: Way,
        engines: Sequence[str],
        compute: Compute,
    ) -> None:
        self.comm, self.settings, self.workload, self.way, self.compute = comm, settings, workload, way, compute
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()
        self.backend = backend_for(settings.device)
        self.memory: list[Array] = []
        calling = next((engine for engine in engines if engine in CALLING), "none")
        self.empty = bucket_memory(comm, calling, way.algorithm, self.backend)
        names = self._tensors()
        self.runners = {engine: _Runner(self._model(names, engine, algorithm_of(engine, way))) for engine in engines}
        self.alone = _Runner(self._model(names, "none", "none"))
        self.reducing = {
            algorithm: _Runner(self._model(names, "blocking", algorithm))
            for algorithm in dict.fromkeys(algorithm_of(engine, way) for engine in engines)
            if algorithm != "none"
        }
        self.jobs: dict[str, list[list[float]]] = {algorithm: [] for algorithm in self.reducing}
        if settings.straggler is not None:
            for runner in self.runners.values():
                runner.delays = Delays(
                    parse_straggler(settings.straggler), self.rank, self.nranks, f"{settings.seed} {way}"
                )
        self.wrong: dict[str, int] = {}

    def _tensors(self) -> dict[str, Array]:
        """Return arrays of the shapes and the type of all parameters, which take no memory."""
        nothing = self.backend.empty(1, self.settings.dtype)
        self.members: list[list[str]] = [[] for _ in self.workload.layers]
        found = {}
        of_layer = [at for at, layer in enumerate(self.workload.layers) for _ in layer.shapes]
        for at, parameter in zip(of_layer, parameters_of(self.workload, self.settings.dtype), strict=True):
            found[parameter.name] = (
                np.broadcast_to(nothing, parameter.shape)
                if self.settings.device == "cpu"
                else (self.backend.empty(parameter.size, parameter.dtype).reshape(parameter.shape))
            )
            self.members[at].append(parameter.name)
        return found

    def _model(self, names: dict[str, Array], engine: str, algorithm: str) -> DataParallel:
        given = 0

        def allocate(count: int, dtype: str) -> Array:  # all engines fill the same buckets, one after the other
            nonlocal given
            if given == len(self.memory):
                self.memory.append(self.empty(count, dtype))
            given += 1
            return self.memory[given - 1]

        return DataParallel(
            self.comm,
            names,
            engine=engine,
            algorithm=None if engine in ("none", *LIBRARYS_OWN) else algorithm,
            bucket_bytes=self.way.cap_nbytes,
            first_bucket_bytes=self.way.first_nbytes,
            hook=hook_named(self.way.compress),
            check_steps=False,
            staged=self.settings.staging == "host",
            allocate=allocate,
        )

    def check(self) -> None:
        """Run one step of each engine, and count what is not the average of what the ranks put in."""
        for engine, runner in self.runners.items():
            for one in runner.model.buckets:
                one.vector[...] = self.rank + 1
            for name in reversed(list(runner.model.gradients)):
                runner.model.ready(name)
            runner.model.finish()
            if engine != "none" and self.way.compress == "none":
                expected = (self.nranks + 1) / 2
                found = [self.backend.to_host(one.vector) for one in runner.model.buckets]
                wrong = sum(int(np.count_nonzero(vector != expected)) for vector in found)
                self.wrong[engine] = sum(self.comm.allgather(wrong))
        for vector in self.memory:
            vector[...] = 1

    def sample(self) -> None:
        """Take all samples, everything in random order in each round."""
        turns = [partial(self._step, runner) for runner in (*self.runners.values(), self.alone)]
        turns += [partial(self._reduce, algorithm) for algorithm in self.reducing]
        random = Random(f"{self.settings.seed} {self.nranks} {self.way}")
        collecting = gc.isenabled()
        gc.disable()
        try:
            for number in range(self.settings.warmup + self.settings.steps):
                if number == self.settings.warmup:
                    self._forget()
                random.shuffle(turns)
                for turn in turns:
                    turn()
                gc.collect(0)
        finally:
            if collecting:
                gc.enable()

    def _forget(self) -> None:
        """Forget the steps of the warm-up."""
        for runner in (*self.runners.values(), self.alone):
            for seen in (runner.steps, runner.backward, runner.finish, runner.late):
                seen.clear()
        for algorithm, runner in self.reducing.items():
            runner.steps.clear()
            self.jobs[algorithm].clear()

    def _step(self, runner: _Runner) -> None:
        """Make one step: micro-batches, the last one's gradients ready layer by layer, the end of all reductions."""
        model, run, layers = runner.model, self.compute.run, self.workload.layers
        events: list[Event] = []
        seconds = runner.delays.next(self.way.accumulate * self.workload.compute_s) if runner.delays else 0.0
        self.comm.Barrier()
        start = perf_counter()
        if seconds:
            pause(seconds)
        began = perf_counter() - start
        self.compute.begin()
        for _ in range(self.way.accumulate - 1):
            run(self.workload.compute_s, model.poll)
        for layer in layers:
            if layer.forward_s:
                run(layer.forward_s, model.poll)
        at = perf_counter() - start
        events.append(("forward", "forward", began, at))
        for layer, members in zip(reversed(layers), reversed(self.members), strict=True):
            run(layer.backward_s, model.poll)
            before, at = at, perf_counter() - start
            events.append((layer.name, "backward", before, at))
            for name in reversed(members):
                model.ready(name)
        backward = perf_counter() - start
        model.finish()
        finished = perf_counter() - start
        if self.settings.clip is not None:
            model.clip_global_norm(self.settings.clip)
        end = perf_counter() - start
        if self.settings.clip is not None:
            events.append(("clip", "clip", finished, end))
        for job in model.jobs:
            events.append((job.name, "ready", job.ready_s - start, job.ready_s - start))
            events.append((job.name, "all-reduce", job.begin_s - start, job.end_s - start))
        runner.events = [*events, ("step", "step", 0.0, end)]
        runner.steps.append(end)
        runner.backward.append(backward - began)
        runner.finish.append(finished - backward)
        runner.late.append(began)

    def _reduce(self, algorithm: str) -> None:
        """Reduce all buckets one after the other, without computing."""
        runner = self.reducing[algorithm]
        self.comm.Barrier()
        start = perf_counter()
        for job in runner.model.jobs:
            job.run()
        runner.steps.append(perf_counter() - start)
        self.jobs[algorithm].append([job.end_s - start for job in runner.model.jobs])

    def _slowest(self, times: Sequence[Any]) -> Any:
        """Return the greatest over the ranks of each time. Collective."""
        return np.max(self.comm.allgather(np.array(times, float)), axis=0).round(9)

    def _means(self, times: Sequence[float]) -> tuple[float, ...]:
        """Return every rank's mean, in rank order. Collective."""
        return tuple(self.comm.allgather(round(sum(times) / len(times), 9)))

    def row(self, engine: str, warnings: Sequence[str], library: str) -> DdpRow:
        """Return the finished row of an engine. Collective."""
        runner, algorithm = self.runners[engine], algorithm_of(engine, self.way)
        buckets = runner.model.buckets
        communication: tuple[float, ...] = ()
        bucket_s = [0.0] * len(buckets)
        if algorithm != "none":
            ends = self._slowest(self.jobs[algorithm])
            bucket_s = np.median(np.diff(ends, axis=1, prepend=0.0), axis=0).clip(0.0).round(9).tolist()
            communication = tuple(self._slowest(self.reducing[algorithm].steps).tolist())
        ready = ready_times(self.workload, self.way.accumulate)
        of_layer = {name: at for at, members in enumerate(self.members) for name in members}
        names = list(runner.model.gradients)
        return DdpRow(
            workload=self.workload.name,
            parameters=self.workload.parameters,
            layers=len(self.workload.layers),
            batch=self.workload.batch,
            dtype=self.settings.dtype,
            device=self.settings.device,
            nranks=self.nranks,
            engine=engine,
            algorithm=algorithm,
            cap_nbytes=self.way.cap_nbytes,
            first_nbytes=self.way.first_nbytes,
            accumulate=self.way.accumulate,
            compress=self.way.compress,
            compute=self.settings.compute,
            nominal_s=self.way.accumulate * self.workload.compute_s,
            samples_s=tuple(self._slowest(runner.steps).tolist()),
            compute_samples_s=tuple(self._slowest(self.alone.steps).tolist()),
            communication_samples_s=communication,
            backward_samples_s=tuple(self._slowest(runner.backward).tolist()),
            bucket_nbytes=tuple(one.bucket.nbytes for one in buckets),
            bucket_s=tuple(bucket_s),
            ready_s=tuple(max(ready[of_layer[names[index]]] for index in one.bucket.indices) for one in buckets),
            finish_s=self._means(runner.finish),
            wire_nbytes=0 if algorithm == "none" else runner.model.wire_bytes,
            wrong=self.wrong.get(engine),
            late_s=self._means(runner.late) if runner.delays else (),
            straggler=self.settings.straggler or NOBODY,
            library=library,
            warnings=(
                *warnings,
                *(("wrong",) if self.wrong.get(engine) else ()),
                *(("disturbed",) if runner.delays else ()),
            ),
        )

    def release(self) -> None:
        """Give back threads and communicators."""
        for runner in (*self.runners.values(), self.alone, *self.reducing.values()):
            runner.model.close()

"""When and where the reductions of buckets run while backward goes on.

All engines run the same jobs in the same order, so with the same algorithm they give the same bits. A job's collectives
are begun in one order on all ranks: a bucket's first one when the last one of the bucket before has been begun.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, Protocol

from ringbench.ddp.hooks import Stage
from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import BACKENDS
from ringbench.runtime.execute import Plan
from ringbench.runtime.world import thread_level


@dataclass(slots=True)
class Job:
    """Hold the stages of one reduction, and when it last was ready, begun and over, in seconds of ``perf_counter``."""

    name: str
    stages: tuple[Stage, ...]
    ready_s: float = math.nan
    begin_s: float = math.nan
    end_s: float = math.nan

    def run(self) -> None:
        """Run all stages."""
        self.begin_s = perf_counter()
        for stage in self.stages:
            stage()
        self.end_s = perf_counter()


class Engine(Protocol):
    """Run jobs; ``launch`` and ``poll`` return soon, ``finish`` when all jobs launched before are done.

    What went wrong in a job is raised by ``finish`` at the latest; the engine is then of no more use.
    """

    def launch(self, job: Job) -> None:
        """Take a job that may run from now on."""

    def poll(self) -> None:
        """Let jobs go on, where they need that."""

    def finish(self) -> None:
        """Wait for all jobs."""

    def close(self) -> None:
        """Give back what the engine holds."""


class Blocking:
    """Run everything in ``finish``: nothing is hidden, which is what the others are compared with."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []

    def launch(self, job: Job) -> None:
        """Put the job aside."""
        self._jobs.append(job)

    def poll(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Run all jobs."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.run()

    def close(self) -> None:
        """Hold nothing."""


class Nothing:
    """Reduce nothing: what a step takes without communication."""

    def launch(self, job: Job) -> None:
        """Note when the job was ready."""
        job.begin_s = job.end_s = job.ready_s

    def poll(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Hold nothing."""


class Threaded:
    """Run jobs in a thread, which alone calls MPI from the first job of a step until ``finish`` returns.

    Nothing spins: the thread sleeps until there is a job, ``finish`` until the last one is done. Raises ValueError
    where MPI was started with a thread level below ``serialized``.
    """

    def __init__(self) -> None:
        level = thread_level()
        if level not in ("serialized", "multiple"):
            raise ValueError(
                f"engine 'thread': the thread level of MPI is {level!r}; it needs 'serialized' or 'multiple'"
            )
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread: Thread | None = None

    def launch(self, job: Job) -> None:
        """Hand the job to the thread."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="ringbench-ddp", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def poll(self) -> None:
        """Do nothing: the thread needs no help."""

    def finish(self) -> None:
        """Wait for the thread; raise what was raised there."""
        if self._thread is None:
            return
        self._jobs.put(None)
        failure = self._done.get()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the thread, which must have no job."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(_END)
            thread.join()

    def _work(self) -> None:
        failure: BaseException | None = None
        try:
            for backend in BACKENDS:
                backend.enter_thread()
        except BaseException as error:
            failure = error
        while (job := self._jobs.get()) is not _END:
            if job is None:
                self._done.put(failure)
            elif failure is None:  # after a failure nothing is sent any more
                try:
                    job.run()
                except BaseException as error:
                    failure = error


_END = Job("end", ())


class Nonblocking:
    """Start plans when buckets are ready, and advance them in ``poll`` (unless ``polls`` is False) and ``finish``."""

    def __init__(self, *, polls: bool) -> None:
        self._polls = polls
        self._flights: list[_Flight] = []

    def launch(self, job: Job) -> None:
        """Start the job's first collective, unless a job before has one that is still to be started."""
        flight = _Flight(job)
        blocked = bool(self._flights) and not self._flights[-1].passed
        self._flights.append(flight)
        if self._polls:
            self._advance()
        elif not blocked and flight.begin():
            self._flights.remove(flight)

    def poll(self) -> None:
        """Go on where messages have arrived."""
        if self._polls:
            self._advance()

    def finish(self) -> None:
        """Wait for all jobs in their order."""
        while self._flights:
            self._advance()
            if self._flights:
                self._flights[0].wait()

    def close(self) -> None:
        """Hold nothing."""

    def _advance(self) -> None:
        going: list[_Flight] = []
        for at, flight in enumerate(self._flights):
            if flight.advance():
                continue
            going.append(flight)
            if not flight.passed:
                going += self._flights[at + 1 :]
                break
        self._flights = going


class _Flight:
    """Hold how far a job has come. ``passed`` says that its last collective has been started."""

    __slots__ = ("_at", "_flying", "_job", "_last", "passed")

    def __init__(self, job: Job) -> None:
        self._job, self._at = job, 0
        self._flying: Plan | None = None
        self._last = max((at for at, stage in enumerate(job.stages) if isinstance(stage, Plan)), default=-1)
        self.passed = False

    def begin(self) -> bool:
        """Go on until a collective is in flight; return whether the job is done."""
        stages = self._job.stages
        if not self._at and self._flying is None:
            self._job.begin_s = perf_counter()
        while self._flying is None and self._at < len(stages):
            stage = stages[self._at]
            if isinstance(stage, Plan):
                stage.start()
                self._flying = stage
                self.passed = self._at == self._last
            else:
                stage()
                self._at += 1
        if self._flying is None:
            self._job.end_s = perf_counter()
            return True
        return False

    def advance(self) -> bool:
        """Go on as far as messages have arrived; return whether the job is done."""
        while not self.begin():
            assert self._flying is not None
            if not self._flying.test():
                return False
            self._landed()
        return True

    def wait(self) -> None:
        """Wait for the collective in flight."""
        assert self._flying is not None
        self._flying.wait()
        self._landed()

    def _landed(self) -> None:
        self._flying = None
        self._at += 1


#: What makes each engine of ``choices.ENGINES``.
MAKERS: dict[str, Callable[[], Engine]] = {
    "blocking": Blocking,
    "thread": Threaded,
    "poll": lambda: Nonblocking(polls=True),
    "iallreduce": lambda: Nonblocking(polls=False),
    "iallreduce_progress": lambda: Nonblocking(polls=True),
    "none": Nothing,
}


def engine_on(comm: Any, name: str) -> Engine:
    """Return an engine of ``choices.ENGINES``; raise ValueError on all ranks where one of them cannot have it."""
    problem, engine = None, None
    try:
        engine = MAKERS[name]()
    except ValueError as error:
        problem = str(error)
    agree(comm, problem, {})
    assert engine is not None
    return engine

"""Collectives that are wrong, each in one way, as people have written them."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ringbench.collectives.ring import ring_allgather, ring_allreduce, ring_reduce_scatter
from ringbench.runtime import worker
from ringbench.runtime.data import Mismatch
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, combine, copy, original, temp, work

# Schedules.


def exchange(rank: int, nranks: int) -> Operations:
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=original(0), source=source, recv=temp(source))


def dropped(rank: int, nranks: int) -> Operations:
    """Leave out what the last rank brings."""
    yield from exchange(rank, nranks)
    last = nranks - 1
    if rank == last:
        yield copy(temp(0), work(0))
    for other in range(1 if rank == last else 0, last):
        if other != rank:
            yield combine(temp(other), work(0))


def doubled(rank: int, nranks: int) -> Operations:
    """Add what rank 0 brings twice."""
    yield from exchange(rank, nranks)
    for other in range(nranks):
        if other != rank:
            yield combine(temp(other), work(0))
    yield combine(original(0) if rank == 0 else temp(0), work(0))


def off_by_one(rank: int, nranks: int) -> Operations:
    """Hand the complete blocks round the ring into the place of the next block."""
    right, left = (rank + 1) % nranks, (rank - 1) % nranks
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank - k), source=left, recv=work(rank - k - 1), combine=True)
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank + 1 - k), source=left, recv=work(rank - k + 1))


SCHEDULES = {"dropped": dropped, "doubled": doubled, "off_by_one": off_by_one}


def register_schedules() -> tuple[str, ...]:
    """Register the schedules above, and return their names. Nothing proves them: only the check of data is left."""
    for name, generator in SCHEDULES.items():
        blocks = (lambda nranks: nranks) if name == "off_by_one" else (lambda nranks: 1)
        register(
            "allreduce",
            name,
            blocks=blocks,
            temp=lambda nranks: nranks,
            rounds=lambda nranks: nranks - 1,
            sent=lambda nranks: Fraction(nranks - 1),
        )(generator)
    return tuple(SCHEDULES)


# Plans that do something more than they should.


class Spoiled:
    """Stand for a plan: run it, then spoil what came out."""

    def __init__(self, inner: Any, spoil: Callable[[Any, Any, int], None], send: Any, recv: Any) -> None:
        self.inner, self.spoil, self.send, self.recv = inner, spoil, send, recv
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self) -> None:
        self.inner()
        self.spoil(self.send, self.recv, self.calls)
        self.calls += 1


class Stale:
    """Give what the call before gave."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, send: Any, recv: Any, calls: int) -> None:
        now = recv.copy()
        if self.before is not None:
            recv[...] = self.before
        self.before = now


class Frozen(Stale):
    """Give for ever what the first call gave."""

    def __call__(self, send: Any, recv: Any, calls: int) -> None:
        if self.before is None:
            self.before = recv.copy()
        recv[...] = self.before


def flip(at: int) -> Callable[[Any, Any, int], None]:
    """Flip the lowest bit of one element."""

    def spoil(send: Any, recv: Any, calls: int) -> None:
        recv[at : at + 1 or None].view(np.uint8)[0] ^= 1

    return spoil


def flip_first_block(send: Any, recv: Any, calls: int) -> None:
    """Flip a bit of the first element, which every collective's result has on every rank."""
    flip(0)(send, recv, calls)


def roll(send: Any, recv: Any, calls: int) -> None:
    recv[...] = np.roll(recv, 1)


def not_a_number(send: Any, recv: Any, calls: int) -> None:
    recv[3] = np.nan


def last_bit(send: Any, recv: Any, calls: int) -> None:
    """Change bits that no bound forbids: only of values that are rounded anyway."""
    fractional = recv != np.rint(recv)
    recv[fractional] = np.nextafter(recv[fractional], np.float32(0))


def scribble(send: Any, recv: Any, calls: int) -> None:
    """Change the input, which out of place belongs to the caller."""
    if isinstance(send, np.ndarray):
        send[1] += 1


# What ends a rank, or keeps it.


def fail() -> None:
    raise RuntimeError("spoiled on purpose")


def leave() -> None:
    sys.exit(0)


def vanish() -> None:
    os._exit(0)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def break_segment() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def break_bus() -> None:
    """End as a rank does for which /dev/shm has no page left."""
    os.kill(os.getpid(), signal.SIGBUS)


def hang() -> None:
    while True:
        time.sleep(1)


def fill_disk() -> None:
    """Leave the run's file room for half a line; Python ignores SIGXFSZ, and a write then writes what fits."""
    (file,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--append="))
    room = os.stat(file).st_size + 100
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def remove_file() -> None:
    (file,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--append="))
    os.unlink(file)


def remove_folder() -> None:
    (file,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--append="))
    shutil.rmtree(os.path.dirname(file))


def ancestors() -> list[int]:
    """Return the processes from the sweep down to the parent of this rank: sweep, mpirun, maybe mpirun's own."""
    found, pid = [], os.getppid()
    while pid > 1:
        found.insert(0, pid)
        if b"\0sweep\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return found
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("no sweep above this rank")


def send(number: signal.Signals, who: slice) -> Callable[[], None]:
    """Return what sends a signal to some of the processes above this rank, and then waits to be ended."""

    def end() -> None:
        for pid in ancestors()[who]:
            os.kill(pid, number)
        time.sleep(60)

    return end


SWEEP, MPIRUN, BOTH, ALL = slice(0, 1), slice(1, 2), slice(0, 2), slice(None)

ENDS = {
    "fail": fail,
    "leave": leave,
    "vanish": vanish,
    "die": die,
    "segment": break_segment,
    "bus": break_bus,
    "hang": hang,
    "full": fill_disk,
    "no_file": remove_file,
    "no_folder": remove_folder,
    "terminate": send(signal.SIGTERM, SWEEP),
    "interrupt": send(signal.SIGINT, SWEEP),
    "hang_up": send(signal.SIGHUP, SWEEP),
    "kill_sweep": send(signal.SIGKILL, SWEEP),
    "kill_mpirun": send(signal.SIGKILL, MPIRUN),
    "kill_both": send(signal.SIGKILL, BOTH),
    "kill_all": send(signal.SIGKILL, ALL),
}


def at_call(number: int, end: Callable[[], None]) -> Callable[[Any, Any, int], None]:
    def spoil(send: Any, recv: Any, calls: int) -> None:
        if calls == number:
            end()

    return spoil


# How they get into the job.


def alias(collective: str, name: str) -> str:
    """Register the ring once more, under a name to be spoiled."""
    generator = {"allreduce": ring_allreduce, "reduce_scatter": ring_reduce_scatter, "allgather": ring_allgather}
    register(
        collective,
        name,
        blocks=lambda nranks: nranks,
        rounds=lambda nranks: 2 * (nranks - 1),
        sent=lambda nranks: Fraction(2 * (nranks - 1), nranks),
    )(generator[collective])
    return name


def spoil_plans(spoiler: Callable[[str, int, int], Callable[[Any, Any, int], None] | None]) -> None:
    """Have the worker's plans spoiled by what ``spoiler(algorithm, rank, bytes of recvbuf)`` returns, if anything."""
    right = worker.plan

    def plan(collective: str, algorithm: str, comm: Any, send: Any, recv: Any, *more: Any, **options: Any) -> Any:
        planned = right(collective, algorithm, comm, send, recv, *more, **options)
        spoil = spoiler(algorithm, comm.Get_rank(), recv.nbytes)
        return planned if spoil is None else Spoiled(planned, spoil, send, recv)

    worker.plan = plan


# The check itself.


def weaken(what: str) -> None:
    """Have the check see nothing (``blind``), no bits over ranks (``bits``), or something everywhere (``strict``)."""
    if what == "bits":
        worker._Group._compare_bits = lambda self, cell, probe: None  # type: ignore[method-assign]
    else:
        found = Mismatch(0, None) if what == "blind" else Mismatch(1, "element 0 looks odd")
        worker.Probe.check = lambda self, salt, rounding=False: found  # type: ignore[method-assign]

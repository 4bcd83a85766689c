"""Start one job, give it a time limit, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

#: Names the jobs a process belongs to, innermost last, so that a rank in a session of its own is still found.
MARKER = "RINGBENCH_JOB"

#: What mpirun gets between SIGTERM and SIGKILL to end its ranks, those on other nodes among them.
GRACE_S = 3.0

_GIVE_UP_S = 10.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class LaunchError(RuntimeError):
    """Report that a job cannot be started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResult:
    """Hold how a job ended: its exit status (negative: ended by that signal), and its duration in seconds.

    ``left`` are processes of the job that even SIGKILL did not end, such as one waiting for a dead file server.
    """

    returncode: int
    timed_out: bool
    seconds: float
    left: tuple[int, ...] = ()


def run_job(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    time_limit_s: float | None,
    stdout: IO[Any] | int | None = None,
    stderr: IO[Any] | int | None = None,
    on_start: Callable[[int], None] | None = None,
    grace_s: float = GRACE_S,
) -> JobResult:
    """Run a command to its end or the time limit, and end every process that came of it, however this ends.

    At the limit, and when an exception passes (Ctrl-C, or a signal that the caller turns into one), the command gets
    SIGTERM and ``grace_s`` seconds to end its ranks; then, and after a normal end, whatever is left gets SIGKILL. A
    second exception cuts the grace short. Should this process itself be killed, the kernel sends the SIGTERM. The
    command reads nothing; ``stdout`` and ``stderr`` are files or descriptors (no pipes: nobody would read them).
    ``on_start`` gets the pid. Raises LaunchError where the command cannot be started.

    Open MPI gives each rank a process group of its own but keeps the session; MPICH's hydra gives each rank a session
    of its own. So processes are told by session, by ``RINGBENCH_JOB`` in the environment, and by their parent.
    """
    name = uuid.uuid4().hex
    outer = env.get(MARKER)
    parent = os.getpid()
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            list(command),
            env={**env, MARKER: f"{outer}:{name}" if outer else name},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: _end_with(parent),
        )
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror or error}") from error
    timed_out, left, sessions = False, set[int](), {process.pid}
    try:
        try:
            if on_start is not None:
                on_start(process.pid)
            process.wait(time_limit_s)
        except BaseException as error:
            timed_out = isinstance(error, subprocess.TimeoutExpired)
            # A child with neither session nor marker is known by its parent only, which may be gone after the SIGTERM.
            sessions |= set(job_processes(sessions, name).values())
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
            if not timed_out:
                raise
    finally:
        left = _end_all(process, name, sessions)
    seconds = time.monotonic() - start
    status = process.poll()
    returncode = -signal.SIGKILL if status is None else status
    return JobResult(returncode=returncode, timed_out=timed_out, seconds=seconds, left=tuple(sorted(left)))


def job_processes(of_job: Set[int], name: str, proc: Path = Path("/proc")) -> dict[int, int]:
    """Return the live processes of a job and their sessions: those in its sessions or with its name in the environment.

    Their children and all in their sessions belong to it too, such as a child with an emptied environment in a session
    of its own. Zombies do not count. Never this process.
    """
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            # A process that ends while it is looked at is not there.
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name of the program, in parentheses, may hold anything; proc(5).
                state, parent, _group, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if state not in "ZX":
                    parents[int(folder.name)], sessions[int(folder.name)] = int(parent), int(its_session)
    members = {pid for pid in sessions if sessions[pid] in of_job or _marked(proc / str(pid), name)}
    found = -1
    while found != len(members):
        found = len(members)
        of_job = of_job | {sessions[pid] for pid in members}
        members |= {pid for pid in sessions if sessions[pid] in of_job or parents[pid] in members}
    return {pid: sessions[pid] for pid in members if pid != os.getpid()}


def _marked(folder: Path, name: str) -> bool:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(entry.startswith(f"{MARKER}=".encode()) and name.encode() in entry for entry in variables)


def _end_all(process: subprocess.Popen[Any], name: str, sessions: Set[int]) -> set[int]:
    """Kill every process of the job and return those that stay; zombies that fell to this process are collected."""
    deadline = time.monotonic() + _GIVE_UP_S
    killed, empty = set[int](), 0
    while True:
        members = job_processes(sessions, name)
        sessions = sessions | set(members.values())
        # One look is no proof: a process that forks and exits meanwhile hides its child.
        empty = 0 if members else empty + 1
        if empty == 2 or time.monotonic() > deadline:
            break
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(members)
        if members:
            time.sleep(0.01)
        process.poll()
    for pid in killed - {process.pid}:
        # Orphans fall to process 1 of a container, which may be this one.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return set(members)


def end_with_parent() -> None:
    """Have this process killed when its parent ends: a rank whose mpirun was killed must not go on, nor wait for ever.

    Neither library sees to it in every case. The parent is the process, not its thread, as with prctl(2), and the
    waiting thread wakes for nothing else. Without pidfd_open(2) nothing is done.
    """
    try:
        parent = os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return

    def wait() -> None:
        events = select.poll()
        events.register(parent, select.POLLIN)
        events.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="end with parent").start()


def _end_with(parent: int) -> None:
    """Have the kernel send SIGTERM when the parent dies (prctl(2)); called in the child before its program starts."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)

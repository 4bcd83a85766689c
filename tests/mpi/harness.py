"""Starts programs of this folder, and ringbench itself, on some ranks, and shows what they said where they fail."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conftest import ROOT, Mpi

from ringbench.launch.environment import job_environment
from ringbench.launch.mpirun import Mpirun as Launcher
from ringbench.launch.mpirun import command, identify, usable_cpus
from ringbench.launch.process import run_job
from ringbench.records.run import RUN_FILE

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
WATCH = HERE / "watch.py"

#: How watch.py says that a job was over but had left processes.
LEFT = 98

#: Above the limit of any check inside of a job, and never reached by a job that is right.
LIMIT_S = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """Hold how a job ended: exit status, what it said, how long it took in seconds."""

    command: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float

    def __str__(self) -> str:
        shown = [f"$ {' '.join(self.command)}", f"status {self.status} after {self.seconds:.1f} s"]
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text:
                shown += [f"--- {name}", text if len(text) < 9000 else f"{text[:6000]}\n[...]\n{text[-3000:]}"]
        return "\n".join(shown)

    @property
    def said(self) -> list[str]:
        """Return the lines on stderr that are ringbench's own."""
        # Open MPI's mpirun ends its own notes with a NUL and without a line break.
        lines = (line.lstrip("\0 ") for line in self.stderr.splitlines())
        return [line for line in lines if line.startswith("ringbench: ")]


@cache
def launcher(mpirun: str) -> Launcher:
    return identify(mpirun, os.environ)


def environment(mpi: Mpi, **more: str) -> dict[str, str]:
    """Return what a user's shell holds: nothing of a job, and this checkout first among the packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    # mpirun looks for the Python of a bare name on the PATH, and so do people.
    kept["PATH"] = os.pathsep.join([str(Path(mpi.python).parent), kept.get("PATH", os.defpath)])
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    return job_environment(kept, flavour=mpi.flavour, uid=os.getuid()) | more


def run(
    line: Sequence[str],
    *,
    env: Mapping[str, str],
    status: int | None = 0,
    limit_s: float = LIMIT_S,
    on_start: Callable[[int], None] | None = None,
) -> Finished:
    """Run a command line and return how it ended; fail with all its output where it does not end as it should.

    It must end by itself within the limit, leave no process and, unless ``status`` is None, have that exit status.
    ``on_start`` gets the pid of a process that hands SIGTERM on to the command.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        watched = [sys.executable, str(WATCH), *line]
        result = run_job(watched, env=env, time_limit_s=limit_s, stdout=stdout, stderr=stderr, on_start=on_start)
        said = []
        for stream in (stdout, stderr):
            stream.seek(0)
            said.append(stream.read().decode(errors="replace"))
    finished = Finished(
        command=tuple(line), status=result.returncode, stdout=said[0], stderr=said[1], seconds=result.seconds
    )
    assert not result.timed_out, f"no end in {limit_s:g} s\n{finished}"
    assert finished.status != LEFT, f"processes left behind\n{finished}"
    assert status is None or finished.status == status, f"status {status} was expected\n{finished}"
    return finished


def terminate_at_rows(folder: Path, count: int) -> Callable[[int], None]:
    """Return an ``on_start`` that sends SIGTERM when so many rows are in the file of a run."""

    def wait_and_send(pid: int) -> None:
        end = time.monotonic() + 40
        file = folder / RUN_FILE
        while time.monotonic() < end and not (file.exists() and file.read_text().count('"kind":"row"') >= count):
            time.sleep(0.05)
        os.kill(pid, signal.SIGTERM)

    return lambda pid: threading.Thread(target=wait_and_send, args=(pid,), daemon=True).start()


def start(
    mpi: Mpi,
    nranks: int,
    program: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    status: int | None = 0,
    limit_s: float = LIMIT_S,
) -> Finished:
    """Start a Python program (a file of the programs here, or ``-m ringbench ...``) on some ranks; see ``run``.

    ``prefix`` stands before mpirun, such as ``taskset -c 0``.
    """
    first = program[0] if program[0].startswith("-") else str(PROGRAMS / program[0])
    cpus, whole = (1, False) if prefix else usable_cpus()
    line = command(launcher(mpi.mpirun), nranks, [mpi.python, first, *program[1:]], cpus=cpus, bind=whole)
    return run([*prefix, *line], env=environment(mpi) if env is None else env, status=status, limit_s=limit_s)


def sweep(mpi: Mpi, out: Path, *arguments: str, **more: Any) -> Finished:
    """Run ``ringbench sweep``, without mpirun, into a folder; see ``run``."""
    more.setdefault("env", environment(mpi))
    return run([mpi.python, "-m", "ringbench", "sweep", *arguments, "--out", str(out)], **more)


def breaking(mpi: Mpi, folder: Path, hows: Mapping[int, str]) -> str:
    """Write an mpirun that breaks the jobs of some numbers of ranks, each as commandline.py says; return its path."""
    script = folder / "mpirun"
    broken = ",".join(f"{nranks}={how}" for nranks, how in hows.items())
    words = [sys.executable, str(PROGRAMS / "breaking_mpirun.py"), mpi.mpirun, broken]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return str(script)


def check_lines(file: Path) -> list[dict[str, Any]]:
    """Check that a file holds whole lines of JSON only, and return them."""
    content = file.read_text(encoding="ascii")
    assert content.endswith("\n")
    return [json.loads(line) for line in content.splitlines()]

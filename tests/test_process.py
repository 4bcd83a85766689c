"""Tests of starting jobs and of leaving nothing behind. Every child writes its pid into a folder of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Mpi

from ringbench.launch import process
from ringbench.launch.environment import job_environment
from ringbench.launch.process import MARKER, LaunchError, job_processes, run_job

ENV = dict(os.environ)


def job(folder: Path, text: str) -> list[str]:
    """Return a command: a Python that notes its pid in ``folder`` and runs ``text``."""
    start = "import os, signal, subprocess, sys, time\nfolder = sys.argv[1]\n"
    note = "def note():\n    open(os.path.join(folder, str(os.getpid())), 'w').close()\nnote()\n"
    return [sys.executable, "-c", start + note + text, str(folder)]


FORK = """
for own_group, own_session in ((0, 0), (1, 0), (0, 1)):
    if os.fork() == 0:
        os.setpgid(0, 0) if own_group else None
        os.setsid() if own_session else None
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note()
        time.sleep(60)
time.sleep(0.5)
"""


def pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_normal_end(tmp_path: Path) -> None:
    started: list[int] = []
    with (tmp_path / "out").open("w") as out:
        result = run_job(
            job(tmp_path, "print(sys.stdin.read() == '', os.getsid(0) == os.getpid()); sys.exit(3)"),
            env=ENV,
            time_limit_s=30,
            stdout=out,
            on_start=started.append,
        )
    assert (result.returncode, result.timed_out, result.left) == (3, False, ())
    assert 0 < result.seconds < 30
    assert (tmp_path / "out").read_text() == "True True\n"
    assert started == pids(tmp_path)


def test_children_left_at_a_normal_end_are_ended(tmp_path: Path) -> None:
    result = run_job(job(tmp_path, FORK), env=ENV, time_limit_s=30)
    assert (result.returncode, result.timed_out) == (0, False)
    assert len(pids(tmp_path)) == 4
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_time_limit_ends_those_that_ignore_sigterm(tmp_path: Path) -> None:
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" + FORK + "time.sleep(60)"
    result = run_job(job(tmp_path, text), env=ENV, time_limit_s=1.5, grace_s=0.3)
    assert (result.returncode, result.timed_out) == (-signal.SIGKILL, True)
    assert 1.8 <= result.seconds < 5
    assert len(pids(tmp_path)) == 4
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_time_limit_lets_the_command_clean_up(tmp_path: Path) -> None:
    text = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), sys.exit(7)))\ntime.sleep(60)"
    result = run_job(job(tmp_path, text), env=ENV, time_limit_s=1.0)
    assert (result.returncode, result.timed_out) == (7, True)


def test_child_with_an_empty_environment_in_its_own_session_is_ended(tmp_path: Path) -> None:
    text = "subprocess.Popen(['sleep', '60'], env={}, start_new_session=True); time.sleep(60)"
    found: list[set[int]] = []

    def look(pid: int) -> None:
        assert wait_for(lambda: len(job_processes({pid}, "no such job")) == 2)
        found.append(set(job_processes({pid}, "no such job")))

    result = run_job(job(tmp_path, text), env=ENV, time_limit_s=0.5, on_start=look, grace_s=1.0)
    assert (result.returncode, result.timed_out) == (-signal.SIGTERM, True)
    assert not [pid for pid in found[0] if alive(pid)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_exception_passes_and_ends_the_job(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(pid: int) -> None:
        assert wait_for(lambda: len(pids(tmp_path)) == 4)
        raise error

    with pytest.raises(error):
        run_job(job(tmp_path, FORK + "time.sleep(60)"), env=ENV, time_limit_s=30, on_start=fail, grace_s=0.3)
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_a_signal_turned_into_an_exception(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise SystemExit(1)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(SystemExit):
            run_job(job(tmp_path, "time.sleep(60)"), env=ENV, time_limit_s=30)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_missing_program() -> None:
    with pytest.raises(LaunchError, match=r"^cannot start /no/mpirun: No such file"):
        run_job(["/no/mpirun"], env=ENV, time_limit_s=1)


def test_marker_names_outer_jobs_too(tmp_path: Path) -> None:
    text = f"open(os.path.join(folder, 'marker'), 'w').write(os.environ['{MARKER}'])"
    run_job(job(tmp_path, text), env=ENV | {MARKER: "outer"}, time_limit_s=30)
    outer, own = (tmp_path / "marker").read_text().split(":")
    assert outer == "outer"
    assert len(own) == 32


def test_processes_are_told_by_session_marker_and_parent(tmp_path: Path) -> None:
    def add(pid: int, ppid: int, sid: int, *, state: str = "S", environ: str = "") -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b (c) {state} {ppid} {pid} {sid} 0 -1\n")
        (tmp_path / str(pid) / "environ").write_bytes(environ.encode())

    add(1, 0, 1)
    add(10, 1, 10)  # mpirun
    add(11, 10, 10, environ="A=1")  # by session
    add(12, 1, 12, environ=f"A=1\0{MARKER}=outer:me\0")  # by marker, orphaned
    add(13, 1, 12)  # in the session of the one before
    add(14, 13, 14)  # a child of the one before
    add(15, 10, 10, state="Z")
    add(16, 1, 16, environ=f"{MARKER}=other\0OTHER=me\0")
    (tmp_path / "20").mkdir()  # ended meanwhile
    (tmp_path / "self").mkdir()
    assert job_processes({10}, "me", proc=tmp_path) == {10: 10, 11: 10, 12: 12, 13: 12, 14: 14}
    assert job_processes(set(), "other", proc=tmp_path) == {16: 16}


def test_what_cannot_be_ended_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GIVE_UP_S", 0.1)
    monkeypatch.setattr(process, "job_processes", lambda *_: {2**30: 2**30})
    assert run_job(["true"], env=ENV, time_limit_s=10).left == (2**30,)


SWEEP = """
import os, sys
from ringbench.launch.process import run_job
run_job(sys.argv[1:], env=os.environ, time_limit_s=60)
"""


def killed_sweep(command: list[str], folder: Path, count: int, env: dict[str, str]) -> None:
    """Start a process that runs the command as a job, kill it, and see the job end."""
    sweep = subprocess.Popen([sys.executable, "-c", SWEEP, *command], env=env)
    try:
        assert wait_for(lambda: len(pids(folder)) == count, 30)
    finally:
        sweep.kill()
        sweep.wait()
    assert wait_for(lambda: not [pid for pid in pids(folder) if alive(pid)], 5)


def test_the_job_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    killed_sweep(job(tmp_path, "time.sleep(60)"), tmp_path, 1, ENV)


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    spin = "from ringbench.launch.process import end_with_parent\nend_with_parent()\nnote()\nwhile True: pass"
    child = job(tmp_path, spin.replace("note()", "open(os.path.join(folder, 'ready'), 'w').close()"))
    parent = subprocess.Popen(job(tmp_path, f"subprocess.run({child!r}, env={{**os.environ}})"), env=ENV)
    try:
        assert wait_for(lambda: (tmp_path / "ready").exists(), 30)
        assert len(pids(tmp_path)) == 2
    finally:
        parent.kill()
        parent.wait()
    assert wait_for(lambda: not [pid for pid in pids(tmp_path) if alive(pid)], 5)


SPIN = "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"


@pytest.fixture
def mpi_job(mpi: Mpi, tmp_path: Path) -> Callable[[str], tuple[list[str], dict[str, str]]]:
    def build(text: str) -> tuple[list[str], dict[str, str]]:
        place = ["--map-by", ":OVERSUBSCRIBE"] if mpi.flavour == "openmpi" else []
        line = [mpi.mpirun, "-n", "3", *place, mpi.python, *job(tmp_path, SPIN + text)[1:]]
        return line, job_environment(ENV, flavour=mpi.flavour, uid=os.getuid())

    return build


MpiJob = Callable[[str], tuple[list[str], dict[str, str]]]


@pytest.mark.mpi
@pytest.mark.parametrize("stubborn", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_no_rank_outlives_the_time_limit(mpi_job: MpiJob, stubborn: str, tmp_path: Path) -> None:
    line, env = mpi_job(stubborn + "subprocess.Popen(['sleep', '60'], start_new_session=True)\nwhile True: pass")
    found: list[set[int]] = []

    def look(pid: int) -> None:
        assert wait_for(lambda: len(pids(tmp_path)) == 3, 30)
        # Each rank has a sleep beside it, in a session of its own.
        assert wait_for(lambda: len(job_processes({pid}, "no such job")) >= 7, 30)
        found.append(set(job_processes({pid}, "no such job")))

    result = run_job(line, env=env, time_limit_s=0.5, on_start=look, stderr=subprocess.DEVNULL)
    assert result.timed_out
    assert result.left == ()
    assert set(pids(tmp_path)) < found[0]
    assert not [pid for pid in found[0] if alive(pid)]


@pytest.mark.mpi
def test_a_rank_that_fails_ends_the_job(mpi_job: MpiJob, tmp_path: Path) -> None:
    line, env = mpi_job("if MPI.COMM_WORLD.rank == 1: MPI.COMM_WORLD.Abort(5)\nwhile True: pass")
    result = run_job(line, env=env, time_limit_s=60, stderr=subprocess.DEVNULL)
    assert result.returncode != 0
    assert not result.timed_out
    assert result.seconds < 30
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


@pytest.mark.mpi
def test_ranks_end_when_the_starter_is_killed(mpi_job: MpiJob, tmp_path: Path) -> None:
    line, env = mpi_job("while True: pass")
    killed_sweep(line, tmp_path, 3, env)

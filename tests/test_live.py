"""What a sweep says while it goes on: one line that is written over on a terminal, a line per case in a log."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from conftest import Mpi

from ringbench.cli.talk import ERASE, LiveLine
from ringbench.launch.process import run_job

WIDTH = 70


def swept(mpi: Mpi, folder: Path, *options: str, terminal: str | None) -> str:
    """Return what a sweep of four cases says on stderr, a terminal of ``WIDTH`` columns where one is named."""
    line = [mpi.python, "-m", "ringbench", "sweep", "--ranks", "2", "--sizes", "8,1KiB", "--algorithms", "ring,mpi"]
    line += ["--time-budget", "1s", "--out", str(folder / "run"), *options]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env |= {"TERM": terminal or "dumb"}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    said = bytearray()

    def listen() -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # what a terminal says when nobody writes to it any more
                return
            if not data:
                return
            said.extend(data)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        done = run_job(line, env=env, time_limit_s=120, stdout=subprocess.DEVNULL, stderr=theirs)
    finally:
        os.close(theirs)
        listener.join(timeout=20)
        os.close(ours)
    assert not listener.is_alive()
    assert done.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.mpi
def test_a_terminal_has_one_line_that_is_written_over(mpi: Mpi, tmp_path: Path) -> None:
    said = swept(mpi, tmp_path, terminal="xterm")
    live = [part.partition("\n")[0] for part in said.split(ERASE)[1:]]
    assert [part.split()[0] for part in live[:-1]] == ["[0/4]", "[1/4]", "[2/4]", "[3/4]"]
    assert "now N=2 allreduce 8B in place" in live[0]
    assert "now N=2 allreduce 1KiB in place" in live[2]
    assert all("measuring left" in part and len(part) < WIDTH for part in live[:-1])
    assert live[-1].startswith("ringbench: ")  # taken away before what comes next


@pytest.mark.mpi
def test_a_log_has_a_line_for_each_case(mpi: Mpi, tmp_path: Path) -> None:
    said = swept(mpi, tmp_path, terminal=None)
    assert "\r" not in said
    assert "\x1b" not in said
    assert [line.split()[0] for line in said.splitlines() if line.startswith("[")] == [f"[{n}/4]" for n in (1, 2, 3, 4)]


@pytest.mark.mpi
@pytest.mark.parametrize("terminal", ["xterm", None])
def test_quiet_says_nothing_of_progress(mpi: Mpi, tmp_path: Path, terminal: str | None) -> None:
    said = swept(mpi, tmp_path, "--quiet", terminal=terminal)
    assert "measuring left" not in said
    assert "memory:" not in said
    assert "\x1b" not in said
    assert "every sample is in" in said


def test_a_line_is_cut_to_the_terminal_and_nothing_is_shown_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    LiveLine(10).show("0123456789abc")
    assert capsys.readouterr().err == f"{ERASE}012345678"
    LiveLine(None).show("0123456789abc")
    assert capsys.readouterr().err == ""


def test_a_terminal_without_the_means_is_a_log() -> None:
    code = "from ringbench.cli.talk import live_width; print(live_width())"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    try:
        for term, width in (("dumb", "None"), ("xterm", str(WIDTH))):
            env = {**os.environ, "TERM": term}
            done = subprocess.run(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=env, timeout=60, check=True
            )
            assert done.stdout.decode().strip() == width
    finally:
        os.close(ours)
        os.close(theirs)

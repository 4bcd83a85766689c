"""Tests of who may write a run's file, with processes that hold it and are killed."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringbench.launch import hold
from ringbench.launch.hold import hold_for_job, sole_writer
from ringbench.records.run import SCHEMA_VERSION, append, read_run

PROVENANCE = {"kind": "provenance", "schema_version": SCHEMA_VERSION}
NOTE = {"kind": "resume", "time": "later"}

JOB = """
import sys, time
from pathlib import Path
from ringbench.launch.hold import hold_for_job
hold_for_job(Path(sys.argv[1]))
print("holding", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    append(tmp_path / "run.jsonl", PROVENANCE)
    return tmp_path / "run.jsonl"


@contextmanager
def job(file: Path, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that holds the file as a job does, for some seconds."""
    process = subprocess.Popen([sys.executable, "-c", JOB, str(file), str(seconds)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"holding\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_two_sweeps_never_write_one_file(file: Path) -> None:
    before = file.read_bytes()
    refused = pytest.raises(ValueError, match=f"{file}: another sweep is at work on it")
    with sole_writer(file), refused, sole_writer(file, NOTE):
        pass
    assert file.read_bytes() == before
    with sole_writer(file, NOTE):
        pass
    assert file.read_bytes().startswith(before)
    assert file.read_bytes().count(b'"resume"') == 1


def test_a_job_and_its_sweep_hold_the_file_together(file: Path) -> None:
    with sole_writer(file):
        os.close(hold_for_job(file, file.stat().st_size))


def test_a_job_that_outlives_its_sweep_is_waited_for(file: Path) -> None:
    with job(file, 1.0) as process, sole_writer(file, NOTE):
        assert process.wait(5) == 0  # it has ended, or it would hold the file


def test_a_job_that_does_not_end_keeps_the_next_sweep_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "PATIENCE_S", 0.2)
    before = file.read_bytes()
    refused = pytest.raises(ValueError, match="a job of an earlier sweep is still at work on it")
    with job(file, 60), refused, sole_writer(file, NOTE):
        pass
    assert file.read_bytes() == before
    with pytest.raises(ValueError, match="another job is at work on it"), job(file, 60):
        hold_for_job(file)


def test_a_killed_process_holds_nothing(file: Path) -> None:
    with job(file, 60) as process:
        process.kill()
        process.wait()
        with sole_writer(file):
            pass


def test_a_job_whose_sweep_is_gone_comes_too_late(file: Path) -> None:
    started_at = file.stat().st_size
    with sole_writer(file, NOTE):  # another sweep, before the job could begin
        pass
    with pytest.raises(ValueError, match=f"not {started_at} as when this job was started: its sweep is gone"):
        hold_for_job(file, started_at)
    os.close(hold_for_job(file, file.stat().st_size))


def test_writing_a_line_does_not_let_go(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing any descriptor of a file would end the locks of lockf(3)."""
    monkeypatch.setattr(hold, "PATIENCE_S", 0.1)
    with sole_writer(file):
        append(file, NOTE)
        with pytest.raises(ValueError, match="another sweep"), sole_writer(file):
            pass


def test_a_torn_line_is_cut_off_before_the_note(file: Path) -> None:
    with open(file, "ab") as stream:
        stream.write(b'{"kind":"row","half')
    with sole_writer(file, NOTE):
        pass
    assert not read_run(file).torn


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks_is_used_without(file: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", lock)
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(number)), sole_writer(file):
            pass
    else:
        with sole_writer(file, NOTE):
            os.close(hold_for_job(file))

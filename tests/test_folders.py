"""Tests of folders that a sweep cannot write to, and of files there that are no run: one line, and nothing changed."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringbench.cli import main, measuring, talk
from ringbench.launch import sweep as sweeping
from ringbench.records.provenance import provenance
from ringbench.records.run import RUN_FILE, append, encode, read_run
from ringbench.records.settings import Settings

SWEEP = ("sweep", "--ranks", "1", "--sizes", "8", "--time-budget", "2s", "--mpirun")


@pytest.fixture
def mpirun(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a launcher that tells its version and is good for nothing else."""
    script = tmp_path_factory.mktemp("bin") / "mpirun"
    script.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 5.0.10'\n")
    script.chmod(0o755)
    return str(script)


def first_line() -> bytes:
    return encode(provenance(Settings(), [1], arguments=["sweep"], environ={}))


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_folder_that_cannot_be_made_is_refused(
    mpirun: str, more: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Below a file there is no folder, not even for root."""
    (tmp_path / "file").write_text("mine\n")
    assert main([*SWEEP, mpirun, *more, "--out", str(tmp_path / "file" / "out")]) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"ringbench: {tmp_path / 'file' / 'out'}: Not a directory\n")
    assert (tmp_path / "file").read_text() == "mine\n"


def test_a_file_is_no_folder(mpirun: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine\n")
    assert main([*SWEEP, mpirun, "--out", str(tmp_path / "file")]) == 2
    assert capfd.readouterr().err == f"ringbench: {tmp_path / 'file'}: File exists\n"
    assert (tmp_path / "file").read_text() == "mine\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"# OSU MPI Allreduce Latency Test\n8 1.5\n", first_line()[:-1], first_line()[:40], b"\0" * 4096],
    ids=["empty", "foreign", "no line break", "torn", "zeros"],
)
def test_a_file_whose_first_line_is_no_runs_is_never_written_to(
    mpirun: str, content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / RUN_FILE).write_bytes(content)
    for more in ([], ["--resume"]):
        assert main([*SWEEP, mpirun, *more, "--out", str(tmp_path)]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(f"ringbench: {tmp_path / RUN_FILE}")
        assert (tmp_path / RUN_FILE).read_bytes() == content


def test_a_folder_mounted_read_only_is_refused(mpirun: str, tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    folder = shlex.quote(str(tmp_path))
    mount = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"
    if shutil.which("unshare") is None or subprocess.run([*unshare, mount], capture_output=True).returncode:
        pytest.skip("no folder may be mounted here in a user namespace")
    append(tmp_path / RUN_FILE, provenance(Settings(), [1], arguments=["sweep"], environ={}))
    for words in (["--resume", "--out", str(tmp_path)], ["--out", str(tmp_path / "new")]):
        line = shlex.join([sys.executable, "-m", "ringbench", *SWEEP, mpirun, *words])
        done = subprocess.run([*unshare, f"{mount} && {line}"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done.stderr
        (said,) = done.stderr.splitlines()
        assert said.startswith(f"ringbench: {tmp_path}")
        assert said.endswith(": Read-only file system")


# Signals.


def test_a_signal_that_is_ignored_stays_ignored(mpirun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup has SIGHUP ignored."""
    kept = []

    def look(*arguments: object, **options: object) -> None:
        kept.append(signal.getsignal(signal.SIGHUP))
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "run_job", look)
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(signal.SIGHUP, handler)
            assert main([*SWEEP, mpirun, "--out", str(tmp_path / str(int(handler)))]) == 1
    finally:
        signal.signal(signal.SIGHUP, before)
    assert kept == [signal.SIG_IGN, talk.raise_terminated]


def test_a_signal_while_results_are_shown_is_one_line(
    mpirun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def ended(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(measuring, "read_run", ended)
    assert main([*SWEEP, mpirun, "--out", str(tmp_path / "out")]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == "ringbench: terminated"
    assert read_run(tmp_path / "out").status == "partial"

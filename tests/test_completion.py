"""What a shell completes, tried in the shell itself."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ringbench.cli import COMMANDS, main
from ringbench.cli.completion import script


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "completion"
    found.write_text(script("bash"), encoding="utf-8")
    return found


def completed(file: Path, *words: str) -> list[str]:
    """Return what the function that bash has registered for ringbench offers for the last of some words."""
    program = """
        source "$1"; shift
        [[ $(complete -p ringbench) =~ -F\\ ([^ ]+) ]] || exit 1
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "${BASH_REMATCH[1]}" ringbench "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        for word in "${COMPREPLY[@]}"; do echo "$word"; done
    """
    line = ["bash", "--norc", "-uc", program, "bash", str(file), "ringbench", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_options_and_values_are_completed(file: Path) -> None:
    assert set(completed(file, "")) == {*COMMANDS, "--help", "--version"}
    assert completed(file, "swe") == ["sweep"]
    assert completed(file, "sweep", "--pl") == ["--placement"]
    assert completed(file, "sweep", "--placement", "") == ["in", "out", "both"]
    assert completed(file, "sweep", "--placement", "b") == ["both"]
    assert set(completed(file, "table", "--")) == {"--help", "--format", "--wide", "--pivot", "--style"}
    assert completed(file, "table", "results", "--style", "n") == ["nccl"]
    assert completed(file, "table", "res") == []  # a file, which the shell itself knows
    assert "--append-at" not in completed(file, "run", "--ap")  # what is hidden stays so


def test_a_terminal_completes(file: Path) -> None:
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null"},
    )
    os.close(theirs)
    try:
        os.write(ours, f"source {file}; echo rea''dy\n".encode())
        read_until(ours, b"ready")
        os.write(ours, b"echo ringbench is; ringbench comp\t")
        said = read_until(ours, b"ringbench comp")
        os.write(ours, b"\x15ringbench simul\t--form\tma\t")
        said += read_until(ours, b"ringbench simulate --format markdown ")
    finally:
        os.write(ours, b"\x03\x15exit\n")
        try:
            shell.wait(20)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.wait()
        os.close(ours)


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Return what a terminal shows, once some text is in it."""
    said, end = b"", time.monotonic() + 30
    while wanted not in said:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        assert ready, said
        said += os.read(descriptor, 4096)
    return said


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_one_for_its_shell(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert said == script(shell)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here to read it")
    (tmp_path / "script").write_text(said, encoding="utf-8")
    done = subprocess.run(
        [shell, "-c", f"source {tmp_path / 'script'} && complete | grep -q ringbench" if shell == "bash" else said],
        capture_output=True,
        timeout=30,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, b"")

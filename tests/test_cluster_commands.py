"""Tests of the commands lab and slurm up to where they would start something."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringbench.cli import main
from ringbench.launch import lab_run
from ringbench.launch.lab import Lab, LabError
from ringbench.launch.lab_run import check_system


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "RINGBENCH_LAB"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "lab runs a command"),
        (["--selftest", "--", "true"], "lab runs a command"),
        (["--nodes", "0", "--", "true"], "0 nodes"),
        (["--rate", "fast", "--", "true"], "rate 'fast'"),
        (["--delay", "5", "--", "true"], "delay '5'"),
    ],
)
def test_a_lab_that_cannot_be(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(["lab", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_lab_in_a_lab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBENCH_LAB", Lab().words)
    assert main(["lab", "--", "true"]) == 2
    assert "a lab already" in capsys.readouterr().err


def test_what_a_system_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name in ("tc", "srun") else f"/bin/{name}")
    with pytest.raises(LabError, match="needs tc: install iproute2"):
        check_system(Lab(), {})
    with pytest.raises(LabError, match="needs tc, srun: install iproute2 slurm-wlm"):
        check_system(Lab(slurm=True), {})


def refusing(command: Sequence[str], path: str) -> str | None:
    return "unshare: unshare failed: Operation not permitted\n"


@pytest.mark.parametrize("uid", [0, 1000])
def test_a_system_that_refuses_namespaces(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: f"/bin/{name}")
    monkeypatch.setattr("os.getuid", lambda: uid)
    monkeypatch.setattr(lab_run, "_probe", refusing)
    monkeypatch.setattr(lab_run, "_text", lambda file: "0\n" if file.name == "max_user_namespaces" else "")
    with pytest.raises(LabError, match=r"sysctl -w user\.max_user_namespaces=10000"):
        check_system(Lab(), {})
    monkeypatch.setattr(lab_run, "_text", lambda file: "")
    with pytest.raises(LabError, match="refuses: unshare: unshare failed: Operation not permitted"):
        check_system(Lab(), {})


def test_root_where_root_may_not_is_as_any_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: f"/bin/{name}")
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr(lab_run, "_probe", lambda command, path: None if "--user" in command else "no")
    assert "--user" in check_system(Lab(), {})
    monkeypatch.setattr(lab_run, "_probe", lambda command, path: None)
    assert "--user" not in check_system(Lab(), {})


def plan(folder: Path) -> list[str]:
    (folder / "plan.toml").write_text("sizes = [8]\ntime_budget_s = 100\n")
    return ["slurm", "plan.toml", "--nodes", "1,2", "--ntasks-per-node", "4"]


def test_a_script_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(plan(tmp_path)) == 0
    said = capsys.readouterr()
    assert "#SBATCH --time=00:04:00\n" in said.out  # 100 s, three starts, and the minute of the signal
    assert "exec ringbench sweep plan.toml --ranks 4,8 " in said.out
    assert said.err == ""


def test_a_time_limit_too_short_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*plan(tmp_path), "--time", "2"]) == 0
    said = capsys.readouterr()
    assert "#SBATCH --time=00:02:00\n" in said.out
    assert "about 00:04:00, more than the time limit of 00:02:00" in said.err


@pytest.mark.parametrize(
    ("words", "named"), [(["--nodes", "0"], "0"), (["--time", "soon"], "soon"), (["--partition", "a b"], "a b")]
)
def test_a_job_that_cannot_be(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], named: str) -> None:
    assert main([*plan(tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("status", [0, 1])
def test_a_job_is_submitted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f"#!/bin/sh\necho $*\ncat > got\necho refused >&2\nexit {status}\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    words = plan(tmp_path)
    assert main(words) == 0
    text = capsys.readouterr().out
    assert main([*words, "--submit"]) == status
    said = capsys.readouterr()
    assert said.out == "--parsable\n"
    assert said.err == ("ringbench: refused\n" if status else "")
    assert (tmp_path / "got").read_text() == text


def test_the_inside_of_a_lab_is_never_run_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """It would take every process around for one of the lab's."""
    for words in (["--inside", "0"], ["--in", "0"]):
        assert main(["lab", *words, "--", "true"]) == 2
        assert "ringbench: " in capsys.readouterr().err


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rank", "2"]) == 2
    assert "--rank" in capsys.readouterr().err

"""Tests of the command line under mpirun: what is refused, what is said, how a job ends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Mpi
from harness import Finished, environment, run, start

from ringbench.launch.mpirun import usable_cpus
from ringbench.records.guards import CROWDED
from ringbench.records.run import RUN_FILE, read_run

pytestmark = pytest.mark.mpi

QUICK = ("--max-samples", "8", "--warmup", "1", "--time-budget", "2s")
SMALL = ("--sizes", "64,4KiB", *QUICK)


def ringbench(mpi: Mpi, nranks: int, *arguments: str, **more: Any) -> Finished:
    return start(mpi, nranks, ["-m", "ringbench", *arguments], **more)


def alone(mpi: Mpi, *arguments: str, **more: Any) -> Finished:
    """Run ringbench without mpirun."""
    more.setdefault("env", environment(mpi))
    return run([mpi.python, "-m", "ringbench", *arguments], **more)


def parsed(text: str) -> list[dict[str, Any]]:
    """Read an array of flat objects, without NaN and Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    rows = json.loads(text, parse_constant=refuse)
    assert isinstance(rows, list)
    assert all(isinstance(row, dict) for row in rows)
    return rows


# CASE 29: the wrong launcher.


def check_refused_once(found: Finished, launched: int, out: Path) -> None:
    assert found.status not in (0, None), str(found)
    assert len(found.said) == 1, str(found)
    assert f"started {launched} ranks" in found.said[0], str(found)
    assert "a world of 1" in found.said[0], str(found)
    assert "Traceback" not in found.stderr, str(found)
    assert not found.stdout, str(found)
    assert not out.exists(), str(found)


def test_the_mpirun_of_another_library_is_named_once(mpi: Mpi, other: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mixed = Mpi(flavour=mpi.flavour, python=other.python, mpirun=mpi.mpirun)
    found = ringbench(mixed, 4, "run", *SMALL, "--out", str(out), status=None, limit_s=40)
    check_refused_once(found, 4, out)


def test_tasks_of_srun_that_do_not_see_each_other_are_named(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "out"
    env = environment(mpi, SLURM_NTASKS="4", SLURM_PROCID="1")
    found = alone(mpi, "run", *SMALL, "--out", str(out), env=env, status=None, limit_s=30)
    check_refused_once(found, 4, out)
    assert "srun" in found.said[0], str(found)


# CASE 30 and a rank alone.


def test_a_launcher_inside_a_launcher_is_refused(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = ringbench(mpi, 2, "sweep", "--ranks", "1,2", *SMALL, "--out", str(out), status=2, limit_s=30)
    assert len(found.said) == 1, str(found)
    assert "ringbench run" in found.said[0], str(found)
    assert "2" in found.said[0], str(found)
    assert not out.exists(), str(found)
    assert not found.stdout, str(found)


def test_run_without_mpirun_is_one_rank_and_says_so(mpi: Mpi, tmp_path: Path) -> None:
    found = alone(mpi, "run", "--format", "json", *SMALL, "--out", str(tmp_path / "out"))
    rows = parsed(found.stdout)
    assert {row["nranks"] for row in rows} == {1}, str(found)
    assert len(rows) == 4, str(found)
    assert all(row["wrong"] == 0 and row["busbw_gb_per_s"] is None and row["reason"] for row in rows), str(found)
    written = read_run(tmp_path / "out")
    assert written.status == "complete"
    assert len(written.rows) == 4
    found = alone(mpi, "run", *SMALL)
    assert any("one rank" in line for line in found.said), str(found)


def test_a_run_that_measures_nothing_says_why_and_fails(mpi: Mpi, tmp_path: Path) -> None:
    reason = "alltoall of 2 elements: needs a multiple of 3, as many for each rank"
    words = ("run", "--collective", "alltoall", *QUICK)
    found = ringbench(mpi, 3, *words, "--sizes", "8", "--out", str(tmp_path / "out"), status=1)
    assert found.said.count(f"ringbench: nothing was measured: {reason}") == 1, str(found)
    assert [row.reason for row in read_run(tmp_path / "out").rows] == [reason] * 2, str(found)
    found = ringbench(mpi, 3, *words, "--sizes", "8,12")
    assert "nothing was measured" not in found.stderr, str(found)


def test_run_does_not_write_over_a_run(mpi: Mpi, tmp_path: Path) -> None:
    file = tmp_path / "out" / RUN_FILE
    file.parent.mkdir()
    file.write_text("mine\n")
    found = ringbench(mpi, 2, "run", *SMALL, "--out", str(file.parent), status=2)
    assert len(found.said) == 1, str(found)
    assert "exists" in found.said[0], str(found)
    assert file.read_text() == "mine\n"


# CASE 31: more ranks than cores.


def test_more_ranks_than_cores_are_measured_and_marked(mpi: Mpi) -> None:
    cpus, _ = usable_cpus()
    if cpus > 4:
        pytest.skip(f"{cpus} cores: it would take more than 8 ranks to outnumber them")
    found = ringbench(mpi, 2 * cpus, "run", "--format", "json", *SMALL)
    rows = parsed(found.stdout)
    assert len(rows) == 4, str(found)
    assert all("oversubscribed" in row["warnings"] and row["samples"] for row in rows), str(found)
    assert all(row["wrong"] == 0 for row in rows), str(found)
    assert any(f"{2 * cpus} ranks share core" in line for line in found.said), str(found)
    assert found.seconds < 60


def test_two_ranks_on_one_core_are_told_so(mpi: Mpi) -> None:
    core = str(min(os.sched_getaffinity(0)))
    found = ringbench(mpi, 2, "run", "--format", "json", *SMALL, prefix=("taskset", "-c", core))
    assert any(f"2 ranks share core {core};" in line for line in found.said), str(found)
    assert all(CROWDED & set(row["warnings"]) for row in parsed(found.stdout)), str(found)


def test_two_ranks_on_cores_of_their_own_are_not_oversubscribed(mpi: Mpi) -> None:
    cpus, whole = usable_cpus()
    if cpus < 2 or not whole:
        pytest.skip("two cores are needed, and the right to bind to them")
    found = ringbench(mpi, 2, "run", "--format", "json", *SMALL)
    assert not any("oversubscribed" in row["warnings"] for row in parsed(found.stdout)), str(found)


# CASE 32: a rank ends in the middle.


def check_ended(found: Finished, *, traceback: bool) -> None:
    assert found.seconds < 10, str(found)
    assert "busbw" not in found.stdout, str(found)  # where MPICH's mpirun says its own piece
    assert found.stderr.count("Traceback (most recent call last)") == traceback, str(found)
    failed = [line for line in found.said if "failed" in line]
    assert len(failed) == traceback, str(found)
    assert all("rank 1 of 3" in line for line in failed), str(found)


@pytest.mark.parametrize("how", ["fail", "leave"])
def test_a_rank_that_raises_or_leaves_ends_the_job(mpi: Mpi, how: str) -> None:
    found = start(mpi, 3, ["commandline.py", f"{how}:1", "run", *SMALL], status=None, limit_s=30)
    check_ended(found, traceback=True)
    assert found.status == 1, str(found)
    assert ("spoiled on purpose" if how == "fail" else "SystemExit") in found.stderr, str(found)


def test_a_rank_that_raises_ends_a_callers_job_too(mpi: Mpi) -> None:
    found = start(mpi, 3, ["commandline.py", "fail:1", "--call", "run", *SMALL], status=None, limit_s=30)
    check_ended(found, traceback=True)
    assert found.status == 1, str(found)


@pytest.mark.parametrize("how", ["vanish", "die"])
def test_a_rank_that_is_gone_without_a_word_ends_the_job(mpi: Mpi, how: str) -> None:
    found = start(mpi, 3, ["commandline.py", f"{how}:1", "run", *SMALL], status=None, limit_s=30)
    check_ended(found, traceback=False)
    # To MPICH's mpirun a rank that exits with 0 is no failure, and it kills the others: a sweep looks for the rows.
    assert found.status != 0 or (how, mpi.flavour) == ("vanish", "mpich"), str(found)


def test_an_unwritable_file_ends_the_job(mpi: Mpi, tmp_path: Path) -> None:
    """Rank 0 alone writes; the others must not wait for it."""
    (tmp_path / "file").write_text("")
    found = ringbench(mpi, 3, "run", *SMALL, "--out", str(tmp_path / "file/out"), status=2, limit_s=30)
    assert len(found.said) == 1, str(found)
    assert str(tmp_path / "file") in found.said[0], str(found)


# CASE 33: usage errors.


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "--bogus"), "--bogus"),
        (("run", "--sizes", "10"), "10"),
        (("run", "no/such/plan.toml"), "no/such/plan.toml"),
    ],
)
def test_a_usage_error_is_said_once(mpi: Mpi, arguments: Sequence[str], word: str) -> None:
    found = ringbench(mpi, 4, *arguments, status=2, limit_s=30)
    assert len(found.said) == 1, str(found)
    assert word in found.said[0], str(found)
    assert not found.stdout, str(found)
    assert "Traceback" not in found.stderr, str(found)


# CASE 35: what stands on stdout.


def test_stdout_holds_the_result_alone(mpi: Mpi) -> None:
    found = ringbench(mpi, 2, "run", "--format", "json", "--sizes", "0,8,64KiB", "--placement", "both", *QUICK)
    rows = parsed(found.stdout)
    cells = [(row["algorithm"], row["nbytes"], row["in_place"]) for row in rows]
    assert sorted(cells) == sorted(
        (name, nbytes, place) for name in ("ring", "mpi") for nbytes in (0, 8, 65536) for place in (True, False)
    ), str(found)
    for row in rows:
        assert row["wrong"] == 0, str(found)
        assert row["samples"], str(found)
        assert row["nranks"] == 2, str(found)
        assert (row["algbw_gb_per_s"] is None) == (row["reason"] is not None) == (row["nbytes"] == 0), str(found)
    assert "[12/12]" in found.stderr, str(found)


# CASE 17: wrong data.


def test_a_wrong_result_fails_the_job_and_is_in_no_fit(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = ("--sizes", "64,1KiB,4KiB,16KiB", *QUICK, "--out", str(out))
    found = start(mpi, 2, ["commandline.py", "flip:ring:4096", "run", *sizes], status=1)
    failed = [line.split() for line in found.stdout.splitlines() if "FAIL" in line and line.startswith(" ")]
    assert [(words[0], "ring" in words) for words in failed] == [("4KiB", True)], str(found)
    assert "WRONG" in found.stderr, str(found)
    rows = read_run(out).rows
    assert [(row.algorithm, row.nbytes) for row in rows if row.wrong] == [("ring", 4096)]
    assert "element 0 is" in str(next(row for row in rows if row.wrong).wrong_detail)

    table = alone(mpi, "table", "--format", "json", str(out))
    for row in parsed(table.stdout):
        assert (row["busbw_gb_per_s"] is None) == (row["algorithm"] == "ring" and row["nbytes"] == 4096), str(table)
    fit = alone(mpi, "fit", "--include-oversubscribed", "--format", "json", str(out))
    assert {row["algorithm"]: row["points"] for row in parsed(fit.stdout)} == {"ring": 3, "mpi": 4}, str(fit)
    assert any("wrong result" in line for line in fit.said), str(fit)
    compare = alone(mpi, "compare", "--format", "json", str(out))
    reasons = {row["nbytes"]: row["reason"] for row in parsed(compare.stdout)}
    assert reasons == {64: None, 1024: None, 4096: "ring: wrong result", 16384: None}, str(compare)


def test_a_schedule_that_cannot_be_proved_is_not_run(mpi: Mpi) -> None:
    found = start(mpi, 2, ["commandline.py", "schedule", "run", "--algorithms", "ring,dropped", *SMALL], status=2)
    assert len(found.said) == 1, str(found)
    assert "dropped" in found.said[0], str(found)
    assert not found.stdout, str(found)


# CASE 34: without MPI.


def test_what_needs_no_mpi_works_without_mpi4py(mpi: Mpi, tmp_path: Path) -> None:
    alone(mpi, "run", "--sizes", "64,1KiB,4KiB", *QUICK, "--out", str(tmp_path / "out"))
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "mpi4py.py").write_text("raise ImportError('no MPI library here')\n")
    env = environment(mpi)
    env["PYTHONPATH"] = f"{missing}{os.pathsep}{env['PYTHONPATH']}"
    for arguments in (["--help"], ["table", str(tmp_path / "out")], ["verify", "--max-ranks", "3"], ["list"]):
        assert alone(mpi, *arguments, env=env).stdout
    found = alone(mpi, "run", *SMALL, env=env, status=2)
    assert len(found.said) == 1, str(found)
    assert "no MPI library here" in found.said[0], str(found)

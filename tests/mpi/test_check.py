"""Tests of the check that all ranks are one job."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Mpi
from harness import environment, run, start

pytestmark = pytest.mark.mpi


def test_a_sweep_checks_its_largest_job_and_measures_nothing(mpi: Mpi, tmp_path: Path) -> None:
    line = [mpi.python, "-m", "ringbench", "sweep", "--ranks", "1,3,2", "--check", "--out", str(tmp_path / "run")]
    found = run(line, env=environment(mpi))
    assert found.stdout.startswith("3 ranks of one job ("), str(found)
    assert ": 0-2), " in found.stdout, str(found)
    assert not (tmp_path / "run").exists()


def test_ranks_that_are_not_one_job_fail_the_check(mpi: Mpi) -> None:
    """Declare to each of two processes, as srun does without the right PMI, that it is one of two ranks."""
    env = {name: value for name, value in environment(mpi).items() if not name.startswith(("OMPI_", "PMI"))}
    env |= {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_ID": "1"}
    found = run([mpi.python, "-m", "ringbench", "run", "--check"], env=env, status=2)
    assert any("rank 1 sees a world of 1" in line for line in found.said), str(found)
    assert found.stdout == ""


def test_one_rank_alone_is_one_job(mpi: Mpi) -> None:
    found = start(mpi, 1, ["-m", "ringbench", "run", "--check"])
    assert found.stdout.startswith("1 rank of one job ("), str(found)

"""Tests of `ringbench verify --mutants`: the checker catches what is broken, and fails where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Mpi
from harness import Finished, breaking, environment, run, start

from ringbench.runtime.mutants import PLAN_MUTANTS
from ringbench.schedule.mutate import SCHEDULE_MUTANTS

pytestmark = pytest.mark.mpi

EVERY = {mutant.name for mutant in (*SCHEDULE_MUTANTS, *PLAN_MUTANTS)}


def selftest(mpi: Mpi, *arguments: str, **more: Any) -> Finished:
    line = [mpi.python, "-m", "ringbench", "verify", "--mutants", *arguments]
    return run(line, env=environment(mpi), **more)


def test_every_mutant_is_caught_and_every_original_is_right(mpi: Mpi) -> None:
    found = selftest(mpi, "--format", "json", limit_s=400)
    cells = json.loads(found.stdout)
    assert {cell["nranks"] for cell in cells} == {2, 3, 4}
    assert {cell["verdict"] for cell in cells} == {"caught", "equivalent", "right"}
    assert {cell["mutant"] for cell in cells if cell["verdict"] == "caught"} == EVERY
    bases = {(cell["collective"], cell["algorithm"]) for cell in cells}
    assert bases == {(cell["collective"], cell["algorithm"]) for cell in cells if cell["verdict"] == "right"}
    assert len({collective for collective, _ in bases}) == 6
    for cell in cells:
        assert (cell["verdict"] == "caught") == bool(cell["wrong"]) == (cell["detail"] is not None), cell
        if cell["verdict"] == "caught":
            assert "rank " in cell["detail"], cell
            if cell["mutant"] in {mutant.name for mutant in SCHEDULE_MUTANTS}:
                assert f"{cell['algorithm']}~{cell['mutant']}, {cell['nranks']} ranks" in cell["proof"], cell


def test_one_line_for_each_mutant_and_one_at_the_end(mpi: Mpi) -> None:
    found = selftest(mpi, "--ranks", "2,5", "--collective", "reduce_scatter", limit_s=200)
    lines = [line for line in found.stdout.splitlines() if not line.startswith(" ")]
    words = [line.split()[:2] for line in lines[:-1]]
    names = [name for word, name in words if word == "caught"]
    assert [name for word, name in words if word != "caught"] == ["redivided"], str(found)  # proved right, there
    assert len(names) == len(set(names)) > 12, str(found)
    assert lines[-1].startswith(f"{len(names)} of {len(names)} mutants caught"), str(found)
    assert "refused by" in found.stdout, str(found)


@pytest.mark.parametrize(
    ("weak", "survivors"),
    [("blind", {"dropped", "flipped", "stale", "endless"}), ("bits", {"last_bit"}), ("strict", None)],
)
def test_a_weak_check_fails_its_test(mpi: Mpi, tmp_path: Path, weak: str, survivors: set[str] | None) -> None:
    narrow = ("--ranks", "3", "--collective", "allreduce", "--mpirun", breaking(mpi, tmp_path, {3: f"weaken:{weak}"}))
    found = selftest(mpi, *narrow, "--format", "json", status=1, limit_s=200)
    cells = json.loads(found.stdout)
    if survivors is None:
        assert all(cell["verdict"] == "false alarm" for cell in cells if cell["mutant"] is None), str(found)
        return
    survived = {cell["mutant"] for cell in cells if cell["verdict"] == "survived"}
    assert survivors <= survived if weak == "blind" else survivors == survived
    assert all(cell["verdict"] == "right" for cell in cells if cell["mutant"] is None)


def test_a_job_that_fails_fails_the_test(mpi: Mpi, tmp_path: Path) -> None:
    found = selftest(mpi, "--ranks", "2", "--mpirun-args=--no-such-option", status=1, limit_s=60)
    assert any("2 ranks: " in line and "status" in line for line in found.said), str(found)


def test_inside_of_a_job_it_is_refused_once(mpi: Mpi) -> None:
    found = start(mpi, 2, ["-m", "ringbench", "verify", "--mutants"], status=2, limit_s=30)
    assert len(found.said) == 1, str(found)
    assert "starts MPI jobs itself" in found.said[0], str(found)
    assert not found.stdout, str(found)

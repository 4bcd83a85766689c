"""Guards provoked in real jobs: rows carry them, stderr says them once with advice, run.jsonl keeps the facts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import Mpi
from harness import environment, run, start

from ringbench.launch.mpirun import usable_cpus
from ringbench.records.guards import CROWDED, GUARDS
from ringbench.records.run import read_run
from ringbench.runtime.machine import OK, WARN

pytestmark = pytest.mark.mpi

QUICK = ("--sizes", "64,4KiB", "--max-samples", "8", "--warmup", "1", "--time-budget", "2s")
FORCED = {
    "openmpi": ("OMPI_MCA_coll_tuned_allreduce_algorithm", "3"),
    "mpich": ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "recursive_doubling"),
}


def test_an_algorithm_chosen_by_the_environment_marks_the_librarys_rows(mpi: Mpi, tmp_path: Path) -> None:
    name, value = FORCED[mpi.flavour]
    env = environment(mpi, **{name: value, "MPICH_DIR": "/x", "OMPI_MCA_coll_base_verbose": "0"})
    words = ["-m", "ringbench", "run", *QUICK, "--out", str(tmp_path / "out")]
    found = start(mpi, 2, words, env=env)
    written = read_run(tmp_path / "out")
    for row in written.rows:
        assert ("library tuned" in row.warnings) == (row.algorithm == "mpi"), str(found)
    said = [line for line in found.said if f"{name}={value}" in line]
    assert len(said) == 1, str(found)
    assert said[0].endswith(GUARDS["library tuned"].advice), str(found)
    (job,) = written.jobs
    (machine,) = job["machines"]
    assert machine["tuned"] == [f"{name}={value}"], str(found)
    assert machine["host"] == job["hosts"][0], str(found)
    assert machine["cores"] == sorted({core for rank in job["ranks"] for core in rank["cpus"]}), str(found)


def test_nothing_chosen_is_nothing_said(mpi: Mpi, tmp_path: Path) -> None:
    found = start(mpi, 2, ["-m", "ringbench", "run", *QUICK, "--out", str(tmp_path / "out")])
    assert not any("set for collectives" in line for line in found.said), str(found)
    for row in read_run(tmp_path / "out").rows:
        assert not {"library tuned", "interfaces"} & set(row.warnings), str(found)


def test_two_ranks_on_one_of_several_cores_are_told_apart_from_too_many_ranks(mpi: Mpi, tmp_path: Path) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("with a single core every two ranks are too many")
    core = str(min(os.sched_getaffinity(0)))
    words = ["-m", "ringbench", "run", *QUICK, "--out", str(tmp_path / "out")]
    found = start(mpi, 2, words, prefix=("taskset", "-c", core))
    for row in read_run(tmp_path / "out").rows:
        assert CROWDED & set(row.warnings) == {"shared core"}, str(found)
    assert any(line.endswith(GUARDS["shared core"].advice) for line in found.said), str(found)
    fit = run([mpi.python, "-m", "ringbench", "fit", str(tmp_path / "out")], env=environment(mpi), status=2)
    assert any("4 rows left out: shared core" in line for line in fit.said), str(fit)


@pytest.mark.parametrize("hosts", ["a", "aa", "abab", "abb"])
def test_one_rank_of_each_node_reads_it_and_all_know(mpi: Mpi, hosts: str) -> None:
    found = start(mpi, len(hosts), ["nodes.py", *hosts])
    machines = json.loads(found.stdout)
    assert [machine["host"] for machine in machines] == sorted(set(hosts)), str(found)
    for machine in machines:
        alone = hosts.count(machine["host"]) == 1
        assert (machine["cma"] is None) == alone, str(found)
        used = machine["others_cpus"]
        assert used is None or 0 <= used <= len(machine["cores"]), str(found)


# The doctor.


def doctor(
    mpi: Mpi, *arguments: str, status: int | None = None, env: Mapping[str, str] | None = None
) -> dict[str, tuple[str, str]]:
    words = [mpi.python, "-m", "ringbench", "doctor", "--format", "json", *arguments]
    found = run(words, env=environment(mpi, **env or {}), status=status, limit_s=40)
    checks = {check["check"]: (check["state"], check["finding"]) for check in json.loads(found.stdout)}
    assert found.status == (1 if WARN in {state for state, _ in checks.values()} else 0), str(found)
    assert "Traceback" not in found.stderr, str(found)
    return checks


def test_doctor_finds_library_and_launcher(mpi: Mpi) -> None:
    cpus, whole = usable_cpus()
    checks = doctor(mpi)
    name = {"openmpi": "Open MPI", "mpich": "MPICH"}[mpi.flavour]
    assert checks["mpi library"][0] == OK
    assert name in checks["mpi library"][1]
    assert checks["launcher"][0] == OK
    assert mpi.flavour in checks["launcher"][1]
    assert checks["placement"][0] == (OK if whole else WARN)
    assert doctor(mpi, "--ranks", str(cpus + 1), status=1)["placement"][0] == WARN


def test_doctor_names_what_is_set_for_this_library(mpi: Mpi) -> None:
    name, value = FORCED[mpi.flavour]
    (other,) = (pair for flavour, pair in FORCED.items() if flavour != mpi.flavour)
    assert doctor(mpi, env={name: value})["library tuned"] == (WARN, f"set for collectives: {name}={value}")
    assert doctor(mpi, env=dict([other]))["library tuned"][0] == OK


def test_doctor_works_without_mpi4py_and_says_so(mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no MPI library here')\n")
    path = f"{tmp_path}{os.pathsep}{environment(mpi)['PYTHONPATH']}"
    checks = doctor(mpi, status=1, env={"PYTHONPATH": path})
    assert checks["mpi library"][0] == WARN
    assert "no MPI library here" in checks["mpi library"][1]
    assert "busy" in checks


def test_doctor_is_not_for_ranks(mpi: Mpi) -> None:
    found = start(mpi, 2, ["-m", "ringbench", "doctor"], status=2, limit_s=40)
    assert len(found.said) == 1, str(found)
    assert not found.stdout, str(found)

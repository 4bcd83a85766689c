"""Tests of what is read from a launcher's variables."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import Mpi

from ringbench.launch import environment
from ringbench.launch.environment import (
    HYDRA,
    OPENMPI,
    SRUN,
    check_library,
    check_world,
    declared_size,
    inside_mpi_job,
    job_environment,
    launched,
)
from ringbench.launch.process import run_job

MPIRUN = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
MPIEXEC = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "2"}
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
STEP = BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        (MPIRUN, (OPENMPI, 2, 1)),
        (MPIEXEC, (HYDRA, 2, 1)),
        (STEP, (SRUN, 4, 3)),
        (BATCH, None),
        (BATCH | {"SLURM_PROCID": "1"}, (SRUN, 4, 1)),
        (BATCH | {"SLURM_STEP_ID": "4294967291"}, None),
        (BATCH | {"SLURM_STEP_ID": "batch"}, None),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, (SRUN, 4, 0)),
        (STEP | {"PMI_SIZE": "4", "PMI_RANK": "3"}, (SRUN, 4, 3)),
        (STEP | MPIEXEC, (HYDRA, 2, 1)),
        (STEP | MPIRUN, (OPENMPI, 2, 1)),
        (STEP | {"SLURM_STEP_NUM_TASKS": "many"}, (SRUN, 4, 3)),
        ({"OMPI_COMM_WORLD_SIZE": "two", "OMPI_COMM_WORLD_RANK": "1"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, None),
        ({"PMI_SIZE": "", "PMI_RANK": "0"}, None),
    ],
)
def test_launched(environ: dict[str, str], expected: tuple[str, int, int] | None) -> None:
    found = launched(environ)
    assert (found and (found.launcher, found.size, found.rank)) == expected
    assert declared_size(environ) == (expected and expected[1])


@pytest.mark.parametrize("environ", [MPIRUN, MPIEXEC, STEP, MPIRUN | {"OMPI_COMM_WORLD_SIZE": "1"}])
def test_a_rank_starts_no_jobs(environ: dict[str, str]) -> None:
    found = launched(environ)
    reason = inside_mpi_job(environ)
    assert found is not None
    assert reason is not None
    assert f"{found.variable}={found.size}" in reason
    assert found.launcher in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    "environ",
    [
        {},
        BATCH,
        BATCH | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"},
        STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        STEP | {"SLURM_STEP_NUM_TASKS": "1", "PMI_SIZE": "1", "PMI_RANK": "0"},
    ],
)
def test_batch_script_and_single_task_start_jobs(environ: dict[str, str]) -> None:
    assert inside_mpi_job(environ) is None


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        (MPIRUN, ["Open MPI", "OMPI_COMM_WORLD_SIZE=2", "rank 1", "mpi4py"]),
        (MPIEXEC, ["hydra", "PMI_SIZE=2", "mpi4py"]),
        (STEP, ["srun", "SLURM_STEP_NUM_TASKS=4", "--mpi=pmix"]),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, ["srun", "SLURM_NTASKS=4"]),
    ],
)
def test_worlds_of_one_are_found_out(environ: dict[str, str], names: list[str]) -> None:
    message = check_world(environ, 1)
    assert message is not None
    assert "world of 1" in message
    assert all(name in message for name in names), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({}, 1),
        (BATCH, 1),
        (MPIRUN, 2),
        (STEP, 4),
        (STEP | {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, 1),
        (STEP | {"PMI_SIZE": "1", "PMI_RANK": "0", "MPI_LOCALNRANKS": "1"}, 1),
    ],
)
def test_right_worlds_pass(environ: dict[str, str], size: int) -> None:
    assert check_world(environ, size) is None


OPEN_MPI_SAYS = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"
MPICH_SAYS = "MPICH Version:      5.0.2\nMPICH Release date: some day\n\0"


def test_library_of_another_launcher() -> None:
    message = check_library(MPIRUN, MPICH_SAYS)
    assert message is not None
    assert "MPICH Version: 5.0.2," in message
    assert "OMPI_COMM_WORLD_SIZE=2" in message
    message = check_library(MPIEXEC, OPEN_MPI_SAYS)
    assert message is not None
    assert "Open MPI v5.0.11," in message


@pytest.mark.parametrize(
    ("environ", "library"),
    [
        ({}, MPICH_SAYS),
        (MPIRUN, OPEN_MPI_SAYS),
        (MPIRUN, "IBM Spectrum MPI v10.4"),
        (MPIRUN | {"MPIR_CVAR_PMI_VERSION": "pmix"}, MPICH_SAYS),
        (MPIEXEC, MPICH_SAYS),
        (MPIEXEC, "Intel(R) MPI Library 2021.9 for Linux* OS"),
        (STEP, MPICH_SAYS),
    ],
)
def test_library_of_its_launcher(environ: dict[str, str], library: str) -> None:
    assert check_library(environ, library) is None


def test_job_environment_keeps_settings_and_drops_the_enclosing_job() -> None:
    kept = {
        "PATH": "/bin",
        "OMPI_MCA_pml": "ob1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot",
        "PMIX_MCA_gds": "hash",
        "UCX_TLS": "tcp",
        "MPIR_CVAR_DEBUG_SUMMARY": "1",
        "HYDRA_LAUNCHER": "ssh",
        "SLURM_JOB_ID": "7",
        "OMP_NUM_THREADS": "4",
    }
    job = MPIRUN | MPIEXEC | {"PMIX_RANK": "1", "OMPI_MCA_num_procs": "2", "PRTE_LAUNCHED": "1", "HYDI_CONTROL_FD": "7"}
    environ = kept | job
    before = dict(environ)
    result = job_environment(environ, flavour="openmpi", uid=1000)
    assert result == kept | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "SLURM_OVERLAP": "1"}
    assert environ == before


def test_settings_that_mpirun_also_writes_are_the_users_outside_of_a_job() -> None:
    assert job_environment({"OMPI_MCA_pmix": "^s1"}, flavour="openmpi", uid=1)["OMPI_MCA_pmix"] == "^s1"
    assert "OMPI_MCA_pmix" not in job_environment(MPIRUN | {"OMPI_MCA_pmix": "^s1"}, flavour="openmpi", uid=1)


def test_steps_overlap_in_a_job_of_slurm_unless_the_user_says_otherwise() -> None:
    assert "SLURM_OVERLAP" not in job_environment({}, flavour="openmpi", uid=1)
    said = job_environment({"SLURM_JOB_ID": "7", "SLURM_OVERLAP": "0"}, flavour="openmpi", uid=1)
    assert said["SLURM_OVERLAP"] == "0"


@pytest.mark.parametrize(("flavour", "uid", "allowed"), [("openmpi", 0, 2), ("openmpi", 1, 0), ("mpich", 0, 0)])
def test_root_is_allowed_only_for_root(flavour: str, uid: int, allowed: int) -> None:
    job = job_environment({}, flavour=flavour, uid=uid)
    assert sum(name.startswith("OMPI_ALLOW_RUN_AS_ROOT") for name in job) == allowed


@pytest.mark.mpi
def test_nothing_of_a_real_job_is_passed_on(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("job")
    program = "import json, os; json.dump(dict(os.environ), open(os.environ['HERE'], 'w'))"
    outside = job_environment(os.environ, flavour=mpi.flavour, uid=os.getuid()) | {"HERE": str(folder / "seen")}
    result = run_job([mpi.mpirun, "-n", "1", mpi.python, "-c", program], env=outside, time_limit_s=60)
    assert result.returncode == 0
    seen = json.loads((folder / "seen").read_text())
    assert declared_size(seen) == 1
    assert inside_mpi_job(seen)
    inside = job_environment(seen, flavour=mpi.flavour, uid=os.getuid())
    # The search path of its libraries and a switch of a Fortran compiler: neither tells of the job.
    harmless = {"LD_LIBRARY_PATH", "OPAL_PREFIX", "GFORTRAN_UNBUFFERED_PRECONNECTED", "RINGBENCH_JOB", "_", "PWD"}
    assert set(inside) - set(outside) <= harmless | {"OLDPWD", "SHLVL"}
    assert set(outside) <= set(inside)


@pytest.mark.mpi
def test_library_version_is_told_before_init(mpi: Mpi) -> None:
    program = (
        "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
        "print(MPI.Is_initialized(), MPI.Get_library_version())"
    )
    answer = subprocess.run([mpi.python, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    initialized, library = answer.split(maxsplit=1)
    assert initialized == "False"
    own, other = (MPIRUN, MPIEXEC) if mpi.flavour == "openmpi" else (MPIEXEC, MPIRUN)
    assert check_library(own, library) is None
    assert check_library(other, library) is not None


@pytest.mark.parametrize(
    ("environ", "nodes"),
    [
        ({}, 1),
        ({"SLURM_JOB_NUM_NODES": "3"}, 3),
        ({"SLURM_NNODES": "2"}, 2),
        ({"SLURM_JOB_NUM_NODES": "0"}, 1),
        ({"SLURM_JOB_NUM_NODES": "", "SLURM_NNODES": "x"}, 1),
    ],
)
def test_nodes_of_an_allocation(environ: dict[str, str], nodes: int) -> None:
    assert environment.node_count(environ) == nodes

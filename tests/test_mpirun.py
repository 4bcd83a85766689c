"""Tests of finding mpirun and of its command line."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import Mpi

from ringbench.launch.environment import job_environment
from ringbench.launch.mpirun import Mpirun, command, find_mpirun, identify, mpi_type, read_version, usable_cpus
from ringbench.launch.process import LaunchError, run_job

OPEN_MPI = Mpirun(path="mpirun", flavour="openmpi", version=(5, 0, 11))
MPICH = Mpirun(path="mpirun", flavour="mpich", version=(5, 0, 2))
INTEL = Mpirun(path="mpirun", flavour="mpich", version=(2021, 9))

HYDRA_SAYS = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: once"


def program(path: Path, says: str, status: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "flavour", "version"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to …", "openmpi", (5, 0, 11)),
        ("orterun (OpenRTE) 4.1.4\n", "openmpi", (4, 1, 4)),
        ("mpirun (Open MPI) 5.1.0rc2\n", "openmpi", (5, 1, 0)),
        (HYDRA_SAYS, "mpich", (4, 0, 2)),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", "mpich", (2021, 9)),
        ("HYDRA", "mpich", ()),
        ("slurm 23.11.4\n", "slurm", (23, 11, 4)),
        ("slurm-wlm 22.05.8\n", "slurm", (22, 5, 8)),
        ("prterun (PRRTE) 3.0.8", None, ()),
        ("", None, ()),
    ],
)
def test_read_version(text: str, flavour: str | None, version: tuple[int, ...]) -> None:
    assert read_version(text) == (flavour, version)


def test_beside_the_python_comes_first(tmp_path: Path) -> None:
    beside = program(tmp_path / "env/bin/mpiexec", HYDRA_SAYS)
    program(tmp_path / "path/mpirun", "mpirun (Open MPI) 4.1.4")
    environ = {"PATH": str(tmp_path / "path")}
    found = find_mpirun(environ, executable=str(tmp_path / "env/bin/python"))
    assert found == Mpirun(path=beside, flavour="mpich", version=(4, 0, 2))
    found = find_mpirun(environ, executable=str(tmp_path / "elsewhere/python"))
    assert found == Mpirun(path=str(tmp_path / "path/mpirun"), flavour="openmpi", version=(4, 1, 4))
    found = find_mpirun(environ, executable=str(tmp_path / "env/bin/python"), override="mpirun")
    assert found.flavour == "openmpi"
    assert find_mpirun({}, override=beside).flavour == "mpich"


def test_none_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"no mpirun or mpiexec beside .*/python or on the PATH"):
        find_mpirun({"PATH": str(tmp_path)}, executable=str(tmp_path / "python"))
    with pytest.raises(LaunchError, match="no program 'mpirun_rsh'"):
        find_mpirun({"PATH": str(tmp_path)}, override="mpirun_rsh")


def test_unknown_launcher_is_named_with_its_answer(tmp_path: Path) -> None:
    path = program(tmp_path / "mpirun", "\nlauncher of nobody 1.0\nmore", status=3)
    with pytest.raises(LaunchError, match=rf"^{path} .*: launcher of nobody 1\.0$"):
        identify(path, {"PATH": os.defpath})


def test_program_that_cannot_run(tmp_path: Path) -> None:
    path = program(tmp_path / "mpirun", "")
    Path(path).write_text("#!/no/such/shell\n")
    with pytest.raises(LaunchError, match=f"cannot start {path}"):
        identify(path, {})


BOUND = ["--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"]
LOOSE = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
YIELD = ["--mca", "mpi_yield_when_idle", "1"]


@pytest.mark.parametrize(
    ("mpirun", "nranks", "bind", "options"),
    [
        (OPEN_MPI, 1, True, BOUND),
        (OPEN_MPI, 2, True, BOUND),
        (OPEN_MPI, 2, False, LOOSE),
        (OPEN_MPI, 3, True, [*LOOSE, *YIELD]),
        (MPICH, 2, True, ["-bind-to", "core"]),
        (MPICH, 2, False, []),
        (MPICH, 3, True, []),
        (INTEL, 2, True, []),
    ],
)
def test_command(mpirun: Mpirun, nranks: int, bind: bool, options: list[str]) -> None:
    line = command(mpirun, nranks, ["prog", "--x"], cpus=2, bind=bind)
    assert line == ["mpirun", "-n", str(nranks), *options, "prog", "--x"]


@pytest.mark.parametrize("in_allocation", [False, True])
def test_srun_does_the_mapping(in_allocation: bool) -> None:
    srun = Mpirun(path="srun", flavour="slurm", version=(22, 5, 8))
    line = command(srun, 4, ["prog"], cpus=2, extra=["--mpi=pmix"], in_allocation=in_allocation)
    assert line == ["srun", "-n", "4", "--mpi=pmix", "prog"]


LISTING = "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions: pmix_v4\n"


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("Open MPI v5.0.11, package: x", "pmix"),
        ("IBM Spectrum MPI v10.4", "pmix"),
        ("MPICH Version:      5.0.2\nMPICH Release date: some day", "pmi2"),
    ],
)
def test_the_mpi_type_goes_with_the_library(library: str, name: str) -> None:
    assert mpi_type(LISTING, library) == name
    assert mpi_type("srun: MPI types are...\nsrun: pmi2\nsrun: pmix\n", library) == name
    with pytest.raises(ValueError, match=rf"srun cannot start {library[:5]}.* no {name}"):
        mpi_type(LISTING.replace(f"\t{name}\n", "").replace("cray_shasta", ""), library)


@pytest.mark.parametrize("mpirun", [OPEN_MPI, MPICH])
def test_an_allocation_does_the_mapping(mpirun: Mpirun) -> None:
    line = command(mpirun, 64, ["prog"], cpus=2, extra=["--tag-output"], in_allocation=True)
    assert line == ["mpirun", "-n", "64", "--tag-output", "prog"]


def test_extra_replaces_what_it_says_itself() -> None:
    extra = ["--bind-to", "numa", "--mca", "mpi_yield_when_idle", "0"]
    line = command(OPEN_MPI, 3, ["prog"], cpus=2, extra=extra)
    assert line == ["mpirun", "-n", "3", "--map-by", ":OVERSUBSCRIBE", *extra, "prog"]
    assert command(OPEN_MPI, 3, ["prog"], cpus=2, extra=["--mca", "pml", "ob1"])[7:10] == YIELD
    assert command(MPICH, 2, ["prog"], cpus=2, extra=["--bind-to", "none"])[3:] == ["--bind-to", "none", "prog"]


def test_no_ranks() -> None:
    with pytest.raises(ValueError, match=r"^0 ranks"):
        command(MPICH, 0, ["prog"], cpus=2)


def test_usable_cpus_follow_the_mask() -> None:
    mask = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mask)})
        assert usable_cpus() == (1, os.cpu_count() == 1)
    finally:
        os.sched_setaffinity(0, mask)
    assert usable_cpus()[0] == len(mask)


@pytest.mark.mpi
def test_a_real_mpirun_is_found_beside_its_python(mpi: Mpi) -> None:
    found = find_mpirun(os.environ, executable=mpi.python)
    assert (found.path, found.flavour) == (mpi.mpirun, mpi.flavour)
    assert len(found.version) >= 2


PRINTED = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
masks = world.gather(sorted(os.sched_getaffinity(0)))
if world.rank == 0:
    open(sys.argv[1], "w").write(repr((world.size, masks)))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("nranks", [1, 2, 3, 4, 8])
def test_real_jobs_start_with_the_world_and_masks_asked_for(mpi: Mpi, nranks: int, tmp_path: Path) -> None:
    cpus, whole = usable_cpus()
    mpirun = find_mpirun(os.environ, executable=mpi.python)
    out = tmp_path / "out"
    line = command(mpirun, nranks, [mpi.python, "-c", PRINTED, str(out)], cpus=cpus, bind=whole)
    result = run_job(line, env=job_environment(os.environ, flavour=mpi.flavour, uid=os.getuid()), time_limit_s=120)
    assert result.returncode == 0
    size, masks = eval(out.read_text())
    assert size == nranks == len(masks)
    if nranks > cpus:
        assert all(mask == sorted(os.sched_getaffinity(0)) for mask in masks)
    elif whole:
        assert len({cpu for mask in masks for cpu in mask}) >= nranks
        # A core may have several hardware threads, but none of these ranks has the machine.
        assert nranks == 1 or all(len(mask) < cpus for mask in masks) or cpus <= 2 * nranks


def test_default_python_is_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    beside = program(tmp_path / "bin/mpirun", HYDRA_SAYS)
    other = shutil.which("mpirun", path=os.path.dirname(sys.executable))
    assert find_mpirun(os.environ).path == (other or beside)

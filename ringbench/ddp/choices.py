"""What can be chosen for gradient synchronisation, by name; needs no MPI."""

from __future__ import annotations

#: Engines and what they do, in the order in which tables show them.
ENGINES = {
    "blocking": "every reduction after backward",
    "thread": "a thread runs the reductions and alone calls MPI",
    "poll": "reductions are advanced between layers",
    "iallreduce": "MPI_Iallreduce without progress calls",
    "iallreduce_progress": "MPI_Iallreduce with progress calls between layers",
    "none": "no reduction",
}

#: Those that run the library's own collectives and no other algorithm.
LIBRARYS_OWN = ("iallreduce", "iallreduce_progress")

#: What becomes of a gradient that was not ready when the step is finished.
UNUSED = ("zero", "error")


def algorithm_for(engine: str, algorithm: str | None) -> str:
    """Return the algorithm of an engine's plans, ``auto`` unless one is given.

    Raises ValueError for an unknown engine, naming the known ones, and for an algorithm that it cannot run.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if engine not in LIBRARYS_OWN:
        return "auto" if algorithm is None else algorithm
    if algorithm not in (None, "mpi"):
        raise ValueError(f"engine {engine!r} runs MPI's own collectives, not algorithm {algorithm!r}")
    return "mpi"

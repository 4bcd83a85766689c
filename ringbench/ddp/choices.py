"""What can be chosen for gradient synchronisation, by name; needs no MPI."""

from __future__ import annotations

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.schedule.registry import algorithms

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

#: Those that call plans and do not start them, so that ranks may wait for each other in shared memory.
CALLING = ("blocking", "thread")

#: What becomes of a gradient that was not ready when the step is finished.
UNUSED = ("zero", "error")


def algorithm_for(engine: str, algorithm: str | None) -> str:
    """Return the algorithm of an engine's plans, ``auto`` unless one is given.

    Raises ValueError for an unknown engine, naming the known ones, and for an algorithm that it cannot run.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if not can_run(engine, algorithm):
        if engine in LIBRARYS_OWN:
            raise ValueError(f"engine {engine!r} runs MPI's own collectives, not algorithm {algorithm!r}")
        raise ValueError(f"engine {engine!r} cannot wait, as algorithm {algorithm!r} must: its ranks share memory")
    return "mpi" if engine in LIBRARYS_OWN else "auto" if algorithm is None else algorithm


def can_run(engine: str, algorithm: str | None) -> bool:
    """Say whether an engine can run an algorithm, whatever its collective."""
    if engine in LIBRARYS_OWN:
        return algorithm in (None, "mpi")
    named = [one for one in algorithms() if one.name == algorithm]
    return engine != "poll" or all(one.shared is None for one in named)


def takes_private(algorithm: str) -> bool:
    """Say whether an algorithm runs on vectors that only their rank can reach, as compressed gradients are."""
    return all(one.shared != "work" for one in algorithms() if one.name == algorithm)


def reaches_into_buckets(engine: str, algorithm: str) -> bool:
    """Say whether reductions read and write the buckets of other ranks of a node, where those lie in shared memory."""
    named = [one for one in algorithms("allreduce") if one.name == algorithm and engine in CALLING]
    return any(one.given(inner="shared_memory").shared == "work" for one in named)

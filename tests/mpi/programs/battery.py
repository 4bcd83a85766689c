"""What every program here needs: checks that are counted per rank, and an end that never hangs."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mpi4py import MPI

SHOWN = 12


class Battery:
    """Collect what is wrong on this rank; nothing stops at the first failure."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()
        self.checks = 0
        self.failures: list[str] = []

    def check(self, right: object, what: str | Callable[[], str]) -> bool:
        """Count a check; note what was wrong, which may be a function where the words cost time."""
        self.checks += 1
        if not right:
            self.failures.append(what if isinstance(what, str) else what())
        return bool(right)

    def refused(self, what: str, *words: str, call: Callable[[], object], limit_s: float = 10.0) -> str:
        """Expect the same ValueError on all ranks, in time, with all the words in it; return its text."""
        start, text = time.monotonic(), ""
        try:
            call()
        except ValueError as error:
            text = str(error)
        except Exception as error:
            text = f"{type(error).__name__}, not ValueError: {error}"
            self.failures.append(f"{what}: {text}")
        seconds = time.monotonic() - start
        texts = self.comm.allgather(text)
        self.check(all(texts), f"{what}: not refused on ranks {[at for at, said in enumerate(texts) if not said]}")
        self.check(len(set(texts)) == 1, f"{what}: the ranks say different things: {sorted(set(texts))}")
        for word in words:
            self.check(word in text, f"{what}: {word!r} is not in {text!r}")
        self.check("\n" not in text, f"{what}: more than one line: {text!r}")
        self.check(seconds < limit_s, f"{what}: refused after {seconds:.1f} s")
        return text

    def usable(self, what: str) -> None:
        """Check that the communicator still works."""
        total = self.comm.allreduce(1 << self.rank)
        self.check(total == (1 << self.nranks) - 1, f"{what}: the communicator gives {total} afterwards")


@contextmanager
def battery(comm: Any = MPI.COMM_WORLD, least: int = 1) -> Iterator[Battery]:
    """Run checks; then print the failures of every rank and exit with 1 where there are any, or too few checks.

    A rank on which something else is raised ends the whole job.
    """
    found = Battery(comm)
    try:
        yield found
    except BaseException:
        print(f"rank {found.rank} of {found.nranks}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        for failure in found.failures[:SHOWN]:
            print(f"rank {found.rank}: {failure}", file=sys.stderr, flush=True)
        comm.Abort(3)
        raise
    everyone = comm.gather((found.checks, found.failures), root=0)
    status = 0
    if found.rank == 0:
        for rank, (_, failures) in enumerate(everyone):
            for failure in failures[:SHOWN]:
                print(f"rank {rank}: {failure}")
            if len(failures) > SHOWN:
                print(f"rank {rank}: {len(failures) - SHOWN} more failures")
        checks = sum(number for number, _ in everyone)
        print(f"{checks} checks on {found.nranks} ranks, {sum(len(failures) for _, failures in everyone)} failed")
        status = 1 if any(failures for _, failures in everyone) or checks < least else 0
        sys.stdout.flush()
    sys.exit(comm.bcast(status, root=0))

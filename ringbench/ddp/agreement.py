"""A small message in which ranks compare a number, run by an engine in line with the buckets."""

from __future__ import annotations

import numpy as np

from ringbench.ddp.engines import Job
from ringbench.ddp.hooks import MakePlan


class Agreement:
    """Find the least and the greatest of the ranks' numbers, each with a rank that brought it."""

    def __init__(self, name: str, rank: int, nranks: int, make_plan: MakePlan) -> None:
        self._rank, self._nranks = rank, nranks
        self._vector = np.zeros(2, dtype=np.int64)
        self.job = Job(name, (make_plan("allreduce", self._vector, self._vector, "max"),))

    def bring(self, number: int) -> None:
        """Set this rank's number before the job is launched."""
        own = number * self._nranks + self._rank
        self._vector[:] = own, -own

    @property
    def least(self) -> tuple[int, int]:
        """Return the least number and the lowest rank that brought it, when the job is done."""
        return divmod(-int(self._vector[1]), self._nranks)

    @property
    def greatest(self) -> tuple[int, int]:
        """Return the greatest number and the highest rank that brought it, when the job is done."""
        return divmod(int(self._vector[0]), self._nranks)

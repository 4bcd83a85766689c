"""What the steps of a schedule would take if nothing but their messages and their additions took time."""

from __future__ import annotations

from statistics import median
from typing import Any

from mpi4py import MPI

from ringbench.runtime.arrays import Array, Backend
from ringbench.runtime.execute import MPI_TYPES, TAG, Call, buffer_spec, unrolled
from ringbench.runtime.timing import Contestant, nothing


class Limits:
    """Measure a bare Sendrecv and a bare reduction in place for every length that the steps of some plans have.

    The Sendrecv goes round the ring of all ranks, uncut, between buffers of its own; the reduction is that of the
    device, of one buffer into the other. Both are contestants like the plans themselves, in the same rounds.
    """

    def __init__(
        self,
        comm: Any,
        steps: list[tuple[tuple[int, int], ...]],
        dtype: str,
        op: str,
        backend: Backend,
        staged: bool = False,
    ):
        self.comm, self.backend = comm, backend
        own = {(kind, step[kind]) for plan in steps for step in plan for kind in (0, 1) if step[kind]}
        needed = sorted(set().union(*comm.allgather(own)))
        longest = max((length for _, length in needed), default=0)
        self.one, self.other = backend.empty(longest, dtype), backend.empty(longest, dtype)
        for buffer in (self.one, self.other):
            buffer[...] = 0
        backend.synchronize()
        rank, nranks = comm.Get_rank(), comm.Get_size()
        dest, source = (rank + 1) % nranks, (rank - 1) % nranks
        datatype, kernel = MPI_TYPES[dtype], backend.kernel(op)
        self.bare: dict[tuple[int, int], Contestant] = {}
        for kind, length in needed:
            one, other = self.one[:length], self.other[:length]
            if kind == 0:
                calls = self._message(one, other, staged, datatype, dest, source)
            else:
                calls = [(kernel, (one, other, one))]
                if backend.asynchronous:
                    calls.append((backend.synchronize, ()))
            self.bare[kind, length] = Contestant(prepare=nothing, run=unrolled(tuple(calls)))

    def _message(
        self, one: Array, other: Array, staged: bool, datatype: MPI.Datatype, dest: int, source: int
    ) -> list[Call]:
        """Return a bare Sendrecv, with the copies that staging needs."""
        there: tuple[Array, Array] = (one, other)
        before, after = list[Call](), list[Call]()
        if staged:
            there = self.backend.pinned(one.size, one.dtype.name), self.backend.pinned(one.size, one.dtype.name)
            before, after = [(self.backend.copy_out, (there[0], one))], [(self.backend.copy_in, (other, there[1]))]
            if self.backend.asynchronous:
                before.append((self.backend.synchronize, ()))
                after.append((self.backend.synchronize, ()))
        send, recv = (buffer_spec(array, datatype) for array in there)
        return [*before, (self.comm.Sendrecv, (send, dest, TAG, recv, source, TAG)), *after]

    @property
    def contestants(self) -> list[Contestant]:
        """Return what has to be sampled, in the same order on all ranks."""
        return list(self.bare.values())

    def of(self, steps: tuple[tuple[int, int], ...]) -> float | None:
        """Return the seconds that the steps add up to on the rank where they take longest. Collective.

        None where some have no samples: no round in which every rank was on time.
        """
        if not all(contestant.samples_s for contestant in self.bare.values()):
            return None
        total = 0.0
        for step in steps:
            total += sum(median(self.bare[kind, length].samples_s) for kind, length in enumerate(step) if length)
        return float(self.comm.allreduce(total, MPI.MAX))

    def addition(self, steps: tuple[tuple[int, int], ...]) -> tuple[int, float] | tuple[None, None]:
        """Return the elements of the longest reduction of the steps of any rank, and its seconds. Collective.

        None and None where there is none, or it has no samples.
        """
        longest = self.comm.allreduce(max((step[1] for step in steps), default=0), MPI.MAX)
        bare = self.bare.get((1, longest))
        return (longest, median(bare.samples_s)) if bare is not None and bare.samples_s else (None, None)

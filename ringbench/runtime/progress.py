"""Advance the calls of a plan without waiting: each call to MPI is begun and tested, and the next made when it is over.

The calls stay those of the blocking plan, so that both do the same additions in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mpi4py import MPI

Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]

#: The library's collectives and what begins them.
BEGINS = {
    "Allreduce": "Iallreduce",
    "Reduce_scatter": "Ireduce_scatter",
    "Allgather": "Iallgather",
    "Allgatherv": "Iallgatherv",
    "Bcast": "Ibcast",
    "Reduce": "Ireduce",
    "Alltoall": "Ialltoall",
}


def beginning(call: Callable[..., object], arguments: tuple[Any, ...]) -> list[Call]:
    """Return what begins a call to MPI, each giving a request; nothing for work without messages."""
    name, comm = getattr(call, "__name__", ""), getattr(call, "__self__", None)
    if name in BEGINS:
        return [(getattr(comm, BEGINS[name]), arguments)]
    if name != "Sendrecv" or comm is None:
        return []
    send, dest, sendtag, recv, source, recvtag = arguments
    begun: list[Call] = []
    if source != MPI.PROC_NULL:  # first, so that what arrives finds its place
        begun.append((comm.Irecv, (recv, source, recvtag)))
    if dest != MPI.PROC_NULL:
        begun.append((comm.Isend, (send, dest, sendtag)))
    return begun


class Progress:
    """Hold how far a plan has come; a call is begun when the one before is over, as in the blocking plan."""

    __slots__ = ("_at", "_requests", "_steps")

    def __init__(self, calls: Sequence[Call]) -> None:
        self._steps = [(beginning(call, arguments), call, arguments) for call, arguments in calls]
        self._requests: list[MPI.Request] = []
        self._at = 0

    def advance(self, *, wait: bool) -> bool:
        """Do what can be done now, or everything where ``wait``; return whether all is done, ready to begin anew."""
        while True:
            if self._requests:
                if wait:
                    MPI.Request.Waitall(self._requests)
                elif not MPI.Request.Testall(self._requests):
                    return False
                self._requests = []
            if self._at == len(self._steps):
                self._at = 0
                return True
            begun, call, arguments = self._steps[self._at]
            self._at += 1
            if begun:
                self._requests = [begin(*given) for begin, given in begun]
            else:
                call(*arguments)

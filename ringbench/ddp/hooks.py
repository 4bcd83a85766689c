"""What the reduction of a bucket is made of, and what may replace it: hooks, such as compression.

The reduction of a bucket is data: a tuple of stages, run in order, each a plan (a collective, which an engine may call,
or start and test) or a plain function (work without messages). Without a hook it is one plan: an allreduce in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from ringbench.runtime.arrays import Array
from ringbench.runtime.execute import Plan

#: A collective, or work without messages; a plan is callable too, so that ``stage()`` runs either.
Stage: TypeAlias = "Plan | Callable[[], object]"


class Piece(NamedTuple):
    """Say where a parameter's gradient lies in its bucket: ``vector[offset : offset + size].reshape(shape)``."""

    offset: int
    shape: tuple[int, ...]


class MakePlan(Protocol):
    """Plan a collective on the ranks, and with the algorithm, of the run.

    Buffers are those of ``ringbench.plan``; the same array twice means in place. Where the run's algorithm knows no
    such collective ``auto`` is taken. Planning is collective: every rank must plan the same things in the same order.
    """

    def __call__(self, collective: str, sendbuf: Array, recvbuf: Array, op: str = "sum") -> Plan:
        """Return the plan; raise ValueError on all ranks where one of them cannot plan it."""


class Hook(Protocol):
    """Replace the reduction of every bucket.

    ``stages`` is called once per bucket, in the same order on all ranks; what a bucket keeps from step to step
    (residuals, warm starts, buffers) lives in the stages that it returns. When all stages have run, ``vector`` holds
    the average over the ranks, or what stands for it, with the same bits on all of them. Plans of several buckets may
    be in flight at once, so buffers must not be shared between buckets; stages that are functions run one at a time.
    """

    name: str

    def stages(self, comm: object, vector: Array, pieces: tuple[Piece, ...], make_plan: MakePlan) -> tuple[Stage, ...]:
        """Return what reduces the flat ``vector``, in which the gradients are ``pieces``, in place.

        Raises ValueError for what the hook cannot reduce, such as a dtype.
        """

    def wire_bytes(self, pieces: tuple[Piece, ...], itemsize: int, nranks: int) -> int:
        """Return the bytes that one rank sends per step for a bucket, with collectives that send the least.

        That is 2(N-1)/N times its bytes for an allreduce and N-1 times the rank's part for an allgather. Without MPI.
        """

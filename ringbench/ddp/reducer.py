"""Gradients of data-parallel training: kept in buckets, averaged over the ranks while backward still runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

from ringbench.ddp.agreement import Agreement
from ringbench.ddp.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, Bucket
from ringbench.ddp.choices import CALLING, algorithm_for
from ringbench.ddp.clip import clip, sum_of_squares
from ringbench.ddp.engines import Job, engine_on
from ringbench.ddp.hooks import Hook, Stage
from ringbench.ddp.layout import Allocate, Filled, agreed_layout, bucket_memory, by_name, filled
from ringbench.runtime.arrays import Array, backend_of
from ringbench.runtime.execute import Plan
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import RESERVED, algorithms

Self = TypeVar("Self", bound="DataParallel")


class DataParallel:
    """Average gradients over the ranks of ``comm``: one object for a training, made by all ranks together.

    ``parameters`` are arrays in forward order, by name or in a sequence (named 0, 1, ...); only their shapes, dtypes
    and devices matter. Their gradients are ``gradients[name]``: views of the memory of buckets, which backward writes,
    or adds to, in place. A step is::

        for name in reversed(names):  # backward
            np.matmul(..., out=averaged.gradients[name])
            averaged.ready(name)
        averaged.finish()  # now all gradients are averages
        averaged.clip_global_norm(1.0)

    ``engine`` is one of ``choices.ENGINES`` and ``algorithm`` a name for ``ringbench.plan`` (None: ``auto``, MPI's own
    for the engines of MPI_Iallreduce). Buckets are those of ``buckets.assign_buckets``; each is launched when its last
    gradient is ready, one after the other in the same order on all ranks, whatever the order of the gradients. ``op``
    is ``average`` or ``sum``. ``hook`` replaces the reduction, see ``hooks.Hook``. ``allocate(count, dtype)`` gives the
    memory of buckets (None: memory that the ranks of a node share, for ``shared_memory`` and, where there is such
    memory and room in it, ``hierarchical`` and ``hierarchical_leaders``, if the engine calls plans and does not start
    them; else private memory that starts on a page), ``staged`` has messages of a device's arrays go through the host,
    as for ``ringbench.plan``.

    ``unused`` says what becomes of a parameter whose gradient was not ready at ``finish``: it counts as ``zero`` (or as
    what was accumulated under ``no_sync``), or is an ``error`` on all ranks, which costs a small message per step.
    With ``check_steps`` ranks that make unlike numbers of steps find that out, by a message of 16 bytes before the
    first bucket and by ``close`` (or leaving a ``with``) after the last step: where others go on, all ranks raise the
    same ValueError. An exception that leaves the ``with`` closes nothing: the other ranks cannot hear of it, and the
    job has to be ended (``python -m mpi4py`` does that).

    Messages travel on a communicator of its own, where they cannot meet the caller's. Raises the same ValueError on all
    ranks where one of them has other parameters or settings than rank 0, or none that make sense.
    """

    def __init__(
        self,
        comm: Any,
        parameters: Mapping[str, Array] | Sequence[Array],
        *,
        engine: str = "blocking",
        algorithm: str | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        first_bucket_bytes: int = FIRST_BUCKET_BYTES,
        op: str = "average",
        hook: Hook | None = None,
        unused: str = "zero",
        check_steps: bool = True,
        allocate: Allocate | None = None,
        segment: int | None = None,
        staged: bool = False,
    ) -> None:
        named = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters)
        arrays = {str(name): array for name, array in named}
        settings = {
            "kind": type(self).__name__,
            "engine": engine,
            "algorithm": algorithm,
            "bucket_bytes": bucket_bytes,
            "first_bucket_bytes": first_bucket_bytes,
            "op": op,
            "hook": hook.name if hook else None,
            "unused": unused,
            "check_steps": check_steps,
            "segment": segment,
            "staged": staged,
        }
        self.layout, buckets = agreed_layout(comm, arrays, settings)
        self.engine, self.op, self.hook, self.segment, self.staged = engine, op, hook, segment, staged
        self.algorithm = algorithm_for(engine, algorithm)
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()
        self._engine = engine_on(comm, engine)
        self.comm, self._callers = comm.Dup(), comm
        self._allocate, self._arrays = allocate, tuple(arrays.values())
        self.buckets = tuple(filled(bucket, self.layout, self._memory(bucket)) for bucket in buckets)
        self.gradients = by_name(self.layout, (one.views(one.vector) for one in self.buckets))
        self.jobs = tuple(Job(f"bucket {at}", self._stages(one)) for at, one in enumerate(self.buckets))
        self._steps_alike = self._agreement("steps") if check_steps else None
        self._all_used = self._agreement("unused") if unused == "error" else None

        self._places: dict[str | int, int] = {index: index for index in range(len(arrays))}
        self._places |= {name: index for index, name in enumerate(arrays)}
        self._bucket_of = {index: at for at, bucket in enumerate(buckets) for index in bucket.indices}
        self._views = tuple(self.gradients.values())
        self.steps = 0
        self._accumulating = self._closed = False
        self._restart()

    @property
    def wire_bytes(self) -> int:
        """Return the bytes that a rank sends in a step at least: of a compression, or of the best all-reduce."""
        return sum(
            self.hook.wire_bytes(one.pieces, one.vector.dtype.itemsize, self.nranks)
            if self.hook
            else 2 * (self.nranks - 1) * one.bucket.nbytes // self.nranks
            for one in self.buckets
        )

    # A step.

    def ready(self, parameter: str | int) -> None:
        """Say that the gradient of a parameter, by name or by index, is complete; launch the buckets that now are.

        Raises ValueError for an unknown parameter, and for one that is ready twice in one step.
        """
        try:
            index = self._places[parameter]
        except KeyError:
            raise ValueError(f"parameter {parameter!r}: unknown; there are {', '.join(self.gradients)}") from None
        self._written[index] = 1
        if self._accumulating:
            return
        if self._ready[index]:
            raise ValueError(f"parameter {parameter!r} is ready twice in one step; accumulate under no_sync()")
        self._ready[index] = 1
        at = self._bucket_of[index]
        self._missing[at] -= 1
        if not self._missing[at]:
            self._launch()

    def poll(self) -> None:
        """Let reductions go on, where the engine needs that; to be called between layers."""
        self._engine.poll()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate: what is ready inside stays on this rank, and is reduced by the next step outside.

        Backward must add to the gradients, of which ``zero`` makes a start.
        """
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False

    def zero(self) -> None:
        """Set all gradients to zero."""
        for one in self.buckets:
            one.vector[...] = 0

    def finish(self) -> None:
        """Wait until all gradients are reduced; the step is over then.

        Raises ValueError on all ranks for a gradient that was not ready, where that is an error, and where ranks make
        unlike numbers of steps; on this rank alone what its own part of a reduction raised, and then the job has to be
        ended.
        """
        if self._closed or self._accumulating:
            raise ValueError(f"finish() {'after close()' if self._closed else 'inside no_sync()'}")
        unready = [index for index, ready in enumerate(self._ready) if not ready]
        for index in unready:
            if not self._written[index]:
                self._views[index][...] = 0
        self._finish(unready[0] if unready else None)
        self.steps += 1
        self._restart()
        self._judge()

    def clip_global_norm(self, max_norm: float) -> float:
        """Scale the reduced gradients so that their norm over all parameters is at most ``max_norm``; return the norm.

        The norm is taken in float64, parameter by parameter, so that it does not depend on the buckets; all ranks find
        the same. Gradients whose norm is not finite are left as they are. Raises ValueError in the middle of a step:
        gradients are clipped after they are averaged, or each rank would clip by a norm of its own.
        """
        self._refuse_within_a_step("clip_global_norm()")
        norm = math.sqrt(sum_of_squares(self._views))
        clip((one.vector for one in self.buckets), norm, max_norm)
        return norm

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Return the names of what runs, in the order of its use: what ``auto`` stands for, and what hooks plan."""
        plans = [stage for job in self.jobs for stage in job.stages if isinstance(stage, Plan)]
        return tuple(dict.fromkeys(plan.algorithm for plan in plans))

    # The end.

    def close(self) -> None:
        """End the training on this rank; all ranks must. Raises ValueError on all of them where one goes on."""
        if self._closed:
            return
        self._refuse_within_a_step("close()")
        if self._steps_alike is not None:
            self._steps_alike.bring(2 * self.steps + 1)
            self._engine.launch(self._steps_alike.job)
            self._engine.finish()
            if self._uneven():  # the others are in a step: take part in it, or they wait forever
                self._begun = True
                self.zero()
                self._finish(None)
                self._judge()
        self._release()

    def __enter__(self: Self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close, unless an exception is on its way."""
        if kind is None:
            self.close()

    # How it is made.

    def _memory(self, bucket: Bucket) -> Array:
        vector = self._empty(sum(self.layout[each].size for each in bucket.indices), bucket.indices[0])
        vector[...] = 0
        return vector

    def _empty(self, count: int, index: int) -> Array:
        """Return memory of the dtype and on the device of a parameter.

        Shared memory is that of the caller's communicator: it outlives this object's, and is freed in its next use.
        """
        backend = backend_of(self._arrays[index])
        allocate = self._allocate or bucket_memory(self._callers, self.engine, self.algorithm, backend)
        return allocate(count, self.layout[index].dtype)

    def _stages(self, one: Filled) -> tuple[Stage, ...]:
        if self.hook is not None:
            return self.hook.stages(self.comm, one.vector, one.pieces, self._plan)
        return (self._planned("allreduce", self.algorithm, one.vector, one.vector, self.op),)

    def _plan(self, collective: str, sendbuf: Array, recvbuf: Array, op: str = "sum") -> Plan:
        known = (*RESERVED, *(one.name for one in algorithms(collective)))
        algorithm = self.algorithm if self.algorithm in known else "auto"
        return self._planned(collective, algorithm, sendbuf, recvbuf, op)

    def _planned(self, collective: str, algorithm: str, sendbuf: Array, recvbuf: Array, op: str) -> Plan:
        inner = None if self.engine in CALLING else "ring"  # what shares memory cannot be started
        return plan(
            collective, algorithm, self.comm, sendbuf, recvbuf, op, self.segment, inner=inner, staged=self.staged
        )

    def _agreement(self, name: str) -> Agreement:
        def make_plan(collective: str, sendbuf: Array, recvbuf: Array, op: str = "sum") -> Plan:
            return plan(collective, algorithm_for(self.engine, None), self.comm, sendbuf, recvbuf, op)

        return Agreement(name, self.rank, self.nranks, make_plan)

    # How it runs.

    def _restart(self) -> None:
        self._ready = bytearray(len(self._views))
        self._written = bytearray(len(self._views))
        self._missing = [len(one.pieces) for one in self.buckets]
        self._next = 0
        self._begun = False

    def _launch(self) -> None:
        """Launch what is complete, up to the first bucket that is not."""
        now = perf_counter()
        while self._next < len(self.jobs) and not self._missing[self._next]:
            if not self._begun and self._steps_alike is not None:
                self._steps_alike.bring(2 * self.steps)
                self._engine.launch(self._steps_alike.job)
            self._begun = True
            job = self.jobs[self._next]
            job.ready_s = now
            self._next += 1
            self._engine.launch(job)

    def _finish(self, unready: int | None) -> None:
        self._missing = [0] * len(self.buckets)
        self._launch()
        if self._all_used is not None:
            self._all_used.bring(-1 if unready is None else unready)
            self._engine.launch(self._all_used.job)
        self._engine.finish()

    def _judge(self) -> None:
        """Raise what the ranks found out together."""
        if self._uneven():
            assert self._steps_alike is not None
            (twice, going), (_, ended) = self._steps_alike.least, self._steps_alike.greatest
            self._release()
            raise ValueError(f"uneven steps: rank {ended} closed after {twice // 2}, rank {going} began another")
        if self._all_used is not None:
            index, rank = self._all_used.greatest
            if index >= 0:
                name = self.layout[index].name
                raise ValueError(f"step {self.steps}: the gradient of parameter {name!r} was not ready on rank {rank}")

    def _uneven(self) -> bool:
        return self._steps_alike is not None and self._steps_alike.least[0] != self._steps_alike.greatest[0]

    def _refuse_within_a_step(self, what: str) -> None:
        if any(self._ready):
            raise ValueError(f"{what} in the middle of a step: finish() comes first")

    def _release(self) -> None:
        self._closed = True
        self._engine.close()
        self._forget()
        self.comm.Free()

    def _forget(self) -> None:
        """Drop all plans: shared memory that they hold is freed with the communicator, or never."""
        self.jobs = ()
        self._steps_alike = self._all_used = None

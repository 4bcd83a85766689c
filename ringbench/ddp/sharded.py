"""Sharded training (ZeRO stage 2): each rank reduces, keeps and steps its own part of every bucket.

Rajbhandari et al. 2020. Gradients are reduce-scattered instead of all-reduced, the optimiser steps on a rank's shard
alone, with its state, and an allgather gives the new parameters to all. A reduce_scatter adds the same contributions
as an allreduce, but may add them in another order (that of the ring is shifted by one rank, so that block r ends at
rank r): gradients differ from those of ``DataParallel`` in rounding alone, and for N = 2 not at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringbench.ddp.choices import algorithm_for
from ringbench.ddp.clip import clip, sum_of_squares
from ringbench.ddp.engines import Job
from ringbench.ddp.hooks import Stage
from ringbench.ddp.layout import Filled, by_name
from ringbench.ddp.reducer import DataParallel
from ringbench.runtime.arrays import Array
from ringbench.schedule.blocks import block_offset


@dataclass(slots=True, kw_only=True)  # not frozen, or ``shard.parameter -= step`` would be refused
class Shard:
    """Hold this rank's part of a bucket: flat vectors of parameters and of their gradients, across their borders."""

    parameter: Array
    gradient: Array


class ShardedDataParallel(DataParallel):
    """Average gradients over the ranks and give each rank its shard of them; see ``DataParallel`` for the arguments.

    ``parameters`` are copied into flat memory, whose views ``parameters[name]`` are what the model has to compute with.
    A step is that of ``DataParallel`` up to ``finish``, after which only ``shards`` hold averages; then the optimiser
    changes ``shard.parameter`` by ``shard.gradient`` for each of ``shards``, and ``gather`` gives all ranks all
    parameters. Memory of whole buckets stays allocated on every rank: it is the optimiser's work and its state that
    are divided by N here. Where ``algorithm`` knows no reduce_scatter or no allgather, ``auto`` is taken for that.
    Takes no hook: what a hook reduces is the whole bucket.
    """

    def __init__(self, comm: Any, parameters: Mapping[str, Array] | Sequence[Array], **settings: Any) -> None:
        if settings.get("hook") is not None:
            raise ValueError(f"hook {settings['hook'].name}: a sharded reduction has none")
        self.shards: tuple[Shard, ...] = ()
        self._values: list[Array] = []
        super().__init__(comm, parameters, **settings)
        self.parameters = by_name(
            self.layout, (one.views(values) for one, values in zip(self.buckets, self._values, strict=True))
        )
        for values, array in zip(self.parameters.values(), self._arrays, strict=True):
            values[...] = array
        # The first layers, which the next forward pass begins with, are in the last bucket.
        self._gathers = tuple(
            Job(f"parameters {at}", (self._plan("allgather", values, values),))
            for at, values in reversed(list(enumerate(self._values)))
        )
        self._squares = np.zeros(1)
        self._add_squares = self._planned(
            "allreduce", algorithm_for(self.engine, None), self._squares, self._squares, "sum"
        )

    def _forget(self) -> None:
        super()._forget()
        self._gathers = ()
        del self._add_squares

    def gather(self) -> None:
        """Give all ranks the parameters that each has stepped."""
        self._refuse_within_a_step("gather()")
        for job in self._gathers:
            self._engine.launch(job)
        self._engine.finish()

    def clip_global_norm(self, max_norm: float) -> float:
        """Scale the shards' gradients so that the norm over all parameters is at most ``max_norm``; return the norm.

        A rank's shards are summed first, then the ranks, so that the norm may differ in its last bits from that of
        ``DataParallel``; it is the same on all ranks. Otherwise as there.
        """
        self._refuse_within_a_step("clip_global_norm()")
        gradients = [shard.gradient for shard in self.shards]
        self._squares[0] = sum_of_squares(gradients)
        self._add_squares()
        norm = math.sqrt(self._squares[0])
        clip(gradients, norm, max_norm)
        return norm

    def _stages(self, one: Filled) -> tuple[Stage, ...]:
        count = len(one.vector)
        start, stop = (block_offset(count, self.nranks, block) for block in (self.rank, self.rank + 1))
        at = one.bucket.indices[0]
        values = self._empty(count, at)
        self._values.append(values)
        if self.engine == "none":  # a rank's own gradients stand for the averages
            self.shards += (Shard(parameter=values[start:stop], gradient=one.vector[start:stop]),)
            return ()
        gradient = self._empty(stop - start, at)
        self.shards += (Shard(parameter=values[start:stop], gradient=gradient),)
        return (self._plan("reduce_scatter", one.vector, gradient, self.op),)

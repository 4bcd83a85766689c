"""Data-parallel training: gradients in buckets, reduced while the backward pass still runs.

``DataParallel`` keeps the gradients of a model, launches each bucket when its last gradient is ready, and waits for all
in ``finish``; ``ShardedDataParallel`` leaves each rank its shard of them. Importing this loads neither MPI nor NumPy.
``mpirun -n 2 python -m mpi4py example.py`` runs this::

    import numpy as np
    from mpi4py import MPI

    from ringbench.ddp import DataParallel

    comm = MPI.COMM_WORLD
    shapes = {"weight": (8, 3), "bias": (3,)}  # in forward order
    parameters = {name: np.zeros(shape) for name, shape in shapes.items()}
    inputs = np.random.default_rng(comm.rank).standard_normal((100, 8))  # this rank's shard
    wanted = inputs @ np.arange(24.0).reshape(8, 3) + 5

    with DataParallel(comm, parameters, engine="thread", algorithm="ring") as averaged:
        for _ in range(100):
            error = (inputs @ parameters["weight"] + parameters["bias"] - wanted) / len(inputs)
            error.sum(axis=0, out=averaged.gradients["bias"])  # backward writes into the buckets
            averaged.ready("bias")
            np.matmul(inputs.T, error, out=averaged.gradients["weight"])
            averaged.ready("weight")
            averaged.finish()  # the average over the ranks
            averaged.clip_global_norm(100.0)
            for name, value in parameters.items():
                value -= 0.5 * averaged.gradients[name]
    assert abs(parameters["bias"] - 5).max() < 1e-6
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringbench.ddp.reducer import DataParallel
    from ringbench.ddp.sharded import ShardedDataParallel

_HOMES = {"DataParallel": "reducer", "ShardedDataParallel": "sharded"}

__all__ = ["DataParallel", "ShardedDataParallel"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"ringbench.ddp.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ringbench.ddp' has no attribute {name!r}")

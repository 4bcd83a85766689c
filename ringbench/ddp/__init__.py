"""Data-parallel training: gradients in buckets, reduced while the backward pass still runs.

``DataParallel`` keeps the gradients of a model, launches each bucket when its last gradient is ready, and waits for all
in ``finish``. Importing this loads neither MPI nor NumPy.
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

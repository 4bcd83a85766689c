"""MPI collectives by hand beside the library's own: measured, checked, modelled.

``ringbench.plan`` is the programming interface to collectives, ``ringbench.empty_shared`` makes vectors that the ranks
of a node share, and ``ringbench.ddp`` is the interface to gradients of data-parallel training; ``ringbench --help``
shows the commands. Importing the package loads neither MPI nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringbench import ddp
    from ringbench.runtime.plan import Plan, plan
    from ringbench.runtime.windows import empty_shared

__all__ = ["Plan", "ddp", "empty_shared", "plan"]


def __getattr__(name: str) -> Any:
    if name == "ddp":
        return import_module("ringbench.ddp")
    if name == "empty_shared":
        return import_module("ringbench.runtime.windows").empty_shared
    if name in __all__:
        from ringbench.runtime import plan as module

        return getattr(module, name)
    raise AttributeError(f"module 'ringbench' has no attribute {name!r}")

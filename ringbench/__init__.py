"""MPI collectives by hand beside the library's own: measured, checked, modelled.

``ringbench.plan`` is the programming interface; ``ringbench --help`` shows the commands. Importing the package loads
neither MPI nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringbench.runtime.plan import Plan, plan

__all__ = ["Plan", "plan"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ringbench.runtime import plan as module

        return getattr(module, name)
    raise AttributeError(f"module 'ringbench' has no attribute {name!r}")

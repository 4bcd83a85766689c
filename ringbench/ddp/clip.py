"""Clipping by the global norm, of gradients that are already averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ringbench.runtime.arrays import Array


def sum_of_squares(vectors: Iterable[Array]) -> float:
    """Return the sum of the squares of all elements, in float64 whatever the dtype, in the order of the vectors."""
    total = 0.0
    for vector in vectors:
        flat = vector.reshape(-1).astype("float64")
        total += float(flat @ flat)
    return total


def clip(vectors: Iterable[Array], norm: float, max_norm: float) -> None:
    """Scale vectors in place so that their common ``norm`` becomes ``max_norm``, where it is larger and finite.

    Raises ValueError for a limit that is not positive.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm {max_norm!r}: must be positive")
    if norm > max_norm and math.isfinite(norm):
        for vector in vectors:
            vector *= vector.dtype.type(max_norm / norm)

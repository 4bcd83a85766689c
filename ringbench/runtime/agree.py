"""Have all ranks raise what is wrong on one of them: nobody is left waiting, and all say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def agree(comm: Any, error: str | None, terms: Mapping[str, object] | None = None, number: int = 0) -> int:
    """Return the highest ``number`` of the ranks where they ask for the same things and none has an error. Collective.

    Raises the same ValueError on all of them otherwise. ``terms`` are what must be equal on all ranks, by name.
    """
    everyone: list[tuple[str | None, Mapping[str, object], int]] = comm.allgather((error, terms or {}, number))
    failed = {rank: message for rank, (message, _, _) in enumerate(everyone) if message is not None}
    if len(set(failed.values())) == 1 and len(failed) == len(everyone):
        raise ValueError(failed[0])
    disagreeing = []
    for term in terms or ():
        values = {rank: their[term] for rank, (_, their, _) in enumerate(everyone)}
        first = values[0]
        other = next((rank for rank, value in values.items() if value != first), None)
        if other is not None:
            disagreeing.append(f"{term} {first!r} on rank 0, {values[other]!r} on rank {other}")
    if failed:
        shown = "; ".join(f"rank {rank}: {message}" for rank, message in list(failed.items())[:4])
        raise ValueError(shown)
    if disagreeing:
        raise ValueError("the ranks disagree: " + "; ".join(disagreeing))
    return max(offered for _, _, offered in everyone)

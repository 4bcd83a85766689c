"""What the break of a step curve probably is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ringbench.model.curve import Curve
from ringbench.records.units import format_size

#: A known limit explains a break between two measured lengths this far beyond them; headers count in some limits.
NEAR = 1.1

#: Libraries send longer messages than this eagerly on no network.
EAGER = 2**17


#: What the names of limits contain that hold for messages between nodes; the others hold inside one.
BETWEEN_NODES = ("tcp", "uct", "OFI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Hold what a run knows of its machine: limits of the library and sizes of caches in bytes by name, the nodes."""

    eager_nbytes: Mapping[str, int] = field(default_factory=dict)
    cache_nbytes: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 1


def facts_of(jobs: Sequence[Mapping[str, Any]]) -> Facts:
    """Return what the jobs of a run tell; what is missing is unknown."""
    eager: dict[str, int] = {}
    caches: dict[str, int] = {}
    for job in jobs:
        for known, name in ((eager, "eager_nbytes"), (caches, "cache_nbytes")):
            found = job.get(name)
            if isinstance(found, Mapping):
                known |= {str(key): value for key, value in found.items() if type(value) is int and value > 0}
    nodes = max((len(set(job.get("hosts") or ())) for job in jobs), default=1)
    return Facts(eager_nbytes=eager, cache_nbytes=caches, nodes=max(1, nodes))


def cause_of(curve: Curve, at: int, lengths: Sequence[float], facts: Facts) -> str:
    """Say what the break before a segment probably is; a guess, unless the library or the machine names the size.

    An eager limit or another protocol costs a latency once; a full cache, or a spent token bucket on a network, makes
    every further byte dearer.
    """
    place = curve.shape.breaks[at - 1]
    low, high = next((one, other) for one, other in pairwise(lengths) if one <= place <= other)
    for name, nbytes in facts.eager_nbytes.items():
        between = any(word in name for word in BETWEEN_NODES)
        if between == (facts.nodes > 1) and low / NEAR <= nbytes <= high * NEAR:
            return f"the eager limit ({name} is {format_size(nbytes)})"
    slower = curve.betas[at] > 1.1 * curve.betas[at - 1]
    dearer = curve.alphas[at] > curve.alphas[at - 1]
    if slower and not dearer:
        for name, nbytes in facts.cache_nbytes.items():
            if low / 4 <= nbytes <= high * 4:  # what takes part shares it: two buffers, or several ranks
                return f"a full cache ({name} is {format_size(nbytes)})"
        return "a full cache, or a spent token bucket of the network" if facts.nodes > 1 else "a full cache"
    if dearer and low <= EAGER:
        return "another protocol of the library, as from eager to rendezvous"
    if dearer:
        return "another way of the library for long messages"
    return "messages that start to overlap or take a faster way"

"""What closed forms say: rounds * alpha + bytes * beta + reductions * gamma, no rank late or slow."""

from __future__ import annotations

from fractions import Fraction

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.model.network import Link, Network
from ringbench.schedule.parameters import groups_of
from ringbench.schedule.registry import Algorithm, algorithm_named

#: What hierarchies do inside nodes before and after the allreduce between them, where nodes are of one size.
INSIDE = {
    "hierarchical": (("reduce_scatter", "ring"), ("allgather", "ring")),
    "hierarchical_leaders": (("reduce", "binomial"), ("bcast", "binomial")),
}

#: The same in shared memory, where what is between nodes stands in the middle of one allreduce.
INSIDE_SHARED = {"hierarchical": (("allreduce", "shared_memory"),)}


def closed_form(algorithm: Algorithm, nranks: int, nbytes: int | Fraction, network: Network) -> float | None:
    """Return the time [s] that the registered closed forms give; None where the algorithm has none.

    On a network of two levels, hierarchies whose groups are its nodes use both; for the others all links are taken for
    those between nodes.
    """
    if algorithm.name not in INSIDE:
        return _on(network.widest, network.gamma_s_per_byte, algorithm, nranks, nbytes)
    phases = phases_of(algorithm, nranks, nbytes, network)
    return None if phases is None else sum(phases)


def phases_of(algorithm: Algorithm, nranks: int, nbytes: int | Fraction, network: Network) -> list[float] | None:
    """Return the times [s] of a hierarchy's phases: inside nodes before and after, then between them.

    None where its groups are of different sizes, or not the nodes of the network.
    """
    gamma = network.gamma_s_per_byte
    arguments = dict(algorithm.arguments)
    layout = groups_of(arguments["groups"], nranks)
    if len({len(group) for group in layout}) > 1 or (network.levels > 1 and layout != network.groups):
        return None
    size, nodes = len(layout[0]), len(layout)
    between = algorithm_named("allreduce", str(arguments["outer"])).given(chunks=arguments["chunks"])
    shard = nbytes * Fraction(1, size) if algorithm.name == "hierarchical" else nbytes
    inside = INSIDE if arguments["inner"] == "ring" else INSIDE_SHARED
    if algorithm.name not in inside:
        return None
    phases = [_on(network.inner, gamma, algorithm_named(*name), size, nbytes) for name in inside[algorithm.name]]
    phases.append(_on(network.widest, gamma, between, nodes, shard))
    known = [phase for phase in phases if phase is not None]
    return known if len(known) == len(phases) else None


def _on(link: Link, gamma: float, algorithm: Algorithm, nranks: int, nbytes: int | Fraction) -> float | None:
    path = algorithm.critical(nranks)
    if path is None:
        return None
    moved, reduced = (float(part * nbytes) for part in path)
    return algorithm.rounds(nranks) * link.alpha_s + moved * link.beta_s_per_byte + reduced * gamma

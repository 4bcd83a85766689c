"""Predict times from what links are said to cost: one kind of link, or one inside nodes and one between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from ringbench.model.closed import phases_of
from ringbench.model.network import Link, Network
from ringbench.model.points import messages_of, schedule_of
from ringbench.model.predict import (
    IN_NETWORK,
    MODEL_ALONE,
    Candidate,
    Prediction,
    Time,
    blank,
    check_cells,
    filled,
    unbounded,
)
from ringbench.schedule.cost import own_steps
from ringbench.schedule.parameters import nodes_of
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Step

HIERARCHICAL = "hierarchical"


def predict_links(
    inner: Link,
    ranks: Sequence[int],
    sizes: Sequence[int],
    *,
    gamma_s_per_byte: float = 0.0,
    outer: Link | None = None,
    ranks_per_node: int | None = None,
    collective: str = "allreduce",
    names: Sequence[str] | None = None,
) -> tuple[list[Prediction], list[str]]:
    """Return what links of such costs would give, and lines on what cannot be predicted.

    With ``outer`` and ``ranks_per_node`` messages between nodes of that many ranks pass the outer link, of which each
    rank has one of its own; a round takes as long as its slowest message. ``hierarchical`` is then predicted too: its
    phases one after the other, and as the least, if they overlap, the longest of them. Raises ValueError for rank
    counts that no whole number of nodes has.
    """
    collective_named(collective)
    check_cells(ranks, sizes)
    notes: dict[str, None] = {}
    cells: dict[tuple[Any, ...], list[Candidate]] = {}
    chosen = names or sorted(one.name for one in algorithms(collective) if schedule_of(collective, one.name))
    if outer is not None and names is None and collective == "allreduce":
        chosen = [*chosen, HIERARCHICAL]
    for nranks in ranks:
        nodes = _nodes(nranks, outer, ranks_per_node)
        members = []
        base = blank(collective=collective, nranks=nranks, basis="given", op="sum", dtype="any", device="given link")
        for name in chosen:
            try:
                time = _given(name, collective, nranks, inner, outer, nodes, gamma_s_per_byte)
            except ValueError as error:
                algorithm_named(collective, name)
                notes[str(error)] = None
                continue
            least = partial(_phases, inner, outer or inner, gamma_s_per_byte, nranks, nodes)
            overlap = name == HIERARCHICAL and nodes > 1
            bounds = (lambda nbytes, least=least: (max(least(nbytes)), sum(least(nbytes)))) if overlap else unbounded
            members.append(
                Candidate(base=replace(base, algorithm=name), time=time, bounds=bounds, warn=lambda nbytes: ())
            )
        if collective == "allreduce" and names is None:
            members.append(
                Candidate(
                    base=replace(base, algorithm=IN_NETWORK),
                    time=(outer if outer is not None and nodes > 1 else inner).step,
                    bounds=unbounded,
                    warn=lambda nbytes: (MODEL_ALONE,),
                )
            )
        cells[collective, nranks] = members
    if not any(cells.values()):
        raise ValueError(f"nothing to predict: {'; '.join(notes)}")
    return filled(cells, sizes), list(notes)


def time_on(
    collective: str,
    name: str,
    nranks: int,
    inner: Link,
    outer: Link | None = None,
    ranks_per_node: int | None = None,
    *,
    gamma_s_per_byte: float = 0.0,
    shared: bool = False,
) -> Time:
    """Return the time of an algorithm, by size, on links with known costs: one kind, or two where ``outer`` is given.

    With ``shared`` the ranks of a node send over one link to other nodes, and divide it among those that send at once;
    else each has one of its own. Raises ValueError for rank counts that no whole number of nodes has, and for an
    algorithm whose messages are not known.
    """
    nodes = _nodes(nranks, outer, ranks_per_node)
    return _given(name, collective, nranks, inner, outer, nodes, gamma_s_per_byte, shared)


def _nodes(nranks: int, outer: Link | None, ranks_per_node: int | None) -> int:
    """Return how many nodes the ranks fill; raise ValueError where the last would not be full."""
    if outer is None or ranks_per_node is None or nranks <= ranks_per_node:
        return 1
    nodes, rest = divmod(nranks, ranks_per_node)
    if rest:
        raise ValueError(f"{nranks} ranks: no whole number of nodes of {ranks_per_node}")
    return nodes


def _given(
    name: str,
    collective: str,
    nranks: int,
    inner: Link,
    outer: Link | None,
    nodes: int,
    gamma: float,
    shared: bool = False,
) -> Time:
    """Return the time of an algorithm on links with known costs."""
    if name == HIERARCHICAL and outer is not None:
        size = nranks // nodes
        between = replace(outer, beta_s_per_byte=outer.beta_s_per_byte * size) if shared and nodes > 1 else outer
        return lambda nbytes: sum(_phases(inner, between, gamma, nranks, nodes, nbytes))
    algorithm = schedule_of(collective, name)
    if algorithm is None:
        raise ValueError(f"{collective} {name}: its messages depend on chunks or nodes, or it has no schedule here")
    if outer is None or nodes == 1:
        messages_of(algorithm, nranks, 1)

        def time(nbytes: int) -> float:
            messages, reduced = messages_of(algorithm, nranks, nbytes)
            return sum(number * inner.step(length) for length, number in messages) + gamma * reduced

        return time
    return _two_level(algorithm, nranks, nranks // nodes, inner, outer, gamma, shared)


def _two_level(
    algorithm: Algorithm, nranks: int, size: int, inner: Link, outer: Link, gamma: float, shared: bool = False
) -> Time:
    """Return the time of a flat schedule whose ranks fill node after node: that of the rank for which it is longest."""
    senders = _senders(algorithm, nranks, size) if shared else {}
    looked_at = sorted({0, 1, 2, size - 1, size, nranks // 2, nranks - 1})
    paths = [own_steps(algorithm, rank, nranks) for rank in looked_at]
    whole = [
        (rank, path)
        for rank, path in zip(looked_at, paths, strict=True)
        if sum(bool(peers) for peers, _, _ in path) == algorithm.rounds(nranks)
    ]
    if not whole:
        raise ValueError(f"{algorithm.title} on {nranks} ranks: no rank takes part in every round")

    kinds = [_kinds_of_messages(rank // size, path, size, inner, outer, senders) for rank, path in whole]
    added = [float(sum(reduced for _, _, reduced in path)) for _, path in whole]

    def time(nbytes: int) -> float:
        return max(
            sum(number * max(link.step(part * nbytes) for link, part in messages) for messages, number in own.items())
            + gamma * reduced * nbytes
            for own, reduced in zip(kinds, added, strict=True)
        )

    return time


def _kinds_of_messages(
    node: int,
    path: Sequence[tuple[tuple[int, ...], Fraction, Fraction]],
    size: int,
    inner: Link,
    outer: Link,
    senders: Mapping[int, int],
) -> Counter[tuple[tuple[Link, float], ...]]:
    """Return how often a rank sends what over which links: the part of the vector that counts on each of them."""
    found = Counter[tuple[tuple[Link, float], ...]]()
    for at, (peers, length, _) in enumerate(path):
        links = {inner if peer // size == node else outer for peer in peers}
        part = float(length)
        messages = [(link, part * senders.get(at, 1) if link is outer else part) for link in (inner, outer)]
        if links:
            found[tuple(message for message in messages if message[0] in links)] += 1
    return found


def _senders(algorithm: Algorithm, nranks: int, size: int) -> dict[int, int]:
    """Return how many ranks of the first node send to another one at once, for each step at which any does."""
    found: dict[int, int] = {}
    for rank in range(size):
        for at, operation in enumerate(algorithm.operations(rank, nranks)):
            if isinstance(operation, Step) and operation.dest is not None and operation.dest // size:
                found[at] = found.get(at, 0) + 1
    return found


def _phases(inner: Link, outer: Link, gamma: float, nranks: int, nodes: int, nbytes: int) -> list[float]:
    """Return the times of the phases of ``hierarchical`` on nodes of one size, with a ring between them."""
    groups = nodes_of(nranks, nranks // nodes)
    network = Network(inner=inner, outer=outer if nodes > 1 else None, gamma_s_per_byte=gamma, groups=groups)
    phases = phases_of(algorithm_named("allreduce", HIERARCHICAL).given(groups=groups), nranks, nbytes, network)
    assert phases is not None  # the groups are the nodes
    return phases

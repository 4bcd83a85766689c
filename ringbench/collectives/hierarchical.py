"""Hierarchies: as little as possible between nodes, the rest inside."""

from __future__ import annotations

from fractions import Fraction

from ringbench.collectives.binomial import binomial_bcast, binomial_reduce
from ringbench.collectives.ring import ring_allgather, ring_reduce_scatter
from ringbench.collectives.shared_memory import reduced_in_memory, shared_memory_bcast, written_to_memory
from ringbench.schedule.compose import Part, ceil_log2, placed, renamed
from ringbench.schedule.parameters import Groups, Places, Value, entry, groups_of, places_of
from ringbench.schedule.registry import Algorithm, algorithm_named, register
from ringbench.schedule.step import (
    Local,
    Meet,
    Operations,
    Place,
    Span,
    Spans,
    Step,
    combine,
    copy,
    peer,
    scale,
    spans,
    work,
)


def _between(outer: str, chunks: int) -> Algorithm:
    """Return the algorithm between nodes."""
    return algorithm_named("allreduce", outer).given(chunks=chunks)


def _even(groups: Groups) -> bool:
    return len({len(group) for group in groups}) == 1


def _shards(nranks: int, groups: Value) -> int:
    """Return into how many shards the vector is cut between nodes: one for each rank of a node, if all have as many."""
    layout = groups_of(groups, nranks)
    return len(layout[0]) if _even(layout) else 1


def _blocks(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1) -> int:
    return _shards(nranks, groups) * _leader_blocks(nranks, groups, outer, chunks)


def _leader_blocks(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1) -> int:
    return _between(outer, chunks).blocks(len(groups_of(groups, nranks)))


def _temp(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1) -> int:
    return _shards(nranks, groups) * _leader_temp(nranks, groups, outer, chunks)


def _leader_temp(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1) -> int:
    between, nodes = _between(outer, chunks), len(groups_of(groups, nranks))
    return between.temp(nodes) + (between.blocks(nodes) if between.reads_original else 0)


def _leader_rounds(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1, inner: str = "ring") -> int:
    layout = groups_of(groups, nranks)
    times = 3 if inner == "shared_memory" else 2
    return times * ceil_log2(max(map(len, layout))) + _between(outer, chunks).rounds(len(layout))


def _leader_sent(
    nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1, inner: str = "ring"
) -> Fraction:
    layout = groups_of(groups, nranks)
    within = 0 if inner == "shared_memory" else ceil_log2(max(map(len, layout)))
    return within + _between(outer, chunks).sent(len(layout))


def _rounds(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1, inner: str = "ring") -> int:
    layout = groups_of(groups, nranks)
    if not _even(layout):
        return _leader_rounds(nranks, groups, outer, chunks, inner)
    size = len(layout[0])
    within = 2 * ceil_log2(size) if inner == "shared_memory" else 2 * (size - 1)
    return within + _between(outer, chunks).rounds(len(layout))


def _sent(nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1, inner: str = "ring") -> Fraction:
    layout = groups_of(groups, nranks)
    if not _even(layout):
        return _leader_sent(nranks, groups, outer, chunks, inner)
    size = len(layout[0])
    within = Fraction(0 if inner == "shared_memory" else 2 * (size - 1), size)
    return within + _between(outer, chunks).sent(len(layout)) / size


def _shared(inner: str = "ring") -> Place | None:
    return "work" if inner == "shared_memory" else None


def _nodes(layout: Groups) -> str:
    sizes = " and ".join(map(str, sorted({len(group) for group in layout})))
    return f"{len(layout)} node{'s'[: len(layout) > 1]} of {sizes}"


def _remark(nranks: int, groups: Value = None, outer: str = "ring", inner: str = "ring") -> str:
    layout = groups_of(groups, nranks)
    if _even(layout):
        return f"{_nodes(layout)}, {outer} between{_inside(inner)}"
    return f"{_leaders_remark(nranks, groups, outer, inner)}: nodes of unlike size have no common shards"


def _leaders_remark(nranks: int, groups: Value = None, outer: str = "ring", inner: str = "ring") -> str:
    return f"{_nodes(groups_of(groups, nranks))}, {outer} between leaders{_inside(inner)}"


def _inside(inner: str) -> str:
    return ", shared memory inside" if inner == "shared_memory" else ""


def _across(between: Algorithm, places: Places, node: int, local: int, first: int, nblocks: int) -> Operations:
    """Run the algorithm between nodes on a range of blocks, one rank of each node taking part."""
    nodes = len(places.size)
    if nodes == 1:
        return
    size = between.blocks(nodes)
    part = Part(first=first, size=size, nblocks=nblocks, ntemp=between.temp(nodes))
    if between.reads_original:
        yield copy(work(first, size), part.saved(0, size))
    steps = between.generator(node, nodes, **dict(between.arguments))
    yield from renamed(placed(steps, part), lambda index: places.rank(index, local))


def _wide(operations: Operations, size: int) -> Operations:
    """Make every block of a schedule ``size`` blocks wide."""

    def wide(value: Spans) -> tuple[Span, ...]:
        return tuple(Span("work", span.first * size, span.count * size, span.rank) for span in spans(value))

    for step in operations:
        if isinstance(step, Step):
            yield Step(
                dest=step.dest, send=wide(step.send), source=step.source, recv=wide(step.recv), combine=step.combine
            )
        elif isinstance(step, Meet):
            yield step
        else:
            yield Local(step.action, wide(step.dest), wide(step.source))


@register(
    "allreduce",
    "hierarchical",
    blocks=_blocks,
    temp=_temp,
    rounds=_rounds,
    sent=_sent,
    formulas=("2(g-1) + rounds between k nodes of g", "2(g-1)/g + 1/g of that between k nodes"),
    exact=False,
    arguments=("groups", "outer", "chunks", "inner"),
    remark=_remark,
    shared=_shared,
)
def hierarchical_allreduce(
    rank: int, nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1, inner: str = "ring"
) -> Operations:
    """Reduce-scatter in the node, allreduce each shard across, all-gather in the node. Jia et al. 2018, 2D form.

    The j-th ranks of all nodes work on shard j, so that every rank of a node uses the network. Nodes of unlike size
    have no such shards: then leaders do it, see ``hierarchical_leaders``. In shared memory (``inner``) the node is done
    as by ``shared_memory``, with what is between nodes in its middle.
    """
    layout = groups_of(groups, nranks)
    if not _even(layout):
        yield from hierarchical_leaders_allreduce(rank, nranks, groups, outer, chunks, inner)
        return
    places, between = places_of(layout), _between(outer, chunks)
    node, local = entry(places.node, rank), entry(places.local, rank)
    here, size = len(layout[0]), between.blocks(len(layout))

    def inside(operations: Operations) -> Operations:
        return renamed(_wide(operations, size), lambda index: places.rank(node, index))

    shared = inner == "shared_memory" and here > 1
    yield from inside(reduced_in_memory(local, here) if shared else ring_reduce_scatter(local, here))
    yield from _across(between, places, node, local, local * size, here * size)
    yield scale(work(local * size, size))
    yield from inside(written_to_memory(local, here) if shared else ring_allgather(local, here))


@register(
    "allreduce",
    "hierarchical_leaders",
    blocks=_leader_blocks,
    temp=_leader_temp,
    rounds=_leader_rounds,
    sent=_leader_sent,
    formulas=("2 ceil(lg g) + rounds between k nodes", "at most ceil(lg g) + that between k nodes"),
    exact=False,
    arguments=("groups", "outer", "chunks", "inner"),
    remark=_leaders_remark,
    shared=_shared,
)
def hierarchical_leaders_allreduce(
    rank: int, nranks: int, groups: Value = None, outer: str = "ring", chunks: int = 1, inner: str = "ring"
) -> Operations:
    """Reduce to a leader in each node, allreduce between leaders, broadcast in the node. Horovod; NCCL.

    Works on any layout; the whole vector passes through one rank of each node, which in shared memory (``inner``) adds
    it all.
    """
    layout = groups_of(groups, nranks)
    places, between = places_of(layout), _between(outer, chunks)
    node, local = entry(places.node, rank), entry(places.local, rank)
    here, nblocks = entry(places.size, node), between.blocks(len(layout))

    def inside(operations: Operations) -> Operations:
        return renamed(_wide(operations, nblocks), lambda index: places.rank(node, index))

    shared = inner == "shared_memory" and here > 1
    yield from inside(_to_leader(local, here) if shared else binomial_reduce(local, here))
    if local == 0:
        yield from _across(between, places, node, 0, 0, nblocks)
        yield scale(work(0, nblocks))
    yield from inside(shared_memory_bcast(local, here) if shared else binomial_bcast(local, here))


def _to_leader(rank: int, nranks: int) -> Operations:
    """Have rank 0 add all vectors to its own where they lie."""
    yield Meet(range(nranks))
    if rank == 0:
        for other in range(1, nranks):
            yield combine(peer(other, work(0)), work(0))

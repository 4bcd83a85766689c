"""The double binary tree: two trees, no rank at work in both, each for one half of the vector."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ringbench.schedule.compose import floor_log2
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


@dataclass(frozen=True, slots=True)
class Tree:
    """Hold for every rank its parent (None at the root), its children, and the tree's edges between it and the ends.

    ``height`` counts down to the farthest leaf, ``depth`` up to the root; ``top`` is the root's height.
    """

    parent: tuple[int | None, ...]
    children: tuple[tuple[int, ...], ...]
    height: tuple[int, ...]
    depth: tuple[int, ...]
    top: int


def _above(place: int, size: int) -> int | None:
    """Return the parent of a place in the in-order tree of 1..size; a place is as high as its number has low zeros."""
    low = place & -place
    if place == 1 << floor_log2(size):
        return None
    up = (place ^ low) | low << 1
    return up if up <= size else place ^ low


def _tree(places: list[int]) -> Tree:
    nranks = len(places)
    rank_at = {place: rank for rank, place in enumerate(places)}
    ups = [_above(place, nranks) for place in places]
    parent = tuple(None if up is None else rank_at[up] for up in ups)
    children: list[list[int]] = [[] for _ in places]
    for rank, up in enumerate(parent):
        if up is not None:
            children[up].append(rank)
    order = [parent.index(None)]
    for rank in order:  # grows while it is read
        order.extend(children[rank])
    height, depth = [0] * nranks, [0] * nranks
    for rank in order[1:]:
        depth[rank] = depth[parent[rank] or 0] + 1
    for rank in reversed(order):
        height[rank] = max((height[child] + 1 for child in children[rank]), default=0)
    return Tree(parent, tuple(map(tuple, children)), tuple(height), tuple(depth), max(height))


@lru_cache(maxsize=16)
def two_trees(nranks: int) -> tuple[tuple[Tree, Tree], dict[tuple[int, int], int]]:
    """Return both trees, and for each tree and rank the colour 0 or 1 of its edge up.

    Ranks that are inner in one tree are leaves in the other: the second is the first seen in a mirror, or for an odd
    number of ranks shifted by one. So every rank sends at most two kinds of messages and receives at most two, and
    edges can be coloured such that each rank's two have different colours: messages of one colour never meet.
    """
    second = [nranks - rank if nranks % 2 == 0 else (rank + 1) % nranks + 1 for rank in range(nranks)]
    both = _tree([rank + 1 for rank in range(nranks)]), _tree(second)
    colour: dict[tuple[int, int], int] = {}
    for start in ((tree, rank) for tree in (0, 1) for rank in range(nranks)):
        if both[start[0]].parent[start[1]] is None or start in colour:
            continue
        colour[start] = 0
        path = [start]
        for tree, rank in path:  # grows while it is read
            above = both[tree].parent[rank]
            near = [(tree, sibling) for sibling in both[tree].children[above or 0] if sibling != rank]
            if both[1 - tree].parent[rank] is not None:
                near.append((1 - tree, rank))
            for edge in near:
                if edge not in colour:
                    colour[edge] = 1 - colour[tree, rank]
                    path.append(edge)
    return both, colour


def _most_rounds(nranks: int, chunks: int) -> int:
    if nranks < 3:
        return 2 * chunks * (nranks - 1)
    return 4 * (chunks + floor_log2(nranks) - 1)


@register(
    "allreduce",
    "double_binary_tree",
    blocks=lambda nranks, chunks: 2 * chunks,
    rounds=_most_rounds,
    sent=lambda nranks: min(Fraction(2), Fraction(nranks, 2)) if nranks > 1 else 0,
    formulas=("at most 4(c+f-1)", "at most 2"),
    exact=False,
    arguments=("chunks",),
)
def double_binary_tree_allreduce(rank: int, nranks: int, chunks: int = 1) -> Operations:
    """Reduce and broadcast in two trees, each half in c chunks one after the other. Sanders, Speck and Traff 2009.

    A chunk moves up (then down) one level in every second time slot, and the colour of an edge says in which: so a
    rank sends and receives at most one message in each slot, and all its links are busy once the pipeline is full.
    """
    trees, colour = two_trees(nranks)
    top = max(tree.top for tree in trees)
    turn = 2 * (chunks + top - 1)
    sends: dict[int, tuple[int, int]] = {}
    receives: dict[int, tuple[int, int]] = {}
    for number, tree in enumerate(trees):
        edges = [(child, child, receives, sends) for child in tree.children[rank]]
        above = tree.parent[rank]
        if above is not None:
            edges.append((rank, above, sends, receives))
        for lower, peer, upward, downward in edges:
            for chunk in range(chunks):
                block, shade = number * chunks + chunk, colour[number, lower]
                upward[2 * (chunk + tree.height[lower]) + shade] = (peer, block)
                downward[turn + 2 * (chunk + tree.depth[lower] - 1) + shade] = (peer, block)
    averaged = False
    for slot in sorted(sends.keys() | receives.keys()):
        if slot >= turn and not averaged:
            averaged = True
            yield from (scale(work(half * chunks, chunks)) for half in (0, 1) if trees[half].parent[rank] is None)
        dest, out = sends.get(slot, (None, 0))
        source, into = receives.get(slot, (None, 0))
        yield Step(
            dest=dest,
            send=() if dest is None else work(out),
            source=source,
            recv=() if source is None else work(into),
            combine=slot < turn,
        )

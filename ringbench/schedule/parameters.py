"""What a generator may be told beyond (rank, nranks): root, nodes, chunks, what runs between nodes and inside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from operator import index
from typing import TypeAlias

Groups: TypeAlias = tuple[tuple[int, ...], ...]
Value: TypeAlias = "int | str | Groups | None"

#: Every argument and its value unless given: ``root`` has or gets the vector; ``chunks`` are the pieces that follow
#: each other through a pipeline; ``groups`` are the ranks of each node (None: all ranks share one); ``outer`` is the
#: allreduce between nodes; ``inner`` says how ranks of a node exchange what they have.
DEFAULTS: dict[str, Value] = {"root": 0, "chunks": 4, "groups": None, "outer": "ring", "inner": "ring"}

INNERS = ("ring", "shared_memory")

MAX_CHUNKS = 4096


def check_value(name: str, value: object) -> Value:
    """Return a value in the form that generators take; raise ValueError for what is wrong for any number of ranks."""
    if name not in DEFAULTS:
        raise ValueError(f"unknown argument {name!r} of a schedule; known: {', '.join(DEFAULTS)}")
    if name == "outer":
        if isinstance(value, str):
            return value
    elif name == "inner":
        if isinstance(value, str) and value in INNERS:
            return value
    elif name == "groups":
        if value is None:
            return None
        try:
            groups = tuple(tuple(index(rank) for rank in group) for group in value)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            raise ValueError(f"groups {value!r}: must be groups of ranks, as in ((0, 1), (2, 3))") from None
        if groups and all(groups):
            return tuple(sorted(groups))
    elif not isinstance(value, bool) and hasattr(value, "__index__"):  # NumPy's integers too
        number = index(value)
        if name == "root" and number >= 0:
            return number
        if name == "chunks" and 1 <= number <= MAX_CHUNKS:
            return number
    wanted = {
        "root": "a rank",
        "chunks": f"a number from 1 to {MAX_CHUNKS}",
        "groups": "groups of ranks, none empty",
        "outer": "the name of an allreduce",
        "inner": " or ".join(INNERS),
    }
    raise ValueError(f"{name} {value!r}: must be {wanted[name]}")


def check_ranks(name: str, value: Value, nranks: int) -> None:
    """Raise ValueError where a checked value does not fit the number of ranks."""
    if name == "root" and isinstance(value, int) and value >= nranks:
        raise ValueError(f"root {value}: there are {nranks} ranks")
    if name == "groups" and isinstance(value, tuple):
        ranks = sorted(rank for group in value for rank in group)
        if len(ranks) != nranks or ranks != list(range(nranks)):
            raise ValueError(f"groups {value_text(value)}: must hold each of the ranks 0 to {nranks - 1} once")


def groups_of(value: Value, nranks: int) -> Groups:
    """Return the groups that an argument stands for."""
    return value if isinstance(value, tuple) else (tuple(range(nranks)),)


def entry(table: Sequence[int], place: int) -> int:
    """Return an entry of a table; for many ranks at once, as ``simulate`` asks, the entry of each."""
    entries = getattr(place, "entries", None)
    found: int = table[place] if entries is None else entries(table)
    return found


@dataclass(frozen=True, slots=True)
class Places:
    """Say where the ranks of some groups are: each one's node and its place there, and the ranks node after node."""

    node: tuple[int, ...]
    local: tuple[int, ...]
    size: tuple[int, ...]
    first: tuple[int, ...]
    ranks: tuple[int, ...]

    def rank(self, node: int, local: int) -> int:
        """Return the rank at a place of a node."""
        return entry(self.ranks, entry(self.first, node) + local)


@lru_cache(maxsize=16)
def places_of(groups: Groups) -> Places:
    """Return where the ranks of some groups are."""
    node, local, ranks = [0] * sum(map(len, groups)), [0] * sum(map(len, groups)), [*chain(*groups)]
    for number, group in enumerate(groups):
        for place, rank in enumerate(group):
            node[rank], local[rank] = number, place
    size = tuple(map(len, groups))
    return Places(tuple(node), tuple(local), size, (0, *accumulate(size)), tuple(ranks))


def parse_groups(text: str) -> Groups:
    """Read groups from text as in ``0,1/2,3``; raise ValueError quoting what is malformed."""
    groups = [[rank.strip() for rank in group.split(",")] for group in text.split("/")]
    if not all(rank.isascii() and rank.isdecimal() and len(rank) < 10 for group in groups for rank in group):
        raise ValueError(f"malformed groups {text!r}: must be as in 0,1/2,3")
    return tuple(tuple(map(int, group)) for group in groups)


def value_text(value: Value) -> str:
    """Write a value as the command line takes it."""
    if isinstance(value, tuple):
        return "/".join(",".join(map(str, group)) for group in value)
    return str(value)


def nodes_of(nranks: int, size: int) -> Groups:
    """Return the groups of nodes with ``size`` ranks each, one after the other; the last has the rest."""
    return tuple(tuple(range(first, min(first + size, nranks))) for first in range(0, nranks, size))


def pairs(nranks: int) -> Groups:
    """Return the groups of nodes with two ranks each; a last one is alone."""
    return nodes_of(nranks, 2)


def samples(name: str, nranks: int) -> list[Value]:
    """Return the values of an argument for which a schedule is proved."""
    if name == "root":
        return [0, nranks - 1]
    if name == "chunks":
        return [1, 2, 5]
    if name == "outer":
        return ["ring", "recursive_doubling", "naive", "rabenseifner"]
    if name == "inner":
        return list(INNERS)
    half, third = nranks // 2, nranks // 3
    layouts = [
        [range(half), range(half, nranks)],
        [range(0, nranks, 2), range(1, nranks, 2)],
        [range(third), range(third, nranks)],
        [range(rank, rank + 1) for rank in range(nranks)],
        pairs(nranks),
    ]
    return [tuple(tuple(group) for group in layout) for layout in layouts if all(layout)]

"""The network that schedules are simulated on: what a message costs between which ranks, and who is late or slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringbench.model.resample import SEED
from ringbench.records.units import format_seconds
from ringbench.schedule.parameters import Groups, check_ranks

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Hold what a message costs on one kind of link: ``alpha_s`` for itself, ``beta_s_per_byte`` for each byte."""

    alpha_s: float
    beta_s_per_byte: float

    def __post_init__(self) -> None:
        for name in ("alpha_s", "beta_s_per_byte"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} {getattr(self, name)}: must be a number, not negative")

    def step(self, nbytes: float) -> float:
        """Return the seconds of one message."""
        return self.alpha_s + self.beta_s_per_byte * nbytes

    def describe(self) -> str:
        """Say what the link costs."""
        return f"alpha {format_seconds(self.alpha_s)}, beta {_per_byte(self.beta_s_per_byte)}"


def _per_byte(cost: float) -> str:
    return f"{1e-9 / cost:.4g} GB/s" if cost else "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Describe a network with one port for each rank, full duplex, and no link that several pairs share.

    ``inner`` joins ranks of one node (all ranks are on one unless ``groups`` tells), ``outer`` those of two (as
    ``inner`` unless given). A byte reduced costs ``gamma_s_per_byte``. A slow rank (rank, factor) takes ``factor``
    times as long to reduce, and so does every message that it sends or receives; of two slow ranks the slower counts.
    A slow link (one, other, factor) multiplies what messages between two ranks cost, both ways. Each rank starts at a
    random time between 0 and ``skew_s``, the same in every simulation, and a late one (rank, seconds) so much later.
    """

    inner: Link
    outer: Link | None = None
    gamma_s_per_byte: float = 0.0
    groups: Groups | None = None
    slow_ranks: Sequence[tuple[int, float]] = ()
    slow_links: Sequence[tuple[int, int, float]] = ()
    skew_s: float = 0.0
    late: Sequence[tuple[int, float]] = ()

    @property
    def levels(self) -> int:
        """Return how many kinds of links there are: two where there are several nodes and a link between them."""
        return 2 if self.outer is not None and self.groups is not None and len(self.groups) > 1 else 1

    @property
    def widest(self) -> Link:
        """Return the link that reaches everywhere: the one between nodes, where there is one."""
        return self.outer if self.outer is not None and self.levels == 2 else self.inner

    def describe(self) -> str:
        """Say in one line what the network is, for the heading of a table."""
        gamma = f", gamma {_per_byte(self.gamma_s_per_byte)}" if self.gamma_s_per_byte else ""
        if self.levels == 1 or self.outer is None or self.groups is None:
            parts = [f"{self.inner.describe()}{gamma}"]
        else:
            sizes = sorted({len(group) for group in self.groups})
            parts = [f"{len(self.groups)} nodes of {' and '.join(map(str, sizes))} ranks"]
            parts += [f"inner {self.inner.describe()}", f"outer {self.outer.describe()}{gamma}"]
        parts += [f"starts within {format_seconds(self.skew_s)}"] if self.skew_s else []
        parts += [f"rank {rank} {format_seconds(late)} late" for rank, late in self.late]
        parts += [f"rank {rank} {factor:g}x slower" for rank, factor in self.slow_ranks]
        parts += [f"link {one}-{other} {factor:g}x slower" for one, other, factor in self.slow_links]
        return "; ".join(parts)


class Wires:
    """Answer for a number of ranks what each message costs, from arrays made once.

    ``starts_s`` says when each rank starts, ``gamma`` what a byte reduced costs it. Raises ValueError for a rank that
    there is not.
    """

    def __init__(self, network: Network, nranks: int) -> None:
        for rank in (
            rank for found in (network.slow_ranks, network.slow_links, network.late) for rank in _named(found)
        ):
            if not 0 <= rank < nranks:
                raise ValueError(f"rank {rank}: there are {nranks} ranks, from 0")
        self.inner, self.outer = network.inner, network.outer
        self.node: NDArray[np.int64] | None = None
        if network.groups is not None:
            check_ranks("groups", network.groups, nranks)
            self.node = np.empty(nranks, dtype=np.int64)
            for number, group in enumerate(network.groups):
                self.node[list(group)] = number
        self.factor: Array | None = None
        self.gamma: Any = network.gamma_s_per_byte
        if network.slow_ranks:
            self.factor = np.ones(nranks)
            for rank, factor in network.slow_ranks:
                self.factor[rank] *= factor
            self.gamma = network.gamma_s_per_byte * self.factor
        self.slow_links = network.slow_links
        self.starts_s = np.random.default_rng(SEED).uniform(0.0, network.skew_s, nranks)
        for rank, late in network.late:
            self.starts_s[rank] += late

    def near(self, ranks: Any) -> Any:
        """Return what a byte in the memory of a node costs some of its ranks [s/B]: beta of the links inside."""
        return self.inner.beta_s_per_byte * (1.0 if self.factor is None else self.factor[ranks])

    def cost(self, senders: NDArray[np.int64], receivers: NDArray[np.int64]) -> tuple[Any, Any]:
        """Return alpha [s] and beta [s/B] of a message from each sender to its receiver, as numbers or arrays."""
        alpha: Any = self.inner.alpha_s
        beta: Any = self.inner.beta_s_per_byte
        if self.node is not None and self.outer is not None:
            near = self.node[senders] == self.node[receivers]
            alpha = np.where(near, alpha, self.outer.alpha_s)
            beta = np.where(near, beta, self.outer.beta_s_per_byte)
        if self.factor is None and not self.slow_links:
            return alpha, beta
        factor = np.ones(len(senders))
        if self.factor is not None:
            factor *= np.maximum(self.factor[senders], self.factor[receivers])
        for one, other, slower in self.slow_links:
            there = (senders == one) & (receivers == other)
            factor[there | ((senders == other) & (receivers == one))] *= slower
        return alpha * factor, beta * factor


def _named(found: Sequence[tuple[Any, ...]]) -> list[int]:
    """Return the ranks in tuples that end with a number of another kind."""
    return [rank for entry in found for rank in entry[:-1]]

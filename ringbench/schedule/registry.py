"""Where algorithms are found: one decorated generator each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice

from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Local, Operations, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Describe one registered algorithm.

    ``blocks(nranks)`` and ``temp(nranks)`` count the blocks the vector is cut into and those of scratch memory;
    ``rounds(nranks)`` and ``sent(nranks)`` are the closed forms printed in the docs: rounds on the critical path, and
    bytes sent by the busiest rank in units of the whole vector. ``identical_bits`` claims that all ranks end with the
    same bits. ``segmentable`` says that messages may be cut without a deadlock.
    """

    collective: str
    name: str
    generator: Callable[..., Operations]
    blocks: Callable[[int], int]
    temp: Callable[[int], int]
    rounds: Callable[[int], int]
    sent: Callable[[int], Fraction]
    identical_bits: bool
    segmentable: bool

    def operations(self, rank: int, nranks: int) -> list[Step | Local]:
        """Return what ``rank`` does, in order; nothing for a single rank. Raises ValueError where it does not end."""
        if nranks == 1:
            return []
        found = list(islice(self.generator(rank, nranks), MAX_OPERATIONS))
        if len(found) == MAX_OPERATIONS:
            raise ValueError(f"{self.collective} {self.name}, {nranks} ranks: rank {rank} does not come to an end")
        return found

    @property
    def scales(self) -> bool:
        """Say whether the schedule itself divides for an average; otherwise every rank divides its result at the end.

        A rank cannot tell from its own steps (a worker receives what the root divided), so all ranks of a few small N
        are asked; ``verify`` refuses an algorithm that behaves otherwise at another N.
        """
        return _scales(self)

    @property
    def summary(self) -> str:
        """Return the first line of the generator's docstring: what it is, and its source."""
        return (inspect.getdoc(self.generator) or "").partition("\n")[0]


@cache
def _scales(algorithm: Algorithm) -> bool:
    return any(
        isinstance(operation, Local) and operation.action == "scale"
        for nranks in (2, 3, 4)
        for rank in range(nranks)
        for operation in algorithm.operations(rank, nranks)
    )


_ALGORITHMS: dict[tuple[str, str], Algorithm] = {}

#: A schedule with so many operations on one rank is taken for one that never ends.
MAX_OPERATIONS = 1_000_000

#: Names that stand for something other than a schedule, and that no algorithm may take.
RESERVED = ("mpi", "auto")


def _no_temp(nranks: int) -> int:
    return 0


def register(
    collective: str,
    name: str,
    *,
    blocks: Callable[[int], int],
    rounds: Callable[[int], int],
    sent: Callable[[int], Fraction | int],
    temp: Callable[[int], int] = _no_temp,
    identical_bits: bool = True,
    segmentable: bool = True,
) -> Callable[[Callable[..., Operations]], Callable[..., Operations]]:
    """Register the decorated generator ``f(rank, nranks)`` as an algorithm of ``collective``.

    Raises ValueError for an unknown collective and for a name that is taken.
    """
    collective_named(collective)
    if name in RESERVED or (collective, name) in _ALGORITHMS:
        raise ValueError(f"algorithm {name!r} of {collective} is taken")

    def add(generator: Callable[..., Operations]) -> Callable[..., Operations]:
        _ALGORITHMS[collective, name] = Algorithm(
            collective=collective,
            name=name,
            generator=generator,
            blocks=blocks,
            temp=temp,
            rounds=rounds,
            sent=lambda nranks: Fraction(sent(nranks)),
            identical_bits=identical_bits,
            segmentable=segmentable,
        )
        return generator

    return add


def algorithms(collective: str | None = None) -> list[Algorithm]:
    """Return the registered algorithms, of one collective or of all, in the order of registration."""
    return [algorithm for algorithm in _ALGORITHMS.values() if collective in (None, algorithm.collective)]


def algorithm_named(collective: str, name: str) -> Algorithm:
    """Return a registered algorithm; raise ValueError naming the known ones."""
    collective_named(collective)
    try:
        return _ALGORITHMS[collective, name]
    except KeyError:
        known = ", ".join([algorithm.name for algorithm in algorithms(collective)] + ["mpi"])
        raise ValueError(f"unknown algorithm {name!r} for {collective}; known: {known}") from None

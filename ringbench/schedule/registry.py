"""Where algorithms are found: one decorated generator each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import islice
from typing import Any

from ringbench.schedule.parameters import DEFAULTS, Value, check_ranks, check_value, pairs, samples, value_text
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Local, Operation, Operations, Place, Step, spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Describe one registered algorithm, with a value for each argument that it declares.

    ``blocks(nranks)`` and ``temp(nranks)`` count the blocks the vector is cut into and those of scratch memory;
    ``rounds(nranks)`` and ``sent(nranks)`` are the closed forms printed in the docs: rounds on the critical path, and
    bytes sent by the busiest rank in units of the whole vector; ``formulas`` holds their text. Where they are not
    ``exact`` no schedule exceeds them. ``critical(nranks)`` is what is moved and what is reduced on the critical path,
    in units of the whole vector; None where there is no closed form. ``identical_bits`` claims that all ranks end with
    the same bits. ``segmentable`` says that messages may be cut without a deadlock. ``shared`` is the place that the
    ranks of a node must share: ``work``, so that the caller's vectors lie in shared memory, or ``temp``. ``arguments``
    are those of the generator beyond (rank, nranks); ``remark(nranks)`` is what a reader of a row must be told of what
    they led to.
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
    shared: Place | None = None
    formulas: tuple[str, str] = ("", "")
    exact: bool = True
    critical: Callable[[int], tuple[Fraction | int, Fraction | int] | None] = lambda nranks: None
    arguments: tuple[tuple[str, Value], ...] = ()
    remark: Callable[[int], str | None] = lambda nranks: None
    make: Callable[[tuple[tuple[str, Value], ...]], Algorithm] | None = None

    def operations(self, rank: int, nranks: int) -> list[Operation]:
        """Return what ``rank`` does, in order; nothing for a single rank. Raises ValueError where it does not end."""
        self.check(nranks)
        if nranks == 1:
            return []
        found = list(islice(self.generator(rank, nranks, **dict(self.arguments)), MAX_OPERATIONS))
        if len(found) == MAX_OPERATIONS:
            raise ValueError(f"{self.title}, {nranks} ranks: rank {rank} does not come to an end")
        return found

    def given(self, **values: Value) -> Algorithm:
        """Return the algorithm with other values for some of its arguments; those it does not take are left out.

        Raises ValueError naming a value that makes no sense.
        """
        own = dict(self.arguments)
        changed = own | {name: check_value(name, value) for name, value in values.items() if name in own}
        return self if changed == own or self.make is None else self.make(tuple(changed.items()))

    def check(self, nranks: int) -> None:
        """Raise ValueError, naming the value, where an argument does not fit the number of ranks."""
        for name, value in self.arguments:
            check_ranks(name, value, nranks)
            if name != "outer":
                continue
            flat = [
                one
                for one in algorithms("allreduce")
                if one.identical_bits and one.shared is None and "groups" not in dict(one.arguments)
            ]
            known = [one.name for one in flat]
            if value not in known:
                raise ValueError(f"outer {value!r}: must be a flat allreduce with identical bits: {', '.join(known)}")

    def variants(self, nranks: int) -> list[Algorithm]:
        """Return the algorithm with each choice of its arguments that has to be proved on so many ranks.

        What runs between and inside nodes is varied where there are many nodes, and its chunks where it has any.
        """
        found = {self: None}
        for name, _ in self.arguments:
            base = self
            if name in ("outer", "inner") or (name == "chunks" and "outer" in dict(self.arguments)):
                base = self.given(groups=pairs(nranks))
            if name == "chunks":
                base = base.given(outer="double_binary_tree")
            found |= {base.given(**{name: value}): None for value in samples(name, nranks)}
        return list(found)

    @property
    def root(self) -> int:
        """Return the rank that has, or gets, the vector; 0 where the collective has no such rank."""
        root = dict(self.arguments).get("root", 0)
        assert isinstance(root, int)
        return root

    @property
    def title(self) -> str:
        """Return collective, name and arguments for messages."""
        given = [f"{name}={value_text(value)}" for name, value in self.arguments if value != DEFAULTS[name]]
        return " ".join([self.collective, self.name, *given])

    @property
    def scales(self) -> bool:
        """Say whether the schedule itself divides for an average; otherwise every rank divides its result at the end.

        A rank cannot tell from its own steps (a worker receives what the root divided), so all ranks of a few small N
        are asked; ``verify`` refuses an algorithm that behaves otherwise at another N.
        """
        return any(isinstance(found, Local) and found.action == "scale" for found in self._probe())

    @property
    def reads_original(self) -> bool:
        """Say whether some step reads a rank's input as it was, asked in the same way."""
        found = [
            step.send if isinstance(step, Step) else step.source if isinstance(step, Local) else ()
            for step in self._probe()
        ]
        return any(span.place == "original" for value in found for span in spans(value))

    def _probe(self) -> tuple[Operation, ...]:
        return _probe(self.generator, tuple((name, DEFAULTS[name]) for name, _ in self.arguments))

    @property
    def summary(self) -> str:
        """Return the first line of the generator's docstring: what it is, and its source."""
        return (inspect.getdoc(self.generator) or "").partition("\n")[0]


@cache
def _probe(generator: Callable[..., Operations], arguments: tuple[tuple[str, Value], ...]) -> tuple[Operation, ...]:
    return tuple(
        operation
        for nranks in (2, 3, 4)
        for rank in range(nranks)
        for operation in islice(generator(rank, nranks, **dict(arguments)), MAX_OPERATIONS)
    )


_ALGORITHMS: dict[tuple[str, str], Algorithm] = {}

#: A schedule with so many operations on one rank is taken for one that never ends.
MAX_OPERATIONS = 1_000_000

#: Names that stand for something other than a schedule, and that no algorithm may take.
RESERVED = ("mpi", "nccl", "auto")


def _no_temp(nranks: int) -> int:
    return 0


def _nothing(nranks: int) -> None:
    return None


def _private() -> None:
    return None


def _bound(function: Callable[..., Any], arguments: tuple[tuple[str, Value], ...]) -> Callable[..., Any]:
    """Fill in those arguments that a formula asks for."""
    asked = inspect.signature(function).parameters
    return partial(function, **{name: value for name, value in arguments if name in asked})


def register(
    collective: str,
    name: str,
    *,
    blocks: Callable[..., int],
    rounds: Callable[..., int],
    sent: Callable[..., Fraction | int],
    temp: Callable[..., int] = _no_temp,
    formulas: tuple[str, str] = ("", ""),
    exact: bool = True,
    critical: Callable[..., tuple[Fraction | int, Fraction | int] | None] = _nothing,
    arguments: tuple[str, ...] = (),
    remark: Callable[..., str | None] = _nothing,
    identical_bits: bool = True,
    segmentable: bool = True,
    shared: Callable[..., Place | None] = _private,
) -> Callable[[Callable[..., Operations]], Callable[..., Operations]]:
    """Register the decorated generator ``f(rank, nranks, **arguments)`` as an algorithm of ``collective``.

    The callables take ``nranks`` and, by name, those of the ``arguments`` that they depend on. ``formulas`` are rounds
    and bytes as one writes them, for the docs. ``critical`` returns what is moved and what is reduced on the critical
    path, where that has a closed form. ``shared`` takes no ``nranks``. Raises ValueError for an unknown collective or
    argument, and for a name that is taken.
    """
    if collective_named(collective).rooted and "root" not in arguments:
        raise ValueError(f"algorithm {name!r}: {collective} needs the argument 'root'")
    if name in RESERVED or (collective, name) in _ALGORITHMS:
        raise ValueError(f"algorithm {name!r} of {collective} is taken")
    defaults = tuple((argument, check_value(argument, DEFAULTS.get(argument))) for argument in arguments)

    def add(generator: Callable[..., Operations]) -> Callable[..., Operations]:
        @cache
        def make(values: tuple[tuple[str, Value], ...]) -> Algorithm:
            bytes_sent = _bound(sent, values)
            return Algorithm(
                collective=collective,
                name=name,
                generator=generator,
                blocks=_bound(blocks, values),
                temp=_bound(temp, values),
                rounds=_bound(rounds, values),
                sent=lambda nranks: Fraction(bytes_sent(nranks)),
                formulas=formulas,
                exact=exact,
                critical=_bound(critical, values),
                remark=_bound(remark, values),
                identical_bits=identical_bits,
                segmentable=segmentable,
                shared=_bound(shared, values)(),
                arguments=values,
                make=make,
            )

        _ALGORITHMS[collective, name] = make(defaults)
        return generator

    return add


@contextmanager
def registered(added: Iterable[Algorithm]) -> Iterator[None]:
    """Have algorithms in the registry for a while: broken ones, that are to run like any other.

    Raises ValueError for a name that is taken.
    """
    names = {(algorithm.collective, algorithm.name): algorithm for algorithm in added}
    for collective, name in names:
        if name in RESERVED or (collective, name) in _ALGORITHMS:
            raise ValueError(f"algorithm {name!r} of {collective} is taken")
    _ALGORITHMS.update(names)
    try:
        yield
    finally:
        for key in names:
            del _ALGORITHMS[key]


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

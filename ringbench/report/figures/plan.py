"""Which figures some runs have in them, and what each is called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ringbench.model.fit import FitResult
from ringbench.report.figures.curves import bandwidth, latency
from ringbench.report.figures.fitted import predicted, step
from ringbench.report.figures.ratio import ratio
from ringbench.report.figures.samples import samples
from ringbench.report.figures.scaling import scaling
from ringbench.report.figures.steps import of_steps, steps
from ringbench.report.figures.views import Cell, Pool, View, views, views_by_ranks, views_to_fit
from ringbench.report.figures.winner import winner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AT_RANKS: dict[str, Callable[[View], Figure]] = {"bandwidth": bandwidth, "latency": latency, "ratio": ratio}
OVER_RANKS: dict[str, Callable[[View], Figure]] = {"winner": winner, "scaling": scaling}
OF_FIT: dict[str, Callable[[View, FitResult], Figure]] = {"step": step, "predicted": predicted}

#: The kinds of figures, in the order in which they are drawn.
KINDS = (*AT_RANKS, *OVER_RANKS, *OF_FIT, "samples", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Hold a figure that can be made, and the parts of its name; ``make`` raises ValueError saying why it cannot."""

    kind: str
    parts: tuple[tuple[str, str], ...]
    make: Callable[[], Figure]
    name: str = ""


def drawings(pools: Sequence[Pool], kinds: Sequence[str] = KINDS, trained: Iterable[Cell] = ()) -> list[Drawing]:
    """Return the figures of some kinds that pools of runs may have in them, each with a name of its own.

    ``trained`` are cells of training steps. A name says the kind, and of the rest what tells it from the others drawn.
    Raises ValueError for an unknown kind.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"unknown kind of figure {unknown[0]!r}; known: {', '.join(KINDS)}")
    to_fit = {id(pool): list(views_to_fit(pool)) for pool in pools}  # each is fitted once, however often it is drawn
    of_rows = [kind for kind in KINDS if kind in kinds and kind != "steps"]
    found = [one for kind in of_rows for pool in pools for one in _of_pool(kind, pool, to_fit[id(pool)])]
    if "steps" in kinds:
        found += [Drawing(kind="steps", parts=parts, make=partial(steps, own)) for parts, own in of_steps(trained)]
    return _named(found)


def _of_pool(kind: str, pool: Pool, to_fit: Sequence[View]) -> Iterator[Drawing]:
    if kind in OF_FIT:
        for view in to_fit:
            yield Drawing(kind=kind, parts=_parts(view, fit=True), make=partial(_of_fit, kind, view))
    elif kind in OVER_RANKS:
        for view in views(pool):
            yield Drawing(kind=kind, parts=_parts(view), make=partial(OVER_RANKS[kind], view))
    else:
        for view in views_by_ranks(pool):
            ranks = ("nranks", f"n{view.nranks[0]}{'-shared_cores' * view.crowded}")
            if kind in AT_RANKS:
                yield Drawing(kind=kind, parts=(*_parts(view), ranks), make=partial(AT_RANKS[kind], view))
                continue
            for name in sorted({row.algorithm for row in view.rows}):
                own = replace(view, rows=tuple(row for row in view.rows if row.algorithm == name))
                parts = (*_parts(view), ranks, ("algorithm", name))
                yield Drawing(kind=kind, parts=parts, make=partial(samples, own))


def _of_fit(kind: str, view: View) -> Figure:
    return OF_FIT[kind](view, view.fitted)


def _parts(view: View, *, fit: bool = False) -> tuple[tuple[str, str], ...]:
    row = view.rows[0]
    of_rows = () if fit else (("collective", row.collective), ("op", row.op), ("dtype", row.dtype))
    return (
        ("pool", view.pool.name),
        *of_rows,
        ("device", row.device),
        ("placement", "in_place" if row.in_place else "out_of_place"),
        ("buffers", f"{row.buffers}_buffers"),
        ("estimand", row.estimand.partition(" after ")[2] or row.estimand),
    )


def _named(found: Sequence[Drawing]) -> list[Drawing]:
    """Name each figure by its kind, collective, ranks and algorithm, and by what differs among all of them."""
    values: dict[str, set[str]] = {}
    for one in found:
        for name, value in one.parts:
            values.setdefault(name, set()).add(value)
    always = {"collective", "nranks", "algorithm"}
    counted: Counter[str] = Counter()
    named = []
    for one in found:
        parts = [value for name, value in one.parts if name in always or len(values[name]) > 1]
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join([one.kind, *parts]))
        counted[name] += 1
        named.append(replace(one, name=name if counted[name] == 1 else f"{name}-{counted[name]}"))
    return named

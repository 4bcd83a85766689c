"""Schedules broken on purpose, each in one way: the proof must refuse them, and the check of every run must catch them.

No mutant changes who sends how much to whom, nor who meets whom but for all of them alike, so that none can hang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringbench.schedule.blocks import block_sizes
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import (
    Local,
    Meet,
    Operation,
    Operations,
    Span,
    Spans,
    Step,
    block_numbers,
    combine,
    copy,
    scale,
    spans,
    temp,
    work,
)
from ringbench.schedule.verify import verify

Program = list[Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleMutant:
    """Describe one way to break a schedule.

    ``breaks`` says in words what is wrong, ``change(base, rank, nranks)`` is the broken program of a rank, and
    ``applies(base, nranks)`` says whether a schedule can be broken so. ``equivalent(base, nranks, count)`` is why
    nothing is broken for so many elements, None where it is; ``even`` asks for blocks of one size, ``op`` for an
    operation. What a ``race`` does to data depends on who is faster: it is not run, and the proof alone must refuse it.
    """

    name: str
    breaks: str
    change: Callable[[Algorithm, int, int], Sequence[Operation]]
    applies: Callable[[Algorithm, int], bool]
    equivalent: Callable[[Algorithm, int, int], str | None] = lambda base, nranks, count: None
    even: bool = False
    op: str | None = None
    race: bool = False


def mutated(base: Algorithm, mutant: ScheduleMutant) -> Algorithm:
    """Return an algorithm as registered, its claims included, but with a broken schedule and room to break it in."""

    def generator(rank: int, nranks: int, **arguments: object) -> Operations:
        yield from mutant.change(base, rank, nranks)

    return replace(
        base,
        name=f"{base.name}~{mutant.name}",
        generator=generator,
        temp=lambda nranks: base.temp(nranks) + 2 * base.blocks(nranks),
        make=lambda values: mutated(base.given(**dict(values)), mutant),
    )


def refusal(broken: Algorithm, nranks: int) -> str | None:
    """Return how the proof refuses a schedule, None where it proves it right."""
    try:
        verify(broken, nranks)
    except ValueError as error:
        return str(error)
    return None


def _reduces(base: Algorithm, nranks: int) -> bool:
    return collective_named(base.collective).reduces


def _first_addition(base: Algorithm, nranks: int) -> tuple[int, int, Spans]:
    """Return the first rank that adds anything, which of its operations does so first, and to which blocks."""
    for rank in range(nranks):
        for at, operation in enumerate(base.operations(rank, nranks)):
            if isinstance(operation, Step) and operation.combine and operation.source is not None:
                return rank, at, operation.recv
            if isinstance(operation, Local) and operation.action == "combine":
                return rank, at, operation.dest
    raise ValueError(f"{base.title}, {nranks} ranks: nothing is added")


def _spare(base: Algorithm, nranks: int, blocks: Spans) -> tuple[Span, ...]:
    """Name scratch memory, of no use to the schedule itself, that is as large as some blocks."""
    first, nblocks = base.temp(nranks), base.blocks(nranks)
    return tuple(temp(first + span.first % nblocks, span.count) for span in spans(blocks))


def _drop(base: Algorithm, rank: int, nranks: int) -> Program:
    program = base.operations(rank, nranks)
    where, at, blocks = _first_addition(base, nranks)
    operation = program[at] if rank == where else None
    if isinstance(operation, Step):
        program[at] = replace(operation, recv=_spare(base, nranks, blocks), combine=False)
    elif operation is not None:
        del program[at]
    return program


def _double(base: Algorithm, rank: int, nranks: int) -> Program:
    program = base.operations(rank, nranks)
    where, at, blocks = _first_addition(base, nranks)
    if rank == where:
        program[at + 1 : at + 1] = [
            combine(replace(span, place="original"), replace(span, place="work"))
            for span in spans(blocks if all(span.place == "work" for span in spans(blocks)) else work(0, 1))
        ]
    return program


def _forget(base: Algorithm, rank: int, nranks: int) -> Program:
    def own(blocks: Spans) -> Spans:
        return tuple(replace(span, place="original") if span.place == "work" else span for span in spans(blocks))

    return [
        replace(operation, send=own(operation.send)) if isinstance(operation, Step) else operation
        for operation in base.operations(rank, nranks)
    ]


def _misplace(base: Algorithm, rank: int, nranks: int) -> Program:
    program, nblocks = base.operations(rank, nranks), base.blocks(nranks)
    if rank != nranks - 1:
        return program
    if len(collective_named(base.collective).got(rank, nblocks, base.root)) == 1:
        return [*program, copy(work(rank + 1), work(rank))]
    (spare,) = _spare(base, nranks, work(0, nblocks))
    moves = [copy(temp(spare.first + block), work(block + 1)) for block in range(nblocks)]
    return [*program, copy(work(0, nblocks), spare), *moves]


def _lose_meet(which: int) -> Callable[[Algorithm, int, int], Program]:
    """Leave out the first (0) or the last (-1) meet on all ranks."""

    def change(base: Algorithm, rank: int, nranks: int) -> Program:
        program = base.operations(rank, nranks)
        meets = [at for at, operation in enumerate(program) if isinstance(operation, Meet)]
        del program[meets[which]]
        return program

    return change


def _meets(base: Algorithm, nranks: int) -> bool:
    return base.shared is not None


def _divide_again(base: Algorithm, rank: int, nranks: int) -> Program:
    return [*base.operations(rank, nranks), scale(work(0, base.blocks(nranks)))]


def _empty(base: Algorithm, nranks: int, count: int) -> str | None:
    """Say that the blocks that are broken hold nothing."""
    nblocks, ntemp = base.blocks(nranks), base.temp(nranks)
    sizes = block_sizes(count, nblocks)
    _, _, blocks = _first_addition(base, nranks)
    broken = [block % nblocks for _, block in block_numbers(blocks, nblocks, ntemp)]
    return None if any(sizes[block] for block in broken) else "the broken block is empty"


SCHEDULE_MUTANTS = (
    ScheduleMutant(
        name="dropped",
        breaks="what one rank gets first is not added",
        change=_drop,
        applies=_reduces,
        equivalent=_empty,
    ),
    ScheduleMutant(
        name="doubled",
        breaks="one rank adds its own input twice",
        change=_double,
        applies=_reduces,
        equivalent=_empty,
    ),
    ScheduleMutant(
        name="forgetful",
        breaks="every rank sends its input, not the sum so far",
        change=_forget,
        applies=lambda base, nranks: _reduces(base, nranks) and not base.reads_original and base.shared is None,
    ),
    ScheduleMutant(
        name="misplaced",
        breaks="one rank's blocks end one place too far",
        change=_misplace,
        applies=lambda base, nranks: base.blocks(nranks) > 1,
        even=True,
    ),
    ScheduleMutant(
        name="redivided",
        breaks="an average is divided once more",
        change=_divide_again,
        applies=_reduces,
        op="average",
    ),
    ScheduleMutant(
        name="early",
        breaks="nobody waits until all have come",
        change=_lose_meet(0),
        applies=_meets,
        race=True,
    ),
    ScheduleMutant(
        name="hasty",
        breaks="nobody waits until all are done",
        change=_lose_meet(-1),
        applies=_meets,
        race=True,
    ),
)

"""The self-test of the checker: broken collectives, run and checked by ``measure`` as a sweep's are.

Some have a broken schedule (``schedule.mutate``); here are those that no schedule can express, because a right plan is
run and then spoils something. Each says by itself where it breaks nothing, so that the check is not asked to judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ringbench.records.row import Row
from ringbench.records.settings import Settings
from ringbench.runtime.data import rounds
from ringbench.runtime.demands import COMPLEX, ITEMSIZE
from ringbench.runtime.execute import Call, Plan
from ringbench.runtime.plan import plan
from ringbench.runtime.worker import measure
from ringbench.schedule.blocks import block_offset
from ringbench.schedule.mutate import SCHEDULE_MUTANTS, ScheduleMutant, mutated, refusal
from ringbench.schedule.registry import Algorithm, algorithm_named, registered
from ringbench.schedule.semantics import Collective, collective_named

Vector = Any

#: What is broken: collective, algorithm, and which operations on which types.
BASES = (
    ("allreduce", "ring", ("sum float32", "average float64", "sum int32", "sum float16", "sum complex64", "lor bool")),
    ("allreduce", "recursive_doubling", ("sum float32", "max int32")),
    ("allreduce", "naive", ("sum float32",)),
    ("reduce_scatter", "ring", ("average float32", "sum int32")),
    ("allgather", "ring", ("sum float32", "sum bool")),
    ("bcast", "binomial", ("sum float32", "sum bool")),
    ("reduce", "binomial", ("sum float32", "sum int32")),
    ("alltoall", "pairwise", ("sum float32", "sum bool")),
    ("allreduce", "shared_memory", ("sum float32", "average float64")),
    ("allreduce", "shared_copy", ("sum float32", "average float64")),
    ("reduce_scatter", "shared_memory", ("sum float32",)),
    ("allgather", "shared_memory", ("sum float32",)),
)

#: Among so many elements nothing is alike by chance, not even truths; many numbers of ranks divide it.
MANY = 840

#: The fewest iterations that go through every part of a measurement.
QUICK = Settings(min_samples=2, max_samples=2, warmup=1)


class Cell(NamedTuple):
    """Name what is measured, as all ranks see it."""

    semantics: Collective
    op: str
    dtype: str
    nranks: int
    elements: int
    in_place: bool

    @property
    def victim(self) -> int:
        """Return the rank that is broken where one alone is: the last one that the collective gives anything to."""
        return 0 if self.semantics.name == "reduce" else self.nranks - 1

    def received(self, rank: int) -> int:
        """Return the elements of a rank's result."""
        return self.semantics.recv_count(rank, self.nranks, self.elements)

    @property
    def fractions(self) -> bool:
        """Say whether floats are reduced, and may round."""
        return self.semantics.reduces and rounds(self.op, self.dtype)


class Buffers(NamedTuple):
    """Hold a rank's arrays: the input (in place: where it lies in the result), the result, and all of ``recvbuf``."""

    input: Vector
    result: Vector
    whole: Vector


#: Makes the calls that stand before and behind those of the right plan; None: it is not run at all.
Spoil = Callable[[Cell, int, Buffers], "tuple[Sequence[Call], Sequence[Call]] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMutant:
    """Describe one way to spoil a right plan; see ``ScheduleMutant``."""

    name: str
    breaks: str
    spoil: Spoil
    applies: Callable[[Cell], bool] = lambda cell: True
    equivalent: Callable[[Cell], str | None] = lambda cell: None
    op: Callable[[Cell], str] = lambda cell: cell.op


def _behind(spoil: Callable[[Cell, Buffers], None]) -> Spoil:
    """Spoil what one rank, the victim, ends with."""
    return lambda cell, rank, buffers: ((), [(spoil, (cell, buffers))] if rank == cell.victim else ())


def _absent(cell: Cell, rank: int, buffers: Buffers) -> tuple[Sequence[Call], Sequence[Call]]:
    if rank != _bringer(cell):
        return (), ()
    saved = buffers.input.copy()
    if not cell.in_place:
        return [(np.copyto, (saved, buffers.input)), (buffers.input.fill, (0,))], [(np.copyto, (buffers.input, saved))]
    return [(buffers.input.fill, (0,))], ()


def _bringer(cell: Cell) -> int:
    return 0 if cell.semantics.name == "bcast" else cell.nranks - 1


def _flip(cell: Cell, buffers: Buffers) -> None:
    at = buffers.result.size // 2
    buffers.result[at : at + 1].view(np.uint8)[:1] ^= 1


def _roll(cell: Cell, buffers: Buffers) -> None:
    buffers.result[...] = np.roll(buffers.result, 1)


def _scribble(cell: Cell, buffers: Buffers) -> None:
    buffers.input[:1] = buffers.input[:1] == 0


def _overrun(cell: Cell, buffers: Buffers) -> None:
    behind = np.lib.stride_tricks.as_strided(buffers.whole, (buffers.whole.size + 1,), (buffers.whole.itemsize,))
    behind[-1] = 0


def _narrow(cell: Cell, buffers: Buffers) -> None:
    narrower = {"float64": "float32", "float32": "float16"}[cell.dtype]
    buffers.result[...] = buffers.result.astype(narrower)


def _second_call(spoil: Callable[[Cell, Buffers], None]) -> Callable[[Cell, Buffers], None]:
    """Spoil the second call alone: that on data that round."""
    calls = [0]

    def once(cell: Cell, buffers: Buffers) -> None:
        calls[0] += 1
        if calls[0] == 2:
            spoil(cell, buffers)

    return once


def _not_a_number(cell: Cell, buffers: Buffers) -> None:
    at = buffers.result.size // 2
    buffers.result[at : at + 1] = np.nan


def _only_second(spoil: Callable[[Cell, Buffers], None]) -> Spoil:
    return lambda cell, rank, buffers: _behind(_second_call(spoil))(cell, rank, buffers)


def _keep_end(length: Callable[[Cell, int], int]) -> Spoil:
    """Leave the last elements of every rank's result as they were before."""

    def spoil(cell: Cell, rank: int, buffers: Buffers) -> tuple[Sequence[Call], Sequence[Call]]:
        end = buffers.result[buffers.result.size - length(cell, rank) :]
        saved = end.copy()
        return [(np.copyto, (saved, end))], [(np.copyto, (end, saved))]

    return spoil


def _remainder(cell: Cell, rank: int) -> int:
    return cell.elements % cell.nranks if cell.received(rank) else 0


def _earlier(again: Callable[[int], bool], refresh: bool) -> Spoil:
    """Give what an earlier call gave, in those calls that ``again`` names by their number, from 1 on."""

    def spoil(cell: Cell, rank: int, buffers: Buffers) -> tuple[Sequence[Call], Sequence[Call]]:
        before = buffers.result.copy()
        calls = [0]

        def give() -> None:
            now = buffers.result.copy()
            if again(calls[0]):
                buffers.result[...] = before
            if refresh or not calls[0]:
                before[...] = now
            calls[0] += 1

        return (), [(give, ())]

    return spoil


def _nobody_gets(cell: Cell) -> str | None:
    return None if cell.received(cell.victim) else "the broken rank gets nothing"


def _nobody_brings(cell: Cell) -> str | None:
    brings = cell.semantics.send_count(_bringer(cell), cell.nranks, cell.elements)
    return None if brings else "the absent rank brings nothing"


def _whole(cell: Cell) -> bool:
    """Say whether some rank gets the whole vector, cut into as many blocks as ranks."""
    return cell.semantics.name in ("allreduce", "allgather", "bcast", "reduce")


def _distinct(cell: Cell) -> bool:
    """Say whether what stands at one place tells it from others: always, but for a few truths."""
    return cell.dtype != "bool" or cell.elements >= MANY


OTHER_OP = {"sum": "max", "average": "sum", "max": "min", "lor": "land"}

PLAN_MUTANTS = (
    PlanMutant(
        name="absent",
        breaks="one rank brings zeros instead of its input",
        spoil=_absent,
        applies=lambda cell: cell.op != "max" and _distinct(cell),
        equivalent=_nobody_brings,
    ),
    PlanMutant(
        name="idle",
        breaks="nothing is done at all",
        spoil=lambda cell, rank, buffers: None,
        # A few truths that should change places may be alike.
        applies=lambda cell: not (cell.semantics.transposes and cell.in_place) or _distinct(cell),
    ),
    PlanMutant(
        name="frozen",
        breaks="every call gives what the first one gave",
        spoil=_earlier(lambda calls: calls > 0, refresh=False),
    ),
    PlanMutant(
        name="stale",
        breaks="every call gives what the one before gave",
        spoil=_earlier(lambda calls: calls > 0, refresh=True),
    ),
    PlanMutant(
        name="alternating",
        breaks="every other call gives what the one before gave",
        spoil=_earlier(lambda calls: calls % 2 == 1, refresh=True),
    ),
    PlanMutant(
        name="flipped",
        breaks="one bit of one element differs on one rank",
        spoil=_behind(_flip),
        equivalent=_nobody_gets,
    ),
    PlanMutant(
        name="last_bit",
        breaks="that, the lowest bit, and only of a sum that rounds",
        spoil=_only_second(_flip),
        applies=lambda cell: cell.fractions and cell.semantics.name == "allreduce",
    ),
    PlanMutant(
        name="not_a_number",
        breaks="one element is NaN, only of a sum that rounds",
        spoil=_only_second(_not_a_number),
        applies=lambda cell: cell.fractions,
        equivalent=_nobody_gets,
    ),
    PlanMutant(
        name="narrow",
        breaks="one rank's sum is rounded to half the bits",
        spoil=_behind(_narrow),
        applies=lambda cell: cell.fractions and cell.dtype in ("float32", "float64") and cell.elements >= MANY,
    ),
    PlanMutant(
        name="shifted",
        breaks="one rank's elements stand one place too far",
        spoil=_behind(_roll),
        applies=_distinct,
        equivalent=lambda cell: "there is no other place" if cell.received(cell.victim) < 2 else None,
    ),
    PlanMutant(
        name="endless",
        breaks="the last element is left out",
        spoil=_keep_end(lambda cell, rank: min(1, cell.received(rank))),
        applies=_distinct,
    ),
    PlanMutant(
        name="remainder",
        breaks="what is left after N equal blocks is left out",
        spoil=_keep_end(_remainder),
        applies=lambda cell: _whole(cell) and _distinct(cell),
        equivalent=lambda cell: None if cell.elements % cell.nranks else "nothing is left after N equal blocks",
    ),
    PlanMutant(
        name="other_op",
        breaks="another operation is used (max for sum)",
        spoil=lambda cell, rank, buffers: ((), ()),
        applies=lambda cell: cell.semantics.reduces and cell.dtype not in COMPLEX,
        op=lambda cell: OTHER_OP[cell.op],
    ),
    PlanMutant(
        name="scribbling",
        breaks="one rank's input is changed",
        spoil=lambda cell, rank, buffers: ((), [(_scribble, (cell, buffers))] if rank == _bringer(cell) else ()),
        applies=lambda cell: not cell.in_place,
        equivalent=_nobody_brings,
    ),
    PlanMutant(
        name="overrunning",
        breaks="one rank writes one element behind its buffer",
        spoil=_behind(_overrun),
    ),
)

Mutant = ScheduleMutant | PlanMutant


def spoiled(
    mutant: PlanMutant, cell: Cell, comm: Any, sendbuf: Vector, recvbuf: Vector, algorithm: str, **options: Any
) -> Plan:
    """Return a right plan with something broken around it."""
    name = cell.semantics.name
    right = plan(name, algorithm, comm, sendbuf, recvbuf, mutant.op(cell), **options)
    rank = comm.Get_rank()
    brought = cell.semantics.brought(rank, cell.nranks, 0)
    start, end = (block_offset(cell.elements, cell.nranks, block) for block in (brought.start, brought.stop))
    given = recvbuf[start:end] if cell.in_place else sendbuf
    around = mutant.spoil(cell, rank, Buffers(given, recvbuf[: cell.received(rank)], recvbuf))
    calls = [] if around is None else [*around[0], *right.calls, *around[1]]
    return Plan(name, right.algorithm, calls, in_place=right.in_place, bytes_sent=right.bytes_sent)


def counts(collective: str, nranks: int) -> tuple[int, ...]:
    """Return numbers of elements: fewer than ranks, some that N does not divide, and more than a table has."""
    if collective_named(collective).transposes:
        return nranks, 3 * nranks, 2 * MANY
    return 1, 2 * nranks + 1, 2 * MANY


def try_mutants(comm: Any, collective: str | None = None) -> Iterator[dict[str, Any]]:
    """Run every mutant of every base beside the base itself; yield what became of each cell, the same on all ranks.

    ``wrong`` is the number of wrong elements that the check found and ``detail`` the first; ``equivalent`` says why the
    mutant breaks nothing there; ``proof`` is how the proof refuses its schedule, where that is what is broken.
    """
    nranks = comm.Get_size()
    for name, algorithm, kinds in BASES:
        if collective in (None, name):
            base = algorithm_named(name, algorithm)
            broken = {
                f"{algorithm}~{mutant.name}": (mutant, mutated(base, mutant))
                for mutant in SCHEDULE_MUTANTS
                if mutant.applies(base, nranks)
            }
            races = {title for title, (mutant, _) in broken.items() if mutant.race}
            refusals = {title: refusal(changed, nranks) for title, (_, changed) in broken.items()}
            for title in sorted(races):
                yield _proved(broken[title][0], base, nranks, refusals[title])
            with registered(changed for _, changed in broken.values()):
                for number, kind in enumerate(kinds):
                    op, _, dtype = kind.partition(" ")
                    for index, count in enumerate(counts(name, nranks)):
                        if number and index == 1:
                            continue  # or it would take a minute where ranks outnumber cores
                        # The first of all in place and out of place, the others in turns.
                        both = number == 0 and BASES[0][:2] == (name, algorithm)
                        for in_place in (True, False) if both else ((number + index) % 2 == 0,):
                            cell = Cell(collective_named(name), op, dtype, nranks, count, in_place)
                            for row in _measured(comm, base, cell):
                                yield _outcome(row, base, op, refusals)


def _measured(comm: Any, base: Algorithm, cell: Cell) -> Iterator[Row]:
    """Measure a base and all that breaks it in one cell."""
    spoilers = {f"{base.name}~{mutant.name}": mutant for mutant in PLAN_MUTANTS if mutant.applies(cell)}

    def make_plan(
        collective: str, algorithm: str, comm: Any, sendbuf: Vector, recvbuf: Vector, op: str, segment: int, **more: Any
    ) -> Plan:
        mutant = spoilers.get(algorithm)
        if mutant is None:
            return plan(collective, algorithm, comm, sendbuf, recvbuf, op, segment, **more)
        return spoiled(mutant, cell, comm, sendbuf, recvbuf, base.name, segment=segment, **more)

    schedules = [
        f"{base.name}~{mutant.name}"
        for mutant in SCHEDULE_MUTANTS
        if mutant.applies(base, cell.nranks)
        and not mutant.race
        and not (mutant.even and cell.elements % base.blocks(cell.nranks))
        and mutant.op in (None, cell.op)
        and cell.op in ("sum", "average")  # of the least or the greatest, one more or less may be right
        and _distinct(cell)
    ]
    settings = replace(
        QUICK,
        collective=base.collective,
        algorithms=(base.name, *schedules, *spoilers),
        sizes=(cell.elements * ITEMSIZE[cell.dtype],),
        dtype=cell.dtype,
        op=cell.op,
        placement="in" if cell.in_place else "out",
        memory="shared" if base.shared == "work" else "private",
    )
    return measure(comm, settings, make_plan=make_plan)


def _proved(mutant: ScheduleMutant, base: Algorithm, nranks: int, proof: str | None) -> dict[str, Any]:
    """Return one flat object for a race, which nobody runs: it is caught where the proof refuses it."""
    return {
        "mutant": mutant.name,
        "breaks": mutant.breaks,
        "collective": base.collective,
        "algorithm": base.name,
        "op": "none",
        "dtype": "any",
        "nranks": nranks,
        "count": 0,
        "in_place": True,
        "wrong": int(proof is not None),
        "detail": proof,
        "equivalent": None,
        "proof": proof,
    }


def _outcome(row: Row, base: Algorithm, op: str, refusals: dict[str, str | None]) -> dict[str, Any]:
    """Return one flat object for a cell."""
    _, _, name = row.algorithm.partition("~")
    by_name: dict[str, Mutant] = {mutant.name: mutant for mutant in (*SCHEDULE_MUTANTS, *PLAN_MUTANTS)}
    mutant = by_name.get(name)
    proof = refusals.get(row.algorithm)
    equivalent = None
    if isinstance(mutant, ScheduleMutant):
        equivalent = mutant.equivalent(base, row.nranks, row.count)
        if proof is None:
            equivalent = f"its schedule is proved right on {row.nranks} ranks"
    elif mutant is not None:
        cell = Cell(collective_named(base.collective), op, row.dtype, row.nranks, row.count, row.in_place)
        equivalent = mutant.equivalent(cell)
    return {
        "mutant": name or None,
        "breaks": mutant.breaks if mutant else None,
        "collective": row.collective,
        "algorithm": base.name,
        "op": row.op,
        "dtype": row.dtype,
        "nranks": row.nranks,
        "count": row.count,
        "in_place": row.in_place,
        "wrong": row.wrong,
        "detail": row.wrong_detail or row.reason,
        "equivalent": equivalent,
        "proof": proof,
    }

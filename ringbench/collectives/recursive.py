"""Recursive halving and doubling: log N rounds with partners at doubling distances."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.compose import (
    floor_log2,
    floor_power,
    fold,
    folded,
    folded_critical,
    folded_rounds,
    halving_critical,
    is_power,
    renamed,
)
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


@register(
    "allreduce",
    "recursive_doubling",
    blocks=lambda nranks: 1,
    rounds=lambda nranks: folded_rounds(floor_log2(nranks), nranks),
    sent=lambda nranks: floor_log2(nranks) + (not is_power(nranks)),
    critical=lambda nranks: folded_critical(floor_log2(nranks), floor_log2(nranks), nranks),
    formulas=("f; f+2 folded", "f; f+1 folded"),
)
def recursive_doubling_allreduce(rank: int, nranks: int) -> Operations:
    """Exchange the whole sum with partners at distances 1, 2, 4: the fewest rounds. Thakur et al. 2005."""

    def doubling(index: int, power: int) -> Operations:
        for bit in range(floor_log2(power)):
            partner = index ^ 1 << bit
            yield Step(dest=partner, send=work(0), source=partner, recv=work(0), combine=True)

    return folded(rank, nranks, 1, doubling)


def halving(index: int, power: int) -> Operations:
    """Reduce-scatter on a power of two: send half of what is left to the far half; block ``index`` ends here."""
    distance = power
    while distance := distance // 2:
        keep, give = index & -distance, (index ^ distance) & -distance
        partner = index ^ distance
        yield Step(dest=partner, send=work(give, distance), source=partner, recv=work(keep, distance), combine=True)


def doubling(index: int, power: int) -> Operations:
    """All-gather on a power of two: the way back of ``halving``."""
    distance = 1
    while distance < power:
        have, get = index & -distance, (index ^ distance) & -distance
        partner = index ^ distance
        yield Step(dest=partner, send=work(have, distance), source=partner, recv=work(get, distance))
        distance *= 2


@register(
    "allreduce",
    "rabenseifner",
    blocks=floor_power,
    rounds=lambda nranks: folded_rounds(2 * floor_log2(nranks), nranks),
    sent=lambda nranks: Fraction(2 * (floor_power(nranks) - 1), floor_power(nranks)) + (not is_power(nranks)),
    critical=halving_critical,
    formulas=("2f; 2f+2 folded", "2(N-1)/N; 1 + 2(p-1)/p folded"),
)
def rabenseifner_allreduce(rank: int, nranks: int) -> Operations:
    """Recursive halving, then doubling: as few bytes as the ring in 2 log N rounds. Rabenseifner 2004."""

    def both(index: int, power: int) -> Operations:
        yield from halving(index, power)
        yield scale(work(index))
        yield from doubling(index, power)

    return folded(rank, nranks, floor_power(nranks), both)


@register(
    "reduce_scatter",
    "recursive_halving",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: folded_rounds(floor_log2(nranks), nranks),
    sent=lambda nranks: Fraction(nranks - 1, nranks) if is_power(nranks) else Fraction(1),
    critical=lambda nranks: (Fraction(nranks - 1, nranks), Fraction(nranks - 1, nranks)) if is_power(nranks) else None,
    formulas=("f; f+2 folded", "(N-1)/N; 1 folded"),
)
def recursive_halving_reduce_scatter(rank: int, nranks: int) -> Operations:
    """Send half of what is left to the far half, each round. Thakur, Rabenseifner and Gropp 2005.

    Of the ranks that were folded, one works for both, and sends the other its block at the end.
    """
    here = fold(rank, nranks)
    if here.index is None:
        yield Step(dest=here.partner, send=work(0, nranks))
        yield Step(source=here.partner, recv=work(rank))
        return
    if here.partner is not None:
        yield Step(source=here.partner, recv=work(0, nranks), combine=True)

    def blocks(first: int, distance: int) -> tuple[int, int]:
        start = first + min(first, here.rest)
        end = first + distance + min(first + distance, here.rest)
        return start, end - start

    distance = here.power
    while distance := distance // 2:
        keep, give = here.index & -distance, (here.index ^ distance) & -distance
        partner = here.rank(here.index ^ distance)
        yield Step(
            dest=partner,
            send=work(*blocks(give, distance)),
            source=partner,
            recv=work(*blocks(keep, distance)),
            combine=True,
        )
    if here.partner is not None:
        yield Step(dest=here.partner, send=work(here.partner))


def _doubling_sent(nranks: int) -> Fraction:
    """Return what index 0 sends: its groups hold two blocks for each folded pair, and it has one to send them to."""
    rest = nranks - floor_power(nranks)
    groups = sum(2**bit + min(2**bit, rest) for bit in range(floor_log2(nranks)))
    return Fraction(groups + (nranks - 1 if rest else 0), nranks)


@register(
    "allgather",
    "recursive_doubling",
    blocks=lambda nranks: nranks,
    rounds=lambda nranks: folded_rounds(floor_log2(nranks), nranks),
    sent=_doubling_sent,
    critical=lambda nranks: (Fraction(nranks - 1, nranks), 0) if is_power(nranks) else None,
    formulas=("f; f+2 folded", "(N-1)/N; at most 5/2 folded"),
)
def recursive_doubling_allgather(rank: int, nranks: int) -> Operations:
    """Exchange all blocks gathered so far with partners at distances 1, 2, 4. Thakur et al. 2005.

    Of the ranks that were folded, one brings both blocks, and sends the other what it lacks at the end.
    """
    here = fold(rank, nranks)
    if here.index is None:
        yield Step(dest=here.partner, send=work(rank))
        yield Step(source=here.partner, recv=work(rank + 1, nranks - 1))
        return
    if here.partner is not None:
        yield Step(source=here.partner, recv=work(here.partner))
    distance = 1
    while distance < here.power:
        spans = []
        for first in (here.index & -distance, (here.index ^ distance) & -distance):
            start, end = (index + min(index, here.rest) for index in (first, first + distance))
            spans.append(work(start, end - start))
        partner = here.rank(here.index ^ distance)
        yield Step(dest=partner, send=spans[0], source=partner, recv=spans[1])
        distance *= 2
    if here.partner is not None:
        yield Step(dest=here.partner, send=work(rank, nranks - 1))


def _reduce_critical(nranks: int) -> tuple[Fraction, Fraction]:
    """Return the critical path of an allreduce without its last message: the root needs none."""
    moved, reduced = halving_critical(nranks)
    return moved - (not is_power(nranks)), reduced


@register(
    "reduce",
    "rabenseifner",
    blocks=floor_power,
    rounds=lambda nranks: 2 * floor_log2(nranks) + (not is_power(nranks)),
    sent=lambda nranks: Fraction(floor_power(nranks) - 1, floor_power(nranks)) + Fraction(nranks > 1, 2),
    critical=_reduce_critical,
    formulas=("2f; 2f+1 folded", "(p-1)/p + 1/2"),
    arguments=("root",),
)
def rabenseifner_reduce(rank: int, nranks: int, root: int = 0) -> Operations:
    """Reduce-scatter by recursive halving, then gather along a binomial tree. Rabenseifner 2004."""
    here = fold((rank - root) % nranks, nranks, keep=0)  # the root is counted as 0 and must remain

    def real(index: int) -> int:
        return (here.rank(index) + root) % nranks

    whole = work(0, here.power)
    if here.index is None:
        yield Step(dest=(rank - 1) % nranks, send=whole)
        return
    if here.partner is not None:
        yield Step(source=(rank + 1) % nranks, recv=whole, combine=True)
    index = here.index
    yield from renamed(halving(index, here.power), real)
    distance = 1
    while distance < here.power and not index & distance:
        yield Step(source=real(index + distance), recv=work(index + distance, distance))
        distance *= 2
    if index:
        yield Step(dest=real(index - distance), send=work(index, distance))

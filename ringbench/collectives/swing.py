"""Swing: recursive doubling whose partners lie alternately to the left and to the right, close first."""

from __future__ import annotations

from fractions import Fraction

from ringbench.schedule.compose import (
    floor_log2,
    floor_power,
    folded,
    folded_critical,
    folded_rounds,
    halving_critical,
    is_power,
)
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


def reach(step: int) -> int:
    """Return the signed distance of an even rank's partner: 1, -1, 3, -5, 11 ..."""
    power = int(2 << step)
    return (1 - (-power if step % 2 == 0 else power)) // 3


def partner(index: int, step: int, power: int) -> int:
    """Return the partner in a step: an even rank looks one way, an odd one the other."""
    return (index + (reach(step) if index % 2 == 0 else -reach(step))) % power


def position(index: int, power: int) -> int:
    """Return a number by which ranks that still exchange with each other after each step are neighbours.

    After step s they are the even ranks equal modulo 2^(s+2) and their odd partners of the last step. So the bits of
    the even one but the lowest, read backwards, number the pairs; evenness numbers the two of a pair.
    """
    steps = floor_log2(power)
    even = index if index % 2 == 0 else (index - reach(steps - 1)) % power
    number = 0
    for bit in range(1, steps):
        number = 2 * number + (even >> bit & 1)
    return 2 * number + index % 2


@register(
    "allreduce",
    "swing",
    blocks=floor_power,
    rounds=lambda nranks: folded_rounds(2 * floor_log2(nranks), nranks),
    sent=lambda nranks: Fraction(2 * (floor_power(nranks) - 1), floor_power(nranks)) + (not is_power(nranks)),
    critical=halving_critical,
    formulas=("2f; 2f+2 folded", "2(N-1)/N; 1 + 2(p-1)/p folded"),
)
def swing_allreduce(rank: int, nranks: int) -> Operations:
    """Halve and double with close partners first: shorter ways on a torus. De Sensi et al. 2024, bandwidth form.

    Any rank may keep any block, so blocks are numbered such that what a rank still works for is always one range.
    """

    def both(index: int, power: int) -> Operations:
        place, steps = position(index, power), floor_log2(power)
        for step in range(steps):
            size = power >> step + 1
            keep, give = place & -size, (place ^ size) & -size
            peer = partner(index, step, power)
            yield Step(dest=peer, send=work(give, size), source=peer, recv=work(keep, size), combine=True)
        yield scale(work(place))
        for step in reversed(range(steps)):
            size = power >> step + 1
            have, get = place & -size, (place ^ size) & -size
            peer = partner(index, step, power)
            yield Step(dest=peer, send=work(have, size), source=peer, recv=work(get, size))

    return folded(rank, nranks, floor_power(nranks), both)


@register(
    "allreduce",
    "swing_latency",
    blocks=lambda nranks: 1,
    rounds=lambda nranks: folded_rounds(floor_log2(nranks), nranks),
    sent=lambda nranks: floor_log2(nranks) + (not is_power(nranks)),
    critical=lambda nranks: folded_critical(floor_log2(nranks), floor_log2(nranks), nranks),
    formulas=("f; f+2 folded", "f; f+1 folded"),
    identical_bits=False,
)
def swing_latency_allreduce(rank: int, nranks: int) -> Operations:
    """Exchange whole sums with Swing's partners. De Sensi et al. 2024, latency form.

    What a rank holds after two steps is not what its next partner's neighbours hold, so that each rank adds in an
    order of its own: the last bits may differ.
    """

    def exchange(index: int, power: int) -> Operations:
        for step in range(floor_log2(power)):
            peer = partner(index, step, power)
            yield Step(dest=peer, send=work(0), source=peer, recv=work(0), combine=True)

    return folded(rank, nranks, 1, exchange)

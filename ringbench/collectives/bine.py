"""Bine: binomial trees on negabinary numbers, whose long edges are a third shorter than a binomial tree's."""

from __future__ import annotations

from ringbench.collectives.swing import partner
from ringbench.schedule.compose import floor_log2, folded, folded_critical, folded_rounds, is_power
from ringbench.schedule.registry import register
from ringbench.schedule.step import Operations, Step, scale, work


def negabinary(number: int, bits: int) -> int:
    """Return the digits of a number modulo 2^bits to the base -2, as an integer whose bits they are."""
    alternating = sum(2 << 2 * digit for digit in range(bits // 2 + 1))
    return ((number + alternating) ^ alternating) & ((1 << bits) - 1)


def joining_step(index: int, power: int) -> int:
    """Return the step, counted down from f - 1, at which the broadcast from 0 reaches an index (f for 0 itself).

    It is the first at which all lower digits of the index, the step's own included, are equal.
    """
    steps = floor_log2(power)
    if index == 0:
        return steps
    digits = negabinary(index, steps)
    for step in reversed(range(steps)):
        low = (2 << step) - 1
        if digits & low in (0, low):
            return step
    raise AssertionError("one digit alone is always equal")


@register(
    "allreduce",
    "bine",
    blocks=lambda nranks: 1,
    rounds=lambda nranks: folded_rounds(2 * floor_log2(nranks), nranks),
    sent=lambda nranks: floor_log2(nranks) + (not is_power(nranks)),
    critical=lambda nranks: folded_critical(2 * floor_log2(nranks), floor_log2(nranks), nranks),
    formulas=("2f; 2f+2 folded", "f; f+1 folded"),
)
def bine_allreduce(rank: int, nranks: int) -> Operations:
    """Reduce up a Bine tree, then broadcast down it: fewer bytes over far links. De Sensi et al. 2025, small vectors.

    At step s an index deals with the one at distance 1, -1, 3, -5 ... as in Swing. (The paper's form for large vectors
    halves and doubles with the same partners, which here is ``swing``.)
    """

    def up_and_down(index: int, power: int) -> Operations:
        joins = joining_step(index, power)
        for step in range(joins):
            yield Step(source=partner(index, step, power), recv=work(0), combine=True)
        if index == 0:
            yield scale(work(0))
        else:
            yield Step(dest=partner(index, joins, power), send=work(0))
            yield Step(source=partner(index, joins, power), recv=work(0))
        for step in reversed(range(joins)):
            yield Step(dest=partner(index, step, power), send=work(0))

    return folded(rank, nranks, 1, up_and_down)

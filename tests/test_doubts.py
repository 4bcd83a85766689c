"""What samples say against a row: each guard is provoked, and silent where nothing but chance is at work."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from ringbench.records.doubts import DRIFT_FEWEST, FEWEST, bimodal, drifts, row_warnings, settles
from ringbench.records.row import Row

TICK = 1e-9
CELLS = 1000


def row(samples: Sequence[float], *, wrong: int = 0, identical_bits: bool | None = None) -> Row:
    return Row(
        collective="allreduce",
        algorithm="ring",
        op="sum",
        dtype="float32",
        device="cpu",
        nranks=2,
        nbytes=64,
        count=16,
        in_place=True,
        launch=0,
        samples_s=tuple(samples),
        wrong=wrong,
        identical_bits=identical_bits,
    )


def lognormal(dice: random.Random, n: int, sigma: float, middle: float = 1e-5) -> list[float]:
    return [middle * math.exp(dice.gauss(0, sigma)) for _ in range(n)]


def calm(n: int = 40) -> list[float]:
    return lognormal(random.Random(3), n, 0.01)


def test_calm_samples_raise_nothing() -> None:
    assert row_warnings(row(calm()), TICK) == ()
    assert row_warnings(row(()), TICK) == ()
    assert row_warnings(row([1e-5] * 100), TICK) == ()


def test_short() -> None:
    assert row_warnings(row([99e-9] * 50), TICK) == ("short",)
    assert row_warnings(row([101e-9] * 50), TICK) == ()


def test_noisy() -> None:
    dice = random.Random(1)
    assert row_warnings(row(lognormal(dice, 12, 0.3)), TICK) == ("noisy",)
    assert row_warnings(row([1e-5] * 5), TICK) == ("noisy",)  # too few for an interval
    assert row_warnings(row([1e-5] * 6), TICK) == ()


def test_wrong_and_different_bits() -> None:
    assert row_warnings(row(calm(), wrong=2, identical_bits=False), TICK) == ("bits differ", "wrong")
    assert row_warnings(row(calm(), identical_bits=True), TICK) == ()


# Provoked.


@pytest.mark.parametrize("factor", [1.10, 0.90])
def test_a_machine_that_grows_slower_or_faster_drifts(factor: float) -> None:
    samples = calm(20) + [factor * time for time in calm(20)]
    assert "drift" in row_warnings(row(samples), TICK)
    creeping = [time * (1 + (factor - 1) * 2 * index / 100) for index, time in enumerate(calm(100))]
    assert drifts(creeping)


def test_a_shift_that_does_not_matter_is_no_drift() -> None:
    samples = calm(200) + [1.03 * time for time in calm(200)]
    assert not drifts(samples)
    assert drifts(calm(200) + [1.08 * time for time in calm(200)])


def test_one_slow_stretch_is_no_drift() -> None:
    samples = calm(60)
    samples[40:48] = [5 * time for time in samples[40:48]]
    assert not drifts(samples)


@pytest.mark.parametrize("share", [0.15, 0.5, 0.85])
@pytest.mark.parametrize("n", [40, 200])
def test_two_groups_of_samples_are_bimodal(n: int, share: float) -> None:
    dice = random.Random(n)
    slow = round(share * n)
    samples = lognormal(dice, n - slow, 0.02) + lognormal(dice, slow, 0.02, 1.5e-5)
    dice.shuffle(samples)
    assert "bimodal" in row_warnings(row(samples), TICK)
    # Neither a single sample far out nor a few between the groups hide them.
    assert bimodal([*samples, 1.0])
    assert bimodal([*samples, 1.25e-5])


def test_groups_too_small_or_too_close_are_none() -> None:
    dice = random.Random(4)
    few = lognormal(dice, 95, 0.02) + lognormal(dice, 5, 0.02, 2e-5)
    close = lognormal(dice, 50, 0.001) + lognormal(dice, 50, 0.001, 1.05e-5)
    for samples in (few, close):
        dice.shuffle(samples)
        assert not bimodal(samples)


def test_first_samples_that_are_slower_were_meant_for_the_warm_up() -> None:
    samples = calm()
    samples[:3] = [1.5e-5, 1.4e-5, 1.3e-5]
    assert row_warnings(row(samples), TICK) == ("settling",)
    assert not settles(samples[::-1])
    one = calm()
    one[0] = 9e-5
    assert not settles(one)
    slightly = calm()
    slightly[:3] = [1.05e-5] * 3
    assert not settles(slightly)


def test_steps_of_the_clock_are_none_of_these() -> None:
    """A clock of 40 ns shows times of 200 ns as 200 or 240."""
    ticks = [240e-9] * 20 + [200e-9] * 20
    early = [240e-9] * 3 + [200e-9] * 30
    assert (drifts(ticks), bimodal(ticks), settles(early)) == (True, True, True)
    assert row_warnings(row(ticks), 40e-9) == ("short", "noisy")
    assert row_warnings(row(early), 40e-9) == ("short",)


@pytest.mark.parametrize(("guard", "fewest"), [(drifts, DRIFT_FEWEST), (bimodal, FEWEST), (settles, FEWEST)])
def test_too_few_samples_say_nothing(guard: Callable[[Sequence[float]], bool], fewest: int) -> None:
    half = fewest // 2
    samples = [3.0 - index * 1e-3 for index in range(half)] + [1.0 + index * 1e-3 for index in range(half)]
    assert guard(samples)
    assert not guard(samples[1:])
    assert not guard([])
    assert not guard([0.0] * 30)


# Silent: by chance they must not speak in more than 2 of 100 cells.


@pytest.mark.parametrize("n", [16, 20, 32, 64, 200])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0])
def test_independent_samples_seldom_raise_one(n: int, sigma: float) -> None:
    dice = random.Random(f"{n} {sigma}")
    number = dict.fromkeys(("drift", "bimodal", "settling"), 0)
    for _ in range(CELLS):
        samples = lognormal(dice, n, sigma)
        number["drift"] += drifts(samples)
        number["bimodal"] += bimodal(samples)
        number["settling"] += settles(samples)
    assert all(count <= 0.02 * CELLS for count in number.values()), number


@pytest.mark.parametrize("place", [0, 10, -1])
def test_a_single_sample_far_out_raises_none(place: int) -> None:
    dice = random.Random(8)
    number = dict.fromkeys(("drift", "bimodal", "settling"), 0)
    for _ in range(CELLS):
        samples = lognormal(dice, 24, 0.05)
        samples[place] = 1.0
        number["drift"] += drifts(samples)
        number["bimodal"] += bimodal(samples)
        number["settling"] += settles(samples)
    assert all(count <= 0.02 * CELLS for count in number.values()), number


def test_what_simulations_find_is_what_would_be_found() -> None:
    """The counting above can fail: cells that are not calm are nearly all found."""
    dice = random.Random(9)
    found = 0
    for _ in range(100):
        found += drifts(lognormal(dice, 32, 0.05) + lognormal(dice, 32, 0.05, 1.15e-5))
    assert found > 95

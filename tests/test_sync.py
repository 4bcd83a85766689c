from __future__ import annotations

from random import Random

import mpi4py
import numpy as np
import pytest

mpi4py.rc(initialize=False)  # its constants are enough

from ringbench.records.settings import SYNCS  # noqa: E402
from ringbench.runtime.sync import METHODS, ClockModel, Point, offset_bounds  # noqa: E402

SHIFT = 1000 * 10**9
DRIFT = 50e-6


def other(reference: int) -> int:
    """Return what a clock shows that is 1000 s ahead and 50 ppm fast when rank 0's shows ``reference``."""
    return SHIFT + reference + round(DRIFT * reference)


def compared(model: ClockModel, reference: int, random: Random | None = None, error: int = 500) -> None:
    """Add a comparison at a time of rank 0's clock, off by up to ``error`` ns."""
    wrong = random.randint(-error, error) if random else 0
    model.add(Point(other(reference), other(reference) - reference + wrong, error))


def test_every_way_of_the_settings_exists() -> None:
    assert tuple(METHODS) == SYNCS
    assert len({method.estimand for method in METHODS.values()}) == 4


def test_an_exchange_bounds_the_offset_however_uneven_its_ways() -> None:
    assert offset_bounds([(0, 1005, 10)]) == (995, 1005)
    assert offset_bounds([(0, 1000, 1000)]) == (0, 1000)  # all of it was spent on the way back


def test_several_exchanges_bound_it_together() -> None:
    assert offset_bounds([(0, 1005, 10), (100, 1101, 140), (200, 1290, 291)]) == (999, 1001)


@pytest.mark.parametrize("seed", range(20))
def test_the_true_offset_is_within_the_bounds(seed: int) -> None:
    random = Random(seed)
    exchanges, now = [], 0
    for _ in range(16):
        there, back = random.randint(200, 20_000), random.randint(200, 20_000)
        exchanges.append((now, now + there + SHIFT, now + there + back))
        now += there + back
    low, high = offset_bounds(exchanges)
    assert low <= SHIFT <= high
    assert high - low <= min(received - sent for sent, _, received in exchanges)


def test_clocks_that_drift_apart_within_the_exchanges_give_the_gap() -> None:
    assert offset_bounds([(0, 105, 10), (100, 260, 110)]) == (105, 150)


def test_a_shifted_and_drifting_clock_is_turned_into_that_of_rank_0() -> None:
    model = ClockModel()
    times = [0, 10**8, 11 * 10**8, 20 * 10**8]
    for reference in times:
        compared(model, reference)
    drift, error = model.drift()
    assert drift == pytest.approx(DRIFT, rel=1e-3)
    assert error == pytest.approx(1000 / 2e9, rel=1e-3)
    inside = np.arange(0, times[-1], 10**6)
    local = np.array([other(int(reference)) for reference in inside])
    assert np.abs(model.reference(local) - inside).max() <= 2  # rounding, of 1000 s and 100 us of drift
    later = times[-1] + 10**9
    assert abs(model.local(later) - other(later)) <= 10


@pytest.mark.parametrize("seed", range(10))
def test_errors_of_the_comparisons_are_all_that_is_off(seed: int) -> None:
    model, random = ClockModel(), Random(seed)
    for reference in range(0, 3 * 10**9, 10**8):
        compared(model, reference, random)
    drift, error = model.drift()
    assert abs(drift - DRIFT) <= error * 1.001
    inside = np.arange(0, 29 * 10**8, 10**7 + 1)
    local = np.array([other(int(reference)) for reference in inside])
    assert np.abs(model.reference(local) - inside).max() <= 502


def test_a_drift_that_may_be_none_moves_no_start() -> None:
    model = ClockModel()
    model.add(Point(0, 1000, 500))
    model.add(Point(10**8, 1400, 500))
    assert model.drift() == (400 / 1e8, 1000 / 1e8)
    assert model.local(2 * 10**8) == 2 * 10**8 + 1400


def test_rank_0_is_its_own_clock() -> None:
    model = ClockModel()
    model.add(Point(5, 0, 0.0))
    assert model.drift() == (0.0, 0.0)
    assert model.local(77) == 77
    assert model.reference(np.array([3, 9])).tolist() == [3, 9]


def test_what_is_long_over_is_forgotten_but_enough_is_kept() -> None:
    model = ClockModel()
    for second in range(100):
        compared(model, second * 10**9)
        model.forget()
    assert 30 <= len(model.points) <= 32
    compared(model, 10**12)  # after a long pause
    model.forget()
    assert len(model.points) == 2
    assert model.drift()[0] == pytest.approx(DRIFT, rel=1e-3)


def test_a_batch_longer_than_the_window_keeps_its_comparisons() -> None:
    model, times = ClockModel(), np.arange(0, 90 * 10**9, 10**9)
    for reference in times.tolist():
        compared(model, reference)
    local = np.array([other(reference + 5 * 10**8) for reference in times.tolist()[:-1]])
    assert np.abs(model.reference(local) - (times[:-1] + 5 * 10**8)).max() <= 2
    assert model.drift()[1] == pytest.approx(1000 / 30e9, rel=0.05)  # of the window alone


def test_times_keep_their_nanoseconds_on_a_machine_that_is_up_for_years() -> None:
    year, model = 365 * 86400 * 10**9, ClockModel()
    model.add(Point(3 * year, 2 * year, 100))
    model.add(Point(3 * year + 10**9, 2 * year + 50_000, 100))
    assert model.reference(np.array([3 * year, 3 * year + 10**9])).tolist() == [year, year + 10**9 - 50_000]

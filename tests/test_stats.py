from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from statistics import StatisticsError

import pytest

from ringbench.records.stats import CONFIDENCE, interval_ranks, launch_confidence, median_interval


def test_one_slow_sample_does_not_move_the_median() -> None:
    times = [43.0, 7.0, 7.0, 7.0, 8.0, 7.0, 7.0, 7.0, 7.0, 7.0]
    assert median_interval(times) == (7.0, 7.0, 8.0)
    assert median_interval([7.0] * 99 + [700.0]) == (7.0, 7.0, 7.0)


def tails(last: int) -> Iterator[tuple[int, list[int]]]:
    """Yield n and 2^n times the chance that at most ``low`` of n samples lie below the median, for each low."""
    row = [1]
    for n in range(1, last + 1):
        row = [1, *(row[i] + row[i + 1] for i in range(len(row) - 1)), 1]
        if n < 60 or n in (99, 100, 999, 1000, 2000):
            total, sums = 0, []
            for ways in row[: (n + 1) // 2]:
                total += ways
                sums.append(total)
            yield n, sums


def test_the_interval_is_the_narrowest_that_covers_by_exact_arithmetic() -> None:
    level = Fraction(95, 100)
    for n, sums in tails(2000):
        covering = [low for low, ways in enumerate(sums) if 1 - Fraction(2 * ways, 2**n) >= level]
        expected = (covering[-1], n - 1 - covering[-1]) if covering else None
        assert interval_ranks(n) == expected, n


@pytest.mark.parametrize(("n", "ranks"), [(5, None), (6, (0, 5)), (10, (1, 8)), (100, (39, 60))])
def test_tabulated_intervals(n: int, ranks: tuple[int, int] | None) -> None:
    assert interval_ranks(n) == ranks


def test_other_levels() -> None:
    assert CONFIDENCE == 0.95
    assert interval_ranks(5, 0.9) == (0, 4)
    assert interval_ranks(7, 0.99) is None
    assert interval_ranks(8, 0.99) == (0, 7)


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    noise = random.Random(7)
    hits = 0
    for _ in range(1000):
        _, low, high = median_interval([noise.expovariate(1.0) for _ in range(25)])
        assert low is not None
        assert high is not None
        hits += low <= 0.6931471805599453 <= high
    assert 935 <= hits <= 985


def test_few_samples_have_a_median_and_no_interval() -> None:
    assert median_interval([3.0]) == (3.0, None, None)
    assert median_interval([4.0, 1.0, 2.0, 3.0]) == (2.5, None, None)


def test_the_order_of_samples_does_not_matter_and_is_left_alone() -> None:
    times = [5.0, 1.0, 4.0, 2.0, 3.0, 6.0]
    assert median_interval(times) == (3.5, 1.0, 6.0)
    assert times == [5.0, 1.0, 4.0, 2.0, 3.0, 6.0]


def test_no_samples_have_no_median() -> None:
    assert interval_ranks(0) is None
    with pytest.raises(StatisticsError):
        median_interval([])


def test_few_launches_cannot_bound_their_median_with_95_percent() -> None:
    assert launch_confidence(1) is None
    assert [launch_confidence(n) for n in (2, 3, 5, 6, 100)] == [0.5, 0.75, 0.9375, 0.95, 0.95]


def test_the_range_of_three_launches_holds_the_median_one_three_times_in_four() -> None:
    drawn = random.Random(1)
    draws = [[drawn.lognormvariate(0, 1) for _ in range(3)] for _ in range(4000)]
    assert sum(min(three) <= 1 <= max(three) for three in draws) / 4000 == pytest.approx(0.75, abs=0.03)

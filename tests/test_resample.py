from __future__ import annotations

import numpy as np
import pytest

from ringbench.model.resample import pooled_median, resampled, resampled_medians


def noise(seed: int, n: int) -> list[float]:
    return list(np.random.default_rng(seed).lognormal(0.0, 0.3, n))


@pytest.mark.parametrize("n", [1, 2, 6, 7, 30])
def test_medians_are_distributed_as_those_of_drawn_resamples(n: int) -> None:
    ordered = np.sort(noise(n, n))
    random = np.random.default_rng(0)
    ours = resampled_medians(ordered, 40_000, random)
    drawn = np.median(random.choice(ordered, (40_000, n)), axis=1)
    for quantile in (0.025, 0.25, 0.5, 0.75, 0.975):
        place = np.quantile(drawn, quantile)
        assert (ours <= place).mean() == pytest.approx((drawn <= place).mean(), abs=0.015)
    assert ours.min() >= ordered[0]
    assert ours.max() <= ordered[-1]


def test_the_pooled_median_counts_launches_alike() -> None:
    assert pooled_median([[1.0] * 900, [3.0], [2.0, 2.0]]) == 2.0


def test_replicates_of_several_launches_reach_from_one_to_the_other() -> None:
    found = resampled([noise(1, 50), [value * 10 for value in noise(2, 50)]], np.random.default_rng(0))
    assert found.min() < 1.5
    assert found.max() > 8
    assert 0.2 < (found < 2).mean() < 0.3  # both draws hit the first in a quarter of the cases

from __future__ import annotations

from typing import Any

import pytest

from ringbench.records.need import FLOOR_NBYTES, HEADROOM, job_share_s, needs, row_need_s, weights
from ringbench.records.row import Row

MIB = 2**20


def row(samples: tuple[float, ...] = (1.0,) * 10, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": "ring",
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 2,
        "nbytes": 1024,
        "count": 256,
        "in_place": True,
        "launch": 0,
        "samples_s": samples,
        "stop": "ci",
    }
    return Row(**(values | changes))


def spread(width: float, n: int = 25) -> tuple[float, ...]:
    """Return samples around 1 whose interval is so wide."""
    step = width / (18 - 7 + 1)  # of 25 samples the 8th and the 18th bound the median
    return tuple(1 + step * 1.2 * (i - 12) for i in range(n))


def test_who_is_narrow_enough_needs_what_it_took() -> None:
    assert row_need_s(row(), 0.05, 1000) == pytest.approx(10)
    assert row_need_s(row(spread(0.4), stop="max"), 0.05, 1000) == pytest.approx(25)
    assert row_need_s(row(()), 0.05, 1000) == 0


def test_twice_as_wide_as_asked_for_needs_four_times_the_samples() -> None:
    wide = row(spread(0.2), stop="budget")
    middle, low, high = wide.summary
    assert middle == pytest.approx(1)
    assert low is not None
    assert high is not None
    assert row_need_s(wide, (high - low) / 2, 1000) == pytest.approx(100)
    assert row_need_s(wide, (high - low) / 2, 50) == pytest.approx(50)  # more are never taken
    assert row_need_s(wide, 0.9, 1000) == pytest.approx(25)
    assert row_need_s(wide, 1e-300, 1000) == pytest.approx(1000)


def test_without_an_interval_four_times_as_many() -> None:
    assert row_need_s(row((1.0,) * 3, stop="budget"), 0.05, 1000) == pytest.approx(12)


def test_all_algorithms_of_a_size_need_theirs_and_the_latest_launch_counts() -> None:
    rows = [row(), row(algorithm="mpi"), row(in_place=False), row(nbytes=8, samples=(0.5,) * 10)]
    assert needs(rows, 0.05, 1000) == {(1024, True): 20, (1024, False): 10, (8, True): 5}
    later = [*rows, row((2.0,) * 10, launch=2), row((9.0,) * 10, launch=1)]
    assert needs(later, 0.05, 1000)[1024, True] == 20


def test_what_is_not_known_is_guessed_by_its_bytes() -> None:
    groups = [(8, True), (MIB, True), (64 * MIB, True)]
    assert weights(groups, {}) == {groups[0]: FLOOR_NBYTES, groups[1]: MIB, groups[2]: 64 * MIB}


def test_what_is_known_sets_the_unit_of_the_guesses() -> None:
    groups = [(8, True), (MIB, True), (64 * MIB, True)]
    found = weights(groups, {groups[1]: 2.0})
    assert found == {groups[0]: 0.5, groups[1]: 2.0, groups[2]: 128.0}


def test_jobs_of_which_nothing_is_known_get_the_same() -> None:
    assert job_share_s(60, 1, [1, 2, 1, 2], {}) == 15


def test_what_a_known_job_leaves_goes_to_the_others() -> None:
    assert job_share_s(62, 2, [2, 1, 2], {1: 2 / HEADROOM}) == 30
    assert job_share_s(32, 1, [1, 2], {1: 2 / HEADROOM}) == 2


def test_known_jobs_share_by_need_whatever_is_left() -> None:
    assert job_share_s(40, 2, [2, 1], {1: 1.0, 2: 3.0}) == pytest.approx(30)
    assert job_share_s(2, 2, [2, 1], {1: 1.0, 2: 3.0}) == pytest.approx(1.5)


def test_no_share_is_negative_and_all_of_them_are_the_whole() -> None:
    assert job_share_s(-1, 1, [1, 2], {}) == 0
    assert job_share_s(10, 7, [7, 1], {1: 100.0}) == pytest.approx(5)  # as much as the known one
    assert job_share_s(10, 1, [1], {1: 0.0}) == 10
    left, jobs, known = 100.0, [1, 2, 4, 1, 2, 4], {1: 3.0, 2: 5.0}
    for at, job in enumerate(jobs):
        left -= job_share_s(left, job, jobs[at:], known)
    assert left == pytest.approx(0, abs=1e-9)

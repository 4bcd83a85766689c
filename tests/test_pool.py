from __future__ import annotations

from typing import Any

import pytest

from ringbench.model.pool import table_cells
from ringbench.records.row import Row

MS = 1e-3


def row(launch: int = 0, samples: tuple[float, ...] = (1 * MS,) * 8, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": "ring",
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 2,
        "nbytes": 10**6,
        "count": 250_000,
        "in_place": True,
        "launch": launch,
        "samples_s": samples,
        "wrong": 0,
        "stop": "ci",
    }
    return Row(**(values | changes))


def test_one_launch_is_shown_as_it_is() -> None:
    assert table_cells([row()]) == [row().table_cell()]


def test_launches_of_a_cell_are_one_line_and_other_cells_are_their_own() -> None:
    rows = [row(0), row(0, algorithm="mpi"), row(1), row(1, algorithm="mpi"), row(0, in_place=False)]
    assert [(cell["algorithm"], cell["in_place"], cell["launches"]) for cell in table_cells(rows)] == [
        ("ring", True, 2),
        ("mpi", True, 2),
        ("ring", False, 1),
    ]


def test_hot_and_cold_data_are_never_pooled() -> None:
    cold, apart = row(1, buffers=8), row(2, estimand="last end - first start over ranks that start at one time")
    assert table_cells([row(0), cold, apart]) == [row(0).table_cell(), cold.table_cell(), apart.table_cell()]


def test_each_launch_counts_once_and_the_interval_reaches_from_one_to_the_other() -> None:
    (cell,) = table_cells([row(0), row(1, (3 * MS,) * 100), row(2, (2 * MS,) * 9)])
    assert cell["median_s"] == pytest.approx(2 * MS)
    assert cell["algbw_gb_per_s"] == pytest.approx(0.5)
    assert (cell["ci_low_s"], cell["ci_high_s"]) == (pytest.approx(1 * MS), pytest.approx(3 * MS))
    assert (cell["min_s"], cell["max_s"], cell["samples"]) == (1 * MS, 3 * MS, 117)
    assert cell["launch_confidence"] == 0.75
    assert "noisy" in cell["warnings"]  # none of the launches is


def test_launches_that_agree_are_not_noisy_whatever_each_is() -> None:
    (cell,) = table_cells([row(launch, warnings=("noisy", "unpinned")) for launch in range(3)])
    assert cell["warnings"] == ["unpinned"]


def test_one_wrong_launch_takes_the_bandwidth_of_all() -> None:
    (cell,) = table_cells([row(0, limit_s=0.5 * MS), row(1, wrong=3, limit_s=0.5 * MS)])
    assert (cell["wrong"], cell["algbw_gb_per_s"], cell["of_limit"]) == (3, None, None)
    assert cell["reason"] == "wrong result"


def test_a_launch_without_samples_is_counted_and_left_out() -> None:
    (cell,) = table_cells([row(0, (), wrong=None, reason="no memory"), row(1)])
    assert (cell["median_s"], cell["launches"], cell["samples"]) == (pytest.approx(1 * MS), 2, 8)
    (none,) = table_cells([row(0, (), wrong=None, reason="no memory"), row(1, (), wrong=None, reason="no memory")])
    assert (none["median_s"], none["launches"], none["reason"], none["wrong"]) == (None, 2, "no memory", None)


def test_what_osu_would_print_and_the_limit_are_pooled_too() -> None:
    first = row(0, rank_means_s=(1 * MS, 3 * MS), limit_s=0.5 * MS)
    second = row(1, rank_means_s=(2 * MS, 6 * MS), limit_s=0.7 * MS, stop="max")
    (cell,) = table_cells([first, second])
    assert cell["osu_avg_s"] == pytest.approx(3 * MS)
    assert (cell["osu_min_s"], cell["osu_max_s"]) == (1 * MS, 6 * MS)
    assert cell["of_limit"] == pytest.approx(0.6)
    assert cell["stop"] == "ci+max"

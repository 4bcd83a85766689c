from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from ringbench.records.row import KEY, Row

MS = 1e-3


def row(**changes: Any) -> Row:
    base = Row(
        collective="allreduce",
        algorithm="ring",
        op="sum",
        dtype="float32",
        device="cpu",
        nranks=4,
        nbytes=10**6,
        count=250_000,
        in_place=True,
        launch=0,
        samples_s=(1 * MS,) * 7,
        wrong=0,
    )
    return replace(base, **changes)


@pytest.mark.parametrize(("nranks", "busbw"), [(2, 1.0), (3, 1.333), (4, 1.5), (8, 1.75)])
def test_one_megabyte_in_one_millisecond(nranks: int, busbw: float) -> None:
    algbw, bus, reason = row(nranks=nranks).bandwidths()
    assert algbw == pytest.approx(1.0)
    assert bus == pytest.approx(busbw, abs=5e-4)
    assert reason is None


@pytest.mark.parametrize("collective", ["reduce_scatter", "allgather"])
def test_halves_of_an_allreduce_have_half_its_factor(collective: str) -> None:
    assert row(collective=collective).bandwidths()[1] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("allreduce", 1.75),
        ("reduce_scatter", 0.875),
        ("allgather", 0.875),
        ("alltoall", 0.875),
        ("bcast", 1),
        ("reduce", 1),
    ],
)
def test_every_collective_has_its_factor(collective: str, factor: float) -> None:
    assert row(collective=collective, nranks=8).bandwidths()[1] == pytest.approx(factor)


def test_a_sample_is_the_slowest_rank() -> None:
    per_rank_ms = [1, 1, 1, 4]
    assert row(samples_s=(max(per_rank_ms) * MS,)).bandwidths()[0] == pytest.approx(0.25)
    assert "max over ranks" in row().estimand


def test_osu_and_imb_print_the_average_the_least_and_the_greatest_of_the_ranks_means() -> None:
    cell = row(samples_s=(4 * MS,) * 7, rank_means_s=(1 * MS, 1 * MS, 1 * MS, 4 * MS)).table_cell()
    assert cell["osu_avg_s"] == pytest.approx(1.75 * MS)  # CASE 19: which the headline of 4 ms is not
    assert (cell["osu_min_s"], cell["osu_max_s"], cell["median_s"]) == (1 * MS, 4 * MS, 4 * MS)
    bare = row().table_cell()
    assert (bare["osu_avg_s"], bare["osu_min_s"], bare["osu_max_s"]) == (None, None, None)


def test_gigabytes_are_powers_of_ten() -> None:
    algbw = row(nbytes=8 * 2**20, samples_s=(4 * MS,)).bandwidths()[0]
    assert algbw == pytest.approx(2.097152)


def test_the_bandwidth_is_that_of_the_median_and_no_mean_of_rates() -> None:
    times = tuple(ms * MS for ms in (43, 7, 7, 7, 8, 7, 7, 7, 7, 7))
    cell = row(samples_s=times, warmup_s=(9.0,)).table_cell()
    assert cell["median_s"] == pytest.approx(7 * MS)
    assert cell["algbw_gb_per_s"] == pytest.approx(1 / 7)
    assert (cell["min_s"], cell["max_s"], cell["samples"]) == (7 * MS, 43 * MS, 10)
    assert (cell["ci_low_s"], cell["ci_high_s"]) == (7 * MS, 8 * MS)


def test_bytes_sent_stand_beside_the_bus_bandwidth() -> None:
    assert row(bytes_sent_max=1_500_000).table_cell()["bytes_sent_max"] == 1_500_000


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wrong": 1}, "wrong result"),
        ({"wrong": 3, "samples_s": ()}, "wrong result"),
        ({"samples_s": (0.0,) * 7}, "shorter than the clock can tell"),
        ({"samples_s": (-1e-9,) * 7}, "shorter than the clock can tell"),
        ({"samples_s": ()}, "no samples"),
        ({"samples_s": (), "reason": "out of memory"}, "out of memory"),
        ({"nbytes": 0, "count": 0}, "zero bytes have no bandwidth"),
    ],
)
def test_no_bandwidth_without_a_reason(changes: dict[str, Any], reason: str) -> None:
    cell = row(**changes).table_cell()
    assert (cell["algbw_gb_per_s"], cell["busbw_gb_per_s"], cell["reason"]) == (None, None, reason)
    json.dumps(cell, allow_nan=False)


def test_one_rank_has_no_bandwidth() -> None:
    assert row(nranks=1).bandwidths() == (None, None, "one rank moves nothing")


def test_a_wrong_row_keeps_its_times_and_enters_nothing() -> None:
    wrong = row(wrong=1, wrong_detail="rank 2, element 0: 3 instead of 15")
    assert not wrong.usable
    assert wrong.summary[0] == pytest.approx(1 * MS)
    assert not row(samples_s=()).usable
    assert row().usable
    assert row(wrong=None).usable


def test_cells_are_flat_and_carry_units() -> None:
    cell = row(warnings=("noisy",), limit_s=1e-4, remark="2 nodes").table_cell()
    assert cell["warnings"] == ["noisy"]
    assert not any(isinstance(value, (dict, tuple)) for value in cell.values())
    units = ("_s", "_gb_per_s", "of_limit")  # the last has none
    assert all(name.endswith(units) for name, value in cell.items() if isinstance(value, float))


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"limit_s": 0.25 * MS}, 0.25),
        ({"limit_s": 2 * MS}, 2.0),
        ({"limit_s": None}, None),
        ({"limit_s": 0.25 * MS, "wrong": 1}, None),
        ({"limit_s": 0.25 * MS, "samples_s": ()}, None),
        ({"limit_s": 0.25 * MS, "samples_s": (0.0,) * 7}, None),
        ({"limit_s": 0.0}, None),
    ],
)
def test_the_limit_is_shown_as_a_share_of_the_time(changes: dict[str, Any], share: float | None) -> None:
    cell = row(**changes).table_cell()
    assert cell["of_limit"] == (None if share is None else pytest.approx(share))
    json.dumps(cell, allow_nan=False)


def test_a_remark_stands_in_the_cell() -> None:
    assert row().table_cell()["remark"] is None
    assert row(remark="ring chosen; 4 chunks").table_cell()["remark"] == "ring chosen; 4 chunks"


def test_the_key_tells_cells_apart_and_samples_do_not() -> None:
    assert row().key == row(samples_s=(2.0,), warnings=("noisy",)).key
    others: dict[str, Any] = {
        "collective": "allgather",
        "algorithm": "naive",
        "op": "average",
        "dtype": "float64",
        "device": "cuda",
        "nranks": 2,
        "nbytes": 8,
        "in_place": False,
        "launch": 1,
    }
    assert set(others) == set(KEY)
    for name, value in others.items():
        assert row(**{name: value}).key != row().key, name


def test_a_row_comes_back_from_json_as_it_was() -> None:
    full = row(
        warmup_s=(5 * MS,),
        identical_bits=True,
        bytes_sent_max=12,
        stop="ci",
        remark="ring chosen",
        limit_s=0.5 * MS,
        addition_nbytes=64,
        addition_s=0.1 * MS,
        warnings=("short", "noisy"),
    )
    data = json.loads(json.dumps(full.to_json(), allow_nan=False))
    assert data["kind"] == "row"
    assert Row.from_json(data) == full
    full.summary  # noqa: B018  (a cached value must not get into the file)
    assert json.loads(json.dumps(full.to_json())) == data


def test_fields_of_a_newer_version_are_ignored_and_missing_ones_named() -> None:
    data = json.loads(json.dumps(row().to_json()))
    assert Row.from_json({**data, "colour": "blue"}) == row()
    del data["nranks"]
    with pytest.raises(ValueError, match="nranks"):
        Row.from_json(data)


def test_rows_of_a_version_without_remarks_and_limits_are_read() -> None:
    data = json.loads(json.dumps(row().to_json()))
    del data["remark"], data["limit_s"], data["addition_nbytes"], data["addition_s"]
    assert Row.from_json(data) == row()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remark", 3),
        ("remark", ["a"]),
        ("limit_s", "fast"),
        ("limit_s", True),
        ("limit_s", -1e-6),
        ("limit_s", 1e13),
        ("limit_s", [1e-6]),
    ],
)
def test_a_remark_or_a_limit_of_another_kind_is_no_row(name: str, value: object) -> None:
    data = {**json.loads(json.dumps(row().to_json())), name: value}
    with pytest.raises(ValueError, match="not a row of a run: "):
        Row.from_json(data)


def test_rows_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        row().wrong = 0  # type: ignore[misc]

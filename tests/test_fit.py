from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ringbench.model import fit
from ringbench.model.fit import Fit, fit_rows, relative_least_squares
from ringbench.records.guards import CROWDED, GUARDS
from ringbench.records.row import Row
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms

SIZES = (8, 64, 1024, 8192, 65536, 2**20, 2**24)
FIELDS = [
    *("collective", "algorithm", "alpha_s", "alpha_low_s", "alpha_high_s"),
    *("beta_s_per_byte", "beta_low_s_per_byte", "beta_high_s_per_byte", "bandwidth_gb_per_s"),
    *("nranks", "basis", "dtype", "op", "device", "in_place", "mape", "worst", "points", "warnings"),
]


def row(algorithm: str, nranks: int, nbytes: int, time: float, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": nranks,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": (time,) * 7,
        "wrong": 0,
    }
    return Row(**{**values, **changes})


def priced(algorithm: str, nranks: int, nbytes: int, alpha: float, beta: float, **changes: Any) -> Row:
    """Return a row that takes exactly what the schedule costs."""
    counted = cost(algorithm_named(changes.get("collective", "allreduce"), algorithm), nranks, nbytes // 4)
    return row(algorithm, nranks, nbytes, counted.rounds * alpha + counted.critical_sent * 4 * beta, **changes)


def only(rows: list[Row], **options: Any) -> Fit:
    (fit,) = fit_rows(rows, **options).segments
    return fit


def case_25() -> list[Row]:
    times = [2e-6 + 1e-9 * nbytes for nbytes in SIZES]
    times[-1] *= 1.05
    return [row("mpi", 4, nbytes, time) for nbytes, time in zip(SIZES, times, strict=True)]


def test_case_25_small_sizes_keep_their_say() -> None:
    fit = only(case_25())
    assert fit.alpha_s == pytest.approx(1.995e-6, abs=0.0005e-6)
    assert fit.beta_s_per_byte == pytest.approx(1.013e-9, abs=0.0005e-9)
    assert fit.bandwidth_gb_per_s == pytest.approx(1 / 1.013, rel=1e-3)
    assert fit.basis == "call"
    assert fit.nranks == "4"
    assert fit.points == 7
    assert fit.alpha_low_s <= 2e-6 <= fit.alpha_high_s
    assert fit.beta_low_s_per_byte < 1.001e-9
    assert fit.beta_high_s_per_byte > 1.013e-9
    assert 0 < fit.mape < fit.worst < 0.05
    assert fit.warnings == ()


def test_plain_least_squares_would_not_have_found_it() -> None:
    rows = case_25()
    plain = np.polyfit([r.nbytes for r in rows], [r.samples_s[0] for r in rows], 1)
    assert plain[1] == pytest.approx(-6.98e-6, rel=1e-2)


def test_case_27_the_ring_gives_back_the_link() -> None:
    assert priced("ring", 4, 4_000_000, 2e-6, 1e-9).samples_s[0] == pytest.approx(6.012e-3, rel=1e-12)
    fit = only([priced("ring", 4, nbytes, 2e-6, 1e-9) for nbytes in (4000, 40_000, 400_000, 4_000_000)])
    assert fit.alpha_s == pytest.approx(2e-6, rel=1e-9)
    assert fit.beta_s_per_byte == pytest.approx(1e-9, rel=1e-9)
    assert fit.basis == "link"
    assert fit.worst < 1e-9


@pytest.mark.parametrize("algorithm", ["ring", "naive", "parameter_server"])
def test_one_link_explains_all_rank_counts(algorithm: str) -> None:
    rows = [priced(algorithm, nranks, nbytes, 3e-6, 0.5e-9) for nranks in (2, 3, 4, 7) for nbytes in (60, 6000, 10**6)]
    fit = only(rows)
    assert (fit.nranks, fit.points, fit.basis) == ("2,3,4,7", 12, "link")
    assert fit.alpha_s == pytest.approx(3e-6, rel=1e-9)
    assert fit.beta_s_per_byte == pytest.approx(0.5e-9, rel=1e-9)


def test_the_library_is_fitted_per_rank_count_in_numeric_order() -> None:
    rows = [row("mpi", nranks, nbytes, nranks * 1e-6 + nbytes * 1e-9) for nranks in (16, 2, 4) for nbytes in SIZES]
    segments = fit_rows(rows).segments
    assert [fit.nranks for fit in segments] == ["2", "4", "16"]
    assert [fit.alpha_s for fit in segments] == pytest.approx([2e-6, 4e-6, 16e-6], rel=1e-6)


def test_random_links_are_found_and_lie_in_their_intervals() -> None:
    inside = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        alpha, beta = 10 ** random.uniform(-6.5, -4.5), 10 ** random.uniform(-10, -8)
        sizes = 4 * 4 ** np.arange(1, 13)
        rows = [priced("ring", n, int(s), alpha, beta) for n in (2, 4) for s in sizes]
        noisy = [row("ring", r.nranks, r.nbytes, r.samples_s[0] * random.lognormal(0, 0.03)) for r in rows]
        fit = only(noisy)
        assert fit.alpha_s == pytest.approx(alpha, rel=0.1)
        assert fit.beta_s_per_byte == pytest.approx(beta, rel=0.1)
        assert fit.alpha_low_s <= fit.alpha_s <= fit.alpha_high_s
        inside += fit.alpha_low_s <= alpha <= fit.alpha_high_s
        inside += fit.beta_low_s_per_byte <= beta <= fit.beta_high_s_per_byte
    assert 64 <= inside <= 80


def test_no_pair_at_or_above_zero_does_better() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        rounds = random.integers(1, 9, 6).astype(float)
        nbytes, times = 10 ** random.uniform(0, 8, 6), 10 ** random.uniform(-6, -1, 6)

        def loss(alpha: float, beta: float, rounds: Any = rounds, nbytes: Any = nbytes, times: Any = times) -> float:
            return float((((rounds * alpha + nbytes * beta) / times - 1) ** 2).sum())

        alpha, beta = relative_least_squares(rounds, nbytes, times)
        assert alpha >= 0
        assert beta >= 0
        best = loss(alpha, beta)
        for step in (0.99, 1.01):
            assert best <= loss(alpha * step, beta) + 1e-12
            assert best <= loss(alpha, beta * step) + 1e-12
        assert best <= min(loss(a, b) for a in (0, *times / rounds) for b in (0, *times / nbytes)) + 1e-12


def test_a_parameter_that_the_sizes_do_not_show_is_not_identified() -> None:
    found = {"alpha": 0, "beta": 0}
    for seed in range(40):
        random = np.random.default_rng(seed)
        flat = only([row("mpi", 2, 4 << i, 1e-5 * random.lognormal(0, 0.05)) for i in range(8)])
        assert ("beta not identified" in flat.warnings) == (flat.beta_low_s_per_byte == 0)
        found["beta"] += flat.warnings == ("beta not identified",)
        steep = only([row("mpi", 2, 1 << i, 2.0**i * 1e-9 * random.lognormal(0, 0.05)) for i in range(20, 28)])
        assert ("alpha not identified" in steep.warnings) == (steep.alpha_low_s == 0)
        found["alpha"] += steep.warnings == ("alpha not identified",)
    assert min(found.values()) >= 34


def test_three_exact_sizes_identify_both() -> None:
    fit = only([row("mpi", 2, nbytes, 1e-6 + nbytes * 1e-9) for nbytes in (8, 1024, 65536)])
    assert fit.warnings == ()
    assert fit.beta_low_s_per_byte == pytest.approx(1e-9, rel=1e-9)
    assert fit.alpha_high_s == pytest.approx(1e-6, rel=1e-9)


@pytest.mark.parametrize("spread", [0, 4])
def test_intervals_hold_the_estimate_of_exact_and_of_absurd_data(spread: int) -> None:
    for seed in range(200):
        random = np.random.default_rng(seed)
        alpha, beta = random.uniform(1e-6, 9e-6), random.uniform(1e-10, 9e-10)
        sizes = [4 << 3 * i for i in range(8)]
        fit = only([row("mpi", 2, n, (alpha + n * beta) * 10 ** random.uniform(0, spread)) for n in sizes])
        assert fit.alpha_low_s <= fit.alpha_s <= fit.alpha_high_s
        assert fit.beta_low_s_per_byte <= fit.beta_s_per_byte <= fit.beta_high_s_per_byte


def test_falling_times_have_no_bandwidth() -> None:
    fit = only([row("mpi", 2, nbytes, time) for nbytes, time in ((8, 4e-6), (64, 3e-6), (512, 2e-6))])
    assert fit.beta_s_per_byte == 0
    assert fit.bandwidth_gb_per_s is None
    assert fit.alpha_s > 0


def test_groups_are_kept_apart() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"dtype": "float64"},
        {"op": "max"},
        {"device": "cuda"},
        {"in_place": False},
        {"collective": "allgather"},
    ]
    rows = []
    for factor, change in enumerate(changes, 1):
        rows += [row("mpi", 2, nbytes, factor * (1e-6 + nbytes * 1e-9), **change) for nbytes in SIZES]
    segments = fit_rows(rows).segments
    assert len(segments) == 6
    assert sorted(round(fit.alpha_s * 1e6, 6) for fit in segments) == [1, 2, 3, 4, 5, 6]


def test_launches_are_points_of_their_own() -> None:
    rows = [row("mpi", 2, nbytes, 1e-6 + nbytes * 1e-9, launch=launch) for launch in range(3) for nbytes in SIZES]
    assert only(rows).points == 21


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("allreduce", "zigzag"), ("allreduce", "auto"), ("allreduce", "mpi"), ("alltoall", "ring")],
)
def test_a_name_that_is_no_schedule_is_a_call(collective: str, algorithm: str) -> None:
    rows = [row(algorithm, 4, nbytes, 1e-6 + nbytes * 1e-9, collective=collective) for nbytes in SIZES]
    assert only(rows).basis == "call"


@pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")
def test_every_schedule_that_is_one_for_all_sizes_gives_back_the_link(algorithm: Algorithm) -> None:
    """A pipeline's chunks go by the size, and nodes are found by MPI: what ran is not known from the row."""
    sizes = (480, 48_000, 480_000, 4_800_000)  # whole blocks for 2 to 6 ranks
    varying = {"chunks", "groups"} & dict(algorithm.arguments).keys()
    rows = [
        priced(algorithm.name, nranks, nbytes, 3e-6, 0.5e-9, collective=algorithm.collective)
        for nranks in (2, 4, 5, 6)
        for nbytes in sizes
    ]
    segments = fit_rows(rows).segments
    assert {fit.basis for fit in segments} == {"call" if varying else "link"}
    if not varying:
        (fit,) = segments
        assert fit.alpha_s == pytest.approx(3e-6, rel=1e-6)
        assert fit.beta_s_per_byte == pytest.approx(0.5e-9, rel=1e-6)


def test_what_is_left_out_is_counted() -> None:
    good = [row("mpi", 2, nbytes, 1e-6 + nbytes * 1e-9) for nbytes in SIZES]
    bad = [
        row("mpi", 2, 4, 1.0, wrong=3),
        row("mpi", 2, 8, 1.0, wrong=1),
        row("mpi", 1, 8, 1.0),
        row("mpi", 2, 0, 1.0),
        row("mpi", 2, 4, 0.0),
        row("mpi", 2, 4, 1.0, samples_s=(), reason="needs too much memory"),
    ]
    crowded = [row("mpi", 2, nbytes, 1.0, warnings=("oversubscribed",)) for nbytes in (8, 64, 1024)]
    result = fit_rows(good + bad + crowded)
    assert result.segments == fit_rows(good).segments
    assert len(result.notes) == 6
    for words in (
        "2 rows left out: wrong result",
        "1 row left out: N = 1",
        "1 row left out: zero bytes",
        "1 row left out: shorter than the clock",
        "1 row left out: no samples",
        "3 rows left out: oversubscribed",
    ):
        assert sum(note.startswith(words) for note in result.notes) == 1


@pytest.mark.parametrize("name", sorted(CROWDED))
def test_rows_whose_ranks_share_cores_enter_only_when_asked_and_say_so(name: str) -> None:
    crowded = [row("mpi", 4, nbytes, 1e-6 + nbytes * 1e-9, warnings=("noisy", name)) for nbytes in SIZES]
    with pytest.raises(ValueError, match=f"7 rows left out: {name}, .*cores?"):
        fit_rows(crowded)
    result = fit_rows(crowded, include_oversubscribed=True)
    assert result.notes == []
    assert result.segments[0].warnings == tuple(sorted(("noisy", name)))


def test_other_warnings_keep_no_row_out() -> None:
    others = tuple(name for name in GUARDS if name not in CROWDED)
    rows = [row("mpi", 4, nbytes, 1e-6 + nbytes * 1e-9, warnings=others) for nbytes in SIZES]
    assert fit_rows(rows).notes == []


@pytest.mark.parametrize("change", [{"buffers": 4}, {"estimand": "last end - first start"}])
def test_rows_measured_in_two_manners_are_refused(change: dict[str, Any]) -> None:
    hot = [row("mpi", 2, nbytes, 1e-6 + nbytes * 1e-9) for nbytes in SIZES]
    cold = [row("mpi", 2, nbytes, 1e-6 + nbytes * 3e-9, **change) for nbytes in SIZES]
    (name, value) = next(iter(change.items()))
    with pytest.raises(ValueError, match=f"rows of {name} .*{value}"):
        fit_rows(hot + cold)
    assert fit_rows(cold).segments


def test_refusals_are_one_line_and_say_what_is_missing() -> None:
    two = [row("mpi", 2, nbytes, 1e-6) for nbytes in (8, 64) for _ in range(5)]
    for rows, missing in (
        (two, "2 distinct sizes where 3 are needed"),
        ([row("mpi", 1, nbytes, 1e-6) for nbytes in SIZES], "N = 1"),
        ([row("mpi", 2, nbytes, 1e-6, wrong=1) for nbytes in SIZES], "7 rows left out: wrong result"),
        ([], "there are no rows"),
    ):
        with pytest.raises(ValueError, match=missing) as refused:
            fit_rows(rows)
        assert str(refused.value).startswith("nothing to fit: it takes 3 distinct sizes on 2 or more ranks")
        assert "\n" not in str(refused.value)


def test_a_thin_group_is_skipped_beside_a_whole_one() -> None:
    rows = [priced("ring", 2, nbytes, 2e-6, 1e-9) for nbytes in SIZES] + [row("mpi", 2, 8, 1e-6)]
    result = fit_rows(rows)
    assert [fit.algorithm for fit in result.segments] == ["ring"]
    assert len(result.notes) == 1
    assert "allreduce mpi" in result.notes[0]
    assert "1 distinct size where 3 are needed" in result.notes[0]


def test_sizes_that_make_one_message_are_refused() -> None:
    rows = [priced("ring", nranks, 1024 * nranks, 2e-6, 1e-9) for nranks in (2, 4, 8)]
    with pytest.raises(ValueError, match="1 distinct size "):
        fit_rows(rows)


def test_json_is_flat_in_order_and_repeatable() -> None:
    fit = only(case_25())
    flat = fit.to_json()
    assert list(flat) == FIELDS
    assert json.loads(json.dumps(flat, allow_nan=False)) == flat
    assert only(case_25()[::-1]).alpha_s == pytest.approx(fit.alpha_s, rel=1e-12)
    assert only(case_25()).to_json() == flat


@pytest.mark.parametrize("name", ["ring", "naive", "parameter_server"])
def test_the_critical_path_of_many_ranks_is_that_of_the_closed_forms(name: str) -> None:
    algorithm = algorithm_named("allreduce", name)
    count = 40 * 1000
    played = cost(algorithm, 40, count)
    assert fit.PLAYED < 40
    assert fit._critical_path(algorithm, 40, count) == pytest.approx((played.rounds, played.critical_sent))
    rounds, sent = fit._critical_path(algorithm, 10**6, count)  # in no time
    assert rounds == algorithm.rounds(10**6)
    assert sent > 0

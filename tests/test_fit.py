from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from ringbench.model.addition import timed_additions
from ringbench.model.curve import Search, Shape, solve
from ringbench.model.explain import explain
from ringbench.model.fit import TIMED, Fit, fit_rows
from ringbench.model.intervals import interval, redraw
from ringbench.model.points import points_of, schedule_of
from ringbench.model.predict import predict_run
from ringbench.records.guards import CROWDED, GUARDS
from ringbench.records.row import Row
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms

SIZES = (8, 64, 1024, 8192, 65536, 2**20, 2**24)
FIELDS = [
    *("collective", "algorithm", "segment", "message_low_nbytes", "message_high_nbytes"),
    *("alpha_s", "alpha_low_s", "alpha_high_s"),
    *("beta_s_per_byte", "beta_low_s_per_byte", "beta_high_s_per_byte", "bandwidth_gb_per_s"),
    *("gamma_s_per_byte", "gamma_low_s_per_byte", "gamma_high_s_per_byte", "reduction_gb_per_s", "gamma_from"),
    *("cause", "nranks", "basis", "dtype", "op", "device", "in_place", "mape", "worst", "points"),
    *("heldout_ranks_mape", "heldout_ranks_worst", "heldout_sizes_mape", "heldout_sizes_worst"),
    *("heldout_decade_nbytes", "heldout_bias", "regret_mean", "regret_worst", "drawn", "warnings"),
]

#: What a link does from a message length on: latency [s] and cost of a byte [s/B].
Link = tuple[tuple[float, float, float], ...]


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


def linked(algorithm: str, nranks: int, nbytes: int, link: Link, gamma: float = 0.0, **changes: Any) -> Row:
    """Return a row whose messages pass a link that changes with their length, and whose additions cost gamma."""
    (point,), _ = points_of([row(algorithm, nranks, nbytes, 1.0, **changes)])
    time = gamma * point.reduced
    for length, number in point.messages:
        alpha, beta = next((alpha, beta) for start, alpha, beta in link[::-1] if length > start)
        time += number * (alpha + length * beta)
    return row(algorithm, nranks, nbytes, time, **changes)


def noisy(rows: list[Row], seed: int, samples: int = 1, launches: int = 1) -> list[Row]:
    """Return rows with 3 % of noise, which each sample has of its own, or each launch where there are more."""
    random = np.random.default_rng(seed)
    found = []
    for one in rows:
        for launch in range(launches):
            whole = random.normal(1, 0.03) if launches > 1 else 1.0
            times = one.samples_s[0] * whole * random.normal(1, 0.005 if launches > 1 else 0.03, samples)
            found.append(Row(**{**asdict(one), "samples_s": tuple(times), "launch": launch}))
    return found


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
    assert fit.alpha_low_s is not None
    assert fit.alpha_high_s is not None
    assert fit.alpha_low_s <= 2e-6 <= fit.alpha_high_s
    assert 0 < fit.mape < fit.worst < 0.05
    assert fit.warnings == ()


def test_plain_least_squares_would_not_have_found_it() -> None:
    rows = case_25()
    plain = np.polyfit([r.nbytes for r in rows], [r.samples_s[0] for r in rows], 1)
    assert plain[1] == pytest.approx(-6.98e-6, rel=1e-2)


@pytest.mark.parametrize(
    "sizes", [(*SIZES, 2**22, 2**18), [8 << i for i in range(22)], [8 << 2 * i for i in range(11)]]
)
@pytest.mark.parametrize(("algorithm", "nranks"), [("mpi", 4), ("ring", 2)])
def test_case_26_a_break_is_reported_with_both_pairs(algorithm: str, nranks: int, sizes: Sequence[int]) -> None:
    """The message of a ring on two ranks is half the vector."""
    link = ((0, 1e-6, 0.5e-9), (65536, 10e-6, 0.1e-9))
    share = 2 if algorithm == "ring" else 1
    rows = [linked(algorithm, nranks, share * nbytes, link) for nbytes in sizes]
    times = np.array([one.samples_s[0] for one in rows]) / (2 if algorithm == "ring" else 1)
    lengths = np.array(sizes, dtype=float)
    line, _ = solve(np.stack([np.ones_like(lengths), lengths], axis=1), times, np.ones_like(times))
    assert np.abs((line[0] + line[1] * lengths) / times - 1).max() > 0.4  # one line is no answer
    short, long = fit_rows(rows).segments
    assert (short.segment, long.segment) == (1, 2)
    assert (short.alpha_s, short.beta_s_per_byte) == pytest.approx((1e-6, 0.5e-9), rel=1e-6)
    assert (long.alpha_s, long.beta_s_per_byte) == pytest.approx((10e-6, 0.1e-9), rel=1e-6)
    assert short.message_high_nbytes == max(nbytes for nbytes in sizes if nbytes <= 65536)
    assert short.message_low_nbytes == 8
    assert long.message_low_nbytes > 65536
    assert short.cause is None
    assert long.cause == "another protocol of the library, as from eager to rendezvous"


def test_case_27_the_ring_gives_back_the_link() -> None:
    assert priced("ring", 4, 4_000_000, 2e-6, 1e-9).samples_s[0] == pytest.approx(6.012e-3, rel=1e-12)
    fit = only([priced("ring", 4, nbytes, 2e-6, 1e-9) for nbytes in (4000, 40_000, 400_000, 4_000_000)])
    assert fit.alpha_s == pytest.approx(2e-6, rel=1e-9)
    assert fit.beta_s_per_byte == pytest.approx(1e-9, rel=1e-9)
    assert fit.basis == "link"
    assert fit.worst < 1e-9


def test_a_bend_keeps_the_curve_whole_and_saves_an_unknown() -> None:
    """Beyond 32 KiB bytes are cheaper, without a jump: the second latency is where the second line meets the axis."""
    rows = [linked("ring", n, n * (8 << i), ((0, 2e-6, 1e-9),)) for n in (2, 4) for i in range(20)]
    bent = [
        row(
            "ring",
            one.nranks,
            one.nbytes,
            2 * (one.nranks - 1) * (2e-6 + min(m, 32768) * 1e-9 + max(m - 32768, 0) * 2e-10),
        )
        for one in rows
        for m in [one.nbytes / one.nranks]
    ]
    points, _ = points_of(noisy(bent, 1))
    curve, _ = Search(points).best()
    assert curve.shape.jumps == (False,)
    assert 2**14 < curve.shape.breaks[0] < 2**16
    place = curve.shape.breaks[0]
    assert curve.alphas[0] + curve.betas[0] * place == pytest.approx(curve.alphas[1] + curve.betas[1] * place)
    assert curve.betas == pytest.approx((1e-9, 2e-10), rel=0.1)


def test_all_algorithms_share_one_link_and_additions_are_told_apart() -> None:
    """Messages of Rabenseifner's halves lie in several segments at once."""
    link = ((0, 2e-6, 1e-9), (8192, 8e-6, 0.3e-9))
    rows = [
        linked(name, nranks, 64 << 2 * i, link, 0.2e-9)
        for name in ("ring", "rabenseifner", "recursive_doubling", "naive")
        for nranks in (2, 4, 6)
        for i in range(10)
    ]
    short, long = fit_rows(rows).segments
    assert short.algorithm == long.algorithm == "naive,rabenseifner,recursive_doubling,ring"
    assert (short.alpha_s, short.beta_s_per_byte) == pytest.approx((2e-6, 1e-9), rel=1e-6)
    assert (long.alpha_s, long.beta_s_per_byte) == pytest.approx((8e-6, 0.3e-9), rel=1e-6)
    for one in (short, long):
        assert one.gamma_s_per_byte == pytest.approx(0.2e-9, rel=1e-6)
        assert one.reduction_gb_per_s == pytest.approx(5, rel=1e-6)
        assert one.warnings == ()


def test_reduce_scatter_against_allgather_gives_gamma_for_each_type() -> None:
    rows = []
    for dtype, gamma in (("float32", 0.1e-9), ("float16", 0.4e-9)):
        for collective in ("reduce_scatter", "allgather"):
            rows += [
                linked("ring", n, 64 << 2 * i, ((0, 2e-6, 1e-9),), gamma, collective=collective, dtype=dtype)
                for n in (2, 4)
                for i in range(8)
            ]
    found = fit_rows(rows).segments
    assert [one.dtype for one in found] == ["float16", "float32"]
    assert [one.gamma_s_per_byte for one in found] == pytest.approx([0.4e-9, 0.1e-9])
    assert {one.collective for one in found} == {"allgather,reduce_scatter"}


@pytest.mark.parametrize("name", ["ring", "rabenseifner", "binomial_tree", "parameter_server"])
def test_what_adds_one_byte_for_two_that_move_cannot_tell_gamma(name: str) -> None:
    fit = only([linked(name, n, 64 << 2 * i, ((0, 2e-6, 1e-9),), 0.2e-9) for n in (2, 4, 6) for i in range(8)])
    assert fit.gamma_s_per_byte is None
    assert fit.beta_s_per_byte == pytest.approx(1.1e-9)
    assert fit.warnings == ("gamma not identified",)


def added(rows: list[Row], gamma: float, call: float = 1e-6) -> list[Row]:
    """Return rows with the longest addition of their steps timed by itself, calling which costs something too."""
    share = {"ring": 1.0, "rabenseifner": 0.5, "binomial_tree": 1.0}
    found = []
    for one in rows:
        nbytes = round(one.nbytes * share[one.algorithm] / (one.nranks if one.algorithm == "ring" else 1))
        found.append(replace(one, addition_nbytes=nbytes, addition_s=call + gamma * nbytes))
    return found


@pytest.mark.parametrize("names", [("ring",), ("ring", "rabenseifner", "binomial_tree")])
def test_additions_timed_by_themselves_tell_gamma(names: tuple[str, ...]) -> None:
    link = ((0, 2e-6, 1e-9), (8192, 8e-6, 0.3e-9))
    rows = [linked(name, n, 64 << 2 * i, link, 0.2e-9) for name in names for n in (2, 4, 8) for i in range(10)]
    inside, apart = fit_rows(rows), fit_rows(added(rows, 0.2e-9))
    assert [one.gamma_from for one in inside.segments] == [None, None]
    for one, before, (_, alpha, beta) in zip(apart.segments, inside.segments, link, strict=True):
        assert one.gamma_from == "timed additions"
        assert (one.alpha_s, one.beta_s_per_byte) == pytest.approx((alpha, beta), rel=0.05)
        assert one.alpha_s == pytest.approx(before.alpha_s)
        assert one.beta_s_per_byte == pytest.approx(before.beta_s_per_byte - 0.1e-9)
        assert one.gamma_s_per_byte == pytest.approx(0.2e-9, rel=1e-6)
        assert one.warnings == ()
    assert [one.mape for one in apart.segments] == pytest.approx([one.mape for one in inside.segments])
    assert apart.segments[0].heldout_ranks_mape == pytest.approx(inside.segments[0].heldout_ranks_mape)
    naive = linked("naive", 4, 4096, link, 0.2e-9)
    found, _ = predict_run(apart, [4], [4096], ["naive"])
    assert found[0].predicted_s == pytest.approx(naive.samples_s[0], rel=0.05)
    assert found[0].warnings == ("not measured",)
    assert "an addition, timed by itself: sum of float32 5 GB/s" in " ".join(explain(apart))
    assert fit_rows(added(rows, 0.2e-9), resamples=0).segments[0].gamma_s_per_byte == pytest.approx(0.2e-9)


def test_the_interval_of_a_timed_addition_holds_the_truth() -> None:
    rows = added([linked("ring", n, 64 << 2 * i, ((0, 2e-6, 1e-9),), 0.5e-9) for n in (2, 4) for i in range(10)], 0.0)
    inside: dict[str, list[bool]] = {"beta": [], "gamma": []}
    for seed in range(100):
        random = np.random.default_rng(seed)
        measured = [
            replace(one, addition_s=(1e-6 + 0.5e-9 * (one.addition_nbytes or 0)) * random.normal(1, 0.03))
            for one in noisy(rows, seed)
        ]
        points, _ = points_of(measured)
        ((reduction, timed),) = timed_additions(points, 200).items()
        assert timed.drawn is not None
        search = Search(points, known={reduction: timed.gamma})
        rivals = search.rivals(search.shapes[0])
        drawn = redraw(points, rivals, 200, {reduction: timed.drawn})
        low, high = interval(drawn.gammas[:, 0], timed.gamma)
        inside["gamma"].append(low <= 0.5e-9 <= high)
        low, high = interval(drawn.betas[:, 0], rivals[0][0].betas[0])
        inside["beta"].append(low <= 1e-9 <= high)
    assert {what: np.mean(one) for what, one in inside.items() if not 0.88 <= np.mean(one) <= 1} == {}


def test_additions_that_cannot_be_those_of_the_steps_stay_inside_beta() -> None:
    """From memory they take longer than from cache."""
    rows = [linked("ring", n, 64 << 2 * i, ((0, 2e-6, 1e-9),), 0.2e-9) for n in (2, 4) for i in range(10)]
    slow = fit_rows(added(rows, 4e-9))
    (one,) = slow.segments
    assert (one.gamma_from, one.gamma_s_per_byte) == (None, None)
    assert one.beta_s_per_byte == pytest.approx(1.1e-9)
    assert one.warnings == ("gamma not identified",)
    assert "by themselves they take 0.25 GB/s, and leave no time for messages" in " ".join(explain(slow))


def test_timed_additions_of_too_few_lengths_tell_nothing() -> None:
    rows = added([linked("ring", n, 64 << 2 * i, ((0, 2e-6, 1e-9),), 0.2e-9) for n in (2, 4) for i in range(5)], 0.2e-9)
    two = [replace(one, addition_nbytes=64 if one.nbytes < 1024 else 4096) for one in rows]
    assert only(two).gamma_from is None
    untimed = [replace(one, dtype="float64", addition_nbytes=None, addition_s=None) for one in rows]
    assert only([*rows, *untimed]).gamma_from is None
    assert only(rows).gamma_from == "timed additions"


def test_each_type_has_timed_additions_of_its_own() -> None:
    link = ((0, 2e-6, 1e-9),)
    rows = [
        replace(one, dtype=dtype)
        for dtype, gamma in (("float16", 0.8e-9), ("float32", 0.2e-9))
        for one in added([linked("ring", n, 64 << 2 * i, link, gamma) for n in (2, 4) for i in range(5)], gamma)
    ]
    found = fit_rows(rows).segments
    assert [(one.dtype, one.gamma_from) for one in found] == [("float16", TIMED), ("float32", TIMED)]
    assert [one.gamma_s_per_byte for one in found] == pytest.approx([0.8e-9, 0.2e-9])
    assert [one.beta_s_per_byte for one in found] == pytest.approx([1e-9, 1e-9])


def test_timed_additions_count_where_messages_tell_them_too() -> None:
    """What is left over when curves do not fit is no addition."""
    names = ("ring", "recursive_doubling")
    rows = [
        linked(name, n, 64 << 2 * i, ((0, 2e-6, 1e-9),), 0.2e-9) for name in names for n in (2, 4) for i in range(9)
    ]
    slower = [replace(one, samples_s=(1.2 * one.samples_s[0],)) if one.algorithm == "ring" else one for one in rows]
    assert only(rows).gamma_from == only(slower).gamma_from == "messages"
    timed = [replace(one, addition_nbytes=one.nbytes, addition_s=1e-6 + 0.2e-9 * one.nbytes) for one in slower]
    assert only(timed).gamma_from == "timed additions"
    assert only(timed).gamma_s_per_byte == pytest.approx(0.2e-9)


def test_no_latency_is_below_zero_however_points_scatter() -> None:
    """Not behind a bend upwards either, where the line is not one of the unknowns."""
    rows = [linked("mpi", 2, 2**i, ((0, 1e-6, 1e-10), (2**14, -15e-6, 1e-9))) for i in range(4, 24)]
    rows = [replace(one, samples_s=(abs(one.samples_s[0]),)) for one in rows]
    bends = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        points, _ = points_of(
            [replace(one, samples_s=(one.samples_s[0] * np.exp(random.normal(0, 0.4)),)) for one in rows]
        )
        search = Search(points)
        curve, _ = search.best()
        rivals = search.rivals(curve.shape)
        bends += curve.shape.segments > 1
        assert rivals[0][0].shape == curve.shape
        assert min(min(one.alphas) for one in (curve, *(rival for rival, _, _ in rivals))) >= 0
    assert bends > 30


def test_points_that_scatter_widely_draw_a_fit_to_neither_side() -> None:
    """Relative weights alone would find a sixteenth less: the square of what they scatter by."""
    rows = [linked("mpi", 2, 2**i, ((0, 2e-6, 1e-9),)) for i in range(4, 26)]
    found = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        points, _ = points_of(
            [replace(one, samples_s=(one.samples_s[0] * np.exp(random.normal(0, 0.25)),)) for one in rows]
        )
        ((curve, *_), *_) = Search(points).rivals(Shape())
        found.append((curve.alphas[0] / 2e-6, curve.betas[0] / 1e-9))
    assert np.mean(found, axis=0) == pytest.approx([1, 1], abs=0.03)


TRUTHS: dict[str, tuple[Link, float, list[tuple[str, str]]]] = {
    "ring": (((0, 2e-6, 1e-9),), 0.0, [("allreduce", "ring")]),
    "halves": (((0, 2e-6, 1e-9),), 0.5e-9, [("reduce_scatter", "ring"), ("allgather", "ring")]),
    "protocols": (
        ((0, 1e-6, 0.5e-9), (8192, 10e-6, 0.1e-9)),
        0.2e-9,
        [("allreduce", "ring"), ("allreduce", "recursive_doubling")],
    ),
}


@pytest.mark.parametrize(
    ("name", "samples", "launches"),
    [("ring", 1, 1), ("ring", 2, 5), ("halves", 10, 1), ("protocols", 1, 1), ("protocols", 2, 2)],
)
def test_the_truth_lies_in_its_interval(name: str, samples: int, launches: int) -> None:
    link, gamma, names = TRUTHS[name]
    rows = [
        linked(algorithm, n, 8 << 2 * i, link, gamma, collective=collective)
        for collective, algorithm in names
        for n in (2, 4, 8)
        for i in range(12)
    ]
    inside: dict[str, list[bool]] = {}
    shapes = 0
    for seed in range(200):
        points, _ = points_of(noisy(rows, seed, samples, launches))
        search = Search(points, [("sum", "float32")] if gamma else [])
        curve, _ = search.best()
        shapes += curve.shape.segments == len(link)
        if curve.shape.segments != len(link):
            continue
        redrawn = redraw(points, search.rivals(curve.shape), 250)
        assert redrawn.over == ("launches" if launches > 1 else "samples")
        for at, (_, alpha, beta) in enumerate(link):
            for what, values, truth, found in (
                (f"alpha {at}", redrawn.alphas[:, at], alpha, curve.alphas[at]),
                (f"beta {at}", redrawn.betas[:, at], beta, curve.betas[at]),
            ):
                low, high = interval(values, found)
                inside.setdefault(what, []).append(low <= truth <= high)
        if gamma:
            low, high = interval(redrawn.gammas[:, 0], curve.gammas[0])
            inside.setdefault("gamma", []).append(low <= gamma <= high)
    assert shapes >= 190
    assert {what: np.mean(one) for what, one in inside.items() if not 0.90 <= np.mean(one) <= 0.99} == {}


@pytest.mark.parametrize("algorithm", ["ring", "naive", "parameter_server"])
def test_one_link_explains_all_rank_counts(algorithm: str) -> None:
    rows = [
        priced(algorithm, nranks, nbytes, 3e-6, 0.5e-9) for nranks in (2, 3, 4, 7) for nbytes in (336, 33600, 3360000)
    ]
    fit = only(rows)
    assert (fit.nranks, fit.points, fit.basis) == ("2,3,4,7", 12, "link")
    assert fit.alpha_s == pytest.approx(3e-6, rel=1e-9)
    assert fit.beta_s_per_byte == pytest.approx(0.5e-9, rel=1e-9)


def test_the_library_is_fitted_per_rank_count_in_numeric_order() -> None:
    rows = [row("mpi", nranks, nbytes, nranks * 1e-6 + nbytes * 1e-9) for nranks in (16, 2, 4) for nbytes in SIZES]
    segments = fit_rows(rows).segments
    assert [fit.nranks for fit in segments] == ["2", "4", "16"]
    assert [fit.alpha_s for fit in segments] == pytest.approx([2e-6, 4e-6, 16e-6], rel=1e-6)


def test_no_unknowns_at_or_above_zero_do_better() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        rounds = random.integers(1, 9, 6).astype(float)
        nbytes, times = 10 ** random.uniform(0, 8, 6), 10 ** random.uniform(-6, -1, 6)

        def loss(alpha: float, beta: float, rounds: Any = rounds, nbytes: Any = nbytes, times: Any = times) -> float:
            return float((((rounds * alpha + nbytes * beta) / times - 1) ** 2).sum())

        (alpha, beta), residual = solve(np.stack([rounds, nbytes], axis=1), times, np.ones_like(times))
        assert alpha >= 0
        assert beta >= 0
        best = loss(alpha, beta)
        assert residual == pytest.approx(best)
        for step in (0.99, 1.01):
            assert best <= loss(alpha * step, beta) + 1e-12
            assert best <= loss(alpha, beta * step) + 1e-12
        assert best <= min(loss(a, b) for a in (0, *times / rounds) for b in (0, *times / nbytes)) + 1e-12


def test_a_parameter_that_the_sizes_do_not_show_is_not_identified() -> None:
    """Some noise looks like a break: then there is more than one line."""
    found = {"alpha": 0, "beta": 0}
    for seed in range(40):
        random = np.random.default_rng(seed)
        flat = fit_rows([row("mpi", 2, 4 << i, 1e-5 * random.lognormal(0, 0.05)) for i in range(8)]).segments
        steep = fit_rows([row("mpi", 2, 1 << i, 2.0**i * 1e-9 * random.lognormal(0, 0.05)) for i in range(20, 28)])
        for one in (*flat, *steep.segments):
            assert ("beta not identified" in one.warnings) == (one.beta_low_s_per_byte == 0)
            assert ("alpha not identified" in one.warnings) == (one.alpha_low_s == 0)
        found["beta"] += [one.warnings for one in flat] == [("beta not identified",)]
        found["alpha"] += [one.warnings for one in steep.segments] == [("alpha not identified",)]
    assert min(found.values()) >= 34


def test_three_exact_sizes_identify_both() -> None:
    fit = only([row("mpi", 2, nbytes, 1e-6 + nbytes * 1e-9) for nbytes in (8, 1024, 65536)])
    assert fit.warnings == ()
    assert fit.beta_low_s_per_byte == pytest.approx(1e-9, rel=1e-9)
    assert fit.alpha_high_s == pytest.approx(1e-6, rel=1e-9)


@pytest.mark.parametrize("spread", [0, 4])
def test_intervals_hold_the_estimate_of_exact_and_of_absurd_data(spread: int) -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        alpha, beta = random.uniform(1e-6, 9e-6), random.uniform(1e-10, 9e-10)
        sizes = [4 << 3 * i for i in range(8)]
        rows = [row("mpi", 2, n, (alpha + n * beta) * 10 ** random.uniform(0, spread)) for n in sizes]
        for fit in fit_rows(rows, resamples=50).segments:
            assert fit.alpha_low_s is not None
            assert fit.alpha_high_s is not None
            assert fit.beta_low_s_per_byte is not None
            assert fit.beta_high_s_per_byte is not None
            assert 0 <= fit.alpha_low_s <= fit.alpha_s <= fit.alpha_high_s
            assert 0 <= fit.beta_low_s_per_byte <= fit.beta_s_per_byte <= fit.beta_high_s_per_byte


def test_intervals_may_be_left_out() -> None:
    fit = only(case_25(), resamples=0)
    assert (fit.alpha_low_s, fit.alpha_high_s, fit.beta_low_s_per_byte, fit.drawn) == (None,) * 4
    assert fit.alpha_s == only(case_25()).alpha_s


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


def test_launches_of_a_cell_are_one_point_and_make_its_interval() -> None:
    rows = [
        row("mpi", 2, nbytes, (1e-6 + nbytes * 1e-9) * factor, launch=launch)
        for launch, factor in enumerate((0.9, 1.0, 1.1))
        for nbytes in SIZES
    ]
    fit = only(rows)
    assert (fit.points, fit.drawn) == (7, "launches")
    assert fit.alpha_s == pytest.approx(1e-6)
    assert fit.alpha_low_s == pytest.approx(0.9e-6, rel=0.02)
    assert fit.alpha_high_s == pytest.approx(1.1e-6, rel=0.02)
    alone = only(rows[:7])
    assert alone.drawn == "samples"
    assert alone.alpha_high_s == pytest.approx(alone.alpha_s)


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
    varying = schedule_of(algorithm.collective, algorithm.name) is None
    assert varying == (algorithm.shared is not None or bool({"chunks", "groups"} & dict(algorithm.arguments).keys()))
    rows = [
        priced(algorithm.name, nranks, nbytes, 3e-6, 0.5e-9, collective=algorithm.collective)
        for nranks in (2, 4, 5, 6)
        for nbytes in sizes
    ]
    segments = fit_rows(rows, resamples=0).segments
    assert {fit.basis for fit in segments} == {"call" if varying else "link"}
    if not varying:
        (fit,) = segments
        assert fit.alpha_s == pytest.approx(3e-6, rel=1e-6)
        assert fit.beta_s_per_byte == pytest.approx(0.5e-9, rel=1e-6)


def test_calls_of_the_library_can_be_taken_for_an_algorithm() -> None:
    rows = [linked("ring", n, nbytes, ((0, 3e-6, 0.5e-9),)) for n in (2, 4) for nbytes in SIZES]
    calls = [row("mpi", one.nranks, one.nbytes, one.samples_s[0]) for one in rows]
    assert [fit.basis for fit in fit_rows(calls).segments] == ["call", "call"]
    fit = only(calls, assume="ring")
    assert (fit.basis, fit.algorithm, fit.nranks) == ("link", "mpi as ring", "2,4")
    assert (fit.alpha_s, fit.beta_s_per_byte) == pytest.approx((3e-6, 0.5e-9))
    with pytest.raises(ValueError, match="unknown algorithm 'rings'"):
        fit_rows(calls, assume="rings")
    with pytest.raises(ValueError, match="assume 'hierarchical': its messages depend on chunks or nodes"):
        fit_rows(calls, assume="hierarchical")


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

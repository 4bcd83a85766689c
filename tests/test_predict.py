from __future__ import annotations

import json

import numpy as np
import pytest

from ringbench.model.explain import explain
from ringbench.model.fit import fit_rows
from ringbench.model.links import predict_links
from ringbench.model.network import Link
from ringbench.model.predict import Prediction, crossovers, predict_run
from ringbench.records.row import Row

IDEAL = Link(alpha_s=0.0, beta_s_per_byte=1 / 50e9)
NEAR, FAR = Link(alpha_s=1e-6, beta_s_per_byte=1 / 300e9), Link(alpha_s=5e-6, beta_s_per_byte=1 / 25e9)


def row(algorithm: str, nranks: int, nbytes: int, time: float) -> Row:
    return Row(
        collective="allreduce",
        algorithm=algorithm,
        op="sum",
        dtype="float32",
        device="cpu",
        nranks=nranks,
        nbytes=nbytes,
        count=nbytes // 4,
        in_place=True,
        launch=0,
        samples_s=(time,) * 7,
        wrong=0,
    )


def measured(names: tuple[str, ...] = ("ring", "recursive_doubling"), ranks: tuple[int, ...] = (4, 8, 16)) -> list[Row]:
    """Return the rows of a link of 2 us and 1 GB/s that adds 5 GB/s."""
    link = Link(alpha_s=2e-6, beta_s_per_byte=1e-9)
    sizes = [64 << 2 * i for i in range(10)]
    found, _ = predict_links(link, ranks, sizes, gamma_s_per_byte=0.2e-9, names=names)
    return [row(one.algorithm, one.nranks, one.nbytes, one.predicted_s) for one in found]


def only(found: list[Prediction], algorithm: str) -> Prediction:
    (one,) = [one for one in found if one.algorithm == algorithm]
    return one


def test_the_worked_numbers() -> None:
    """7 B parameters in bf16: each of 8 ranks sends 24.5 GB."""
    fast = Link(alpha_s=0.0, beta_s_per_byte=1 / 450e9)
    assert only(predict_links(fast, [8], [14 * 10**9])[0], "ring").predicted_s == pytest.approx(54.4e-3, rel=1e-3)
    found = predict_links(IDEAL, [8], [14 * 10**9])[0]
    assert only(found, "ring").predicted_s == pytest.approx(0.49)
    assert only(found, "ring").predicted_s * 50e9 == pytest.approx(24.5e9)
    assert only(found, "in_network").predicted_s == pytest.approx(0.28)
    ring = Link(alpha_s=2e-6, beta_s_per_byte=1e-9)
    assert only(predict_links(ring, [4], [4_000_000])[0], "ring").predicted_s == pytest.approx(6.012e-3)


def test_additions_take_time_in_every_algorithm_that_adds() -> None:
    found = predict_links(IDEAL, [8], [10**9], gamma_s_per_byte=1e-11)[0]
    free = predict_links(IDEAL, [8], [10**9])[0]
    added = {
        one.algorithm: (one.predicted_s - other.predicted_s) / 1e-2 for one, other in zip(found, free, strict=True)
    }
    assert added["ring"] == pytest.approx(7 / 8)
    assert added["recursive_doubling"] == pytest.approx(3)
    assert added["naive"] == pytest.approx(7)
    assert added["in_network"] == 0


def test_two_levels() -> None:
    """A ring's every round waits for the message between nodes; the hierarchy sends a shard across."""
    found, _ = predict_links(NEAR, [16], [16 * 10**6], outer=FAR, ranks_per_node=8)
    assert only(found, "ring").predicted_s == pytest.approx(30 * FAR.step(10**6))
    doubling = 3 * NEAR.step(16 * 10**6) + FAR.step(16 * 10**6)
    assert only(found, "recursive_doubling").predicted_s == pytest.approx(doubling)
    inside, across = 7 * NEAR.step(2 * 10**6), 2 * FAR.step(10**6)
    shards = only(found, "hierarchical")
    assert shards.predicted_s == shards.high_s == pytest.approx(2 * inside + across)
    assert shards.low_s == pytest.approx(max(inside, across))
    assert only(found, "in_network").predicted_s == pytest.approx(FAR.step(16 * 10**6))
    alone, _ = predict_links(NEAR, [8], [16 * 10**6], outer=FAR, ranks_per_node=8)
    assert only(alone, "ring").predicted_s == pytest.approx(14 * NEAR.step(2 * 10**6))
    with pytest.raises(ValueError, match="12 ranks: no whole number of nodes of 8"):
        predict_links(NEAR, [12], [8], outer=FAR, ranks_per_node=8)


def test_the_same_links_on_both_levels_are_one_level() -> None:
    flat, _ = predict_links(FAR, [16], [10**6], gamma_s_per_byte=1e-10)
    both, _ = predict_links(FAR, [16], [10**6], gamma_s_per_byte=1e-10, outer=FAR, ranks_per_node=4)
    times = {one.algorithm: one.predicted_s for one in both}
    for one in flat:
        if one.algorithm != "bine":  # only some of its ranks send in each round
            assert times[one.algorithm] == pytest.approx(one.predicted_s), one.algorithm


def test_a_run_gives_times_never_measured() -> None:
    result = fit_rows(measured())
    found, notes = predict_run(result, [8, 32], [4096, 10**6])
    truth, _ = predict_links(Link(alpha_s=2e-6, beta_s_per_byte=1e-9), [8, 32], [4096, 10**6], gamma_s_per_byte=0.2e-9)
    exact = {(one.algorithm, one.nranks, one.nbytes): one.predicted_s for one in truth}
    assert notes == []
    for one in found:
        assert one.predicted_s == pytest.approx(exact[one.algorithm, one.nranks, one.nbytes], rel=1e-6)
        assert one.warnings == (("model alone",) if one.algorithm == "in_network" else ())
        if one.algorithm != "in_network":
            assert one.low_s is not None
            assert one.high_s is not None
            assert one.low_s <= one.predicted_s <= one.high_s
    best = [(one.nranks, one.nbytes, one.algorithm) for one in found if one.best]
    assert best == [
        (8, 4096, "recursive_doubling"),
        (8, 10**6, "ring"),
        (32, 4096, "recursive_doubling"),
        (32, 10**6, "ring"),
    ]
    json.dumps([one.to_json() for one in found], allow_nan=False)


def test_what_is_far_from_what_was_fitted_is_marked() -> None:
    result = fit_rows(measured())
    found, _ = predict_run(result, [2, 32, 33], [4096])
    marks = {(one.algorithm, one.nranks): one.warnings for one in found}
    assert marks["ring", 2] == marks["ring", 32] == ()
    assert marks["ring", 33] == ("outside ranks",)
    largest = 64 << 18
    found, _ = predict_run(result, [8], [2 * largest, 2 * largest + 64])
    assert [one.warnings for one in found if one.algorithm == "recursive_doubling"] == [(), ("outside messages",)]


def test_algorithms_that_were_not_measured_say_so_and_what_they_lack() -> None:
    result = fit_rows(measured(("ring",)))
    found, _ = predict_run(result, [8], [4096], ["ring", "rabenseifner", "naive"])
    marks = {one.algorithm: one.warnings for one in found}
    assert marks["ring"] == ()
    assert marks["rabenseifner"] == ("not measured",)
    assert marks["naive"] == ("not measured", "gamma not identified")  # it adds as much as it moves


def test_whole_calls_are_known_where_they_were_measured() -> None:
    rows = [row("mpi", 4, 64 << 2 * i, 1e-6 + (64 << 2 * i) * 1e-9) for i in range(8)]
    found, notes = predict_run(fit_rows([*rows, *measured()]), [4, 8], [1024])
    assert only([one for one in found if one.nranks == 4], "mpi").predicted_s == pytest.approx(1e-6 + 1.024e-6)
    assert [one for one in found if one.nranks == 8 and one.algorithm == "mpi"] == []
    assert len(notes) == 1
    assert "mpi on 8 ranks: whole calls are known on 4 ranks" in notes[0]
    with pytest.raises(ValueError, match="nothing to predict: allreduce mpi on 8 ranks"):
        predict_run(fit_rows(rows), [8], [1024])


def test_one_rank_and_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="1 rank: "):
        predict_links(IDEAL, [1, 2], [8])
    with pytest.raises(ValueError, match="unknown algorithm 'rings'"):
        predict_links(IDEAL, [2], [8], names=["rings"])
    with pytest.raises(ValueError, match="no rows and no schedule of rings"):
        predict_run(fit_rows(measured()), [8], [8], ["rings"])


def test_crossovers_are_found_to_the_byte() -> None:
    found = crossovers({"short": lambda n: 10.0 + n, "long": lambda n: 1010.5 + n / 2}, 8, 2**20)
    assert found == [("short", 8, 2001), ("long", 2002, 2**20)]
    assert crossovers({"one": float}, 64, 64) == [("one", 64, 64)]


def test_a_fit_says_what_it_found_in_words() -> None:
    text = " ".join(explain(fit_rows(measured())))
    assert "a message costs 2us and 1 GB/s; an addition: sum of float32 5 GB/s" in text
    assert "ring on 16 ranks: 30 messages one after the other, 60us of latency for a short vector" in text
    assert "ring beats recursive_doubling from 18.6KiB on, on 16 ranks" in text
    assert "trust: a good guide" in text
    assert "rank counts 0.0% off on average" in text
    one = " ".join(explain(fit_rows(measured(("ring",), (4,)))))
    assert "4 ranks alone: nothing shows whether other rank counts follow the curve" in one
    assert "additions are inside the bandwidth" in one


def test_left_out_errors_regret_and_bias() -> None:
    """One rank count is twice as slow as the curve of the others says."""
    rows = [
        row(one.algorithm, one.nranks, one.nbytes, one.samples_s[0] * (2 if one.nranks == 4 else 1))
        for one in measured()
    ]
    fit = fit_rows(rows).segments[0]
    assert fit.heldout_ranks_mape is not None
    assert fit.heldout_ranks_worst is not None
    assert 0.2 < fit.heldout_ranks_mape < fit.heldout_ranks_worst < 1.2
    assert fit.heldout_sizes_mape is not None
    assert fit.regret_mean is not None
    assert fit.regret_worst is not None
    assert 0 <= fit.regret_mean <= fit.regret_worst
    assert fit.heldout_decade_nbytes == (10, 100, 1000, 10**4, 10**5, 10**6, 10**7)
    assert len(fit.heldout_bias) == 7


def test_an_algorithm_that_the_common_curve_does_not_explain_has_its_own() -> None:
    rows = [row(one.algorithm, one.nranks, one.nbytes, one.samples_s[0]) for one in measured(("ring", "rabenseifner"))]
    slow = [
        row("naive", n, 64 << 2 * i, (n - 1) * (40e-6 + (64 << 2 * i) * 9e-9)) for n in (4, 8, 16) for i in range(10)
    ]
    found, _ = predict_run(fit_rows([*rows, *slow]), [12], [4096])
    naive = only(found, "naive")
    assert naive.basis == "own"
    assert naive.predicted_s == pytest.approx(11 * (40e-6 + 4096 * 9e-9), rel=1e-3)


def test_a_machine_like_those_of_supercomputers_is_predicted_at_twice_the_ranks() -> None:
    """Two protocols and cheaper bytes beyond, 8 % of scatter, sizes far apart: fitted on 8 and 16 ranks, held to 32."""

    def step(length: float) -> float:
        if length <= 128:
            return 3.2e-6 + 0.2e-9 * length
        return 5e-6 + 0.3e-9 * min(length, 2**19) + 0.23e-9 * max(0.0, length - 2**19)

    random = np.random.default_rng(5)
    sizes = {
        8: [32 << 3 * i for i in range(9)],
        16: [256 << 3 * i for i in range(8)],
        32: [256 << 3 * i for i in range(8)],
    }
    times = {
        (n, nbytes): 2 * (n - 1) * step(nbytes / n) * random.lognormal(0, 0.08) for n in sizes for nbytes in sizes[n]
    }
    result = fit_rows([row("ring", n, nbytes, time) for (n, nbytes), time in times.items() if n < 32])
    found, _ = predict_run(result, [32], sizes[32], ["ring"])
    rings = [one for one in found if one.algorithm == "ring"]
    errors = [abs(one.predicted_s / times[32, one.nbytes] - 1) for one in rings]
    assert np.median(errors) < 0.09
    assert sum((one.low_s or 0) <= times[32, one.nbytes] <= (one.high_s or 0) for one in rings) >= 7

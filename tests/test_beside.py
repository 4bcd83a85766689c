from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from ringbench.arguments import make_parser
from ringbench.cli import main
from ringbench.model.beside import beside, split_ranks
from ringbench.model.explain import explain_left_out
from ringbench.model.fit import fit_rows
from ringbench.model.links import predict_links
from ringbench.model.network import Link
from ringbench.model.points import points_of
from ringbench.model.predict import predict_run
from ringbench.records.row import Row
from ringbench.records.settings import read_plan
from ringbench.records.units import parse_sizes
from ringbench.report.grid import WIDTH
from ringbench.report.tables import render

LINK = Link(alpha_s=150e-6, beta_s_per_byte=1 / 46.5e6)
NAMES = ("ring", "recursive_doubling", "rabenseifner", "binomial_tree")
SIZES = [8 << 3 * i for i in range(8)]


def measured(slower: float = 1.0) -> list[Row]:
    """Return rows of 2, 3 and 4 ranks on slow links; those of recursive doubling on 3 ranks are ``slower``."""
    found, _ = predict_links(LINK, [2, 3, 4], SIZES, names=NAMES)
    return [
        Row(
            collective="allreduce",
            algorithm=one.algorithm,
            op="sum",
            dtype="float32",
            device="cpu",
            nranks=one.nranks,
            nbytes=one.nbytes,
            count=one.nbytes // 4,
            in_place=True,
            launch=0,
            samples_s=(one.predicted_s * (slower if (one.algorithm, one.nranks) == ("recursive_doubling", 3) else 1),)
            * 7,
            wrong=0,
        )
        for one in found
    ]


def test_what_was_left_out_stands_beside_what_is_predicted_of_it() -> None:
    fitted, others = split_ranks(measured(slower=1.25), [2, 4])
    assert {row.nranks for row in fitted} == {2, 4}
    result = fit_rows(fitted)
    found, held = beside(predict_run(result, [2, 3], [512, 4096, 2**20])[0], points_of(others)[0])
    errors = {(one.algorithm, one.nranks, one.nbytes): one.error for one in found}
    assert errors["ring", 3, 4096] == pytest.approx(0, abs=1e-6)
    assert errors["recursive_doubling", 3, 4096] == pytest.approx(1 / 1.25 - 1)
    assert errors["ring", 2, 4096] is None  # it was fitted
    assert errors["ring", 3, 2**20] is None  # it was not measured
    assert errors["in_network", 3, 4096] is None
    (one,) = held
    assert len(one.points) == 8
    assert one.worst[0] == pytest.approx(1 / 1.25 - 1)
    assert one.median == pytest.approx(0, abs=1e-6)
    text = " ".join(explain_left_out(result, held))
    assert "fitted on N = 2,4: a message costs 150us and 0.0465 GB/s" in text
    assert "left out and predicted: N = 3 5.0% off on average, 0.0% in the median, worst -20%" in text


def test_the_regret_is_that_of_the_choice() -> None:
    """512 bytes on 3 ranks: recursive doubling is taken for the fastest, and is not."""
    fitted, others = split_ranks(measured(slower=1.5), [2, 4])
    found, held = beside(predict_run(fit_rows(fitted), [3], [512])[0], points_of(others)[0])
    best = next(one for one in found if one.best)
    times = [one.measured_s for one in found if one.measured_s]
    assert best.algorithm == "recursive_doubling"
    assert best.measured_s is not None
    assert max(regret for regret, _ in held[0].regrets) == pytest.approx(best.measured_s / min(times) - 1)
    assert best.measured_s > min(times)


def test_devices_and_placements_are_held_apart() -> None:
    rows = measured()
    rows += [
        replace(row, in_place=False, samples_s=tuple(2 * time for time in row.samples_s)) for row in measured(1.25)
    ]
    fitted, others = split_ranks(rows, [2, 4])
    result = fit_rows(fitted)
    _, held = beside(predict_run(result, [3], [512, 4096])[0], points_of(others)[0])
    assert sorted(round(one.worst[0], 6) for one in held) == [-0.2, 0]
    lines = explain_left_out(result, held)
    assert [line.split(":")[0] for line in lines] == ["cpu, out of place"] * 2 + ["cpu, in place"] * 2


def test_a_rank_count_without_rows_is_named() -> None:
    with pytest.raises(ValueError, match="no rows on 5 ranks to fit; there are rows on 2, 3, 4"):
        split_ranks(measured(), [2, 5])


def test_the_table_shows_both_within_the_page() -> None:
    random = np.random.default_rng(1)
    rows = [
        replace(row, samples_s=tuple(time * random.lognormal(0, 0.1) for time in row.samples_s)) for row in measured()
    ]
    fitted, others = split_ranks(rows, [2, 4])
    result = fit_rows(fitted)
    predictions = predict_run(result, [3], [512, 4096, 2**24])[0]
    found, held = beside(predictions, points_of(others)[0])
    text = render([one.to_json() for one in found], "predict", "text", explain_left_out(result, held))
    (heading,) = [line for line in text.splitlines() if line.split()[:1] == ["size"]]
    assert heading.split()[-3:] == ["measured", "error", "warn"]
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "measured  error" not in render([one.to_json() for one in predictions], "predict", "text")


@pytest.mark.parametrize(
    ("fitted", "nranks", "sizes"),
    [
        ("512,1024", 2048, "8:512MiB:x4"),
        ("512,1024", 2048, "32:512MiB:x8"),
        ("32", 60, "32:512MiB:x4"),
        ("8,16", 32, "32:256MiB:x8"),
    ],
)
def test_calls_of_a_library_taken_for_a_ring_are_predicted_at_twice_the_ranks(
    fitted: str,
    nranks: int,
    sizes: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table of another tool, links with two protocols, 6 % of noise: the way of a user, from CSV to errors."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(7)
    lines = ["collective,algorithm,nranks,nbytes,seconds"]
    for n in (*map(int, fitted.split(",")), nranks):
        for nbytes in parse_sizes(sizes):
            length = nbytes / n
            step = 3e-6 + length / 12e9 if length <= 65536 else 9e-6 + length / 22e9
            lines.append(f"allreduce,mpi,{n},{nbytes},{2 * (n - 1) * step * random.lognormal(0, 0.06):.4g}")
    Path("calls.csv").write_text("\n".join(lines) + "\n", encoding="ascii")
    assert main(["import", "calls.csv", "--out", "r"]) == 0
    assert main(["fit", "r", "--assume", "ring", "--resamples", "0"]) == 0
    words = ["--assume", "ring", "--fit-ranks", fitted, "--ranks", str(nranks), "--sizes", sizes]
    capsys.readouterr()
    assert main(["predict", "r", *words, "--format", "json"]) == 0
    found = [one for one in json.loads(capsys.readouterr().out) if one["algorithm"] == "mpi as ring"]
    assert len(found) == len(parse_sizes(sizes))
    assert {tuple(one["warnings"]) for one in found} == {()}
    assert np.median([abs(one["error"]) for one in found]) < 0.09


def test_the_plan_measures_what_its_comment_predicts() -> None:
    plan = read_plan(ROOT / "benchmarks" / "predict.toml")
    text = (ROOT / "benchmarks" / "predict.toml").read_text(encoding="utf-8")
    lines = [part for part in text.split("`") if part.startswith("ringbench predict")]
    assert len(lines) == 2
    for line in lines:
        words = make_parser().parse_args(line.split()[1:])
        assert set(words.sizes) <= set(plan.settings.sizes)
        assert set(words.fit_ranks) | set(words.ranks) == set(plan.ranks or ())

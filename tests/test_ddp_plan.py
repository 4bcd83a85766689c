from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_cli import stub

from ringbench.cli import main
from ringbench.ddp.costs import GivenLinks
from ringbench.ddp.plan import Case, Planner
from ringbench.ddp.workloads import workload_named
from ringbench.model.network import Link
from ringbench.records.row import Row
from ringbench.records.run import RUN_FILE, SCHEMA_VERSION, append

FAST = Link(alpha_s=1e-6, beta_s_per_byte=1 / 300e9)
SLOW = Link(alpha_s=5e-6, beta_s_per_byte=1 / 25e9)
NODES = ("--inner", "1us,300GB/s", "--outer", "5us,25GB/s", "--ranks-per-node", "8")


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["ddp", "--plan", *words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(not isinstance(value, dict) for row in found for value in row.values())
    return list(found)


def part(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["part"] == name]


@pytest.mark.parametrize(("bandwidth", "milliseconds"), [("450GB/s", 54.4), ("50GB/s", 490.0)])
def test_seven_billion_parameters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, bandwidth: str, milliseconds: float
) -> None:
    file = tmp_path / "seven.toml"
    file.write_text("[[layer]]\nparameters = 70_000_000\nrepeat = 100\n", encoding="utf-8")
    rows = plan(capsys, "--workload", str(file), "--dtype", "bfloat16", "--ranks", "8", "--beta", bandwidth)
    for row in part(rows, "buckets"):
        assert row["communication_s"] * 1e3 == pytest.approx(milliseconds, rel=1e-3)
        assert row["exposed_s"] == row["communication_s"]  # nothing is computed to hide it behind
        assert row["speedup"] is None


def test_ranks_go_from_1_to_1024_and_batches_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "gpt2", "--beta", "50GB/s", "--alpha", "5us", "--batch", "8", "--accumulate", "2")
    rows = part(plan(capsys, *words, "--critical-batch", "1024"), "ranks")
    assert [row["nranks"] for row in rows] == [2**power for power in range(11)]
    assert [row["global_batch"] for row in rows] == [16 * 2**power for power in range(11)]
    assert [bool(row["warnings"]) for row in rows] == [row["global_batch"] > 1024 for row in rows]
    assert (rows[0]["speedup"], rows[0]["exposed_s"]) == (1.0, 0.0)
    for row in rows:
        assert row["step_s"] == pytest.approx(row["compute_s"] + row["exposed_s"])
        assert row["speedup"] == pytest.approx(row["nranks"] * row["compute_s"] / row["step_s"])
        assert row["samples_per_s"] == pytest.approx(row["global_batch"] / row["step_s"])
        assert 0 < row["efficiency"] <= 1


def test_the_best_bucket_is_the_one_with_the_shortest_step(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "resnet50", "--backward", "0.1s", "--beta", "10GB/s", "--alpha", "20us")
    rows = part(plan(capsys, *words, "--bucket-sizes", "1:64MiB:x4", "--ranks", "16,32"), "buckets")
    assert len(rows) == 2 * 14
    for nranks in (16, 32):
        own = [row for row in rows if row["nranks"] == nranks]
        (best,) = [row for row in own if row["best"]]
        assert best["step_s"] <= min(row["step_s"] for row in own) * 1.001
        assert own[0]["buckets"] == 161  # of one byte at most: each tensor by itself
        assert own[0]["step_s"] > best["step_s"]
        assert own[-1]["step_s"] > best["step_s"]


def test_levers_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    rows = part(plan(capsys, "--workload", "gpt2", *NODES, "--ranks", "64"), "levers")
    levers = {row["lever"]: row for row in rows}
    assert list(levers) == ["none", "bucket size", "accumulation", "hierarchy", "compression", "all"]
    assert levers["none"]["gain"] == 1.0
    assert levers["hierarchy"]["algorithm"] == "hierarchical"
    assert levers["accumulation"]["accumulate"] == 2
    less = levers["none"]["communication_s"] - levers["compression"]["communication_s"]
    assert less == pytest.approx(2 * 63 / 64 * levers["none"]["parameters"] * 4 / 25e9 / 2, rel=1e-6)
    assert all(levers["all"]["gain"] >= row["gain"] >= 1.0 for row in rows)
    flat = part(plan(capsys, "--workload", "gpt2", "--beta", "25GB/s", "--ranks", "64"), "levers")
    assert [row["lever"] for row in flat] == ["none", "bucket size", "accumulation", "compression", "all"]


def test_ranks_that_share_a_link_divide_it() -> None:
    workload = workload_named("resnet50")
    own = GivenLinks(inner=FAST, outer=SLOW, ranks_per_node=8)
    shared = GivenLinks(inner=FAST, outer=SLOW, ranks_per_node=8, shared=True)
    alone, together = Planner(workload=workload, costs=own), Planner(workload=workload, costs=shared)
    ring = Case(nranks=32)
    assert together.step(ring) == alone.step(ring)  # one rank of each node sends to another node
    doubling = Case(nranks=32, algorithm="recursive_doubling")
    eightfold = together.step(doubling).communication_s / alone.step(doubling).communication_s
    assert 6 < eightfold < 8  # all eight do, but for the steps inside a node and the latencies
    hierarchical = Case(nranks=32, algorithm="hierarchical")
    assert together.step(hierarchical).communication_s > alone.step(hierarchical).communication_s


def test_a_fitted_run_tells_what_links_cost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    alpha, beta = 50e-6, 2e-9
    rows = [
        Row(
            collective="allreduce",
            algorithm="ring",
            op="sum",
            dtype="float32",
            device="cpu",
            nranks=4,
            nbytes=nbytes,
            count=nbytes // 4,
            in_place=True,
            launch=0,
            samples_s=tuple(part * (6 * alpha + 1.5 * nbytes * beta) for part in (1.0, 1.01, 0.99, 1.0, 1.0, 1.0)),
            wrong=0,
        )
        for nbytes in (1024, 65536, 2**20, 2**24)
    ]
    first = {"kind": "provenance", "schema_version": SCHEMA_VERSION}
    for record in (first, *(row.to_json() for row in rows)):
        append(tmp_path / RUN_FILE, record)
    words = ("--workload", "resnet50", "--ranks", "4")
    fitted = part(plan(capsys, *words, "--fit", str(tmp_path)), "buckets")
    given = part(plan(capsys, *words, "--alpha", "50us", "--beta", "0.5GB/s"), "buckets")
    assert {row["basis"] for row in fitted} == {"fit"}
    for one, other in zip(fitted, given, strict=True):
        assert one["step_s"] == pytest.approx(other["step_s"], rel=0.02)


@pytest.mark.parametrize("format", ["text", "markdown", "csv"])
def test_all_formats(capsys: pytest.CaptureFixture[str], format: str) -> None:
    words = ("--workload", "llama-7b", *NODES, "--ranks", "1024", "--dtype", "bfloat16", "--critical-batch", "512")
    assert main(["ddp", "--plan", *words, "--format", format]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    if format == "text":
        assert max(map(len, out.splitlines())) <= 100
        assert "1 = the global batch is above the critical 512" in out
    if format == "csv":
        assert {len(line.split(",")) for line in out.splitlines()} == {len(out.splitlines()[0].split(","))}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--beta", "1GB/s"], "ddp needs a --workload"),
        (["--workload", "gpt2"], "a plan needs what links cost"),
        (["--workload", "gpt2", "--beta", "1GB/s", *NODES], "what links cost is said twice"),
        (["--workload", "gpt2", "--inner", "1us,3GB/s"], "inner needs outer and ranks_per_node"),
        (["--workload", "gpt3", "--beta", "1GB/s"], "unknown workload 'gpt3'"),
        (["--workload", "none.toml", "--beta", "1GB/s"], "none.toml: No such file"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--dtype", "int8"], "dtype 'int8'"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--engines", "fast"], "unknown engine 'fast'"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--algorithm", "best"], "best"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--algorithm", "mpi"], "mpi"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--accumulate", "1,0"], "malformed rank count '0'"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--bucket-sizes", "0"], "bucket size 0"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--ratio", "x"], "malformed ratio 'x'"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--ratio", "0.5"], "ratio 0.5"),
        (["--workload", "gpt2", "--beta", "5"], "malformed bandwidth '5'"),
        (["--workload", "gpt2", *NODES, "--ranks", "12"], "12 ranks: no whole number of nodes of 8"),
        (["--workload", "gpt2", "--fit", "none"], "none: No such file"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ddp", "--plan", *words]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("ringbench: ")
    assert said in found.err
    assert found.err.count("\n") == 1


def test_a_plan_needs_no_mpi(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "ringbench", "ddp", "--plan", "--workload", "resnet50", "--beta", "1GB/s"]
    root = str(Path(__file__).parents[1])
    environ = {"PYTHONPATH": f"{stub(tmp_path)}:{root}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "best bucket size on 8 ranks" in done.stdout

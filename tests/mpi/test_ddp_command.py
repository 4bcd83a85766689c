"""Tests of ``ringbench ddp`` on ranks: every engine, jobs it starts and jobs it is started in, and what ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Mpi
from harness import Finished, check_lines, environment, run, start

from ringbench.ddp.choices import ENGINES
from ringbench.records.run import RUN_FILE, read_run

pytestmark = pytest.mark.mpi

PLAN = """
batch = 4
steps = 3
warmup = 1
[[layer]]
name = "block"
shape = [[16, 16], [16]]
backward = "1ms"
forward = "500us"
repeat = 3
[[layer]]
shape = [7, 11]
backward = "1ms"
"""


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text(PLAN, encoding="utf-8")
    return str(file)


def ddp(mpi: Mpi, *words: str, status: int | None = 0) -> Finished:
    return run([mpi.python, "-m", "ringbench", "ddp", *words], env=environment(mpi), status=status)


def test_every_engine_is_measured_and_right(mpi: Mpi, plan: str, tmp_path: Path) -> None:
    out, trace = tmp_path / "run", tmp_path / "trace.json"
    ways = ("--engines", ",".join(ENGINES), "--bucket-sizes", "1,4KiB", "--accumulate", "1,2", "--clip", "1.5")
    found = ddp(mpi, plan, "--ranks", "1,3", *ways, "--out", str(out), "--trace", str(trace), "--format", "json")
    cells = json.loads(found.stdout)
    rows = read_run(out).steps
    assert len(rows) == len(cells) == 2 * 2 * 2 * len(ENGINES)
    assert read_run(out).status == "complete"
    for row in rows:
        assert (row.parameters, row.layers, row.batch) == (3 * 272 + 77, 4, 4)
        assert row.wrong == (None if row.engine == "none" else 0), row
        assert len(row.samples_s) == len(row.compute_samples_s) == 3
        assert len(row.finish_s) == row.nranks
        assert sum(row.bucket_nbytes) == 4 * row.parameters
        assert len(row.bucket_nbytes) == (7 if row.cap_nbytes == 1 else 1)
        assert row.nominal_s == pytest.approx(0.0055 * row.accumulate)
        assert min(row.samples_s) >= row.nominal_s
    for cell in cells:
        assert (cell["speedup"] is None) == (cell["nranks"] == 1), cell
    events = json.loads((tmp_path / "trace-3.json").read_text())["traceEvents"]
    assert {event.get("cat") for event in events} == {
        None,
        "forward",
        "backward",
        "ready",
        "all-reduce",
        "clip",
        "step",
    }
    assert {event["tid"] for event in events if event["ph"] == "X"} == set(range(6))


def test_a_job_measures_what_is_asked_for_and_what_is_missing(mpi: Mpi, plan: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["-m", "ringbench", "ddp", plan, "--engines", "thread", "--out", str(out)]
    assert "thread ring" in start(mpi, 2, words).stdout
    again = start(mpi, 2, [*words, "--engines", "thread,blocking", "--compress", "none,fp16", "--resume"])
    rows = read_run(out).steps
    assert [(row.engine, row.compress) for row in rows] == [
        ("thread", "none"),
        ("blocking", "none"),
        ("thread", "fp16"),
        ("blocking", "fp16"),
    ]
    assert rows[2].wire_nbytes < rows[0].wire_nbytes
    assert "blocking ring" in again.stdout
    assert [line["kind"] for line in check_lines(out / RUN_FILE)].count("job") == 2
    (line,) = start(mpi, 2, words, status=2).said
    assert "go on with it by --resume" in line
    (line,) = start(mpi, 2, [*words, "--backward", "9ms", "--resume"], status=2).said
    assert "was measured with backward_s None, not 0.009" in line


def test_buckets_that_ranks_share_are_reduced_where_they_lie(mpi: Mpi, plan: str) -> None:
    words = ["--engines", "poll,thread,blocking", "--algorithm", "shared_memory,hierarchical", "--format", "json"]
    cells = json.loads(start(mpi, 2, ["-m", "ringbench", "ddp", plan, *words]).stdout)
    assert [(cell["engine"], cell["algorithm"], cell["wrong"]) for cell in cells] == [
        ("thread", "shared_memory", 0),
        ("blocking", "shared_memory", 0),
        ("poll", "hierarchical", 0),
        ("thread", "hierarchical", 0),
        ("blocking", "hierarchical", 0),
    ]


def test_who_is_late_is_seen_by_those_who_wait(mpi: Mpi, plan: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    late = ("--straggler", "rank=1,delay=30ms", "--engines", "blocking")
    found = ddp(mpi, plan, "--ranks", "2", *late, "--out", str(out))
    (row,) = read_run(out).steps
    assert row.straggler == "rank=1,delay=30ms"
    assert row.late_s[1] >= 0.03 > row.late_s[0]
    assert "disturbed" in row.warnings
    assert "late on purpose: rank=1,delay=30ms" in " ".join(found.stdout.split())


def test_work_is_calibrated_on_the_device(mpi: Mpi, plan: str) -> None:
    found = start(mpi, 2, ["-m", "ringbench", "ddp", plan, "--compute", "work", "--polls", "2", "--format", "json"])
    cells = json.loads(found.stdout)
    assert [(cell["engine"], cell["compute"], cell["wrong"]) for cell in cells] == [
        ("blocking", "work", 0),
        ("thread", "work", 0),
    ]


def test_what_cannot_be_run_is_said_once_by_all_ranks(mpi: Mpi, plan: str, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        return start(mpi, 2, ["-m", "ringbench", "ddp", *words], status=2).said[-1]

    assert "unknown engine 'fast'" in said(plan, "--engines", "fast")
    assert "straggler rank 2: there are 2 ranks" in said(plan, "--straggler", "rank=2,delay=1ms")
    shared = ("--engines", "poll,none", "--algorithm", "ring,shared_memory")
    assert "engine 'poll' cannot wait, as algorithm 'shared_memory' must" in said(plan, *shared)
    assert "the thread level of MPI is" in said(plan, "--engines", "thread", "--thread-level", "single")
    huge = tmp_path / "huge.toml"
    huge.write_text("[[layer]]\nparameters = 100_000_000_000_000\n", encoding="utf-8")
    assert "workload huge: 2 ranks on" in said(str(huge))

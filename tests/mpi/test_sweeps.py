"""Tests of whole sweeps: what they leave on disk, however they end."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from conftest import Mpi
from harness import Finished, breaking, check_lines, environment, run, sweep, terminate_at_rows

from ringbench.launch.mpirun import usable_cpus
from ringbench.records.run import RUN_FILE, Run, read_run

pytestmark = pytest.mark.mpi

NAMES = ("ring", "naive", "parameter_server", "mpi")
SIZES = (8, 512, 4096)
RANKS = (1, 2, 3)
SWEEP = ("--ranks", "1,2,3", "--sizes", "8,512,4KiB", "--algorithms", ",".join(NAMES))
QUICK = ("--max-samples", "8", "--warmup", "1", "--time-budget", "3s")


def check_whole(done: Run) -> None:
    """Check that a run has one row for every cell, with samples and right."""
    cells = [(row.nranks, row.algorithm, row.nbytes) for row in done.rows]
    assert sorted(cells) == sorted(product(RANKS, NAMES, SIZES))
    for row in done.rows:
        assert row.samples_s, row
        assert row.wrong == 0, row
        assert row.in_place, row
        assert row.launch == 0, row
        assert row.stop in ("ci", "max", "budget"), row
        assert row.identical_bits is True or row.algorithm == "mpi", row
    assert done.status == "complete"
    assert not done.torn


@pytest.fixture(scope="module")
def finished(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """Return the folder of a whole sweep and what it said."""
    out = tmp_path_factory.mktemp("sweep") / "run"
    return out, sweep(mpi, out, *SWEEP, *QUICK)


def test_a_sweep_goes_on_where_one_number_of_ranks_can_measure_nothing(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    sweep(mpi, out, "--collective", "alltoall", "--ranks", "2,3", "--sizes", "8", *QUICK)
    done = read_run(out)
    assert done.status == "complete"
    assert [(row.nranks, row.algorithm, bool(row.samples_s)) for row in done.rows] == [
        (2, "auto", True),
        (2, "mpi", True),
        (3, "auto", False),
        (3, "mpi", False),
    ]


def test_launches_are_jobs_of_their_own_and_one_line_of_the_table(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = sweep(mpi, out, "--ranks", "2", "--sizes", "8,4KiB", "--launches", "2", "--format", "json", *QUICK)
    done = read_run(out)
    assert [row.launch for row in done.rows] == [0] * 4 + [1] * 4
    assert [job["launch"] for job in done.jobs] == [0, 1]
    assert done.provenance["launches"] == 2
    cells = json.loads(found.stdout)
    assert [cell["launches"] for cell in cells] == [2] * 4
    for cell in cells:
        assert 0 < cell["osu_min_s"] <= cell["osu_avg_s"] <= cell["osu_max_s"]


def test_a_sweep_measures_every_cell_and_shows_it(finished: tuple[Path, Finished]) -> None:
    out, said = finished
    records = check_lines(out / RUN_FILE)
    done = read_run(out)
    check_whole(done)
    assert [record["kind"] for record in records].count("provenance") == 1
    assert [job["nranks"] for job in done.jobs] == list(RANKS)
    assert done.provenance["schema_version"] == 1
    assert done.provenance["ranks"] == list(RANKS)
    assert [len(job["ranks"]) for job in done.jobs] == list(RANKS)

    assert "Bandwidth" in said.stdout, str(said)
    assert "FAIL" not in said.stdout, str(said)
    shown = {path.name for path in out.iterdir()}
    cpus, _ = usable_cpus()
    # One rank is no fit, nor are more ranks than cores: two ranks have three sizes, just enough.
    assert shown == {RUN_FILE, "table.md", "compare.md", *(["fit.md"] if cpus > 1 else [])}, str(said)
    for name in shown - {RUN_FILE}:
        text = (out / name).read_text(encoding="ascii")
        assert text.startswith("# ")
        assert "ring" in text
        assert "mpi" in text
    oversubscribed = {row.nranks for row in done.rows if "oversubscribed" in row.warnings}
    assert oversubscribed == {nranks for nranks in RANKS if nranks > cpus}
    assert "[36/36]" in said.stderr, str(said)


def test_resume_measures_what_a_cut_file_lacks(mpi: Mpi, finished: tuple[Path, Finished], tmp_path: Path) -> None:
    content = (finished[0] / RUN_FILE).read_bytes()
    lines = content.splitlines(keepends=True)
    rows = [number for number, line in enumerate(lines) if json.loads(line)["kind"] == "row"]
    cut = b"".join(lines[: rows[-6]]) + lines[rows[-6]][:40]  # whole rows for half a size, then a torn one
    file = tmp_path / RUN_FILE
    file.write_bytes(cut)
    torn = run([mpi.python, "-m", "ringbench", "table", str(file)], env=environment(mpi))
    assert any("cut off" in line for line in torn.said), str(torn)
    assert any("partial" in line for line in torn.said), str(torn)

    said = sweep(mpi, tmp_path, "--resume", "--time-budget", "2s")
    assert sum("last line was cut off" in line for line in said.said) == 1, str(said)
    check_lines(file)
    check_whole(read_run(file))
    assert file.read_bytes().startswith(b"".join(lines[: rows[-6]])), "what was measured before is not as it was"
    assert [job["nranks"] for job in read_run(file).jobs] == [1, 2, 3, 3], str(said)

    again = sweep(mpi, tmp_path, "--resume", "--time-budget", "2s")
    assert again.seconds < 5, str(again)
    check_whole(read_run(file))


def test_resume_where_nothing_was_started_starts(mpi: Mpi, tmp_path: Path) -> None:
    sweep(mpi, tmp_path / "new", "--resume", "--ranks", "1", "--sizes", "64", *QUICK)
    assert read_run(tmp_path / "new").status == "complete"


def test_a_run_is_not_written_over(mpi: Mpi, finished: tuple[Path, Finished]) -> None:
    before = (finished[0] / RUN_FILE).read_bytes()
    said = sweep(mpi, finished[0], *SWEEP, *QUICK, status=2)
    assert len(said.said) == 1, str(said)
    assert "--resume" in said.said[0], str(said)
    assert (finished[0] / RUN_FILE).read_bytes() == before


def test_a_job_that_hangs_is_ended_at_its_limit_and_the_others_go_on(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: "hang:1"})
    options = ("--ranks", "2,3", "--sizes", "8,512", "--mpirun", mpirun, "--job-limit", "8s")
    said = sweep(mpi, out, *options, *QUICK, status=1, limit_s=60)
    (line,) = [line for line in said.said if line.startswith("ringbench: 2 ranks: ended")]
    assert "8 s" in line, str(said)
    done = read_run(out)
    assert [row.nranks for row in done.rows] == [3] * 4, str(said)
    assert done.status == "partial", str(said)
    assert check_lines(out / RUN_FILE)[-1]["failures"] == [line.removeprefix("ringbench: ")], str(said)

    sweep(mpi, out, "--resume", "--time-budget", "2s")
    done = read_run(out)
    assert sorted(row.nranks for row in done.rows) == [2] * 4 + [3] * 4
    assert done.status == "complete"


@pytest.mark.parametrize("how", ["fail", "vanish"])
def test_a_job_in_which_a_rank_ends_fails_the_sweep(mpi: Mpi, tmp_path: Path, how: str) -> None:
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: f"{how}:0"})
    options = ("--ranks", "1,2", "--sizes", "8,512", "--mpirun", mpirun)
    said = sweep(mpi, out, *options, *QUICK, status=1)
    (line,) = [line for line in said.said if line.startswith("ringbench: 2 ranks: ") and "status" in line]
    assert said.stderr.count("Traceback (most recent call last)") == (how == "fail"), str(said)
    assert ("rank 0 of 2 failed" in said.stderr) == (how == "fail"), str(said)
    done = read_run(out)
    assert {row.nranks for row in done.rows} == {1}, str(said)
    assert done.status == "partial", str(said)
    assert check_lines(out / RUN_FILE)[-1]["failures"] == [line.removeprefix("ringbench: ")]


def test_a_wrong_result_fails_the_sweep(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: "flip:mpi:512"})
    options = ("--ranks", "2", "--sizes", "8,512,4KiB", "--mpirun", mpirun)
    said = sweep(mpi, out, *options, *QUICK, status=1)
    assert "FAIL" in said.stdout, str(said)
    assert "mpi: wrong result" in said.stdout, str(said)
    assert "FAIL" in (out / "table.md").read_text()
    assert "mpi: wrong result" in (out / "compare.md").read_text()
    wrong = [(row.algorithm, row.nbytes) for row in read_run(out).rows if row.wrong]
    assert wrong == [("mpi", 512)], str(said)


def test_a_sweep_in_which_nothing_can_be_measured_fails(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = sweep(mpi, out, "--collective", "alltoall", "--ranks", "3", "--sizes", "8", *QUICK, status=1)
    assert any("nothing was measured: alltoall of 2 elements" in line for line in found.said), str(found)
    assert len(read_run(out).rows) == 2


def test_a_terminated_sweep_leaves_whole_rows_and_no_process(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"

    options = ("--ranks", "2,3", "--sizes", "1KiB:1MiB:x2", "--precision", "0.0001", "--max-samples", "1000000")
    said = sweep(mpi, out, *options, "--time-budget", "24s", status=1, on_start=terminate_at_rows(out, 3), limit_s=60)
    assert any("terminated" in line and "--resume" in line for line in said.said), str(said)
    done = read_run(out)
    assert done.status == "partial", str(said)
    assert not done.torn, str(said)
    assert 3 <= len(done.rows) < 44, str(said)
    assert all(row.samples_s and row.wrong == 0 for row in done.rows), str(said)
    assert check_lines(out / RUN_FILE)[-1] == {"kind": "end", "status": "partial", "failures": []}
    assert "Traceback" not in said.stderr, str(said)


def test_a_late_rank_is_told_from_those_that_wait_for_it(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    late = ("--straggler", "rank=1,delay=20ms")
    sizes = ("--sizes", "8,4KiB", "--algorithms", "ring,mpi")
    found = sweep(mpi, out, "--ranks", "2,3", *sizes, *late, *QUICK)
    assert "late on purpose: rank=1,delay=20ms" in found.stdout
    rows = read_run(out).rows
    assert len(rows) == 8
    for row in rows:
        assert (row.wrong, row.straggler) == (0, "rank=1,delay=20ms")
        assert "disturbed" in row.warnings
        assert row.late_s[1] >= 0.02
        assert max(row.late_s[:1] + row.late_s[2:]) == 0.0
        assert len(row.waits_s) == row.nranks
        assert row.calm_s is not None
        assert min(row.samples_s) >= 0.02
    refused = sweep(mpi, tmp_path / "no", "--ranks", "2", "--straggler", "rank=2,delay=1ms", *sizes, status=2)
    assert refused.said == ["ringbench: straggler rank 2: there are 2 ranks, from 0"]

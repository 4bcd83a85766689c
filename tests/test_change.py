"""Two runs side by side in Markdown: the verdicts first, then who was compared, then the cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_tables import row

from ringbench.cli import main
from ringbench.model.compare import compare_runs
from ringbench.records.run import Run, encode, read_run
from ringbench.report.change import render_change


def written(folder: Path, scale: dict[str, float], launches: int = 4, **first: Any) -> Run:
    """Write a run of three algorithms, each as slow as ``scale`` says, with jobs of one host."""
    folder.mkdir()
    settings = {"order": "interleaved", "precision": first.pop("precision", 0.05)}
    library = first.pop("mpi_library", "Open MPI v5.0.11, package: x")
    records: list[dict[str, Any]] = [
        {
            "kind": "provenance",
            "schema_version": 1,
            "ringbench": "0.1.0",
            "time": "2026-11-29T20:01:40+00:00",
            "machine": {"system": "Linux-6", "cpu": "A CPU", "cpus": 8},
            "settings": settings,
            **first,
        }
    ]
    for launch in range(launches):
        ranks = [{"host": "node1", "mpi4py": "4.1.2", "cpus": [launch]}]
        job = {"kind": "job", "launch": launch, "nranks": 4, "time": f"t{launch}", "mpi_library": library}
        records.append({**job, "thread_level": "multiple", "hosts": ["node1"] * 4, "ranks": ranks})
        for name, time in scale.items():
            records.append(row(name, time=time * (1 + launch / 1000), launch=launch).to_json())
    records.append({"kind": "end", "status": "complete"})
    (folder / "run.jsonl").write_bytes(b"".join(map(encode, records)))
    return read_run(folder)


BEFORE = {"ring": 1e-4, "mpi": 1e-4, "naive": 1e-4}
AFTER = {"ring": 2e-4, "mpi": 5e-5, "naive": 1e-4}


def changed(before: Run, after: Run, **options: Any) -> str:
    return render_change(before, after, [one.to_json() for one in compare_runs(before, after, **options)])


def test_the_summary_comes_first_and_cells_by_verdict(tmp_path: Path) -> None:
    text = changed(written(tmp_path / "old", BEFORE), written(tmp_path / "new", AFTER))
    title, _, counts, *_ = text.splitlines()
    assert title == f"# {tmp_path}/new against {tmp_path}/old"
    assert counts == "Of 3 cells that both runs have: **1 slower, 1 faster**, 0 the same, 1 cannot be told."
    places = [text.index(part) for part in ("## Slower: 1 cell", "## Faster: 1 cell", "<summary>Cannot tell: 1 cell<")]
    assert places == sorted(places)
    cells = {
        line.split("|")[2].strip(): [cell.strip() for cell in line.split("|")[3:-1]]
        for line in text.splitlines()
        if "64KiB" in line
    }
    assert cells["ring"][:5] == ["4", "64KiB", "100.1", "200.3", "+100.0%"]
    assert cells["mpi"][2:5] == ["100.1", "50.07", "-50.0%"]
    assert text.count("<details>") == text.count("</details>") == 1


def test_both_runs_are_named_with_machine_library_and_date(tmp_path: Path) -> None:
    one = written(tmp_path / "old", BEFORE)
    other = written(tmp_path / "new", AFTER, time="2027-01-01T00:00:00+00:00")
    text = changed(one, other)
    lines = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    }
    assert lines["measured"] == ["2026-11-29T20:01:40+00:00", "2027-01-01T00:00:00+00:00"]
    assert lines["machine"] == ["A CPU, 8 CPUs, Linux-6"] * 2
    assert lines["MPI"] == ["Open MPI v5.0.11"] * 2
    assert lines["hosts"] == ["node1"] * 2
    assert lines["launches"] == ["4"] * 2
    assert "Nothing else differs in how they were measured." in text


def test_every_field_that_differs_is_listed_and_no_other(tmp_path: Path) -> None:
    one = written(tmp_path / "old", BEFORE)
    other = written(tmp_path / "new", AFTER, mpi_library="MPICH Version: 5.0.2", precision=0.02, ringbench="0.2.0")
    text = changed(one, other, force=True)
    start = text.index("What differs:")
    table = text[start : text.index("\n\n", start + len("What differs:\n\n"))]
    names = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
    assert names == ["ringbench", "settings.precision", "mpi_library"]
    assert "0.05 " in table
    assert "F = forced: " in text


def test_few_launches_are_said_to_be_few(tmp_path: Path) -> None:
    text = changed(written(tmp_path / "old", BEFORE, launches=2), written(tmp_path / "new", AFTER, launches=2))
    assert "3 cannot be told. The cells have 2 launches; runs are told apart from 4 of each on." in text
    assert "## Slower" not in text


def test_cells_that_one_run_lacks_are_counted(tmp_path: Path) -> None:
    text = changed(written(tmp_path / "old", BEFORE), written(tmp_path / "new", {"ring": 2e-4, "swing": 1e-4}))
    assert "cells that are not compared: 2 only before, 1 only after" in text


def test_what_a_file_says_is_no_markup(tmp_path: Path) -> None:
    machine = {"cpu": "<b>`a|b`*\x1b[31m\u00e9", "cpus": 1, "system": "x\ny"}
    text = changed(written(tmp_path / "old", BEFORE), written(tmp_path / "new", AFTER, machine=machine))
    assert "<b>" not in text
    assert "\x1b" not in text
    assert text.isascii()
    assert all(line.count("|") - line.count("\\|") == 4 for line in text.splitlines() if line.startswith("| machine"))


def test_the_command_writes_it_for_two_runs_in_markdown_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "old", BEFORE)
    written(tmp_path / "new", AFTER)
    both = [str(tmp_path / "old"), str(tmp_path / "new")]
    assert main(["compare", *both, "--format", "markdown"]) == 0
    assert "## Slower: 1 cell" in capsys.readouterr().out
    assert main(["compare", *both, "--format", "markdown", "--fail-if-slower"]) == 1
    capsys.readouterr()
    assert main(["compare", *both]) == 0
    assert "## Slower" not in capsys.readouterr().out
    assert main(["compare", both[0], "--format", "markdown"]) == 0
    assert "### allreduce" in capsys.readouterr().out

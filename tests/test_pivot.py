"""Sizes down, algorithms across: who is fastest, who cannot be told from that, and how far from the library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_tables import cells, row

from ringbench.cli import main
from ringbench.records.run import encode
from ringbench.report.pivot import render_pivot


def times(**medians: float) -> list[dict[str, Any]]:
    return cells(*(row(name, samples_s=(time,) * 11) for name, time in medians.items()))


def test_one_size_has_a_line_with_times_marks_and_ratios() -> None:
    lines = render_pivot(times(ring=5e-5, mpi=1e-4, naive=4e-4), "text").splitlines()
    assert lines[0].startswith("allreduce sum float32 on cpu, 4 ranks, in place")
    assert lines[1].split() == ["size", "mpi(us)", "naive(us)", "/mpi", "ring(us)", "/mpi", "warn"]
    assert lines[2].split() == ["64KiB", "100.0", "400.0", "4.000", "50.00*", "0.5000"]
    assert "* the smallest median of its size" in lines[4]
    assert "/mpi: the time / that of mpi; below 1 the algorithm is faster" in lines


def test_an_interval_that_reaches_to_the_smallest_is_marked() -> None:
    near = cells(row("mpi", time=1e-4), row("ring", time=1.02e-4), row("naive", time=1.5e-4))
    line = render_pivot(near, "text").splitlines()[2]
    assert line.split() == ["64KiB", "100.0*", "150.0", "1.500", "102.0~", "1.020"]


def test_without_the_library_there_are_no_ratios() -> None:
    text = render_pivot(times(ring=1e-4, naive=2e-4), "text")
    assert text.splitlines()[1].split() == ["size", "naive(us)", "ring(us)", "warn"]
    assert "/mpi" not in text


def test_what_is_wrong_or_missing_is_never_the_fastest() -> None:
    rows = cells(
        row("mpi", time=2e-4),
        row("ring", time=1e-6, wrong=3),
        row("naive", samples_s=(), reason="needs 3GiB at a rank", warnings=("noisy",)),
    )
    text = render_pivot(rows, "text")
    assert text.splitlines()[2].split() == ["64KiB", "200.0*", "-", "-", "FAIL", "-", "N"]
    assert '"-" at naive 64KiB: needs 3GiB at a rank' in text
    assert "FAIL: wrong result in 1 of 3 rows" in text
    assert "N = noisy: " in text
    assert "*" not in render_pivot(rows[1:], "text").splitlines()[2]


def test_a_size_that_one_algorithm_lacks_keeps_its_line() -> None:
    rows = cells(row("mpi", 8), row("mpi", 1024), row("ring", 1024))
    eight, kib = render_pivot(rows, "text").splitlines()[2:4]
    assert eight.split()[2:] == ["-", "-"]
    assert len(kib.split()) == 4


def test_many_algorithms_are_parted_to_fit_the_page() -> None:
    names = [f"algorithm_{i}" for i in range(12)]
    text = render_pivot(times(mpi=1e-4, **dict.fromkeys(names, 2e-4)), "text")
    assert max(map(len, text.splitlines())) <= 100
    parts = [line for line in text.splitlines() if line.split()[:1] == ["size"]]
    assert len(parts) > 1
    assert re.findall(r"(algorithm_\d+)\(us\)", " ".join(parts)) == sorted(names)
    whole = render_pivot(times(mpi=1e-4, **dict.fromkeys(names, 2e-4)), "markdown")
    assert len([line for line in whole.splitlines() if line.startswith("|")]) == 3


def test_markdown_and_latex_have_the_same_cells() -> None:
    rows = times(ring=5e-5, mpi=1e-4)
    markdown = render_pivot(rows, "markdown").splitlines()[4].strip("|").split("|")
    latex = render_pivot(rows, "latex").splitlines()[5].removesuffix(r" \\").split("&")
    assert [cell.strip() for cell in markdown] == [cell.strip() for cell in latex]
    assert [cell.strip() for cell in latex] == ["64KiB", "100.0", "50.00*", "0.5000", ""]


@pytest.mark.parametrize("format", ["csv", "json", "html"])
def test_csv_and_json_have_no_pivot(format: str) -> None:
    with pytest.raises(ValueError, match="csv and json hold a cell a row"):
        render_pivot(times(mpi=1e-4), format)


def test_nothing_has_no_rows() -> None:
    assert render_pivot([], "text") == "no rows\n"


def test_the_command_turns_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records: list[dict[str, Any]] = [{"kind": "provenance", "schema_version": 1}]
    records += [row(name).to_json() for name in ("ring", "mpi")] + [{"kind": "end", "status": "complete"}]
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(encode, records)))
    assert main(["table", str(tmp_path), "--pivot", "algorithm"]) == 0
    assert "/mpi" in capsys.readouterr().out
    assert main(["table", str(tmp_path), "--pivot", "algorithm", "--format", "csv"]) == 2
    assert "hold a cell a row" in capsys.readouterr().err
    assert main(["table", str(tmp_path), "--wide"]) == 0
    assert "osu_avg(us)" in capsys.readouterr().out
    assert main(["table", str(tmp_path), "--wide", "--style", "osu"]) == 2
    assert main(["table", str(tmp_path), "--format", "csv", "--style", "osu"]) == 2

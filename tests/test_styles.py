"""A run in the columns of another tool: what that tool's readers see, and what our own importer reads back."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_tables import row

from ringbench.cli import main
from ringbench.model.pool import table_cells
from ringbench.records.importers.read import Imported, read_files
from ringbench.records.row import Row
from ringbench.records.run import encode
from ringbench.report.styles import render_style
from ringbench.schedule.semantics import COLLECTIVES

STYLES = ("osu", "nccl", "imb")
CELL = ("collective", "algorithm", "op", "dtype", "device", "nranks", "nbytes", "count", "in_place", "buffers")


def measured(**changes: Any) -> Row:
    """Return a row with means of all its ranks, which is what the tools print."""
    means = tuple(12.3456e-6 * (1 + rank / 8) for rank in range(changes.get("nranks", 4)))
    return row(**{"rank_means_s": means, **changes})


def back(tmp_path: Path, text: str) -> Imported:
    file = tmp_path / "printed.txt"
    file.write_text(text, encoding="ascii")
    return read_files([str(file)], nranks=None, collective=None)


def mean_in_us(one: Row) -> float:
    mean = one.rank_average
    assert mean is not None
    return float(Decimal(f"{mean * 1e6:.3f}").scaleb(-6))


def everything() -> list[Row]:
    """Return rows of every collective, of several algorithms, rank counts, sizes and types, in and out of place."""
    rows = []
    for name, collective in COLLECTIVES.items():
        for algorithm in ("ring", "mpi", "double_binary_tree"):
            for nranks in (2, 3, 16):
                for nbytes in (nranks * 4, nranks * 1024, nranks * 2**20):
                    for in_place in (True, False):
                        rows.append(
                            measured(
                                collective=name,
                                algorithm=algorithm,
                                nranks=nranks,
                                nbytes=nbytes,
                                count=nbytes // 4,
                                in_place=in_place,
                                op="sum" if collective.reduces else "none",
                            )
                        )
    rows += [measured(dtype="bfloat16", op="average", count=65536 // 2), measured(dtype="complex64", count=65536 // 8)]
    rows += [measured(device="cuda", op="prod", in_place=False), measured(buffers=8), measured(wrong=None)]
    return rows


@pytest.mark.parametrize("style", STYLES)
def test_all_that_is_printed_is_read_back_without_options(tmp_path: Path, style: str) -> None:
    rows = [one for one in everything() if one.wrong == 0]
    found = back(tmp_path, render_style(table_cells(rows), style))
    assert not found.reports[0].strange
    assert not found.reports[0].left_out
    assert {tool for tool, _ in found.reports[0].tools} == {"ringbench"}
    meant = {tuple(getattr(one, name) for name in CELL): mean_in_us(one) for one in rows}
    read = {tuple(getattr(one, name) for name in CELL): one for one in found.rows}
    assert len(found.rows) == len(rows) == len(meant)
    assert {key: one.samples_s for key, one in read.items()} == {key: (mean,) for key, mean in meant.items()}
    assert all(one.wrong == 0 and one.launch == 0 for one in found.rows)


@pytest.mark.parametrize("style", STYLES)
def test_what_was_read_back_prints_the_same_times_again(tmp_path: Path, style: str) -> None:
    """Sizes and times go from ours to the tool's units and back and forth once more."""
    first = render_style(table_cells(everything()[:40]), style)
    again = render_style(table_cells(back(tmp_path, first).rows), style)

    def numbers(text: str) -> list[list[str]]:
        """Return size and mean of each row, of nccl-tests both means."""
        lines = [line.split() for line in text.splitlines() if line and "#" not in line]
        if style == "nccl":
            return [[line[0], line[5], line[9]] for line in lines]
        return [[line[0], line[1] if style == "osu" else line[-2]] for line in lines]  # IMB's defects are the last

    assert numbers(again) == numbers(first)
    assert len(numbers(first)) > 10


def test_the_reader_of_any_of_them_finds_the_columns_it_knows() -> None:
    rows = table_cells([measured(), measured(in_place=False)])
    osu = render_style(rows, "osu").splitlines()
    assert "# OSU MPI Allreduce Latency Test v7.4" in osu
    assert (
        re.sub(r"  +", "  ", osu[8])
        == "# Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations  Validation"
    )
    assert osu[9].split() == ["65536", "14.660", "12.346", "16.975", "11", "Pass"]
    imb = render_style(rows, "imb").splitlines()
    assert "# Benchmarking Allreduce" in imb
    assert "# #processes = 4" in imb
    assert imb[11].split() == ["#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]", "defects"]
    assert imb[12].split() == ["65536", "11", "12.346", "16.975", "14.660", "0.00"]
    nccl = render_style(rows, "nccl").splitlines()
    assert "# Collective test starting: all_reduce_perf" in nccl
    side = ["time", "algbw", "busbw", "#wrong"]
    assert nccl[8].lstrip("#").split() == ["size", "count", "type", "redop", "root", *side, *side]
    shown = ["14.660", "4.4703", "6.7054", "0"]
    assert nccl[10].split() == ["65536", "16384", "float", "sum", "-1", *shown, *shown]


def test_each_collective_algorithm_and_rank_count_is_headed() -> None:
    rows = [measured(algorithm=name, nranks=nranks) for name in ("ring", "mpi") for nranks in (2, 4)]
    for style in STYLES:
        blocks = render_style(table_cells(rows), style).split("\n\n")
        heads = [re.findall(r"^# (?:algorithm|nranks) (\w+)$", block, re.M) for block in blocks]
        assert heads == [["mpi", "2"], ["mpi", "4"], ["ring", "2"], ["ring", "4"]]


def test_a_size_is_the_tools_own() -> None:
    """OSU and IMB count what one rank brings to an allgather; nccl-tests and ringbench the whole vector."""
    rows = table_cells([measured(collective="allgather", op="none", nbytes=4096, count=1024, nranks=4)])
    sizes = {
        style: [line.split()[0] for line in render_style(rows, style).splitlines() if line and "#" not in line]
        for style in STYLES
    }
    assert sizes == {"osu": ["1024"], "imb": ["1024"], "nccl": ["4096"]}


def test_what_cannot_be_printed_is_named() -> None:
    rows = [
        measured(collective="allgather", op="none", nbytes=1000, count=250, nranks=3),
        measured(collective="allgather", op="none", nbytes=1200, count=300, nranks=3),
        measured(
            collective="allgather",
            op="none",
            nbytes=4,
            count=1,
            nranks=3,
            samples_s=(),
            rank_means_s=(),
            reason="too\nbig",
        ),
    ]
    for style in ("osu", "imb"):
        text = render_style(table_cells(rows), style)
        assert "# left out: 1000B: no whole number of bytes for each of 3 ranks" in text
        assert re.search(r"^ *400 ", text, re.M)
    assert "1000" in render_style(table_cells(rows), "nccl")
    assert "# left out: 4B: too big" in render_style(table_cells(rows[2:]), "osu")


def test_one_placement_alone_leaves_the_other_side_open(tmp_path: Path) -> None:
    text = render_style(table_cells([measured(in_place=True)]), "nccl")
    line = next(line for line in text.splitlines() if "#" not in line)
    assert line.split()[5:9] == ["N/A"] * 4
    assert [one.in_place for one in back(tmp_path, text).rows] == [True]


@pytest.mark.parametrize("style", STYLES)
def test_a_wrong_result_stays_wrong(tmp_path: Path, style: str) -> None:
    text = render_style(table_cells([measured(wrong=12), measured(nbytes=8, count=2)]), style)
    small, large = sorted(back(tmp_path, text).rows, key=lambda one: one.nbytes)
    assert small.wrong == 0
    assert large.wrong
    if style == "nccl":
        assert large.wrong == 12
        assert text.splitlines()[-1].split()[10:12] == ["N/A", "N/A"]  # and no bandwidth


@pytest.mark.parametrize("style", STYLES)
def test_what_another_tool_measured_keeps_its_time_and_its_estimand(tmp_path: Path, style: str) -> None:
    log = tmp_path / "osu.txt"
    log.write_text("# OSU MPI Allreduce Latency Test v5.7\n# Size       Avg Latency(us)\n4   3.35\n1024   15.07\n")
    first = read_files([str(log)], nranks=16, collective=None).rows
    second = back(tmp_path, render_style(table_cells(first), style)).rows
    assert [one.samples_s for one in second] == [one.samples_s for one in first] == [(3.35e-6,), (1.507e-5,)]
    assert [one.key for one in second] == [one.key for one in first]
    assert {one.estimand for one in second} == {one.estimand for one in first}


def test_the_command_and_the_importer_close_the_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [measured(algorithm=name, nbytes=n, count=n // 4) for name in ("ring", "mpi") for n in (8, 2**20)]
    records: list[dict[str, Any]] = [{"kind": "provenance", "schema_version": 1}]
    records += [one.to_json() for one in rows] + [{"kind": "end", "status": "complete"}]
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(encode, records)))
    for style in STYLES:
        assert main(["table", str(tmp_path), "--style", style]) == 0
        printed = capsys.readouterr().out
        (tmp_path / f"{style}.txt").write_text(printed, encoding="ascii")
        assert main(["import", str(tmp_path / f"{style}.txt"), "--out", str(tmp_path / style)]) == 0
        assert "4 rows of ringbench" in capsys.readouterr().err
        assert main(["compare", str(tmp_path / style)]) == 0
        assert "ring" in capsys.readouterr().out


def test_what_stands_before_one_table_is_not_said_of_the_next(tmp_path: Path) -> None:
    text = render_style(table_cells([measured(algorithm="ring")]), "osu")
    text += "\n# OSU MPI Allreduce Latency Test v5.7\n# Size       Avg Latency(us)\n4   3.35\n"
    with pytest.raises(ValueError, match="give --nranks"):
        back(tmp_path, text)


def test_unknown_styles_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'smb'; known: osu, nccl, imb"):
        render_style([], "smb")
    assert render_style([], "osu") == "# no rows\n"

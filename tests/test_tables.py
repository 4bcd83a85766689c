from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

from ringbench.model.compare import compare_rows
from ringbench.model.fit import fit_rows
from ringbench.model.links import predict_links
from ringbench.model.network import Link
from ringbench.records.guards import GUARDS
from ringbench.records.row import Row
from ringbench.records.units import format_size
from ringbench.report.bandwidth import TABLE, WIDE
from ringbench.report.grid import WIDTH
from ringbench.report.tables import FORMATS, Kind, render, verdict_line

SIZES = (8, 1024, 65536, 2**20, 2**24)
Flat = dict[str, Any]


def row(algorithm: str = "ring", nbytes: int = 65536, time: float = 1e-4, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 4,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": tuple(time * (1 + i / 100) for i in range(-5, 6)),
        "wrong": 0,
        "bytes_sent_max": nbytes * 3 // 2,
    }
    return Row(**{**values, **changes})


def cells(*rows: Row) -> list[Flat]:
    return [one.table_cell() for one in rows]


def lines_with(text: str, word: str) -> list[str]:
    return [line for line in text.splitlines() if word in line]


def line_of(text: str, algorithm: str, size: str = "64KiB") -> str:
    """Return the one line of a size and an algorithm."""
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [size] and f" {algorithm} " in line]
    return line


def comparison(nbytes: int, verdict: str, **changes: Any) -> Flat:
    ratio = {"faster": 0.5, "slower": 2.0, "same": 1.0, "cannot tell": 1.0}[verdict]
    values: Flat = {
        "collective": "allreduce",
        "nranks": 4,
        "nbytes": nbytes,
        "algorithm": "ring",
        "baseline": "mpi",
        "ratio": ratio,
        "ratio_low": ratio * 0.9,
        "ratio_high": ratio * 1.1,
        "in_place": True,
        "verdict": verdict,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "reason": None,
        "warnings": [],
        "launches": 1,
    }
    return {**values, **changes}


def fits() -> list[Flat]:
    rows = [row("ring", n, 6 * (2e-6 + n / 4 * 1e-9)) for n in SIZES]
    rows += [row("mpi", n, p * 1e-6 + n * 1e-9, nranks=p) for p in (2, 16) for n in SIZES]
    return [fit.to_json() for fit in fit_rows(rows).segments]


def predictions() -> list[Flat]:
    link = Link(alpha_s=1e-6, beta_s_per_byte=1e-9)
    return [one.to_json() for one in predict_links(link, [4], [8, 2**20])[0]]


def test_one_cell_reads_like_nccl_tests() -> None:
    heading, names, line, summary = render(cells(row(time=1e-4)), "table", "text").splitlines()
    assert heading.startswith("allreduce sum float32 on cpu, 4 ranks, in place")
    assert "us" in heading
    assert "GB/s" in heading
    assert names.split() == [
        *("size", "count", "type", "redop", "algorithm", "time(us)", "95%", "interval", "algbw", "busbw", "sent"),
        *("wrong", "warn"),
    ]
    assert line.split() == [
        *("64KiB", "16384", "float32", "sum", "ring", "100.0", "[96.00,", "104.0]", "0.6554", "0.9830", "96KiB", "0")
    ]
    assert summary == "ring: peak busbw 0.9830 GB/s at 64KiB, latency 100.0 us at 64KiB"


def test_a_block_for_each_collective_op_dtype_rank_count_and_placement() -> None:
    rows = [row(), row(nranks=2), row(dtype="float64"), row(op="max"), row(in_place=False), row(collective="allgather")]
    text = render(cells(*rows), "table", "text")
    assert len(lines_with(text, "times in us")) == 6
    assert len(lines_with(text, "out of place")) == 1
    assert len(render(cells(*rows), "table", "markdown").split("### ")) == 7


def test_the_heading_says_how_it_was_measured() -> None:
    apart = "last end - first start over ranks that start at one time"
    rows = cells(row(), row(buffers=8), row(estimand=apart))
    text = " ".join(render(rows, "table", "text").split())
    assert "in place; 1 launch, times in us" in text
    assert "in place, 8 sets of buffers in turns; 1 launch, times in us" in text
    assert f"in place; a sample is the {apart}; 1 launch, times in us" in text
    several = [{**one, "launches": launches} for one, launches in zip(cells(row(), row(nbytes=8)), (3, 2), strict=True)]
    assert "2 to 3 launches" in render(several, "table", "markdown")


def test_sizes_ascend_and_are_binary() -> None:
    text = render(cells(*[row(nbytes=n) for n in (2**20, 8, 1000, 65536)]), "table", "text")
    assert re.findall(r"^ *(\w+) +\d+ float32 sum +ring ", text, re.M) == ["8B", "1000B", "64KiB", "1MiB"]


def test_a_failure_is_unmistakable() -> None:
    text = render(cells(row(), row("mpi", wrong=12), row("naive", wrong=None)), "table", "text")
    ring, mpi, naive = (line_of(text, name).split() for name in ("ring", "mpi", "naive"))
    assert ring[-1] == "0"
    assert mpi[-3:] == ["-", "96KiB", "FAIL"]
    assert naive[-1] == "-"
    assert '"-" at mpi 64KiB: wrong result' in text
    assert lines_with(text, "mpi: ") == ["mpi: no busbw, no latency, FAIL in 1 of 1 row"]
    assert text.splitlines()[-1] == "FAIL: wrong result in 1 of 3 rows"
    assert "FAIL" not in render(cells(row()), "table", "text")


def test_case_23_the_summary_has_a_peak_and_a_latency_and_no_mean() -> None:
    times = {8: 5e-6, 1024: 3e-6, 65536: 2e-5, 2**20: 4e-4, 2**24: 8e-3}
    rows = [row(nbytes=n, time=t) for n, t in times.items()] + [row(nbytes=8, time=4e-6, launch=1)]
    rows.append(row(nbytes=4, time=1e-6, wrong=1))
    text = render(cells(*rows), "table", "text")
    (summary,) = lines_with(text, "ring: ")
    assert summary == "ring: peak busbw 4.915 GB/s at 64KiB, latency 4.000 us at 8B, FAIL in 1 of 7 rows"
    assert not re.search(r"\b(mean|avg|average)\b", text, re.I)


def test_reasons_stand_where_numbers_do_not() -> None:
    skipped = row("naive", samples_s=(), reason="needs\n3GiB at a rank", wrong=None)
    text = render(cells(row(nranks=1), skipped), "table", "text")
    assert '"-" at naive 64KiB: needs 3GiB at a rank' in text
    assert '"-" at ring 64KiB: one rank moves nothing' in text
    many = render(cells(*[row(nbytes=n, nranks=1) for n in SIZES]), "table", "text")
    assert "ring 8B, ring 1KiB, ring 64KiB, ring 1MiB and 1 more" in many


def test_warnings_seen_are_explained_and_no_others() -> None:
    rows = cells(row(warnings=("oversubscribed", "noisy")), row("mpi", warnings=("bad moon",)))
    text = render(rows, "table", "text")
    assert line_of(text, "ring").endswith(" O,N")
    assert line_of(text, "mpi").endswith(" 1")
    assert "O = oversubscribed: more ranks than cores" in text
    assert "N = noisy: " in text
    assert "1 = bad moon" in text
    assert "unpinned" not in text


def test_the_share_of_the_limit_is_shown_only_where_it_was_asked_for() -> None:
    plain = render(cells(row(), row("mpi")), "table", "text")
    assert "of_limit" not in plain
    text = render(cells(row(limit_s=0.8e-4), row("mpi"), row("naive", wrong=1, limit_s=1e-5)), "table", "text")
    heading = lines_with(text, "95% interval")[0]
    assert heading.split()[-2:] == ["of_limit", "warn"]
    assert line_of(text, "ring").split()[-1] == "0.8000"
    for name in ("mpi", "naive"):
        assert line_of(text, name).split()[-1] == "-", name
    note = (
        "of_limit: what the steps' bare Sendrecvs and additions take, measured beside, / the time; above 1 where "
        "segments are added from cache, or steps only send or only receive"
    )
    assert " ".join(text.split()).count(note) == 1
    assert len(lines_with(text, "of_limit: ")) == 1
    markdown = render(cells(row(limit_s=0.8e-4)), "table", "markdown")
    assert [name.strip() for name in markdown.splitlines()[2].split("|")][-3:-1] == ["of_limit", "warn"]


def test_a_block_without_limits_beside_one_with_them_has_the_column_too() -> None:
    text = render(cells(row(limit_s=0.5e-4), row(nranks=2)), "table", "text")
    assert len(lines_with(text, "of_limit: ")) == 1
    assert [line.split()[-1] for line in lines_with(text, " ring ") if "64KiB" in line] == ["-", "0.5000"]


def test_what_was_decided_is_said_once_for_neighbouring_sizes() -> None:
    decided = {8: "swing chosen", 1024: "swing chosen", 65536: None, 2**20: "ring chosen", 2**24: "ring chosen"}
    rows = [row("auto", n, remark=remark) for n, remark in decided.items()]
    text = render(cells(*rows[::-1], row("ring", 8)), "table", "text")
    assert lines_with(text, "chosen") == ["auto: swing chosen (8B to 1KiB); ring chosen (1MiB to 16MiB)"]
    lines = text.splitlines()
    after = lines.index("auto: swing chosen (8B to 1KiB); ring chosen (1MiB to 16MiB)")
    assert lines[after - 1].startswith("auto: peak busbw ")  # right behind the summary of its algorithm
    assert lines[after + 1].startswith("ring: ")
    single = render(cells(row("auto", remark="ring chosen")), "table", "text")
    assert lines_with(single, "chosen") == ["auto: ring chosen (64KiB)"]


def test_each_algorithm_of_a_block_has_its_own_remark() -> None:
    rows = [row("chain", 8, remark="1 chunks"), row("hierarchical", 8, remark="2 nodes of 2"), row("ring", 8)]
    text = render(cells(*rows, row("chain", 8, remark="3 chunks", nranks=2)), "table", "text")
    two, four = text.split("\n\n")
    assert "chain: 3 chunks (8B)" in two.splitlines()
    assert [line for line in four.splitlines() if line.endswith(" (8B)")] == [
        "chain: 1 chunks (8B)",
        "hierarchical: 2 nodes of 2 (8B)",
    ]


def test_text_of_a_table_fits_a_hundred_columns() -> None:
    warnings = ("oversubscribed", "unpinned")
    for name in ("mpi", "parameter_server", "hierarchical_leaders"):
        rows = [row(name, n, t, warnings=warnings, wrong=3) for n in (8, 2**20, 2**26 + 4) for t in (1.234e-7, 0.98)]
        rows += [row(name, n, n * 1.7e-9, reason="x" * 30, bytes_sent_max=n * 4 // 3) for n in (*SIZES, 2**30)]
        rows += [row(name, remark="; ".join(["a remark of many words"] * 9))]
        text = render(cells(*rows), "table", "text")
        assert max(map(len, text.splitlines())) <= 100
        assert all(line == line.rstrip() for line in text.splitlines())


def test_bytes_sent_are_rounded_only_where_long() -> None:
    rows = [row(nbytes=2**20, bytes_sent_max=sent) for sent in (1398101, None, 0, 96 * 1024)]
    sent = [line.split()[10] for line in lines_with(render(cells(*rows), "table", "text"), " ring ")]
    assert sent == ["1.333MiB", "-", "0B", "96KiB"]


@pytest.mark.parametrize("kind", ["table", "compare", "fit", "predict"])
def test_json_and_csv_hold_the_rows_as_they_are(kind: str) -> None:
    rows: list[Flat] = {
        "table": cells(
            row(warnings=("noisy", "short"), limit_s=1e-5, remark="swing chosen; 4 chunks"),
            row("mpi", wrong=2, reason='a "b", c'),
        ),
        "compare": [comparison(8, "faster"), comparison(64, "cannot tell", ratio=None, reason="mpi: wrong result")],
        "fit": fits(),
        "predict": predictions(),
    }[kind]
    assert json.loads(render(rows, kind, "json")) == rows
    text = render(rows, kind, "csv")
    assert text.count("\r\n") == len(rows) + 1
    assert text.count("\n") == len(rows) + 1
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(read[0]) == list(rows[0])
    for got, meant in zip(read, rows, strict=True):
        for name, value in meant.items():
            if value is None:
                assert got[name] == ""
            elif isinstance(value, bool):
                assert got[name] == str(value).lower()
            elif isinstance(value, float):
                assert float(got[name]) == value
            else:
                assert got[name] == (";".join(map(str, value)) if isinstance(value, list) else str(value))


def test_json_refuses_what_json_does_not_have() -> None:
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            render([{"median_s": bad}], "table", "json")


def test_nothing_is_rendered_as_nothing() -> None:
    assert [render([], "table", f) for f in ("json", "text", "markdown", "latex")] == ["[]\n", *["no rows\n"] * 3]
    assert render([], "compare", "csv") == ""


def test_unknown_kinds_and_formats_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'html'; known: text, markdown, latex, csv, json"):
        render([], "table", "html")
    with pytest.raises(ValueError, match="'plot'; known: table, compare, fit, simulate, predict"):
        render([], "plot", "text")


def test_case_42_every_format_is_ascii() -> None:
    rows = cells(row("r\u00efng", samples_s=(), reason="\u03b1 \u2264 0"))
    for name in FORMATS:
        assert render(rows, "table", name).isascii()
        assert render(fits(), "fit", name).isascii()
    assert r"r\xefng" in render(rows, "table", "text")


def test_markdown_is_a_table_under_a_heading() -> None:
    heading, _, names, rule, *_ = render(cells(row()), "table", "markdown").splitlines()
    assert heading.startswith("### allreduce")
    assert names.startswith("|")
    assert re.fullmatch(r"[|:-]+", rule)
    assert names.count("|") == rule.count("|") == 13
    assert rule.split("|")[1].endswith("-:")  # numbers stand on the right
    assert rule.split("|")[3].startswith(":-")


def test_verdict_line_names_ranges_of_sizes() -> None:
    verdicts = ["faster", "slower", "cannot tell", "faster", "faster", "faster"]
    rows = [comparison(8 << i, verdict) for i, verdict in enumerate(verdicts)]
    line = verdict_line(rows[::-1])
    assert line == "ring is faster than mpi at 4 of 6 sizes (8B, from 64B to 256B), slower at 1, cannot tell at 1"
    alike = verdict_line([comparison(8, "faster"), comparison(64, "same"), comparison(512, "cannot tell")])
    assert alike == "ring is faster than mpi at 1 of 3 sizes (8B), slower at 0, the same at 1, cannot tell at 1"
    none = verdict_line([comparison(8, "slower")])
    assert none == "ring is faster than mpi at 0 of 1 size, slower at 1, cannot tell at 0"
    with pytest.raises(ValueError, match="no comparisons"):
        verdict_line([])


def test_comparisons_in_text() -> None:
    rows = [comparison(8, "slower", warnings=["forced"]), comparison(2**20, "faster")]
    rows.append(comparison(64, "cannot tell", ratio=None, ratio_low=None, ratio_high=None, reason="mpi: wrong result"))
    text = render([*rows, comparison(8, "faster", nranks=2)], "compare", "text")
    two, four, end = text.split("\n\n")
    assert "2 ranks" in two
    assert four.splitlines()[0].endswith("ratio = time of ring / time of mpi")
    assert lines_with(four, "8B")[0].split() == ["8B", "2.000", "[1.800,", "2.200]", "slower", "F"]
    assert lines_with(four, "64B")[0].split() == ["64B", "-", "-", "cannot", "tell"]
    assert "ring is faster than mpi at 1 of 3 sizes (1MiB), slower at 1, cannot tell at 1" in four.splitlines()
    assert '"-" at 64B: mpi: wrong result' in four.splitlines()
    assert "F = forced: " in end
    assert "ratio below 1: " in end


def test_the_verdict_agrees_with_compare_rows() -> None:
    rows = [row(name, n, t) for n in SIZES for name, t in (("ring", 1e-5 + n * 1e-9), ("mpi", 2e-6 + n * 2e-9))]
    text = render([c.to_json() for c in compare_rows(rows)], "compare", "text")
    assert "ring is faster than mpi at 3 of 5 sizes (from 64KiB to 16MiB), slower at 2, cannot tell at 0" in text


def test_fits_in_text() -> None:
    text = render(fits(), "fit", "text", ["first line of words", "second"])
    blocks = text.split("\n\n")
    assert [block.splitlines()[0] for block in blocks[:3]] == [
        "mpi of allreduce, sum float32 on cpu, in place, N = 16: whole calls; latency alpha in us, 1/beta in",
        "mpi of allreduce, sum float32 on cpu, in place, N = 2: whole calls; latency alpha in us, 1/beta in",
        "ring of allreduce, sum float32 on cpu, in place, N = 4: messages; latency alpha in us, 1/beta in",
    ]
    assert blocks[1].splitlines()[3].split()[:4] == ["8B", "to", "16MiB", "2.000"]
    assert blocks[2].splitlines()[3].split()[:4] == ["2B", "to", "4MiB", "2.000"]
    assert blocks[2].splitlines()[3].split()[6] == "1.000"
    assert blocks[2].splitlines()[4] == "left out: sizes 0.0% off, at most 0%"
    assert blocks[3].splitlines() == ["first line of words", "second"]
    plain = " ".join(text.split())
    assert "link: alpha is the cost of a message and beta of a byte on every schedule's critical path" in plain
    assert (
        "call: the schedule is not known, or depends on size or nodes; alpha and beta are those of a whole call"
        in plain
    )
    marked = render(fits(), "fit", "markdown", ["first line of words", "second"])
    assert "\n- first line of words\n- second\n" in marked
    assert json.loads(render(fits(), "fit", "json", ["words"])) == fits()


def test_segments_stand_in_the_order_of_their_messages_with_the_break_between() -> None:
    first = {**fits()[-1], "message_high_nbytes": 65536}
    second = {
        **first,
        "segment": 2,
        "message_low_nbytes": 131072,
        "message_high_nbytes": 2**22,
        "cause": "a full cache",
    }
    lines = render([second, first], "fit", "text").splitlines()
    assert lines_with("\n".join(lines), "2B to 64KiB")
    assert lines.index(lines_with("\n".join(lines), "2B to 64KiB")[0]) < lines.index(
        lines_with("\n".join(lines), "128KiB to 4MiB")[0]
    )
    assert "break between 64KiB and 128KiB: probably a full cache" in lines


def test_fits_keep_to_the_page_and_leave_nothing_out_of_json() -> None:
    """Every number at its longest, and more warnings than a row is likely to have."""
    names = sorted(GUARDS)[:10]
    changes: Flat = {
        "message_low_nbytes": 1398101,
        "message_high_nbytes": 5592405,
        "alpha_s": 2.194e-8,
        "alpha_low_s": 1.234e-8,
        "alpha_high_s": 3.456e-8,
        "beta_low_s_per_byte": 1 / 5.1e7,
        "beta_high_s_per_byte": 1 / 3.9e7,
        "bandwidth_gb_per_s": 0.04908,
        "gamma_low_s_per_byte": 1e-9,
        "gamma_high_s_per_byte": 4e-9,
        "reduction_gb_per_s": 0.5,
        "gamma_from": "timed additions",
        "mape": 0.3123,
        "worst": 1.594,
        "heldout_ranks_mape": 0.321,
        "heldout_ranks_worst": 1.37,
        "warnings": names,
    }
    rows = [{**fits()[-1], **changes}]
    text = render(rows, "fit", "text")
    assert max(map(len, text.splitlines())) <= WIDTH
    (line,) = lines_with(
        text, "1.333MiB to 5.333MiB 0.02194 [0.01234, 0.03456] 0.04908 [0.03900, 0.05100] 31.2% (159%) "
    )
    assert line.split()[-1] == "".join(GUARDS[name].letter for name in names)
    assert "1/gamma 0.5000 GB/s [0.2500, 1.000], from timed additions" in text.splitlines()
    assert "left out: rank counts 32.1% off, at most 137%; sizes 0.0% off, at most 0%" in text.splitlines()
    assert json.loads(render(rows, "fit", "json")) == rows
    spread = render([{**rows[0], "warnings": names[:2]}], "fit", "text")
    assert lines_with(spread, "1.333MiB to")[0].split()[-1] == ",".join(GUARDS[name].letter for name in names[:2])


def test_an_unknown_bandwidth_has_no_upper_end() -> None:
    flat = {**fits()[0], "beta_s_per_byte": 0.0, "beta_low_s_per_byte": 0.0, "bandwidth_gb_per_s": None}
    flat = {**flat, "beta_high_s_per_byte": 1e-9, "mape": 0.1234, "worst": 0.4, "warnings": ["beta not identified"]}
    text = render([flat], "fit", "text")
    (line,) = lines_with(text, "16MiB")
    assert line.split()[6:10] == ["-", "[1.000,", "inf]", "12.3%"]
    assert line.endswith(" B")
    assert "B = beta not identified: " in text
    without = {name: None if "_low_" in name or "_high_s" in name else value for name, value in flat.items()}
    assert "inf" not in render([{**without, "message_low_nbytes": 8}], "fit", "text")


def test_predictions_in_text() -> None:
    text = render(predictions(), "predict", "text")
    assert text.splitlines()[0] == "allreduce on the given links, 4 ranks; predicted times in us"
    best = [line.split() for line in text.splitlines() if line.endswith("*") or " * " in line]
    assert [(line[0], line[1]) for line in best] == [("8B", "recursive_doubling"), ("1MiB", "rabenseifner")]
    assert "fastest: recursive_doubling from 8B to 3.91KiB, rabenseifner from 3.91KiB to 1MiB" in text.splitlines()
    assert "J = model alone: " in text


def test_csv_has_one_header_whatever_was_measured() -> None:
    headers = set()
    for rows in (
        [],
        cells(row()),
        cells(row(samples_s=(), reason="too big", limit_s=1e-5)),
        cells(row(), row(wrong=3)),
    ):
        text = render(rows, "table", "csv")
        headers.add(text.partition("\r\n")[0])
        assert text.count("\r\n") == len(rows) + 1
    assert headers == {",".join(TABLE.fields)}
    assert list(row().table_cell()) == list(TABLE.fields)


def test_text_csv_and_json_hold_equal_values() -> None:
    rows = cells(*(row(name, n, n * t) for n in SIZES for name, t in (("ring", 1.234567e-9), ("mpi", 2.345678e-9))))
    shown = json.loads(render(rows, "table", "json"))
    read = list(csv.DictReader(io.StringIO(render(rows, "table", "csv"), newline="")))
    text = render(rows, "table", "text")
    for one, other in zip(shown, read, strict=True):
        line = re.sub(r"[\[\],]", "", line_of(text, one["algorithm"], format_size(one["nbytes"])))
        _, count, dtype, op, _, time, low, high, algbw, busbw, _, wrong = line.split()
        assert (int(count), dtype, op) == (one["count"], one["dtype"], one["op"])
        assert int(wrong) == one["wrong"] == int(other["wrong"])
        written = {"median_s": time, "ci_low_s": low, "ci_high_s": high}
        for name, figure in {**written, "algbw_gb_per_s": algbw, "busbw_gb_per_s": busbw}.items():
            assert float(other[name]) == one[name]
            scale = 1e6 if name in written else 1.0
            assert float(figure) == pytest.approx(one[name] * scale, rel=5e-4), name


def test_wide_has_every_column() -> None:
    text = render(cells(row(rank_means_s=(1e-6, 3e-6), stop="ci", clock_error_s=2e-6)), WIDE, "text")
    names, line = text.splitlines()[1:3]
    for name in ("samples", "launches", "stop", "min(us)", "osu_avg(us)", "osu_max(us)", "late", "clock error(us)"):
        assert name in names
    assert "2.000 1.000 3.000 0 2.000" in " ".join(line.split())
    assert "clock" not in render(cells(row()), WIDE, "text")
    assert max(map(len, text.splitlines())) > 100


def test_a_page_that_is_too_narrow_loses_what_the_heading_says() -> None:
    def headers(name: str, **changes: Any) -> list[str]:
        return render(cells(row(name, **changes)), "table", "text").splitlines()[1].split()

    assert "sent" in headers("ring")
    assert "sent" not in headers("a_name_of_22_letters__")
    assert {"count", "type"} <= set(headers("a_name_of_22_letters__"))
    crowded = headers("a_name_of_30_letters__________", warnings=("noisy", "short", "drift", "busy"), limit_s=1e-5)
    assert not {"type", "redop", "sent"} & set(crowded)
    assert {"algbw", "busbw", "wrong", "warn", "of_limit"} <= set(crowded)


def test_letters_of_warnings_stand_close_only_where_the_page_is_full() -> None:
    warnings = ("noisy", "short", "drift")
    assert line_of(render(cells(row(warnings=warnings)), "table", "text"), "ring").endswith(" N,S,T")
    name = "a_name_of_22_letters__"
    assert line_of(render(cells(row(name, warnings=warnings)), "table", "text"), name).endswith(" NST")


def test_latex_is_a_plain_tabular_with_nothing_left_to_interpret() -> None:
    rows = cells(row("double_binary_tree", warnings=("bad #1 & 100 %",)), row("a^b~c\\d{e}", remark="50 % & more"))
    text = render(rows, "table", "latex")
    lines = [line for line in text.splitlines() if line and not line.startswith("%")]
    assert lines[0] == r"\begin{tabular}{rrlllrrrrrrl}"
    assert lines[-1] == r"\end{tabular}"
    assert [line for line in lines if line == r"\hline"] == [r"\hline"] * 3
    cells_of = [line for line in lines if line.endswith(r" \\")]
    assert len(cells_of) == 3
    assert all(len(re.findall(r"(?<!\\)&", line)) == 11 for line in cells_of)
    assert r"double\_binary\_tree" in text
    assert r"a\^{}b\textasciitilde{}c\textbackslash{}d\{e\}" in text
    assert r"95\% interval" in text
    assert not re.search(r"(?<!\\)[%#_$]", "".join(lines).replace("tabular", ""))
    assert "% a^b~c" in text  # what stands below is a comment


def test_markdown_keeps_a_bar_inside_its_cell() -> None:
    kind = Kind(keys=(), heading=lambda rows: "x", order=(), columns={"a": lambda row: "1|2"}, closing=lambda rows: [])
    assert "| 1\\|2 |" in render([{}], kind, "markdown")

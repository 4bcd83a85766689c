from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ringbench.records.row import Row
from ringbench.records.run import RUN_FILE, SCHEMA_VERSION, append, encode, read_run, repair, run_file

PROVENANCE = {"kind": "provenance", "schema_version": SCHEMA_VERSION, "host": "a"}


def row(algorithm: str = "ring", **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float64",
        "device": "cpu",
        "nranks": 2,
        "nbytes": 80,
        "count": 10,
        "in_place": True,
        "launch": 0,
        "samples_s": (1e-6, 0.1 + 0.2),
    }
    return Row(**{**values, **changes})


def written(folder: Path, *records: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / RUN_FILE
    for record in (PROVENANCE, *records):
        append(file, record)
    return file


def test_rows_know_the_job_that_they_come_from(tmp_path: Path) -> None:
    job = {"kind": "job", "nranks": 2}
    file = written(tmp_path, row().to_json(), job, row("naive").to_json(), job, row("mpi").to_json())
    assert [(one.algorithm, one.job) for one in read_run(file).rows] == [("ring", 0), ("naive", 1), ("mpi", 2)]


def test_a_row_without_a_round_on_time_makes_way_for_a_later_one(tmp_path: Path) -> None:
    missed = row(samples_s=(), late=9, reason="in none of 9 rounds were all ranks on time")
    assert missed.missed
    run = read_run(written(tmp_path, missed.to_json(), row("mpi").to_json(), row().to_json(), row().to_json()))
    assert [(one.algorithm, bool(one.samples_s)) for one in run.rows] == [("mpi", True), ("ring", True)]
    assert run.repeated == 1


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    rows = (row(), row("naive", warnings=("noisy",)))
    job = {"kind": "job", "nranks": 2}
    file = written(tmp_path, job, *(one.to_json() for one in rows), {"kind": "end", "status": "complete"})
    run = read_run(file)
    assert (run.path, run.provenance, run.jobs, run.rows) == (file, PROVENANCE, (job,), rows)
    assert (run.status, run.torn) == ("complete", False)


def test_a_run_is_named_by_its_folder_too(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert run_file(tmp_path) == run_file(str(file)) == file
    assert read_run(tmp_path) == read_run(str(file))


def test_a_run_without_an_end_is_partial_and_the_last_end_counts(tmp_path: Path) -> None:
    file = written(tmp_path, row().to_json())
    assert read_run(file).status == "partial"
    append(file, {"kind": "end", "status": "partial"})
    assert read_run(file).status == "partial"
    append(file, {"kind": "end", "status": "complete"})
    assert read_run(file).status == "complete"


def test_records_of_a_kind_yet_unknown_are_skipped(tmp_path: Path) -> None:
    assert read_run(written(tmp_path, {"kind": "comment"}, row().to_json())).rows == (row(),)


def test_each_record_is_one_line(tmp_path: Path) -> None:
    file = written(tmp_path, row(reason="two\nlines").to_json())
    lines = file.read_bytes().splitlines()
    assert len(lines) == 2
    assert [json.loads(line)["kind"] for line in lines] == ["provenance", "row"]
    assert read_run(file).rows[0].reason == "two\nlines"


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_a_torn_last_line_is_left_out_and_reported(tmp_path: Path, cut: int) -> None:
    file = written(tmp_path, row().to_json(), row("naive").to_json())
    file.write_bytes(file.read_bytes()[:-cut])
    run = read_run(file)
    assert run.torn
    assert run.rows == (row(),)


def test_a_torn_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = written(tmp_path, row().to_json())
    file.write_bytes(file.read_bytes()[:-9])
    append(file, row("naive").to_json())
    with pytest.raises(ValueError, match=rf"{RUN_FILE}, line 2: "):
        read_run(file)


def test_a_repaired_file_takes_new_lines(tmp_path: Path) -> None:
    file = written(tmp_path, row().to_json(), row("naive").to_json())
    whole = file.read_bytes()
    assert not repair(file)
    assert file.read_bytes() == whole
    file.write_bytes(whole[:-9])
    assert repair(file)
    append(file, row("parameter_server").to_json())
    run = read_run(file)
    assert not run.torn
    assert [one.algorithm for one in run.rows] == ["ring", "parameter_server"]


def whole_rows(content: bytes) -> int:
    return content.count(b"\n", content.index(b"\n") + 1) if b"\n" in content else 0


@pytest.mark.parametrize("tail", [b"", b"\0" * 4096], ids=["cut", "zeros"])
def test_a_file_cut_at_any_byte_loses_no_whole_line(tmp_path: Path, tail: bytes) -> None:
    """Zeros at the end are what a power failure leaves of blocks that were not yet written."""
    rows = (row(), row("naive"))
    file = written(tmp_path, *(one.to_json() for one in rows))
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut] + tail)
        if cut < first:
            with pytest.raises(ValueError, match="not the file of a run"):
                read_run(file)
            with pytest.raises(ValueError, match="it has no whole line"):
                repair(file)
            assert file.read_bytes() == whole[:cut] + tail
            continue
        there = rows[: whole_rows(whole[:cut])]
        assert read_run(file).rows == there
        torn = not file.read_bytes().endswith(b"\n")
        assert (read_run(file).torn, repair(file)) == (torn, torn)
        for one in rows[len(there) :]:
            append(file, one.to_json())
        assert file.read_bytes() == whole


def test_only_a_first_line_makes_a_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.unlink()  # in the middle of a sweep
    with pytest.raises(FileNotFoundError, match=str(file)):
        append(file, row().to_json())
    assert not file.exists()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_json_does_not_have_is_refused_before_it_is_written(tmp_path: Path, number: float) -> None:
    file = written(tmp_path)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        append(file, row(samples_s=(number,)).to_json())
    assert file.read_bytes() == before


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_json_does_not_have_is_refused_when_read(tmp_path: Path, constant: str) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes() + f'{{"kind":"row","samples_s":[{constant}]}}\n'.encode())
    with pytest.raises(ValueError, match=f"line 2: {constant} is not JSON"):
        read_run(file)


@pytest.mark.parametrize("version", [None, 0, SCHEMA_VERSION + 1, "1"])
def test_another_schema_is_refused_by_its_number(tmp_path: Path, version: object) -> None:
    file = tmp_path / RUN_FILE
    append(file, {**PROVENANCE, "schema_version": version})
    with pytest.raises(ValueError, match=f"schema_version {version!r} is not the {SCHEMA_VERSION}"):
        read_run(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not the file of a run"),
        (b"\n", "line 1: "),
        (b"# OSU MPI Allreduce Latency Test\n", "line 1: "),
        (b"no newline", "not the file of a run"),
        (b"[1, 2]\n", "line 1: not an object"),
        (b'{"kind":"row"}\n', "not the file of a run: its first line is no provenance"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\n", "line 1: "),
    ],
)
def test_a_file_that_is_no_run_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "other.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_run(file)
    assert str(file) in str(caught.value)


def test_a_row_that_lacks_a_field_is_named_with_its_line(tmp_path: Path) -> None:
    data = row().to_json()
    del data["dtype"]
    file = written(tmp_path, row().to_json(), data)
    with pytest.raises(ValueError, match=r"line 3: not a row of a run: .*dtype"):
        read_run(file)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path / "absent.jsonl")


def test_a_disk_that_takes_half_a_line_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringbench.records.run.os.write", lambda descriptor, line: len(line) // 2)
    with pytest.raises(OSError, match=rf"is the disk full.*{RUN_FILE}"):
        append(tmp_path / RUN_FILE, PROVENANCE)


def test_lines_are_ascii() -> None:
    line = encode({"host": "knöd", "text": "µ"})
    assert line.endswith(b"\n")
    assert line.isascii()


@pytest.mark.parametrize("number", ["1e999", "1E+400", "-1e309", f"1{'0' * 309}.0", f"{'1' * 199}.0e111", "1e0000400"])
def test_numbers_beyond_the_range_of_floats_are_refused(tmp_path: Path, number: str) -> None:
    file = written(tmp_path, row().to_json())
    file.write_bytes(file.read_bytes().replace(b'"samples_s":[', f'"samples_s":[{number},'.encode()))
    with pytest.raises(ValueError, match=f"line 2: {re.escape(number)} is not JSON"):
        read_run(file)


def test_a_run_that_goes_on_is_partial_until_it_ends_again(tmp_path: Path) -> None:
    end = {"kind": "end", "status": "complete", "failures": []}
    assert read_run(written(tmp_path, row().to_json(), end)).status == "complete"
    going_on = written(tmp_path / "other", row().to_json(), end, {"kind": "job", "nranks": 2})
    assert read_run(going_on).status == "partial"


def test_a_case_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, row().to_json(), row("naive").to_json(), row().to_json()))
    assert ([one.algorithm for one in run.rows], run.repeated) == (["ring", "naive"], 1)


def test_what_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, row().to_json())
    file.write_bytes(file.read_bytes() + b"[" * 100000 + b"\n")
    with pytest.raises(ValueError, match="line 3: "):
        read_run(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("samples_s", value) for value in (None, ["1"], [-1.0])),
        *(("nranks", value) for value in (0, "2", True)),
        *(("nbytes", -8), ("collective", "alltoalw"), ("in_place", 1), ("algorithm", None), ("warnings", "noisy")),
        *(
            ("count", 0),
            ("nbytes", 10**400),
            ("bytes_sent_max", "x"),
            ("warnings", [{}]),
            ("reason", {}),
            ("wrong", -1),
        ),
        *(("algorithm", "a\x1b[31m"), ("algorithm", "a|b"), ("samples_s", [5e-324]), ("samples_s", [10**400])),
    ],
)
def test_rows_of_the_wrong_kind_are_refused(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"line 2: .*"):
        read_run(written(tmp_path, {**row().to_json(), name: value}))

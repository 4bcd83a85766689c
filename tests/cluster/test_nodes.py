"""Tests of a lab without Slurm: up, jobs on its nodes, and down again, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Mpi
from harness import Finished, environment, run, terminate_at_rows
from namespaces import inside, mounts

from ringbench.records.run import read_run

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.usefixtures("room")]

HELLO = str(Path(__file__).parent / "programs" / "hello.py")
FAST = ("--rate", "2gbit")


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fail where a test leaves a mount behind, or a file in a folder that a lab uses."""
    before = mounts(), sorted(os.listdir("/run"))
    yield
    assert (mounts(), sorted(os.listdir("/run"))) == before


def lab(mpi: Mpi, *words: str, prefix: list[str] | None = None, **more: Any) -> Finished:
    line = [*(prefix or []), mpi.python, "-m", "ringbench", "lab", *words]
    return run(line, env=environment(mpi), **more)


@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(4, 1), (2, 2)])
def test_mpirun_finds_the_nodes(mpi: Mpi, prefix: list[str], nodes: int, ranks_per_node: int) -> None:
    shape = ("--nodes", str(nodes), "--ranks-per-node", str(ranks_per_node))
    found = lab(mpi, *shape, "--", "mpirun", "-n", "4", mpi.python, HELLO, prefix=prefix)
    ranks = [[f"node{rank // ranks_per_node}", ranks_per_node] for rank in range(4)]
    assert json.loads(found.stdout) == ranks, str(found)


def test_the_exit_status_is_that_of_the_command(mpi: Mpi) -> None:
    assert lab(mpi, "--nodes", "1", "--", "sh", "-c", "hostname; exit 7", status=7).stdout == "head\n"
    lab(mpi, "--nodes", "1", "--", "sh", "-c", "kill -9 $$", status=128 + signal.SIGKILL)
    (line,) = lab(mpi, "--", "no-such-program", status=2).said
    assert "no-such-program" in line


def test_none_fits_into_another(mpi: Mpi) -> None:
    command = [mpi.python, "-m", "ringbench", "lab", "--", "true"]
    (line,) = lab(mpi, "--nodes", "1", "--", *command, status=2).said
    assert "a lab already" in line


def test_a_delay_is_there_or_refused(mpi: Mpi) -> None:
    ping = "import socket, time\nstart = time.monotonic()\n" + (
        "try: socket.create_connection(('node1', 9), 5)\nexcept ConnectionRefusedError: print(time.monotonic() - start)"
    )
    found = lab(
        mpi, "--nodes", "2", "--delay", "30ms", "--", "/run/agent", "node0", mpi.python, "-c", f'"{ping}"', status=None
    )
    if found.status == 0:
        assert float(found.stdout) >= 0.06, str(found)  # there and back
    else:
        assert found.status == 2, str(found)
        assert "no netem" in found.said[0], str(found)


def test_what_a_lab_lets_through_is_no_more_than_its_rate(mpi: Mpi) -> None:
    found = lab(mpi, "--nodes", "2", "--ranks-per-node", "2", "--selftest")
    assert found.stdout.split()[:2] == ["size", "time_us"], str(found)
    # With a bound that the links do not keep, the same messages are too fast.
    false = "RINGBENCH_LAB=nodes=2 ranks_per_node=1 rate=1mbit slurm=no"
    command = ["env", false, mpi.python, "-m", "ringbench", "lab", "--selftest"]
    found = lab(mpi, "--nodes", "2", *FAST, "--", *command, status=1)
    assert any("passed faster than 1mbit" in line for line in found.said), str(found)
    false = "RINGBENCH_LAB=nodes=3 ranks_per_node=1 rate=2gbit slurm=no"
    command = ["env", false, mpi.python, "-m", "ringbench", "lab", "--selftest"]
    found = lab(mpi, "--nodes", "2", *FAST, "--", *command, status=1)
    assert any("MPI sees 2 nodes, not 3" in line for line in found.said), str(found)


def test_sixteen_mebibytes_on_four_nodes_are_right(mpi: Mpi, tmp_path: Path) -> None:
    few = ("--warmup", "0", "--min-samples", "2", "--max-samples", "2")
    sizes = ("--ranks", "4", "--sizes", "16MiB", "--algorithms", "ring,mpi", "--out", str(tmp_path / "run"))
    found = lab(mpi, *FAST, "--", "ringbench", "sweep", *sizes, *few)
    done = read_run(tmp_path / "run")
    assert [(row.algorithm, row.wrong, len(row.samples_s)) for row in done.rows] == [("ring", 0, 2), ("mpi", 0, 2)]
    assert done.jobs[0]["hosts"] == ["node0", "node1", "node2", "node3"], str(found)
    assert done.provenance["lab"] == "nodes=4 ranks_per_node=1 rate=2gbit slurm=no"


def test_hierarchical_sees_the_nodes(mpi: Mpi, tmp_path: Path) -> None:
    options = (
        "--sizes",
        "8,64KiB",
        "--algorithms",
        "hierarchical,ring,mpi",
        "--max-samples",
        "8",
        "--time-budget",
        "3s",
    )
    shape = ("--nodes", "2", "--ranks-per-node", "2", *FAST)
    found = lab(mpi, *shape, "--", "ringbench", "sweep", *options, "--out", str(tmp_path / "run"))
    done = read_run(tmp_path / "run")
    assert done.status == "complete"
    assert [job["nranks"] for job in done.jobs] == [1, 2, 4], str(found)
    assert done.jobs[-1]["hosts"] == ["node0", "node0", "node1", "node1"]
    rows = {(row.nranks, row.algorithm, row.nbytes): row for row in done.rows}
    assert len(rows) == 18
    assert not any(row.wrong for row in rows.values())
    # One node alone has nothing to be hierarchical about.
    assert rows[4, "hierarchical", 65536].samples_s, rows[4, "hierarchical", 65536].reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("delay_s", [0.3, None])
def test_a_killed_lab_leaves_nothing(mpi: Mpi, prefix: list[str], number: int, delay_s: float | None) -> None:
    where = "readlink /proc/self/ns/net; /run/agent node1 readlink /proc/self/ns/net"
    line = [*prefix, mpi.python, "-m", "ringbench", "lab", "--nodes", "2", "--", "sh", "-c", f"{where}; exec sleep 60"]
    with subprocess.Popen(
        line, env=environment(mpi), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        namespaces = []
        if delay_s is None:
            namespaces = [process.stdout.readline().strip() for _ in range(2)]
            assert all(name.startswith("net:[") and inside(name) for name in namespaces), namespaces
        else:
            time.sleep(delay_s)
        process.send_signal(number)
        assert process.wait(30) in (-number, 128 + number, 1)
        # Its end comes before that of the last process in the lab after SIGKILL alone.
        end = time.monotonic() + 10
        while (left := [pid for name in namespaces for pid in inside(name)]) and time.monotonic() < end:
            time.sleep(0.05)
        assert left == []
        # The pipe is closed where nobody is left who could write into it.
        threading.Timer(10, process.kill).start()
        process.stdout.read()


def test_a_terminated_sweep_in_a_lab_leaves_whole_rows(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"

    options = ("--ranks", "2,3", "--sizes", "1KiB:64KiB:x2", "--precision", "0.0001", "--max-samples", "1000000")
    command = ["ringbench", "sweep", *options, "--time-budget", "30s", "--out", str(out)]
    said = lab(mpi, "--nodes", "3", *FAST, "--", *command, status=1, on_start=terminate_at_rows(out, 3), limit_s=60)
    assert "ringbench: terminated; what was measured is in" in said.stderr, str(said)  # amid mpirun's own words, maybe
    done = read_run(out)
    assert (done.status, done.torn) == ("partial", False), str(said)
    assert 3 <= len(done.rows) < 28, str(said)
    assert all(row.samples_s and row.wrong == 0 for row in done.rows), str(said)

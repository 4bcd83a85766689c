"""The commands on arrays of a device, which is a fake: what they write down, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Mpi
from harness import check_lines, start

pytestmark = pytest.mark.mpi

FEW = ("--device=cuda", "--sizes=8,4KiB", "--time-budget=3s", "--max-samples=8")


def test_rows_say_how_messages_travelled_and_the_job_who_had_which_device(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", *FEW, "--algorithms=ring,mpi", "--staging=host", "--limit", f"--out={out}"]
    done = start(mpi, 2, ["device_command.py", *words])
    assert "on cuda, 2 ranks, in place, messages staged; 1 launch" in done.stdout
    assert any("ranks 0,1 share the device at 0000:00:00.0" in line for line in done.said)
    records = check_lines(out / "run.jsonl")
    (job,) = [record for record in records if record["kind"] == "job"]
    assert [(entry["rank"], entry["device"], entry["pci"]) for entry in job["devices"]] == [
        (rank, 0, "0000:00:00.0") for rank in range(2)
    ]
    rows = [record for record in records if record["kind"] == "row"]
    assert len(rows) == 4
    for row in rows:
        assert (row["device"], row["transfer"], row["wrong"]) == ("cuda", "staged", 0)
        assert "shared device" in row["warnings"]


def test_a_job_on_the_host_has_no_devices(mpi: Mpi, tmp_path: Path) -> None:
    words = ["run", "--sizes=8", "--time-budget=1s", f"--out={tmp_path / 'run'}"]
    start(mpi, 2, ["-m", "ringbench", *words])
    records = check_lines(tmp_path / "run" / "run.jsonl")
    assert not any("devices" in record for record in records)
    assert {record["transfer"] for record in records if record["kind"] == "row"} == {"direct"}


def test_what_a_trial_does_not_show_is_refused_in_one_line(mpi: Mpi) -> None:
    """The trial is a process of its own, which sees no fake: as if the library had not taken the array."""
    done = start(mpi, 2, ["device_command.py", "run", *FEW], status=2)
    (line,) = done.said
    assert line.startswith("ringbench: device 'cuda': Sendrecv of ")
    assert line.endswith("--staging host copies through the host instead")


def test_a_rank_that_fails_in_a_check_ends_the_others(mpi: Mpi) -> None:
    done = start(mpi, 2, ["device_command.py", "broken", "run", "--check", "--device=cuda"], status=None, limit_s=60)
    assert done.status not in (0, 2)
    assert "ringbench: rank 1 of 2 failed" in done.stderr
    assert "RuntimeError: out of memory" in done.stderr


def test_nccl_stands_beside_the_ring_in_a_loop(mpi: Mpi, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", *FEW, "--algorithms=nccl,ring", "--staging=host", "--sync=loop", f"--out={out}"]
    start(mpi, 2, ["device_command.py", *words])
    rows = [record for record in check_lines(out / "run.jsonl") if record["kind"] == "row"]
    assert {(row["algorithm"], row["transfer"]) for row in rows} == {("nccl", "nccl"), ("ring", "staged")}
    assert {row["estimand"] for row in rows} == {"max over ranks of the mean of 20 calls in a row after a barrier"}
    assert all(row["wrong"] == 0 and row["samples_s"] for row in rows)
    compared = start(mpi, 1, ["-m", "ringbench", "compare", str(out), "--algorithm=ring", "--baseline=nccl"])
    assert "messages of ring staged, of nccl nccl" in compared.stdout


def test_gradients_are_averaged_on_a_device(mpi: Mpi, tmp_path: Path) -> None:
    layers = tmp_path / "small.toml"
    layers.write_text('[[layer]]\nname = "a"\nparameters = 4096\nforward = "1ms"\nbackward = "2ms"\n', "utf-8")
    out = tmp_path / "run"
    words = ["ddp", f"--workload={layers}", "--device=cuda", "--staging=host", "--steps=2", "--warmup=1"]
    start(mpi, 2, ["device_command.py", *words, "--engines=blocking,thread", f"--out={out}"])
    records = check_lines(out / "run.jsonl")
    (job,) = [record for record in records if record["kind"] == "job"]
    assert job["devices"]
    steps = [record for record in records if "engine" in record]
    assert len(steps) == 2
    assert all(step["wrong"] == 0 for step in steps)

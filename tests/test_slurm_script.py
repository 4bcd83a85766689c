"""Tests of the job script of a plan: exact texts, and what makes none."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from ringbench.launch.slurm import JobScript, estimated_seconds, format_time, job_script, parse_time

PLAIN = """\
#!/bin/bash
#SBATCH --job-name=ringbench
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --time=00:03:00
#SBATCH --signal=B:TERM@60 --requeue --open-mode=append
# module load openmpi && source ~/ringbench/.venv/bin/activate
set -euo pipefail

# All ranks must be one job before anything is measured.
ringbench sweep 'my plan.toml' --check --ranks 8,16,32

# By exec, Slurm's signal before the time limit reaches the sweep itself, which leaves whole rows.
exec ringbench sweep 'my plan.toml' --ranks 8,16,32 \\
    --out "ringbench-$SLURM_JOB_ID" ${SLURM_RESTART_COUNT:+--resume}
"""

ARRAY = """\
#!/bin/bash
#SBATCH --job-name=ringbench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=01:30:00
#SBATCH --partition=short
#SBATCH --account=me
#SBATCH --array=1,2
#SBATCH --signal=B:TERM@60 --requeue --open-mode=append
module load mpich
source env/bin/activate
set -euo pipefail

# Each element of the array measures on so many of the nodes.
ranks=$((SLURM_ARRAY_TASK_ID * 4))

# All ranks must be one job before anything is measured.
ringbench sweep p.toml --check --mpirun srun --mpirun-args=--mpi=pmi2 --ranks "$ranks"

# By exec, Slurm's signal before the time limit reaches the sweep itself, which leaves whole rows.
exec ringbench sweep p.toml --mpirun srun --mpirun-args=--mpi=pmi2 --ranks "$ranks" \\
    --out "ringbench-$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID" ${SLURM_RESTART_COUNT:+--resume}
"""


def job(**changes: Any) -> JobScript:
    values: dict[str, Any] = {"plan": "p.toml", "nodes": (1, 2), "ntasks_per_node": 4, "time_s": 60.0}
    return JobScript(**(values | changes))


def test_script_of_a_plan() -> None:
    assert job_script(job(plan="my plan.toml", nodes=(1, 2, 4), ntasks_per_node=8, time_s=130)) == PLAIN


def test_script_of_an_array() -> None:
    more: dict[str, Any] = {"partition": "short", "account": "me", "launcher": "srun", "mpi_type": "pmi2"}
    setup = ("module load mpich", "source env/bin/activate")
    assert job_script(job(nodes=(2, 1, 2), array=True, time_s=5400, setup=setup, **more)) == ARRAY


def test_ranks_on_gpus_see_one_each() -> None:
    text = job_script(job(gpus_per_node=4, nodes=(1,)))
    assert "#SBATCH --gpus-per-node=4\n" in text
    assert text.count("CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$SLURM_LOCALID}}") == 2
    # What the script says is what a shell passes on, and what the sweep takes apart.
    checked = text.partition("\nexec ")[0]
    show = 'ringbench() { [ "$3" = --check ] && printf "%s\n" "$4"; }\n' + checked
    said = subprocess.run(["bash", "-c", show], capture_output=True, text=True, timeout=20, check=True).stdout
    assert said.startswith("--mpirun-args=sh -c 'export CUDA_VISIBLE_DEVICES=${OMPI")


@pytest.mark.parametrize("changes", [{}, {"array": True}, {"gpus_per_node": 4}, {"setup": ("a=1", "b=2")}])
def test_scripts_are_read_by_bash(changes: dict[str, Any]) -> None:
    text = job_script(job(**changes))
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": ()}, "at least 1"),
        ({"nodes": (0, 2)}, "nodes 0,2"),
        ({"ntasks_per_node": 0}, "0 tasks per node"),
        ({"gpus_per_node": 2}, "2 GPUs and 4 tasks"),
        ({"partition": "a b"}, "partition 'a b'"),
        ({"account": "$(rm x)"}, "account"),
        ({"mpi_type": ""}, "mpi type ''"),
        ({"mpi_type": "pmix"}, "mpi type 'pmix': only the launcher srun takes one"),
        ({"setup": ("a\nb",)}, "one line each"),
    ],
)
def test_what_makes_no_job_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        job(**changes)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("15:30", 930), ("1:30:00", 5400), ("1-12", 129600), ("1-12:30", 131400), ("0-0:0:5", 5)],
)
def test_times_as_slurm_reads_them(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "x", "1:2:3:4", "-5", "1-", "a-1", "1:-2"])
def test_times_that_slurm_does_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="time limit"):
        parse_time(text)


def test_times_as_slurm_writes_them() -> None:
    assert [format_time(seconds) for seconds in (0, 60, 61, 3600, 90061)] == [
        "00:01:00",
        "00:01:00",
        "00:02:00",
        "01:00:00",
        "25:02:00",
    ]


def test_how_long_a_job_takes() -> None:
    assert estimated_seconds(300, 3) == 300 + 40 + 60
    assert estimated_seconds(300, 1) == 300 + 20 + 60

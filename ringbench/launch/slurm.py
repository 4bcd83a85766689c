"""The job script for a plan: pure functions from a description to text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

#: What a job takes beside its budget: to start, check its ranks and end; and what Slurm's signal leaves at the end.
START_S, SIGNAL_S = 10.0, 60.0

_ONE_GPU = 'export CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$SLURM_LOCALID}}; exec "$@"'


@dataclass(frozen=True, kw_only=True, slots=True)
class JobScript:
    """Describe a job: a plan on each of some numbers of nodes, in one allocation or in an array of jobs.

    ``time_s`` is the limit in seconds; ``setup`` are lines of the shell, such as a module to load. Raises ValueError
    naming a wrong value.
    """

    plan: str
    nodes: tuple[int, ...]
    ntasks_per_node: int
    time_s: float
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    array: bool = False
    launcher: str | None = None
    mpi_type: str | None = None
    setup: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError naming a value that makes no job."""
        if not self.nodes or min(self.nodes) < 1:
            raise ValueError(f"nodes {','.join(map(str, self.nodes))}: at least 1 is needed")
        if self.ntasks_per_node < 1:
            raise ValueError(f"{self.ntasks_per_node} tasks per node: at least 1 is needed")
        if self.gpus_per_node is not None and self.gpus_per_node != self.ntasks_per_node:
            raise ValueError(f"{self.gpus_per_node} GPUs and {self.ntasks_per_node} tasks per node: one task a GPU")
        for name in ("partition", "account", "launcher", "mpi_type"):
            value = getattr(self, name)
            if value is not None and (not value or value != shlex.quote(value)):
                raise ValueError(f"{name.replace('_', ' ')} {value!r}: must be one word without special characters")
        if self.mpi_type is not None and self.launcher != "srun":
            raise ValueError(f"mpi type {self.mpi_type!r}: only the launcher srun takes one")
        if any("\n" in line for line in self.setup):
            raise ValueError(f"setup {self.setup!r}: must be one line each")

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the rank counts, in ascending order."""
        return tuple(sorted({count * self.ntasks_per_node for count in self.nodes}))


def estimated_seconds(time_budget_s: float, jobs: int) -> float:
    """Return how long a job takes: its budget, the start of the check and of each MPI job, what the signal leaves."""
    return time_budget_s + START_S * (jobs + 1) + SIGNAL_S


def format_time(seconds: float) -> str:
    """Return a duration as Slurm writes it, in whole minutes, rounded up."""
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def parse_time(text: str) -> float:
    """Return the seconds of a time limit as Slurm reads it: minutes, minutes:seconds, [days-]hours:minutes:seconds."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()) or len(parts) > 3:
        raise ValueError(f"malformed time limit {text!r}: 90, 15:00, 1:30:00 and 1-12:00:00 are understood")
    numbers = [int(part) for part in parts]
    if dash:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60.0 + seconds
    if total <= 0:
        raise ValueError(f"time limit {text!r}: must be more than 0")
    return total


def job_script(job: JobScript) -> str:
    """Return the script of a job, as ``sbatch`` takes it."""
    options = [f"nodes={max(job.nodes)}", f"ntasks-per-node={job.ntasks_per_node}", f"time={format_time(job.time_s)}"]
    options += [f"{name}={getattr(job, name)}" for name in ("partition", "account") if getattr(job, name)]
    options += [f"gpus-per-node={job.gpus_per_node}"] if job.gpus_per_node else []
    options += [f"array={','.join(map(str, sorted(set(job.nodes))))}"] if job.array else []
    ranks = ",".join(map(str, job.ranks))
    folder, lines = "ringbench-$SLURM_JOB_ID", list[str]()
    if job.array:
        lines = ["# Each element of the array measures on so many of the nodes."]
        lines += [f"ranks=$((SLURM_ARRAY_TASK_ID * {job.ntasks_per_node}))", ""]
        ranks, folder = '"$ranks"', "ringbench-$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID"
    launcher = _launcher(job)
    return "\n".join(
        [
            "#!/bin/bash",
            "#SBATCH --job-name=ringbench",
            *(f"#SBATCH --{option}" for option in options),
            f"#SBATCH --signal=B:TERM@{SIGNAL_S:.0f} --requeue --open-mode=append",
            *(job.setup or ("# module load openmpi && source ~/ringbench/.venv/bin/activate",)),
            "set -euo pipefail",
            "",
            *lines,
            "# All ranks must be one job before anything is measured.",
            shlex.join(["ringbench", "sweep", job.plan, "--check", *launcher]) + f" --ranks {ranks}",
            "",
            "# By exec, Slurm's signal before the time limit reaches the sweep itself, which leaves whole rows.",
            shlex.join(["exec", "ringbench", "sweep", job.plan, *launcher])
            + f' --ranks {ranks} \\\n    --out "{folder}" ${{SLURM_RESTART_COUNT:+--resume}}',
            "",
        ]
    )


def _launcher(job: JobScript) -> Sequence[str]:
    """Return the options of the sweep that say how ranks start; on GPUs each sees the one of its number alone."""
    arguments = [f"--mpi={job.mpi_type}"] if job.mpi_type else []
    if job.gpus_per_node:
        arguments += ["sh", "-c", _ONE_GPU, "sh"]
    words = ["--mpirun", job.launcher] if job.launcher else []
    return [*words, *([f"--mpirun-args={shlex.join(arguments)}"] if arguments else [])]

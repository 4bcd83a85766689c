"""The sweep: one MPI job for each rank count, all rows in one file."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from ringbench.launch.environment import job_environment, node_count, tasks_per_node
from ringbench.launch.lab import in_lab, lab_around
from ringbench.launch.mpirun import Mpirun, command, usable_cpus
from ringbench.launch.process import JobResult, LaunchError, run_job
from ringbench.records.kernel import whole
from ringbench.records.need import job_share_s, needs
from ringbench.records.run import RUN_FILE, append, encode, read_run, repair, rows_of
from ringbench.records.settings import Settings

#: A job that takes this many times its share of the budget, and a minute to start, is taken for dead.
PATIENCE = 4.0
START_LIMIT_S = 120.0

#: Keeps the current folder off the ranks' module path, where a random.py would stand before Python's own.
SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Say where the rows are and which jobs failed, in words."""

    file: Path
    failures: tuple[str, ...]


def open_run(folder: Path, provenance: Mapping[str, Any]) -> Path:
    """Create a run's file with its first line; raise ValueError where the folder holds a run already."""
    file = folder / RUN_FILE
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise ValueError(f"{file} exists: go on with it by --resume, or name another folder") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(encode(provenance))
    except BaseException:  # a full disk, say: nothing is left that the next try would stumble over
        with contextlib.suppress(OSError):
            file.unlink()
        raise
    return file


def missing_cells(file: Path, settings: Settings, nranks: int, launch: int = 0) -> list[tuple[int, str, bool]]:
    """Return size, algorithm and placement of what lacks a row for ``nranks`` and a launch in a run's file.

    A row without a round in which all ranks were on time counts as lacking.
    """
    have = {
        (row.nbytes, row.algorithm, row.in_place)
        for row in rows_of(read_run(file).rows, settings, nranks)
        if row.launch == launch and not row.missed
    }
    return [cell for cell in product(settings.sizes, settings.algorithms, settings.placements) if cell not in have]


def missing_sizes(file: Path, settings: Settings, nranks: int, launch: int = 0) -> tuple[int, ...]:
    """Return the sizes that lack a row of some algorithm or placement; see ``missing_cells``."""
    return tuple(dict.fromkeys(nbytes for nbytes, _, _ in missing_cells(file, settings, nranks, launch)))


def sweep(
    settings: Settings,
    ranks: Sequence[int],
    file: Path,
    *,
    launches: int = 1,
    mpirun: Mpirun,
    python: str,
    environ: Mapping[str, str],
    extra: Sequence[str] = (),
    stderr: int | None = None,
    time_limit_s: float | None = None,
    report: Callable[[str], None],
    told: Sequence[str] = (),
) -> Outcome:
    """Start one job for each rank count and launch; each appends its rows to ``file`` and prints to ``stderr``.

    ``told`` are further arguments of each. All rank counts have their first launch before any has its second. Rows that
    the file already holds are not measured again. The time budget of the settings is that of the whole sweep, shared
    out by what jobs of the same rank count were seen to need. A job that fails or takes too long does not stop the
    others. The last line says ``complete`` or ``partial``, also when an exception passes.
    """
    failures: list[str] = []
    status = "partial"
    repair(file)
    try:
        jobs = [(launch, nranks) for launch in range(launches) for nranks in ranks]
        todo = [(*job, sizes) for job in jobs if (sizes := missing_sizes(file, settings, job[1], job[0]))]
        cases = [len(missing_cells(file, settings, nranks, launch)) for launch, nranks, _ in todo]
        end = time.monotonic() + settings.time_budget_s
        known: dict[int, float] = {}
        for index, (launch, nranks, sizes) in enumerate(todo):
            started = time.monotonic()
            budget = max(1.0, job_share_s(end - started, nranks, [job[1] for job in todo[index:]], known))
            job = replace(settings, sizes=sizes, time_budget_s=budget)
            program = [python, *SAFE_PATH, "-m", "ringbench", "run", *job.arguments(), f"--append={file}"]
            program += [f"--launch={launch}"] if launch else []
            program += [f"--append-at={file.stat().st_size}"]
            program += [f"--cases-before={sum(cases[:index])}", f"--cases-total={sum(cases)}"]
            program += [f"--budget-after={max(0.0, end - time.monotonic() - budget):.1f}", *told]
            limit = START_LIMIT_S + PATIENCE * budget if time_limit_s is None else time_limit_s
            failure = start_job(nranks, program, mpirun, environ, extra, stderr, limit)
            if failure is None and (left := missing_sizes(file, job, nranks, launch)):
                # MPICH's mpirun ends with 0 also where a rank left without a word and it killed the others.
                failure = f"{nranks} ranks: {mpirun.path} ended with status 0, but {len(left)} sizes were not measured"
            repair(file)  # a job whose disk is full leaves half a line
            took = time.monotonic() - started
            if failure is None:
                known[nranks] = _need_s(file, job, nranks, launch, took)
            else:
                report(failure)
                failures.append(failure)
                end += max(0.0, took - budget)  # what a job that hung took is not taken from the others
        if not failures and not any(missing_sizes(file, settings, nranks, launch) for launch, nranks in jobs):
            status = "complete"
    finally:
        repair(file)
        append(file, {"kind": "end", "status": status, "failures": failures})
    return Outcome(file=file, failures=tuple(failures))


def _need_s(file: Path, settings: Settings, nranks: int, launch: int, took: float) -> float:
    """Return what a job of so many ranks would need in all: what it took, and the samples that it had no time for."""
    rows = rows_of(read_run(file).rows, settings, nranks)
    own = [row for row in rows if row.launch == launch and row.nbytes in settings.sizes]
    needed = sum(needs(own, settings.precision, settings.max_samples).values())
    return took + max(0.0, needed - sum(sum(row.samples_s) for row in own))


def job_line(
    nranks: int, program: Sequence[str], mpirun: Mpirun, environ: Mapping[str, str], extra: Sequence[str] = ()
) -> list[str]:
    """Return the command line of a job from here: on this machine, in an allocation, or on the nodes of a lab."""
    cpus, bind = usable_cpus()
    lab = lab_around(environ)
    mapped = node_count(environ) > 1 or lab is not None
    if mpirun.flavour == "slurm" and (per_node := tasks_per_node(environ) or (lab and lab.ranks_per_node)):
        extra = [f"--nodes={-(-nranks // per_node)}", *extra]  # else srun would spread few ranks over all nodes
    line = command(mpirun, nranks, program, cpus=cpus, bind=bind, extra=extra, in_allocation=mapped)
    return line if lab is None or mpirun.flavour == "slurm" else [*in_lab(lab, nranks, environ), *line]


def run_on_ranks(
    nranks: int,
    program: Sequence[str],
    mpirun: Mpirun,
    environ: Mapping[str, str],
    extra: Sequence[str],
    limit_s: float,
    output: int | None = None,
) -> JobResult:
    """Run a program on some ranks for ``limit_s`` at most; what it says goes to ``output``, if that is given.

    Raises LaunchError where it cannot be started.
    """
    line = job_line(nranks, program, mpirun, environ, extra)
    env = job_environment(environ, flavour=mpirun.flavour, uid=os.getuid())
    return run_job(line, env=env, time_limit_s=limit_s, stdout=output, stderr=output)


def start_job(
    nranks: int,
    program: Sequence[str],
    mpirun: Mpirun,
    environ: Mapping[str, str],
    extra: Sequence[str],
    stderr: int | None,
    limit: float,
) -> str | None:
    """Run a program on some ranks to its end, for ``limit`` seconds at most; return how it failed, if it did."""
    try:
        result = run_on_ranks(nranks, program, mpirun, environ, extra, limit, stderr)
    except LaunchError as error:
        return f"{nranks} ranks: {error}"
    if result.timed_out:
        return f"{nranks} ranks: ended after {limit:.0f} s, the time limit of a job"
    if result.returncode < 0:
        return f"{nranks} ranks: {mpirun.path} was killed by signal {-result.returncode}"
    if result.returncode:
        return f"{nranks} ranks: {mpirun.path} ended with status {result.returncode}"
    return None


def default_ranks(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to the tasks of a Slurm allocation, the room in a lab, or the cores, and that number."""
    lab = lab_around(environ)
    most = whole(environ.get("SLURM_NTASKS", "")) or (usable_cpus()[0] if lab is None else lab.ranks)
    powers = [2**power for power in range(most.bit_length())]
    return tuple(sorted({*powers, most}))

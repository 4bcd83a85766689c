"""How steps of training are measured: jobs that are started, and what each of their ranks does."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringbench.arguments import UsageError
from ringbench.cli.devices import refuse_run
from ringbench.cli.measuring import CannotWriteError, abort_job, job_record, mpi_type_words, write_record
from ringbench.cli.showing import print_steps
from ringbench.cli.talk import Terminated, ending, heed_signals, say, words_of, world
from ringbench.records.ddp_row import DdpRow
from ringbench.records.ddp_settings import DdpPlan, DdpSettings, settings_from_json
from ringbench.records.provenance import package_version, provenance
from ringbench.records.run import read_run, run_file
from ringbench.records.units import format_seconds, format_size

if TYPE_CHECKING:
    from ringbench.ddp.measure import Event
    from ringbench.ddp.workloads import Workload

#: Of the gradients: the buckets, and as much again for plans, or for what compression carries along.
COPIES = 3


def ddp_jobs(arguments: argparse.Namespace, plan: DdpPlan) -> int:
    """Start one job for each rank count, and show what they measured; return the exit status."""
    from ringbench.launch.hold import sole_writer
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import default_ranks, open_run

    folder: Path = arguments.out or Path(datetime.now().strftime("ringbench-%Y%m%d-%H%M%S"))
    if arguments.resume and arguments.out is None:
        raise UsageError("--resume needs --out DIR, the folder of the run to go on with")
    ranks = plan.ranks or default_ranks(os.environ)
    try:
        check_settings(plan.settings, ranks)
        started = arguments.resume and run_file(folder).exists()
        if started:
            _check_resumed(run_file(folder), plan.settings)
        mpirun = find_mpirun(os.environ, override=arguments.mpirun)
        extra = [*mpi_type_words(mpirun, arguments.mpirun_args), *arguments.mpirun_args]
        first = provenance(plan.settings, ranks, arguments=sys.argv[1:], environ=os.environ)
        first["launcher"] = {**asdict(mpirun), "arguments": extra}
        file = run_file(folder) if started else open_run(folder, first)
        holding = contextlib.ExitStack()
        holding.enter_context(sole_writer(file, {**first, "kind": "resume"} if started else None))
    except (ValueError, LaunchError, OSError) as error:
        raise UsageError(words_of(error)) from None
    heed_signals()
    failures: list[str] = []
    try:
        with holding:
            failures = _start_all(arguments, plan.settings, ranks, file, mpirun, extra)
    except (KeyboardInterrupt, Terminated) as reason:
        say(f"ringbench: {ending(reason)}; what was measured is in {file} (go on with --resume --out {folder})")
        return 1
    except (ValueError, OSError) as error:
        say(f"ringbench: {words_of(error)}")
        return 1
    rows = read_run(file).steps
    if not rows:
        say(f"ringbench: nothing was measured; see above, and {file}")
        return 1
    print_steps(rows, plan.settings, arguments.format)
    say(f"ringbench: every step is in {file}")
    return 1 if failures or any(row.wrong for row in rows) else 0


def _start_all(
    arguments: argparse.Namespace,
    settings: DdpSettings,
    ranks: Sequence[int],
    file: Path,
    mpirun: Any,
    extra: Sequence[str],
) -> list[str]:
    """Start the jobs that have something left to measure, and end the file; return how they failed."""
    from ringbench.ddp.measure import keys_of
    from ringbench.ddp.workloads import workload_named
    from ringbench.launch.sweep import SAFE_PATH, start_job
    from ringbench.records.run import append, repair

    workload = workload_named(settings.workload, backward_s=settings.backward_s, batch=settings.batch)
    failures: list[str] = []

    def missing(nranks: int) -> int:
        return len(keys_of(settings, workload, nranks).keys() - {row.key for row in read_run(file).steps})

    status = "partial"
    try:
        for nranks in ranks:
            if not missing(nranks):
                continue
            program = [sys.executable, *SAFE_PATH, "-m", "ringbench", "ddp", *settings.arguments()]
            program += [f"--append={file}", f"--append-at={file.stat().st_size}"]
            if arguments.trace is not None:
                program.append(f"--trace={trace_file(arguments.trace, nranks, ranks)}")
            limit = arguments.job_limit
            failure = start_job(nranks, program, mpirun, os.environ, extra, sys.stderr.fileno(), limit)
            repair(file)
            if failure is None and (left := missing(nranks)):
                failure = f"{nranks} ranks: {mpirun.path} ended with status 0, but {left} rows were not measured"
            if failure is not None:
                say(f"ringbench: {failure}")
                failures.append(failure)
        if not failures:
            status = "complete"
    finally:
        repair(file)
        append(file, {"kind": "end", "status": status, "failures": failures})
    return failures


#: What a run that is gone on with must have been measured by.
_SAME = ("workload", "backward_s", "batch", "device", "staging", "first_bucket", "polls", "clip", "thread_level")


def _check_resumed(file: Path, settings: DdpSettings) -> None:
    """Raise ValueError where rows to come would be measured in another way than those already there."""
    before = settings_from_json(read_run(file).plan.get("settings") or {})
    for name in _SAME:
        if getattr(before, name) != getattr(settings, name):
            said = f"{name} {getattr(before, name)}, not {getattr(settings, name)}"
            raise ValueError(f"{file}: was measured with {said}")


def trace_file(file: Path, nranks: int, ranks: Sequence[int]) -> Path:
    """Return the file for the trace of so many ranks: each has one of its own where there are several."""
    return file if len(ranks) == 1 else file.with_name(f"{file.stem}-{nranks}{file.suffix}")


def check_settings(settings: DdpSettings, ranks: Sequence[int]) -> Workload:
    """Return the workload; raise ValueError, naming the value, for what no job, or none of so many ranks, can run."""
    from ringbench.ddp.choices import ENGINES, LIBRARYS_OWN, algorithm_for, can_run, takes_private
    from ringbench.ddp.compress import hook_named
    from ringbench.ddp.costs import costs_of
    from ringbench.ddp.timeline import check_engine, parameters_of
    from ringbench.ddp.workloads import workload_named
    from ringbench.records.straggler import parse_straggler
    from ringbench.runtime.arrays import backend_for
    from ringbench.schedule.registry import RESERVED, algorithm_named

    __import__("ringbench.collectives")
    for engine in settings.engines:
        check_engine(engine)
    for name in settings.algorithms:
        if name not in RESERVED:
            algorithm_named("allreduce", name)
    for name in settings.compress:
        hook = hook_named(name)
        if hook is not None and settings.dtype not in ("float32", "float64"):
            raise ValueError(f"compression {name!r}: not of {settings.dtype}, which is compressed already")
    if settings.straggler is not None:
        for nranks in ranks:
            parse_straggler(settings.straggler).check_ranks(nranks)
    if set(settings.engines) <= {*LIBRARYS_OWN, "none"} < set(ENGINES) and len(settings.algorithms) > 1:
        raise ValueError(f"algorithms {', '.join(settings.algorithms)}: no engine here runs more than MPI's own")
    own = [engine for engine in settings.engines if engine not in (*LIBRARYS_OWN, "none")]
    for name in settings.algorithms:
        if own and not any(can_run(engine, name) for engine in own):
            algorithm_for(own[0], name)  # says why not
        if own and "none" not in settings.compress and not takes_private(name):
            raise ValueError(f"algorithm {name!r}: compressed gradients lie in memory of their own; try shared_copy")
    costs_of(settings)
    workload = workload_named(settings.workload, backward_s=settings.backward_s, batch=settings.batch)
    parameters_of(workload, settings.dtype)
    backend_for(settings.device).check_dtype(settings.dtype)
    return workload


def ddp_job(arguments: argparse.Namespace, settle: Callable[[argparse.Namespace], DdpPlan]) -> int:
    """Measure on the ranks of this job; return the exit status."""
    from ringbench.launch.environment import launched
    from ringbench.launch.process import end_with_parent

    if launched(os.environ):
        end_with_parent()
    settings, problem = None, None
    try:
        settings = settle(arguments).settings
    except (ValueError, OSError) as error:  # of a plan that only some nodes can read, maybe: to be told to the others
        problem = words_of(error)
    comm = world(settings.thread_level) if settings else world()
    rank, nranks = comm.Get_rank(), comm.Get_size()
    problem, workload, ranks = _prepare(comm, arguments, settings, problem)
    if problem is not None:
        if rank == 0:
            say(f"ringbench: {problem}")
        comm.Barrier()
        return 2
    assert settings is not None
    assert workload is not None
    try:
        return _measure(comm, arguments, settings, workload, ranks)
    except CannotWriteError as error:
        abort_job(comm, f"ringbench: {error}")
    except BaseException:  # also SystemExit: a rank that leaves alone would leave the others waiting
        if nranks == 1:
            raise
        abort_job(comm, f"ringbench: rank {rank} of {nranks} failed\n{traceback.format_exc()}")


def _prepare(
    comm: Any, arguments: argparse.Namespace, settings: DdpSettings | None, problem: str | None
) -> tuple[str | None, Workload | None, list[dict[str, Any]]]:
    """Check everything before the first step; return what is wrong, the same on all ranks, the workload, the ranks."""
    from ringbench.launch.hold import hold_for_job
    from ringbench.launch.lab import lab_around
    from ringbench.launch.memory import available_bytes
    from ringbench.launch.sweep import open_run
    from ringbench.runtime.arrays import backend_for
    from ringbench.runtime.devices import bind_devices
    from ringbench.runtime.ranks import gather_ranks

    workload = None
    if settings is not None:
        try:
            workload = check_settings(settings, [comm.Get_size()])
        except (ValueError, OSError) as error:
            problem = words_of(error)
    found = next((text for text in comm.allgather(problem) if text is not None), None)
    if found is not None or settings is None or workload is None:
        return found, None, []
    try:
        ranks = gather_ranks(comm, package_version())
        hosts = ["the lab" if lab_around(os.environ) else rank["host"] for rank in ranks]  # nodes share one memory
        _check_memory(comm, settings, workload, available_bytes(), hosts)
        refused = refuse_run(comm, settings, False)
        if refused is not None:
            return refused, None, []
        arguments.devices = bind_devices(comm, backend_for(settings.device))
    except ValueError as error:
        return str(error), None, []
    if comm.Get_rank() == 0:
        try:
            if arguments.out is not None:
                first = provenance(settings, [comm.Get_size()], arguments=sys.argv[1:], environ=os.environ)
                there = arguments.resume and run_file(arguments.out).exists()
                if there:
                    _check_resumed(run_file(arguments.out), settings)
                arguments.append = run_file(arguments.out) if there else open_run(arguments.out, first)
            if arguments.append is not None:
                hold_for_job(arguments.append, arguments.append_at)  # until this process ends
        except (ValueError, OSError) as error:
            problem = words_of(error)
    return comm.bcast(problem, root=0), workload, ranks


def _check_memory(comm: Any, settings: DdpSettings, workload: Workload, available: int, hosts: Sequence[str]) -> None:
    """Raise ValueError on all ranks where the ranks of some host together need more bytes than it has."""
    from ringbench.ddp.timeline import ITEMSIZE
    from ringbench.launch.memory import check_memory

    need = COPIES * workload.parameters * ITEMSIZE[settings.dtype]
    least = dict(zip(reversed(hosts), reversed(comm.allgather(available)), strict=True))
    for host, free in least.items():
        here = hosts.count(host)
        check_memory(here * need, free, f"workload {workload.name}: {here} rank{'s'[: here > 1]} on {host}")


def _measure(
    comm: Any,
    arguments: argparse.Namespace,
    settings: DdpSettings,
    workload: Workload,
    ranks: list[dict[str, Any]],
) -> int:
    """Measure on all ranks; rank 0 writes rows as they come, and shows them at the end."""
    from ringbench.ddp.measure import keys_of, measure
    from ringbench.runtime.devices import device_warnings
    from ringbench.runtime.node import gather_machines, judge_machines
    from ringbench.runtime.ranks import placement_warnings

    first, nranks = comm.Get_rank() == 0, comm.Get_size()
    placed, lines = placement_warnings(ranks)
    machines = gather_machines(comm, ranks, os.environ)
    spoiled, machine_lines = judge_machines(machines, ranks)
    crowded, device_lines = device_warnings(arguments.devices)
    known: set[tuple[Any, ...]] = set()
    file: Path | None = arguments.append
    if first:
        for text in [*lines, *device_lines, *machine_lines]:
            say(f"ringbench: {nranks} rank{'s'[: nranks > 1]}: {text}")
        if file is not None:
            known = {row.key for row in read_run(file).steps}
            write_record(file, job_record(ranks, machines, devices=arguments.devices))
    known = comm.bcast(known, root=0)
    steps: list[tuple[str, list[list[Event]]]] = []

    def traced(row: DdpRow, events: list[Event]) -> None:
        every = comm.gather(events, root=0)
        if first:
            steps.append((f"{_title(row)}, {nranks} ranks", every))

    rows = []
    total = len(keys_of(settings, workload, nranks).keys() - known)
    problem = None
    try:
        for row in measure(
            comm,
            settings,
            workload,
            wanted=lambda key: key not in known,
            warnings=placed + crowded + spoiled,
            library=ranks[0]["mpi_library"],
            traced=traced if arguments.trace is not None else None,
        ):
            rows.append(row)
            if first:
                if file is not None:
                    write_record(file, row.to_json())
                say(f"[{len(rows)}/{total}] N={nranks} {_title(row)}: {format_seconds(row.step[0])} a step")
    except ValueError as error:  # the same on all ranks: what cannot be run
        problem = str(error)
    if problem is not None:
        if first:
            say(f"ringbench: {problem}")
        comm.Barrier()
        return 2
    if first and arguments.trace is not None:
        from ringbench.report.ddp_trace import render_steps_trace

        arguments.trace.write_text(render_steps_trace(steps), encoding="ascii")
    if first and arguments.out is not None:
        assert file is not None
        write_record(file, {"kind": "end", "status": "complete", "failures": []})
    if first and (file is None or arguments.out is not None):
        print_steps(rows if file is None else read_run(file).steps, settings, arguments.format)
        sys.stdout.flush()
    return 1 if any(row.wrong for row in rows) else 0


def _title(row: DdpRow) -> str:
    packed = "" if row.compress == "none" else f" {row.compress}"
    return f"{row.engine} {row.algorithm}{packed}, buckets {format_size(row.cap_nbytes)}, accumulate {row.accumulate}"

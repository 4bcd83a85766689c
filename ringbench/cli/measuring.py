"""The commands that measure: sweep and run."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ringbench.arguments import UsageError
from ringbench.cli.devices import check_transfers, problem_of_device, refuse_run, refuse_sweep
from ringbench.cli.reporting import write_page_beside
from ringbench.cli.showing import print_table, show_sweep
from ringbench.cli.talk import ERASE, LiveLine, Terminated, ending, heed_signals, live_width, say, words_of, world
from ringbench.records.provenance import now, package_version, provenance
from ringbench.records.row import Row
from ringbench.records.run import Run, append, read_run, rows_of, run_file
from ringbench.records.settings import Settings, SweepPlan, override, plan_from, read_plan
from ringbench.records.units import format_size

if TYPE_CHECKING:
    from ringbench.launch.mpirun import Mpirun
    from ringbench.model.choose import Table


def _settings(arguments: argparse.Namespace, started: Run | None = None) -> SweepPlan:
    """Return what the plan's file (else the run that is gone on with, else the defaults) and the options say."""
    try:
        if arguments.plan:
            plan = read_plan(arguments.plan)
        elif started:
            stored = {name: started.plan.get(name) for name in ("ranks", "launches")}
            plan = plan_from({**_stored_settings(started), **stored})
        else:
            plan = SweepPlan(settings=Settings())
        settings = override(plan.settings, **vars(arguments))
        if arguments.algorithms is None and not plan.names:
            settings = replace(settings, algorithms=_default_algorithms(settings))
        asked = getattr(arguments, "launches", None)
        launches = plan.launches if asked is None else asked
        ranks = getattr(arguments, "ranks", None)
        return SweepPlan(settings=settings, ranks=ranks or plan.ranks, launches=launches)
    except (ValueError, OSError) as error:
        raise UsageError(words_of(error)) from None


def _stored_settings(started: Run) -> dict[str, Any]:
    stored = started.plan.get("settings")
    if not isinstance(stored, dict) or "imported" in started.provenance:
        raise ValueError(f"{started.path}: holds no settings to go on with")
    return stored


def _default_algorithms(settings: Settings) -> tuple[str, ...]:
    """Return what is measured where nothing was said: for a collective without a ring what ``auto`` picks."""
    from ringbench.schedule.registry import algorithms

    __import__("ringbench.collectives")
    known = {algorithm.name for algorithm in algorithms(settings.collective)}
    return ("auto", "mpi") if known and "ring" not in known else settings.algorithms


def sweep_command(arguments: argparse.Namespace) -> int:
    """Start the jobs of a sweep and show what they measured; return the exit status."""
    from ringbench.launch.environment import inside_mpi_job
    from ringbench.launch.hold import sole_writer
    from ringbench.launch.memory import available_bytes
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import default_ranks, open_run, sweep

    inside = inside_mpi_job(os.environ)
    if inside is not None:
        raise UsageError(f"sweep starts MPI jobs itself, but {inside}; use `ringbench run` there")
    folder: Path = arguments.out or Path(datetime.now().strftime("ringbench-%Y%m%d-%H%M%S"))
    if arguments.resume and arguments.out is None:
        raise UsageError("--resume needs --out DIR, the folder of the run to go on with")
    try:
        started = read_run(folder) if arguments.resume and run_file(folder).exists() else None
        plan = _settings(arguments, started)
        ranks = plan.ranks or default_ranks(os.environ)
        memory = _check_before(plan.settings, ranks, available_bytes())
        mpirun = find_mpirun(os.environ, override=arguments.mpirun)
        extra = [*mpi_type_words(mpirun, arguments.mpirun_args), *arguments.mpirun_args]
        if arguments.check:
            words = ["run", "--check", f"--device={plan.settings.device}", f"--staging={plan.settings.staging}"]
            return start_ranks(words, max(ranks), mpirun, extra, arguments.job_limit or CHECK_LIMIT_S)
        if started:
            _check_resumed(started, plan.settings)
        refused = refuse_sweep(plan.settings, max(ranks), mpirun, extra)
        if refused is not None:
            raise ValueError(refused)
        first = provenance(plan.settings, ranks, launches=plan.launches, arguments=sys.argv[1:], environ=os.environ)
        first["launcher"] = {**asdict(mpirun), "arguments": extra}
        file = started.path if started else open_run(folder, first)
        holding = contextlib.ExitStack()
        holding.enter_context(sole_writer(file, {**first, "kind": "resume"} if started else None))
        if started and started.torn:
            say(f"ringbench: {file}: its last line was cut off, and is measured again")
    except (ValueError, LaunchError, OSError) as error:
        raise UsageError(words_of(error)) from None

    heed_signals()
    if not arguments.quiet:
        say(f"ringbench: {memory}")
    width = None if arguments.quiet or mpirun.flavour == "slurm" else live_width()  # srun passes on whole lines alone
    erase = "" if width is None else ERASE
    told = ["--quiet"] if arguments.quiet else [] if width is None else [f"--live={width}"]
    told += [] if plan.settings.device == "cpu" else ["--tried=1"]
    try:
        with holding:
            outcome = sweep(
                plan.settings,
                ranks,
                file,
                launches=plan.launches,
                mpirun=mpirun,
                python=sys.executable,
                environ=os.environ,
                extra=extra,
                stderr=sys.stderr.fileno(),
                time_limit_s=arguments.job_limit,
                report=lambda text: say(f"{erase}ringbench: {text}"),
                told=told,
            )
    except (KeyboardInterrupt, Terminated) as reason:
        say(f"{erase}ringbench: {ending(reason)}; what was measured is in {file} (go on with --resume --out {folder})")
        return 1
    except (ValueError, OSError) as error:
        say(f"ringbench: {words_of(error)}")
        return 1
    run = read_run(file)
    if not run.rows:
        say(f"ringbench: nothing was measured; see above, and {file}")
        return 1
    show_sweep(run, file.parent, arguments.format)
    if arguments.report:
        write_page_beside(run)
    if not any(row.samples_s for row in run.rows):
        say(f"ringbench: nothing was measured: {run.rows[0].reason}")
        return 1
    wrong = [row for row in run.rows if row.wrong]
    return 1 if outcome.failures or wrong or run.status != "complete" else 0


#: A job that has not started by then does not start: most do in a second, and large ones have files to load.
CHECK_LIMIT_S = 60.0


def mpi_type_words(mpirun: Mpirun, extra: Sequence[str]) -> list[str]:
    """Return what srun needs to be told to start ranks of the MPI library here, unless the user tells it."""
    from ringbench.launch.mpirun import ask_mpi_types, mpi_type
    from ringbench.runtime.world import library_version

    if mpirun.flavour != "slurm" or any(word.startswith("--mpi") for word in extra):
        return []
    return [f"--mpi={mpi_type(ask_mpi_types(mpirun, os.environ), library_version())}"]


def start_ranks(words: Sequence[str], nranks: int, mpirun: Mpirun, extra: Sequence[str], limit_s: float) -> int:
    """Run a command of ringbench on some ranks and return 0, 1, or 2 where it says that it cannot be carried out."""
    from ringbench.launch.sweep import SAFE_PATH, run_on_ranks

    program = [sys.executable, *SAFE_PATH, "-m", "ringbench", *words]
    heed_signals()
    try:
        done = run_on_ranks(nranks, program, mpirun, os.environ, extra, limit_s)
    except Terminated:
        say("ringbench: terminated")
        return 1
    if done.timed_out:
        say(f"ringbench: {nranks} ranks: {mpirun.path} came to no end in {limit_s:g} s")
        return 1
    return done.returncode if done.returncode in (0, 2) else 1


def _check_resumed(started: Run, settings: Settings) -> None:
    """Raise ValueError where rows to come would be measured in another way than those already there."""
    before, asked = {**Settings().to_json(), **_stored_settings(started)}, settings.to_json()
    for name in (
        "segment",
        "thread_level",
        "root",
        "chunks",
        "groups",
        "outer",
        "inner",
        "choose_from",
        "limit",
        "order",
        "sync",
        "buffers",
        "straggler",
        "memory",
        "staging",
    ):
        if before[name] != asked[name]:
            raise ValueError(f"{started.path}: was measured with {name} {before[name]}, not {asked[name]}")
    libraries = [str(job["mpi_library"]) for job in started.jobs if "mpi_library" in job]
    if libraries:
        from ringbench.runtime.world import first_line, library_version

        library = first_line(library_version())
        for other in libraries:
            if other != library:  # rows of one run are compared with each other
                raise ValueError(f"{started.path}: was measured with {other}; the MPI library here is {library}")


def _check_before(settings: Settings, ranks: Sequence[int], available: int) -> str:
    """Return a line on the memory needed.

    Raises ValueError for what cannot be measured on this node, or on the nodes of an allocation.
    """
    from ringbench.launch.environment import node_count
    from ringbench.launch.lab import lab_around
    from ringbench.launch.memory import check_memory
    from ringbench.runtime.demands import check_schedules, check_settings, memory_needed

    check_settings(settings)
    _choices(settings)
    for nranks in ranks:
        check_schedules(settings, nranks)
    problem = problem_of_device(settings)
    if problem is not None:
        raise ValueError(problem)
    # The nodes of a lab share one memory.
    nodes, most = node_count(os.environ) if lab_around(os.environ) is None else 1, (0, "")
    for nranks in ranks:
        need, nbytes = memory_needed(settings, nranks)
        here = -(-nranks // nodes)
        what = f"size {format_size(nbytes)}: {here} rank{'s'[: here > 1]} with {','.join(settings.algorithms)}"
        check_memory(here * need, available, what)
        most = max(most, (here * need, what))
    return f"memory: at most {most[0] / 2**20:.1f} MiB, for {most[1]}; {available / 2**20:.0f} MiB are free"


def run_command(arguments: argparse.Namespace) -> int:
    """Measure on the ranks of this job; return the exit status."""
    from ringbench.launch.environment import launched
    from ringbench.launch.process import end_with_parent

    if launched(os.environ):
        end_with_parent()
    settings, problem = None, None
    try:
        settings = _settings(arguments).settings
    except UsageError as error:  # of a plan that only some nodes can read, maybe: to be told to the others
        problem = str(error)
    comm = world(settings.thread_level) if settings else world()
    rank, nranks = comm.Get_rank(), comm.Get_size()
    ranks: list[dict[str, Any]] = []
    if not arguments.check:
        problem, ranks = _prepare(comm, arguments, settings, problem)
        if problem is not None:
            return _refused(comm, problem)
    try:
        if arguments.check:
            return _check_ranks(comm, settings or Settings())
        assert settings is not None
        return _measure(comm, arguments, settings, ranks)
    except CannotWriteError as error:
        abort_job(comm, f"ringbench: {error}")
    except BaseException:  # also SystemExit: a rank that leaves alone would leave the others waiting
        if nranks == 1:
            raise
        abort_job(comm, f"ringbench: rank {rank} of {nranks} failed\n{traceback.format_exc()}")


def _check_ranks(comm: Any, settings: Settings) -> int:
    """Say which ranks on which hosts make up the job, on which devices; the world's size was held against it before."""
    from ringbench.runtime.ranks import gather_ranks, hosts_line

    try:
        line = hosts_line(gather_ranks(comm, package_version()))
        if comm.Get_rank() == 0:
            print(line, flush=True)
        if settings.device != "cpu":
            check_transfers(comm, settings)
    except ValueError as error:  # the same on all ranks
        return _refused(comm, str(error))
    comm.Barrier()  # or a launcher might end rank 0, at the first exit, before it has spoken
    return 0


def _refused(comm: Any, problem: str) -> int:
    """Say once what is wrong, the same on all ranks; return the exit status. Collective."""
    if comm.Get_rank() == 0:
        say(f"ringbench: {problem}")
    comm.Barrier()
    return 2


def abort_job(comm: Any, text: str) -> NoReturn:
    """Say why, and end all ranks."""
    say(text)
    time.sleep(0.5)  # MPICH's launcher does not pass on what it has not read when it learns of the end
    comm.Abort(1)
    os._exit(1)  # MPICH's Abort may come back before the launcher ends this rank: no second traceback


class CannotWriteError(Exception):
    """Report a row that the disk does not take."""


def write_record(file: Path, record: dict[str, Any]) -> None:
    """Append a record to a run's file; raise CannotWriteError where the disk does not take it."""
    try:
        append(file, record)
    except OSError as error:
        raise CannotWriteError(f"{file}: {error.strerror or error}") from None


def _prepare(
    comm: Any, arguments: argparse.Namespace, settings: Settings | None, problem: str | None
) -> tuple[str | None, list[dict[str, Any]]]:
    """Check everything before the first measurement; return what is wrong, the same on all ranks, and the ranks."""
    from ringbench.launch.hold import hold_for_job
    from ringbench.launch.lab import lab_around
    from ringbench.launch.memory import available_bytes
    from ringbench.launch.sweep import open_run
    from ringbench.runtime.arrays import backend_for
    from ringbench.runtime.demands import check_schedules, check_settings
    from ringbench.runtime.devices import bind_devices
    from ringbench.runtime.ranks import gather_ranks
    from ringbench.runtime.worker import check_memory

    if settings is not None:
        try:
            check_settings(settings)
            problem = problem or problem_of_device(settings)
            check_schedules(settings, comm.Get_size())
        except (ValueError, OSError) as error:
            problem = str(error)
    try:
        arguments.choices = _choices(settings) if settings is not None and comm.Get_rank() == 0 else None
    except (ValueError, OSError) as error:
        problem = problem or str(error)
    found = next((text for text in comm.allgather(problem) if text is not None), None)
    if found is not None or settings is None:
        return found, []
    arguments.choices = comm.bcast(arguments.choices, root=0)
    try:
        ranks = gather_ranks(comm, package_version())
        lab = lab_around(os.environ)  # whose nodes share one memory
        check_memory(comm, settings, available_bytes(), ["the lab" if lab else rank["host"] for rank in ranks])
        found = refuse_run(comm, settings, bool(arguments.tried))
        if found is not None:
            return found, []
        arguments.devices = bind_devices(comm, backend_for(settings.device))
    except ValueError as error:
        return str(error), []
    if comm.Get_rank() == 0:
        try:
            if arguments.out is not None:
                first = provenance(settings, [comm.Get_size()], arguments=sys.argv[1:], environ=os.environ)
                arguments.append = open_run(arguments.out, first)
            if arguments.append is not None:
                hold_for_job(arguments.append, arguments.append_at)  # until this process ends
        except (ValueError, OSError) as error:
            problem = words_of(error)
    return comm.bcast(problem, root=0), ranks


def job_record(
    ranks: Sequence[dict[str, Any]], machines: Sequence[Any], launch: int = 0, devices: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return what a run's file says of a job: who took part, where, with which library, on which devices if on any."""
    from ringbench.runtime.thresholds import cache_sizes, eager_limits
    from ringbench.runtime.timing import clock_tick
    from ringbench.runtime.world import thread_level

    return {
        "kind": "job",
        "launch": launch,
        "nranks": len(ranks),
        "time": now(),
        "mpi_library": ranks[0]["mpi_library"],
        "thread_level": thread_level(),
        "hosts": [rank["host"] for rank in ranks],
        "clock_tick_s": clock_tick(),
        "ranks": list(ranks),
        "machines": [asdict(machine) for machine in machines],
        "eager_nbytes": eager_limits(),
        "cache_nbytes": cache_sizes(),
        **({"devices": list(devices)} if devices else {}),
    }


def _choices(settings: Settings) -> Table | None:
    """Return what the run to choose by says of the collective; raise ValueError where it says nothing."""
    from ringbench.model.choose import fastest

    if settings.choose_from is None:
        return None
    try:
        rows = [row for row in read_run(settings.choose_from).rows if row.memory in ("private", settings.memory)]
        table = fastest(rows, dtype=settings.dtype, op=settings.op, device=settings.device)
    except OSError as error:
        raise ValueError(f"choose from {settings.choose_from}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"choose from {settings.choose_from}: {error}") from None
    if settings.collective not in table:
        raise ValueError(f"choose from {settings.choose_from}: no row of {settings.collective} there")
    return table


def _measure(comm: Any, arguments: argparse.Namespace, settings: Settings, ranks: list[dict[str, Any]]) -> int:
    """Measure on all ranks; rank 0 writes rows as they come, and shows them at the end."""
    from ringbench.model.choose import choose_by
    from ringbench.records.need import needs
    from ringbench.report.progress import Progress
    from ringbench.runtime.choices import choose_by_rule
    from ringbench.runtime.devices import device_warnings
    from ringbench.runtime.node import gather_machines, judge_machines
    from ringbench.runtime.ranks import other_hosts, placement_warnings, ring_edges_line
    from ringbench.runtime.sync import alignment
    from ringbench.runtime.worker import measure

    first = comm.Get_rank() == 0
    placed, lines = placement_warnings(ranks)
    machines = gather_machines(comm, ranks, os.environ)
    spoiled, machine_lines = judge_machines(machines, ranks)
    crowded, device_lines = device_warnings(arguments.devices)
    warnings = placed + crowded + spoiled
    file: Path | None = arguments.append
    known: set[tuple[Any, ...]] = set()
    seen: dict[tuple[int, bool], float] = {}
    aligned = alignment(comm, settings.sync)
    clocks = aligned.describe()
    if first:
        for line in [*lines, *device_lines, *machine_lines, *filter(None, [ring_edges_line(ranks)])]:
            say(f"ringbench: {comm.Get_size()} rank{'s'[: comm.Get_size() > 1]}: {line}")
        if comm.Get_size() == 1 and file is None:
            say("ringbench: one rank alone; start it with mpirun -n 4 or srun -n 4 for more")
        if file is not None:
            before = read_run(file)
            known = {row.key for row in before.rows if not row.missed}
            alike = rows_of(before.rows, settings, comm.Get_size())
            seen = needs(alike, settings.precision, settings.max_samples)
            elsewhere = other_hosts(before.jobs, [rank["host"] for rank in ranks])
            if elsewhere is not None:
                say(f"ringbench: {comm.Get_size()} rank{'s'[: comm.Get_size() > 1]}: {elsewhere}")
            job = job_record(ranks, machines, arguments.launch or 0, arguments.devices)
            write_record(file, {**job, "clocks": clocks})
    rows: list[Row] = []
    live = LiveLine((arguments.live or live_width()) if first and not arguments.quiet else None)
    progress = Progress(
        done=arguments.cases_before or 0,
        total=arguments.cases_total or len(settings.sizes) * len(settings.algorithms) * len(settings.placements),
        end=time.monotonic() + settings.time_budget_s,
        after=arguments.budget_after or 0.0,
    )
    choose = choose_by_rule if arguments.choices is None else choose_by(arguments.choices)
    launch, seen = arguments.launch or 0, comm.bcast(seen, root=0)
    live.show(progress.current(settings, comm.Get_size(), 0))
    for row in measure(comm, settings, launch=launch, warnings=warnings, choose=choose, aligned=aligned, known=seen):
        rows.append(row)
        if first and row.key not in known:
            if file is not None:
                write_record(file, row.to_json())
            line = progress.line(row)
            if live.width is None and not arguments.quiet:
                say(line)
            elif live.width is not None and row.wrong:  # to be seen, and to stay
                live.show("")
                say(line)
        live.show(progress.current(settings, comm.Get_size(), len(rows)))
    if first and arguments.out is not None:
        assert file is not None
        write_record(file, {"kind": "end", "status": "complete", "failures": []})
    if first and (arguments.append is None or arguments.out is not None):
        print_table(rows, arguments.format)
        sys.stdout.flush()
    of_sweep = arguments.append is not None and arguments.out is None  # whose other jobs may well have measured
    nothing = not of_sweep and not any(row.samples_s for row in rows)
    if first and nothing:
        say(f"ringbench: nothing was measured: {rows[0].reason}")
    return 1 if any(row.wrong for row in rows) or nothing else 0

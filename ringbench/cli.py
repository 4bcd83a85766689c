"""The command line: the only module that prints or exits."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from ringbench.arguments import UsageError, make_parser
from ringbench.records.provenance import now, package_version, provenance
from ringbench.records.row import Row
from ringbench.records.run import Run, append, read_run, run_file
from ringbench.records.settings import Settings, SweepPlan, override, plan_from, read_plan
from ringbench.records.units import format_size

if TYPE_CHECKING:
    from ringbench.model.choose import Table
    from ringbench.model.fit import FitResult


def say(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit status."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (closed by the caller, as with >&-)
    try:
        arguments = make_parser(package_version()).parse_args(argv)
        status = COMMANDS[arguments.command](arguments)
        sys.stdout.flush()
    except UsageError as error:
        _say_once(f"ringbench: {error}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        with contextlib.suppress(OSError):
            say(f"ringbench: {error}")
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what could not be written must not fail once more at exit
        return 1
    except (KeyboardInterrupt, _Terminated) as reason:
        say(f"ringbench: {_word(reason)}")
        return 130 if isinstance(reason, KeyboardInterrupt) else 1
    return status


def console() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(main())


def _say_once(text: str) -> None:
    """Say a line once for a whole MPI job: on rank 0, or where there is no common world, by the first on its node."""
    from ringbench.launch.environment import launched

    job = launched(os.environ)
    if job is None or job.size == 1:
        say(text)
        return
    with contextlib.suppress(Exception):
        comm = _world()
        if comm.Get_size() > 1:
            if comm.Get_rank() == 0:
                say(text)
            comm.Barrier()  # or a launcher might end rank 0, at the first exit, before it has spoken
            return
    marker = Path(tempfile.gettempdir()) / f"ringbench-{os.getuid()}-{os.getppid()}"
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    except OSError:
        say(text)
        return
    try:
        say(text)
        time.sleep(1.0)
    finally:
        marker.unlink(missing_ok=True)


# Measuring.


def _world(thread_level: str = "multiple") -> Any:
    """Return COMM_WORLD; raise UsageError where MPI cannot be loaded or is not that of the launcher."""
    from ringbench.launch.environment import check_library, check_world
    from ringbench.runtime.world import library_version, start

    try:
        problem = check_library(os.environ, library_version())
    except ValueError as error:
        raise UsageError(str(error)) from None
    if problem is None:
        comm = start(thread_level)
        problem = check_world(os.environ, comm.Get_size())
    if problem is not None:
        raise UsageError(problem)
    return comm


def _settings(arguments: argparse.Namespace, started: Run | None = None) -> SweepPlan:
    """Return what the plan's file (else the run that is gone on with, else the defaults) and the options say."""
    try:
        if arguments.plan:
            plan = read_plan(arguments.plan)
        elif started:
            stored = started.provenance.get("settings")
            if not isinstance(stored, dict):
                raise ValueError(f"{started.path}: its first line holds no settings to go on with")
            plan = plan_from({**stored, **{name: started.provenance.get(name) for name in ("ranks", "launches")}})
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
        raise UsageError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Return what an error says, for a file its name first."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _default_algorithms(settings: Settings) -> tuple[str, ...]:
    """Return what is measured where nothing was said: for a collective without a ring what ``auto`` picks."""
    from ringbench.schedule.registry import algorithms

    __import__("ringbench.collectives")
    known = {algorithm.name for algorithm in algorithms(settings.collective)}
    return ("auto", "mpi") if known and "ring" not in known else settings.algorithms


class _Terminated(BaseException):
    """Report SIGTERM, as Slurm sends it before it ends a job, or SIGHUP, as a terminal does that is closed."""


def _word(reason: BaseException) -> str:
    return "interrupted" if isinstance(reason, KeyboardInterrupt) else "terminated"


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _sweep(arguments: argparse.Namespace) -> int:
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
        if started:
            _check_resumed(started, plan.settings)
        first = provenance(plan.settings, ranks, launches=plan.launches, arguments=sys.argv[1:], environ=os.environ)
        file = started.path if started else open_run(folder, first)
        holding = contextlib.ExitStack()
        holding.enter_context(sole_writer(file, {**first, "kind": "resume"} if started else None))
        if started and started.torn:
            say(f"ringbench: {file}: its last line was cut off, and is measured again")
    except (ValueError, LaunchError, OSError) as error:
        raise UsageError(_reason(error)) from None

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, _raise_terminated)
    say(f"ringbench: {memory}")
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
                extra=arguments.mpirun_args,
                stderr=sys.stderr.fileno(),
                time_limit_s=arguments.job_limit,
                report=lambda text: say(f"ringbench: {text}"),
            )
    except (KeyboardInterrupt, _Terminated) as reason:
        say(f"ringbench: {_word(reason)}; what was measured is in {file} (go on with --resume --out {folder})")
        return 1
    except (ValueError, OSError) as error:
        say(f"ringbench: {_reason(error)}")
        return 1
    run = read_run(file)
    if not run.rows:
        say(f"ringbench: nothing was measured; see above, and {file}")
        return 1
    _show_sweep(run, file.parent, arguments.format)
    if not any(row.samples_s for row in run.rows):
        say(f"ringbench: nothing was measured: {run.rows[0].reason}")
        return 1
    wrong = [row for row in run.rows if row.wrong]
    return 1 if outcome.failures or wrong or run.status != "complete" else 0


def _check_resumed(started: Run, settings: Settings) -> None:
    """Raise ValueError where rows to come would be measured in another way than those already there."""
    before, asked = started.provenance["settings"], settings.to_json()
    for name in (
        "segment",
        "thread_level",
        "root",
        "chunks",
        "groups",
        "outer",
        "choose_from",
        "limit",
        "order",
        "sync",
        "buffers",
    ):
        if name in before and before[name] != asked[name]:
            raise ValueError(f"{started.path}: was measured with {name} {before[name]}, not {asked[name]}")
    libraries = [str(job["mpi_library"]) for job in started.jobs if "mpi_library" in job]
    if libraries:
        from ringbench.runtime.world import library_name, library_version

        library = library_name(library_version())
        for other in libraries:
            if other != library:  # rows of one run are compared with each other
                raise ValueError(f"{started.path}: was measured with {other}; the MPI library here is {library}")


def _check_before(settings: Settings, ranks: Sequence[int], available: int) -> str:
    """Return a line on the memory needed.

    Raises ValueError for what cannot be measured on this node, or on the nodes of an allocation.
    """
    from ringbench.launch.environment import node_count
    from ringbench.launch.memory import check_memory
    from ringbench.runtime.arrays import backend_for
    from ringbench.runtime.demands import check_schedules, check_settings, memory_needed

    check_settings(settings)
    _choices(settings)
    for nranks in ranks:
        check_schedules(settings, nranks)
    if settings.device != "cpu":
        backend_for(settings.device).empty(1, settings.dtype)
    nodes, most = node_count(os.environ), (0, "")
    for nranks in ranks:
        need, nbytes = memory_needed(settings, nranks)
        here = -(-nranks // nodes)
        what = f"size {format_size(nbytes)}: {here} rank{'s'[: here > 1]} with {','.join(settings.algorithms)}"
        check_memory(here * need, available, what)
        most = max(most, (here * need, what))
    return f"memory: at most {most[0] / 2**20:.1f} MiB, for {most[1]}; {available / 2**20:.0f} MiB are free"


def _run(arguments: argparse.Namespace) -> int:
    from ringbench.launch.environment import launched
    from ringbench.launch.process import end_with_parent

    if launched(os.environ):
        end_with_parent()
    settings, problem = None, None
    try:
        settings = _settings(arguments).settings
    except UsageError as error:  # of a plan that only some nodes can read, maybe: to be told to the others
        problem = str(error)
    comm = _world(settings.thread_level) if settings else _world()
    rank, nranks = comm.Get_rank(), comm.Get_size()
    problem, ranks = _prepare(comm, arguments, settings, problem)
    if problem is not None:
        if rank == 0:
            say(f"ringbench: {problem}")
        comm.Barrier()
        return 2
    assert settings is not None
    try:
        return _measure(comm, arguments, settings, ranks)
    except _CannotWriteError as error:
        _abort(comm, f"ringbench: {error}")
    except BaseException:  # also SystemExit: a rank that leaves alone would leave the others waiting
        if nranks == 1:
            raise
        _abort(comm, f"ringbench: rank {rank} of {nranks} failed\n{traceback.format_exc()}")


def _abort(comm: Any, text: str) -> NoReturn:
    """Say why, and end all ranks."""
    say(text)
    time.sleep(0.5)  # MPICH's launcher does not pass on what it has not read when it learns of the end
    comm.Abort(1)
    os._exit(1)  # MPICH's Abort may come back before the launcher ends this rank: no second traceback


class _CannotWriteError(Exception):
    """Report a row that the disk does not take."""


def _write(file: Path, record: dict[str, Any]) -> None:
    try:
        append(file, record)
    except OSError as error:
        raise _CannotWriteError(f"{file}: {error.strerror or error}") from None


def _prepare(
    comm: Any, arguments: argparse.Namespace, settings: Settings | None, problem: str | None
) -> tuple[str | None, list[dict[str, Any]]]:
    """Check everything before the first measurement; return what is wrong, the same on all ranks, and the ranks."""
    from ringbench.launch.hold import hold_for_job
    from ringbench.launch.memory import available_bytes
    from ringbench.launch.sweep import open_run
    from ringbench.runtime.arrays import backend_for
    from ringbench.runtime.demands import check_schedules, check_settings
    from ringbench.runtime.ranks import gather_ranks
    from ringbench.runtime.worker import check_memory

    if settings is not None:
        try:
            check_settings(settings)
            backend_for(settings.device).empty(1, settings.dtype)
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
        check_memory(comm, settings, available_bytes(), [rank["host"] for rank in ranks])
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
            problem = _reason(error)
    return comm.bcast(problem, root=0), ranks


def _choices(settings: Settings) -> Table | None:
    """Return what the run to choose by says of the collective; raise ValueError where it says nothing."""
    from ringbench.model.choose import fastest

    if settings.choose_from is None:
        return None
    try:
        table = fastest(
            read_run(settings.choose_from).rows, dtype=settings.dtype, op=settings.op, device=settings.device
        )
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
    from ringbench.runtime.node import gather_machines, judge_machines
    from ringbench.runtime.ranks import other_hosts, placement_warnings, ring_edges_line
    from ringbench.runtime.sync import alignment
    from ringbench.runtime.thresholds import cache_sizes, eager_limits
    from ringbench.runtime.timing import clock_tick
    from ringbench.runtime.worker import measure
    from ringbench.runtime.world import thread_level

    first = comm.Get_rank() == 0
    placed, lines = placement_warnings(ranks)
    machines = gather_machines(comm, ranks, os.environ)
    spoiled, machine_lines = judge_machines(machines, ranks)
    warnings = placed + spoiled
    file: Path | None = arguments.append
    known: set[tuple[Any, ...]] = set()
    seen: dict[tuple[int, bool], float] = {}
    aligned = alignment(comm, settings.sync)
    clocks = aligned.describe()
    if first:
        for line in [*lines, *machine_lines, *filter(None, [ring_edges_line(ranks)])]:
            say(f"ringbench: {comm.Get_size()} rank{'s'[: comm.Get_size() > 1]}: {line}")
        if comm.Get_size() == 1 and file is None:
            say("ringbench: one rank alone; start it with mpirun -n 4 or srun -n 4 for more")
        if file is not None:
            before = read_run(file)
            known = {row.key for row in before.rows}
            alike = [row for row in before.rows if row.nranks == comm.Get_size()]
            seen = needs(alike, settings.precision, settings.max_samples)
            elsewhere = other_hosts(before.jobs, [rank["host"] for rank in ranks])
            if elsewhere is not None:
                say(f"ringbench: {comm.Get_size()} rank{'s'[: comm.Get_size() > 1]}: {elsewhere}")
            job = {
                "kind": "job",
                "launch": arguments.launch or 0,
                "nranks": comm.Get_size(),
                "time": now(),
                "mpi_library": ranks[0]["mpi_library"],
                "thread_level": thread_level(),
                "hosts": [rank["host"] for rank in ranks],
                "clock_tick_s": clock_tick(),
                "clocks": clocks,
                "eager_nbytes": eager_limits(),
                "cache_nbytes": cache_sizes(),
                "ranks": ranks,
                "machines": [asdict(machine) for machine in machines],
            }
            _write(file, job)
    rows: list[Row] = []
    progress = Progress(
        done=arguments.cases_before or 0,
        total=arguments.cases_total or len(settings.sizes) * len(settings.algorithms) * len(settings.placements),
        end=time.monotonic() + settings.time_budget_s,
        after=arguments.budget_after or 0.0,
    )
    choose = choose_by_rule if arguments.choices is None else choose_by(arguments.choices)
    launch, seen = arguments.launch or 0, comm.bcast(seen, root=0)
    for row in measure(comm, settings, launch=launch, warnings=warnings, choose=choose, ranks=aligned, known=seen):
        rows.append(row)
        if first and row.key not in known:
            if file is not None:
                _write(file, row.to_json())
            say(progress.line(row))
    if first and arguments.out is not None:
        assert file is not None
        _write(file, {"kind": "end", "status": "complete", "failures": []})
    if first and (arguments.append is None or arguments.out is not None):
        _print_table(rows, arguments.format)
        sys.stdout.flush()
    of_sweep = arguments.append is not None and arguments.out is None  # whose other jobs may well have measured
    nothing = not of_sweep and not any(row.samples_s for row in rows)
    if first and nothing:
        say(f"ringbench: nothing was measured: {rows[0].reason}")
    return 1 if any(row.wrong for row in rows) or nothing else 0


# Showing.


def _read_runs(paths: Sequence[str]) -> list[Run]:
    runs = []
    for path in paths:
        try:
            run = read_run(path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from None
        except ValueError as error:
            raise _WrongDataError(str(error)) from None
        if run.torn:
            say(f"ringbench: {run.path}: its last line is cut off and left out")
        if run.repeated:
            say(f"ringbench: {run.path}: {run.repeated} rows repeat earlier ones and are left out")
        if run.status != "complete":
            say(f"ringbench: {run.path}: the run is {run.status}")
        runs.append(run)
    return runs


class _WrongDataError(Exception):
    """Report a file that is not what it should be: one line, exit status 1."""


def _showing(show: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        try:
            return show(arguments)
        except (_WrongDataError, ValueError) as error:
            say(f"ringbench: {error}")
            return 1

    return run


def _print_table(rows: Sequence[Row], format: str) -> None:
    from ringbench.model.pool import table_cells
    from ringbench.report.tables import render

    sys.stdout.write(render(table_cells(rows), "table", format))


@_showing
def _table(arguments: argparse.Namespace) -> int:
    rows = [row for run in _read_runs(arguments.runs) for row in run.rows]
    _print_table(rows, arguments.format)
    return 0


@_showing
def _compare(arguments: argparse.Namespace) -> int:
    from ringbench.model.compare import ENOUGH_LAUNCHES, compare_rows, compare_runs, took_turns
    from ringbench.report.tables import render

    if len(arguments.runs) > 2:
        raise UsageError(f"{len(arguments.runs)} runs: compare takes one or two")
    runs = _read_runs(arguments.runs)
    if len(runs) == 2:
        found = compare_runs(runs[0], runs[1], force=arguments.force, threshold=arguments.threshold)
        if (fewest := min(row.launches for row in found)) < ENOUGH_LAUNCHES:
            launches = f"{fewest} launch{'es'[: 2 * (fewest > 1)]}"
            say(f"ringbench: {launches} of some cell: {ENOUGH_LAUNCHES} of both runs can tell them apart (--launches)")
    else:
        found = compare_rows(
            runs[0].rows,
            arguments.algorithm,
            arguments.baseline,
            arguments.threshold,
            interleaved=took_turns(runs[0]),
        )
    sys.stdout.write(render([row.to_json() for row in found], "compare", arguments.format))
    slower = [row for row in found if row.verdict == "slower"]
    if slower and arguments.fail_if_slower:
        cells = ", ".join(f"{row.algorithm} {format_size(row.nbytes)} N={row.nranks}" for row in slower[:4])
        more = f" and {len(slower) - 4} more" if len(slower) > 4 else ""
        say(f"ringbench: slower at {len(slower)} of {len(found)} cells: {cells}{more}")
        return 1
    return 0


def _fitted(arguments: argparse.Namespace) -> FitResult:
    from ringbench.model.causes import facts_of
    from ringbench.model.fit import fit_rows

    runs = _read_runs(arguments.runs)
    rows = [row for run in runs for row in run.rows]
    if arguments.command == "fit" and arguments.algorithms:
        rows = [row for row in rows if row.algorithm in arguments.algorithms]
    result = fit_rows(
        rows,
        include_oversubscribed=arguments.include_oversubscribed,
        assume=arguments.assume,
        resamples=arguments.resamples,
        facts=facts_of([job for run in runs for job in run.jobs]),
    )
    for note in result.notes:
        say(f"ringbench: {note}")
    return result


@_showing
def _fit(arguments: argparse.Namespace) -> int:
    from ringbench.model.explain import explain
    from ringbench.report.tables import render

    result = _fitted(arguments)
    rows = [fit.to_json() for fit in result.segments]
    sys.stdout.write(render(rows, "fit", arguments.format, explain(result)))
    return 0


@_showing
def _predict(arguments: argparse.Namespace) -> int:
    from ringbench.model.links import Link, predict_links
    from ringbench.model.predict import predict_run
    from ringbench.report.tables import render

    bare = {name: getattr(arguments, name) for name in ("alpha", "beta", "gamma", "inner", "outer", "ranks_per_node")}
    given = [f"--{name.replace('_', '-')}" for name, value in bare.items() if value is not None]
    if arguments.runs and (given or arguments.collective):
        raise UsageError(f"{[*given, '--collective'][0]} goes without a run: a run's links are fitted")
    if arguments.runs:
        found, notes = predict_run(_fitted(arguments), arguments.ranks, arguments.sizes, arguments.algorithms)
    else:
        two = (arguments.inner, arguments.outer, arguments.ranks_per_node)
        one = (arguments.alpha, arguments.beta)
        if (None in one) == (None in two) or any(value is not None for value in (one if None not in two else two)):
            raise UsageError("predict needs a RUN, or --alpha and --beta, or --inner, --outer and --ranks-per-node")
        links = [Link(alpha_s=alpha, beta_s_per_byte=beta) for alpha, beta in ([one] if None in two else two[:2])]
        try:
            found, notes = predict_links(
                links[0],
                arguments.ranks,
                arguments.sizes,
                gamma_s_per_byte=arguments.gamma or 0.0,
                outer=links[1] if len(links) > 1 else None,
                ranks_per_node=arguments.ranks_per_node,
                collective=arguments.collective or "allreduce",
                names=arguments.algorithms,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
    for note in notes:
        say(f"ringbench: not predicted: {note}")
    sys.stdout.write(render([one.to_json() for one in found], "predict", arguments.format))
    return 0


def _show_sweep(run: Run, folder: Path, format: str) -> None:
    """Print table, fit and comparison, and write them beside the run as Markdown."""
    from ringbench.model.causes import facts_of
    from ringbench.model.compare import compare_rows, took_turns
    from ringbench.model.explain import explain
    from ringbench.model.fit import fit_rows
    from ringbench.model.pool import table_cells
    from ringbench.report.summary import summary
    from ringbench.report.tables import render

    cells = table_cells(run.rows)
    sections: list[tuple[str, str, list[dict[str, Any]]]] = [("Bandwidth", "table", cells)]
    words: list[str] = []
    try:
        result = fit_rows(run.rows, facts=facts_of(run.jobs))
        words = explain(result)
        sections.append(("Latency and bandwidth fitted", "fit", [fit.to_json() for fit in result.segments]))
        notes = result.notes
    except ValueError as error:
        notes = [f"no fit: {error}"]
    names = dict.fromkeys(row.algorithm for row in run.rows)
    ours = "ring" if "ring" in names else next((name for name in names if name != "mpi"), "ring")
    try:
        compared = [row.to_json() for row in compare_rows(run.rows, ours, interleaved=took_turns(run))]
        sections.append((f"{ours} against the library".capitalize(), "compare", compared))
    except ValueError as error:
        notes = [*notes, f"no comparison: {error}"]

    def shown(rows: Sequence[dict[str, Any]], kind: str, format: str) -> str:
        return render(rows, kind, format, words if kind == "fit" else ())

    for title, kind, rows in sections:
        try:
            (folder / f"{kind}.md").write_text(f"# {title}\n\n{shown(rows, kind, 'markdown')}", encoding="ascii")
        except OSError as error:
            notes = [*notes, f"{kind}.md is not written: {error}"]
        if format in ("text", "markdown"):
            heading = f"# {title}" if format == "markdown" else f"{title}\n{'=' * len(title)}"
            sys.stdout.write(f"{heading}\n\n{shown(rows, kind, format)}\n")
    if format in ("csv", "json"):
        _print_table(run.rows, format)
    else:
        heading = "# In short" if format == "markdown" else "In short\n========"
        bullet = "- " if format == "markdown" else ""
        lines = summary(cells).splitlines()
        sys.stdout.write(f"{heading}\n\n" + "".join(f"{bullet}{line}\n" for line in lines))
    sys.stdout.flush()
    for note in notes:
        say(f"ringbench: {note}")
    tables = ", ".join(f"{kind}.md" for _, kind, _ in sections)
    say(f"ringbench: every sample is in {run.path}, the tables beside it in {tables}")


# Schedules.


#: Rank counts up to which `verify` also counts rounds and bytes.
FORMULA_LIMIT = 16


def _verify(arguments: argparse.Namespace) -> int:
    if arguments.mutants:
        return _mutants(arguments)
    for name in ("ranks", "mpirun", "mpirun_args", "format"):
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} goes with --mutants: a proof starts no job")
    return _prove(arguments)


def _mutants(arguments: argparse.Namespace) -> int:
    """Run broken collectives in MPI jobs, or as one of those jobs."""
    from ringbench.launch.environment import inside_mpi_job
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.process import LaunchError
    from ringbench.launch.selftest import run_mutants
    from ringbench.report.mutants import all_caught, render_mutants
    from ringbench.schedule.semantics import collective_named

    if arguments.append is not None:
        return _try_mutants(arguments)
    try:
        if arguments.max_ranks is not None or arguments.algorithms is not None:
            raise ValueError("--mutants breaks algorithms of its own choice: neither --max-ranks nor --algorithms")
        if arguments.collective is not None:
            collective_named(arguments.collective)
        ranks = arguments.ranks or (2, 3, 4)
        if 1 in ranks:
            raise ValueError("--ranks 1: a rank alone does nothing that could be broken")
        inside = inside_mpi_job(os.environ)
        if inside is not None:
            raise ValueError(f"verify --mutants starts MPI jobs itself, but {inside}; start it outside")
        mpirun = find_mpirun(os.environ, override=arguments.mpirun)
    except (ValueError, LaunchError) as error:
        raise UsageError(str(error)) from None
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        cells, failures = run_mutants(
            ranks,
            collective=arguments.collective,
            mpirun=mpirun,
            python=sys.executable,
            environ=os.environ,
            extra=arguments.mpirun_args,
            stderr=sys.stderr.fileno(),
            report=lambda text: say(f"ringbench: {text}"),
        )
    except _Terminated:
        say("ringbench: terminated")
        return 1
    sys.stdout.write(render_mutants(cells, arguments.format or "text"))
    return 0 if all_caught(cells) and not failures else 1


def _try_mutants(arguments: argparse.Namespace) -> int:
    from ringbench.runtime.mutants import try_mutants

    comm = _world()
    try:
        cells = list(try_mutants(comm, arguments.collective))
        if comm.Get_rank() == 0:
            _write(arguments.append, {"cells": cells})
    except BaseException:
        _abort(comm, f"ringbench: rank {comm.Get_rank()} of {comm.Get_size()} failed\n{traceback.format_exc()}")
    return 0


def _prove(arguments: argparse.Namespace) -> int:
    from ringbench.schedule.cost import check_formulas
    from ringbench.schedule.registry import algorithm_named, algorithms
    from ringbench.schedule.semantics import collective_named
    from ringbench.schedule.verify import verify

    __import__("ringbench.collectives")
    try:
        if arguments.collective is not None:
            collective_named(arguments.collective)
        chosen = algorithms(arguments.collective)
        if arguments.algorithms:
            for name in arguments.algorithms:
                if name == "mpi":
                    raise ValueError("algorithm 'mpi' is the library's own: it has no schedule here to prove")
                if name not in [algorithm.name for algorithm in chosen]:
                    algorithm_named(arguments.collective or "allreduce", name)
            chosen = [algorithm for algorithm in chosen if algorithm.name in arguments.algorithms]
    except ValueError as error:
        raise UsageError(str(error)) from None
    most = 64 if arguments.max_ranks is None else arguments.max_ranks
    if most < 1:
        raise UsageError(f"--max-ranks {most}: must be at least 1")
    status = 0
    for algorithm in chosen:
        try:
            proofs = 0
            for nranks in range(1, most + 1):
                for variant in algorithm.variants(nranks):
                    verify(variant, nranks)
                    if nranks <= FORMULA_LIMIT:
                        check_formulas(variant, nranks)
                    proofs += 1
            cases = "" if proofs == most else f", {proofs} cases of {_words(algorithm.arguments)}"
            print(f"proved  {algorithm.collective} {algorithm.name}: 1 to {most} ranks{cases}", flush=True)
        except ValueError as error:
            print(f"WRONG   {error}", flush=True)
            status = 1
    return status


def _words(arguments: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(name for name, _ in arguments)


def _list(arguments: argparse.Namespace) -> int:
    from ringbench.report.algorithms import render_algorithms
    from ringbench.report.doctor import render_warnings
    from ringbench.schedule.registry import algorithms

    if arguments.warnings:
        sys.stdout.write(render_warnings(arguments.format))
        return 0
    __import__("ringbench.collectives")
    sys.stdout.write(render_algorithms(algorithms(), arguments.format))
    return 0


def _draw(arguments: argparse.Namespace) -> int:
    from ringbench.schedule.draw import draw_svg, draw_text
    from ringbench.schedule.parameters import parse_groups
    from ringbench.schedule.registry import algorithm_named

    __import__("ringbench.collectives")
    try:
        if arguments.algorithm == "mpi":
            raise ValueError("algorithm 'mpi' is the library's own: it has no schedule here to draw")
        groups = None if arguments.groups is None else parse_groups(arguments.groups)
        given = {"root": arguments.root, "chunks": arguments.chunks, "groups": groups, "outer": arguments.outer}
        known = {name: value for name, value in given.items() if value is not None}
        algorithm = algorithm_named(arguments.collective, arguments.algorithm).given(**known)
        text = draw_text(algorithm, arguments.ranks)
        remark = algorithm.remark(arguments.ranks)
        picture = draw_svg(algorithm, arguments.ranks) if arguments.svg else ""
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.svg:
        try:
            arguments.svg.write_text(picture, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{arguments.svg}: {error.strerror or error}") from None
        say(f"ringbench: the picture is in {arguments.svg}")
    if remark:
        say(f"ringbench: {remark}")
    sys.stdout.write(text)
    return 0


# The machine.


def _doctor(arguments: argparse.Namespace) -> int:
    from ringbench.launch.environment import inside_mpi_job, node_count
    from ringbench.launch.mpirun import Mpirun, find_mpirun, usable_cpus
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import default_ranks
    from ringbench.report.doctor import launcher_check, library_check, machine_checks, placement_check, render_checks
    from ringbench.runtime.load import watch_others
    from ringbench.runtime.machine import WARN, judge, read_machine
    from ringbench.runtime.peek import try_by_child
    from ringbench.runtime.world import library_version

    inside = inside_mpi_job(os.environ)
    if inside is not None:
        raise UsageError(f"doctor looks at a machine before a job, but {inside}")
    nranks = arguments.ranks or default_ranks(os.environ)[-1]
    nnodes = node_count(os.environ)
    cores = os.sched_getaffinity(0)
    machine = read_machine(
        host=socket.gethostname(),
        cores=cores,
        others_cpus=watch_others("/", cores),
        cma=try_by_child(),
        environ=os.environ,
    )
    library: str | ValueError
    launcher: Mpirun | LaunchError
    try:
        library = library_version()
    except ValueError as error:
        library = error
    try:
        launcher = find_mpirun(os.environ)
    except LaunchError as error:
        launcher = error
    known = library if isinstance(library, str) else None
    checks = [
        library_check(library),
        launcher_check(launcher, known),
        placement_check(nranks, nnodes, *usable_cpus()),
        *machine_checks(judge(machine, nranks=-(-nranks // nnodes), nnodes=nnodes, library=known)),
    ]
    sys.stdout.write(render_checks(checks, arguments.format))
    return 1 if any(check.state == WARN for check in checks) else 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "sweep": _sweep,
    "run": _run,
    "table": _table,
    "compare": _compare,
    "fit": _fit,
    "predict": _predict,
    "verify": _verify,
    "list": _list,
    "draw": _draw,
    "doctor": _doctor,
}

"""The command line: the only module that prints or exits."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    from ringbench.launch.lab import Lab
    from ringbench.launch.mpirun import Mpirun
    from ringbench.model.choose import Table


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
    except KeyboardInterrupt:
        say("ringbench: interrupted")
        return 130
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
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _default_algorithms(settings: Settings) -> tuple[str, ...]:
    """Return what is measured where nothing was said: for a collective without a ring what ``auto`` picks."""
    from ringbench.schedule.registry import algorithms

    __import__("ringbench.collectives")
    known = {algorithm.name for algorithm in algorithms(settings.collective)}
    return ("auto", "mpi") if known and "ring" not in known else settings.algorithms


class _Terminated(BaseException):
    """Report SIGTERM, as Slurm sends it before it ends a job."""


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _sweep(arguments: argparse.Namespace) -> int:
    from ringbench.launch.environment import inside_mpi_job
    from ringbench.launch.memory import available_bytes
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import default_ranks, open_run, sole_writer, sweep

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
        _check_before(plan.settings, ranks, available_bytes())
        mpirun = find_mpirun(os.environ, override=arguments.mpirun)
        extra = [*_mpi_type(mpirun, arguments.mpirun_args), *arguments.mpirun_args]
        if arguments.check:
            return _start(["run", "--check"], max(ranks), mpirun, extra, arguments.job_limit or CHECK_LIMIT_S)
        if started:
            _check_resumed(started, plan.settings)
        first = provenance(plan.settings, ranks, launches=plan.launches, arguments=sys.argv[1:], environ=os.environ)
        file = started.path if started else open_run(folder, first)
    except (ValueError, LaunchError, OSError) as error:
        raise UsageError(str(error)) from None

    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        with sole_writer(file):
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
                report=lambda text: say(f"ringbench: {text}"),
            )
    except (KeyboardInterrupt, _Terminated) as reason:
        name = "interrupted" if isinstance(reason, KeyboardInterrupt) else "terminated"
        say(f"ringbench: {name}; what was measured is in {file} (go on with --resume --out {folder})")
        return 1
    except (ValueError, OSError) as error:
        say(f"ringbench: {error}")
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


#: A job that has not started by then does not start: most do in a second, and large ones have files to load.
CHECK_LIMIT_S = 60.0


def _mpi_type(mpirun: Mpirun, extra: Sequence[str]) -> list[str]:
    """Return what srun needs to be told to start ranks of the MPI library here, unless the user tells it."""
    from ringbench.launch.mpirun import ask_mpi_types, mpi_type
    from ringbench.runtime.world import library_version

    if mpirun.flavour != "slurm" or any(word.startswith("--mpi") for word in extra):
        return []
    return [f"--mpi={mpi_type(ask_mpi_types(mpirun, os.environ), library_version())}"]


def _start(words: Sequence[str], nranks: int, mpirun: Mpirun, extra: Sequence[str], limit_s: float) -> int:
    """Run a command of ringbench on some ranks and return 0, 1, or 2 where it says that it cannot be carried out."""
    from ringbench.launch.environment import job_environment
    from ringbench.launch.process import run_job
    from ringbench.launch.sweep import SAFE_PATH, job_line

    line = job_line(nranks, [sys.executable, *SAFE_PATH, "-m", "ringbench", *words], mpirun, os.environ, extra)
    env = job_environment(os.environ, flavour=mpirun.flavour, uid=os.getuid())
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        done = run_job(line, env=env, time_limit_s=limit_s)
    except _Terminated:
        say("ringbench: terminated")
        return 1
    if done.timed_out:
        say(f"ringbench: {nranks} ranks: no end after {limit_s:g} s: {' '.join(line[: -len(words)])}")
    return done.returncode if done.returncode in (0, 2) else 1


def _check_resumed(started: Run, settings: Settings) -> None:
    """Raise ValueError where rows to come would be measured in another way than those already there."""
    before, asked = started.provenance["settings"], settings.to_json()
    for name in ("segment", "thread_level", "root", "chunks", "groups", "outer", "choose_from", "limit", "order"):
        if name in before and before[name] != asked[name]:
            raise ValueError(f"{started.path}: was measured with {name} {before[name]}, not {asked[name]}")


def _check_before(settings: Settings, ranks: Sequence[int], available: int) -> None:
    """Raise ValueError for what cannot be measured on this node, or on the nodes of an allocation."""
    from ringbench.launch.environment import node_count
    from ringbench.launch.lab import lab_around
    from ringbench.launch.memory import check_memory
    from ringbench.runtime.arrays import backend_for
    from ringbench.runtime.demands import check_schedules, check_settings, memory_needed

    check_settings(settings)
    _choices(settings)
    for nranks in ranks:
        check_schedules(settings, nranks)
    if settings.device != "cpu":
        backend_for(settings.device).empty(1, settings.dtype)
    nodes = node_count(os.environ) if lab_around(os.environ) is None else 1  # the nodes of a lab share one memory
    for nranks in ranks:
        need, nbytes = memory_needed(settings, nranks)
        here = -(-nranks // nodes)
        what = f"size {format_size(nbytes)}: {here} rank{'s'[: here > 1]} with {','.join(settings.algorithms)}"
        check_memory(here * need, available, what)


def _run(arguments: argparse.Namespace) -> int:
    settings, problem = None, None
    try:
        settings = _settings(arguments).settings
    except UsageError as error:  # of a plan that only some nodes can read, maybe: to be told to the others
        problem = str(error)
    comm = _world(settings.thread_level) if settings else _world()
    if arguments.check:
        return _check_ranks(comm)
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


def _check_ranks(comm: Any) -> int:
    """Say which ranks on which hosts make up the job; the world's size was held against the launcher's before."""
    from ringbench.runtime.ranks import gather_ranks, hosts_line

    try:
        line = hosts_line(gather_ranks(comm, package_version()))
    except ValueError as error:  # the same on all ranks
        raise UsageError(str(error)) from None
    if comm.Get_rank() == 0:
        print(line, flush=True)
    comm.Barrier()  # or a launcher might end rank 0, at the first exit, before it has spoken
    return 0


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
    from ringbench.launch.lab import lab_around
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
        lab = lab_around(os.environ)  # whose nodes share one memory
        check_memory(comm, settings, available_bytes(), ["the lab" if lab else rank["host"] for rank in ranks])
    except ValueError as error:
        return str(error), []
    if comm.Get_rank() == 0 and arguments.out is not None:
        try:
            first = provenance(settings, [comm.Get_size()], arguments=sys.argv[1:], environ=os.environ)
            arguments.append = open_run(arguments.out, first)
        except (ValueError, OSError) as error:
            problem = str(error)
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
    from ringbench.report.progress import Progress
    from ringbench.runtime.choices import choose_by_rule
    from ringbench.runtime.ranks import placement_warnings, ring_edges_line
    from ringbench.runtime.timing import clock_tick
    from ringbench.runtime.worker import measure
    from ringbench.runtime.world import thread_level

    first = comm.Get_rank() == 0
    warnings, lines = placement_warnings(ranks)
    file: Path | None = arguments.append
    known: set[tuple[Any, ...]] = set()
    if first:
        for line in [*lines, *filter(None, [ring_edges_line(ranks)])]:
            say(f"ringbench: {comm.Get_size()} rank{'s'[: comm.Get_size() > 1]}: {line}")
        if comm.Get_size() == 1 and file is None:
            say("ringbench: one rank alone; start it with mpirun -n 4 or srun -n 4 for more")
        if file is not None:
            known = {row.key for row in read_run(file).rows}
            job = {
                "kind": "job",
                "launch": arguments.launch or 0,
                "nranks": comm.Get_size(),
                "time": now(),
                "mpi_library": ranks[0]["mpi_library"],
                "thread_level": thread_level(),
                "hosts": [rank["host"] for rank in ranks],
                "clock_tick_s": clock_tick(),
                "ranks": ranks,
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
    for row in measure(comm, settings, launch=arguments.launch or 0, warnings=warnings, choose=choose):
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
    from ringbench.model.compare import compare_rows, compare_runs, took_turns
    from ringbench.report.tables import render

    if len(arguments.runs) > 2:
        raise UsageError(f"{len(arguments.runs)} runs: compare takes one or two")
    runs = _read_runs(arguments.runs)
    if len(runs) == 2:
        found = compare_runs(runs[0], runs[1], force=arguments.force, threshold=arguments.threshold)
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


@_showing
def _fit(arguments: argparse.Namespace) -> int:
    from ringbench.model.fit import fit_rows
    from ringbench.report.tables import render

    rows = [row for run in _read_runs(arguments.runs) for row in run.rows]
    result = fit_rows(rows, include_oversubscribed=arguments.include_oversubscribed)
    for note in result.notes:
        say(f"ringbench: {note}")
    sys.stdout.write(render([fit.to_json() for fit in result.segments], "fit", arguments.format))
    return 0


def _show_sweep(run: Run, folder: Path, format: str) -> None:
    """Print table, fit and comparison, and write them beside the run as Markdown."""
    from ringbench.model.compare import compare_rows, took_turns
    from ringbench.model.fit import fit_rows
    from ringbench.model.pool import table_cells
    from ringbench.report.summary import summary
    from ringbench.report.tables import render

    cells = table_cells(run.rows)
    sections: list[tuple[str, str, list[dict[str, Any]]]] = [("Bandwidth", "table", cells)]
    try:
        result = fit_rows(run.rows)
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
    for title, kind, rows in sections:
        try:
            (folder / f"{kind}.md").write_text(f"# {title}\n\n{render(rows, kind, 'markdown')}", encoding="ascii")
        except OSError as error:
            notes = [*notes, f"{kind}.md is not written: {error}"]
        if format in ("text", "markdown"):
            heading = f"# {title}" if format == "markdown" else f"{title}\n{'=' * len(title)}"
            sys.stdout.write(f"{heading}\n\n{render(rows, kind, format)}\n")
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
    if arguments.max_ranks < 1:
        raise UsageError(f"--max-ranks {arguments.max_ranks}: must be at least 1")
    status = 0
    for algorithm in chosen:
        try:
            proofs = 0
            for nranks in range(1, arguments.max_ranks + 1):
                for variant in algorithm.variants(nranks):
                    verify(variant, nranks)
                    if nranks <= FORMULA_LIMIT:
                        check_formulas(variant, nranks)
                    proofs += 1
            cases = "" if proofs == arguments.max_ranks else f", {proofs} cases of {_words(algorithm.arguments)}"
            print(
                f"proved  {algorithm.collective} {algorithm.name}: 1 to {arguments.max_ranks} ranks{cases}", flush=True
            )
        except ValueError as error:
            print(f"WRONG   {error}", flush=True)
            status = 1
    return status


def _words(arguments: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(name for name, _ in arguments)


def _list(arguments: argparse.Namespace) -> int:
    from ringbench.report.algorithms import render_algorithms
    from ringbench.schedule.registry import algorithms

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


# The cluster.


def _slurm(arguments: argparse.Namespace) -> int:
    from ringbench.launch.slurm import JobScript, estimated_seconds, format_time, job_script

    try:
        plan = read_plan(arguments.plan)
        jobs = len(set(arguments.nodes)) * plan.launches
        needed = estimated_seconds(plan.settings.time_budget_s, jobs, array=arguments.array)
        names = ("plan", "nodes", "ntasks_per_node", "partition", "account", "gpus_per_node", "array", "launcher")
        given = {name: getattr(arguments, name) for name in (*names, "mpi_type")}
        text = job_script(JobScript(**given, time_s=arguments.time or needed, setup=tuple(arguments.setup or ())))
    except OSError as error:
        raise UsageError(f"{arguments.plan}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.time is not None and needed > arguments.time:
        limit = format_time(arguments.time)
        say(f"ringbench: the plan takes about {format_time(needed)}, more than the time limit of {limit}")
    if not arguments.submit:
        sys.stdout.write(text)
        return 0
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"], input=text, capture_output=True, text=True, timeout=SBATCH_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"sbatch: {error}") from None
    sys.stdout.write(done.stdout)
    if done.returncode:
        say(f"ringbench: {done.stderr.strip()}")
    return 1 if done.returncode else 0


#: Client commands wait minutes for a controller that is not there.
SBATCH_LIMIT_S = 60.0


def _lab(arguments: argparse.Namespace) -> int:
    from ringbench.launch.lab import Lab, LabError, lab_around
    from ringbench.launch.lab_run import run_inside, run_lab
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import SAFE_PATH

    program = [sys.executable, *SAFE_PATH, "-m", "ringbench", "lab"]
    line = arguments.line[arguments.line[:1] == ["--"] :]
    if bool(line) == arguments.selftest:
        raise UsageError("lab runs a command, as in `ringbench lab -- ringbench sweep`, or its --selftest")
    names = ("nodes", "ranks_per_node", "rate", "delay", "slurm")
    try:
        lab, around = Lab(**{name: getattr(arguments, name) for name in names}), lab_around(os.environ)
        if arguments.inside is not None:
            return run_inside(lab, line, arguments.inside, os.environ)
        if around is not None and arguments.selftest:
            return _selftest(around)
        if around is not None:
            raise LabError("this is a lab already, and none fits into it")
        words = [*lab.arguments(), "--", *(line or [*program, "--selftest"])]
        # What is installed beside this Python comes first, as in a virtual environment that was activated.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        inner = {**os.environ, "PATH": path}
        return run_lab(lab, lambda control: [*program, f"--inside={control}", *words], inner)
    except (ValueError, LabError, LaunchError, OSError) as error:
        raise UsageError(str(error)) from None


def _selftest(lab: Lab) -> int:
    """Check the links of the lab around: start this on its ranks, and there send bare messages between the nodes."""
    from ringbench.launch.environment import declared_size
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.sweep import START_LIMIT_S
    from ringbench.report.link import render_link

    if declared_size(os.environ) is None:
        return _start(["lab", "--selftest"], lab.ranks, find_mpirun(os.environ), (), START_LIMIT_S)
    comm = _world()
    from ringbench.runtime.link import pass_messages

    nnodes, passed = pass_messages(comm, lab.bytes_per_s)
    fast = [size for size in passed if size.too_fast(lab.bytes_per_s, lab.burst)]
    if comm.Get_rank() == 0:
        if passed:
            sys.stdout.write(render_link([(size.nbytes, size.seconds) for size in passed], lab.bytes_per_s))
            sys.stdout.flush()
        if nnodes != lab.nodes:
            say(f"ringbench: MPI sees {nnodes} nodes, not {lab.nodes}")
        if fast:
            sizes = ", ".join(format_size(size.nbytes) for size in fast)
            say(f"ringbench: messages of {sizes} passed faster than {lab.rate}: they did not go over the link")
    comm.Barrier()  # or a launcher might end rank 0, at the first exit, before it has spoken
    return 1 if fast or nnodes != lab.nodes else 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "sweep": _sweep,
    "run": _run,
    "table": _table,
    "compare": _compare,
    "fit": _fit,
    "verify": _verify,
    "list": _list,
    "draw": _draw,
    "slurm": _slurm,
    "lab": _lab,
}

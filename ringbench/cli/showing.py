"""The commands that read runs and show them: table, compare, fit, predict, import."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringbench.arguments import UsageError
from ringbench.cli.talk import WrongDataError, say, words_of
from ringbench.records.ddp_row import DdpRow
from ringbench.records.ddp_settings import DdpSettings, settings_from_json
from ringbench.records.row import Row
from ringbench.records.run import RUN_FILE, Run, encode, read_run, run_file
from ringbench.records.units import format_size

if TYPE_CHECKING:
    from ringbench.model.fit import FitResult


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Read runs, and say what is unusual about each; raise UsageError or WrongDataError for what is none."""
    runs = []
    for path in paths:
        try:
            run = read_run(path)
        except OSError as error:
            raise UsageError(f"{path}: {_runs_in(Path(path)) or error.strerror or error}") from None
        except ValueError as error:
            raise WrongDataError(str(error)) from None
        if run.torn:
            say(f"ringbench: {run.path}: its last line is cut off and left out")
        if run.repeated:
            say(f"ringbench: {run.path}: {run.repeated} rows repeat earlier ones and are left out")
        if run.status != "complete":
            say(f"ringbench: {run.path}: the run is {run.status}")
        runs.append(run)
    return runs


def _runs_in(folder: Path) -> str:
    """Say of a folder that is none of a run which of those in it are."""
    if not folder.is_dir() or run_file(folder).exists():
        return ""
    found = sorted(str(one.parent) for one in folder.glob(f"*/{RUN_FILE}"))
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"no {RUN_FILE} in this folder" + (f"; there are {', '.join(found[:3])}{more}" if found else "")


def showing(show: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Give a command that reads runs its exit status: 1 for wrong data, 2 for what cannot be shown."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            return show(arguments)
        except WrongDataError as error:
            say(f"ringbench: {error}")
            return 1
        except ValueError as error:
            raise UsageError(str(error)) from None

    return run


def print_table(rows: Sequence[Row], format: str) -> None:
    """Print the bandwidth table of rows."""
    from ringbench.model.pool import table_cells
    from ringbench.report.straggler import render_straggler
    from ringbench.report.tables import render

    cells = table_cells(rows)
    sys.stdout.write(render(cells, "table", format))
    if format in ("text", "markdown") and (late := render_straggler(cells, format)):
        sys.stdout.write(f"\n{late}")


def steps_of(rows: Sequence[DdpRow], settings: DdpSettings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what measured steps of training come to, with what the links of the settings predict, and their levers."""
    from ringbench.ddp.cells import cells, levers
    from ringbench.ddp.costs import costs_of

    try:
        costs = costs_of(settings)
    except (ValueError, OSError) as error:  # of a run that is no longer there, say
        say(f"ringbench: no predictions: {words_of(error)}")
        costs = None
    found = cells(rows, costs)
    return found, levers(found, settings)


def stored_ddp_settings(run: Run) -> DdpSettings:
    """Return the settings that a run of ``ringbench ddp`` holds."""
    stored = run.plan.get("settings")
    return settings_from_json(stored if isinstance(stored, dict) else {})


def trained(run: Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the same of all steps of a run; raise ValueError where a sweep stands in its file too."""
    if run.steps and run.rows:
        raise ValueError(f"{run.path}: rows of ringbench sweep and of ringbench ddp in one file")
    return steps_of(run.steps, stored_ddp_settings(run)) if run.steps else ([], [])


def print_steps(rows: Sequence[DdpRow], settings: DdpSettings, format: str) -> None:
    """Print measured steps of training."""
    from ringbench.report.ddp import render_measured_levers, render_steps

    found, turned = steps_of(rows, settings)
    sys.stdout.write(render_steps(found, format))
    if format in ("text", "markdown") and (beside := render_measured_levers(turned, format)):
        sys.stdout.write(f"\n{beside}")


def _other_table(rows: Sequence[Row], arguments: argparse.Namespace) -> str:
    """Return the table of all columns, with algorithms across, or in the columns of another benchmark."""
    from ringbench.model.pool import table_cells
    from ringbench.report.bandwidth import WIDE
    from ringbench.report.pivot import render_pivot
    from ringbench.report.styles import render_style
    from ringbench.report.tables import render

    cells = table_cells(rows)
    if arguments.style:
        return render_style(cells, arguments.style)
    return render_pivot(cells, arguments.format) if arguments.pivot else render(cells, WIDE, arguments.format)


@showing
def table_command(arguments: argparse.Namespace) -> int:
    """Show the bandwidth table of runs."""
    runs = read_runs(arguments.runs)
    rows = [row for run in runs for row in run.rows]
    steps = [row for run in runs for row in run.steps]
    if rows and steps:
        raise UsageError("these are runs of ringbench sweep and of ringbench ddp: show each by itself")
    if arguments.style and arguments.format != "text":
        raise UsageError(f"--style {arguments.style} has columns of its own, and goes without --format")
    if steps:
        if arguments.style or arguments.pivot or arguments.wide:
            raise UsageError("--style, --pivot and --wide are for runs of ringbench sweep")
        print_steps(steps, stored_ddp_settings(runs[0]), arguments.format)
    elif arguments.style or arguments.pivot or arguments.wide:
        sys.stdout.write(_other_table(rows, arguments))
    else:
        print_table(rows, arguments.format)
    return 0


@showing
def compare_command(arguments: argparse.Namespace) -> int:
    """Compare two algorithms of a run, or two runs; return 1 where asked to and something is slower."""
    from ringbench.model.compare import ENOUGH_LAUNCHES, compare_rows, compare_runs, took_turns
    from ringbench.report.change import render_change
    from ringbench.report.tables import render

    if len(arguments.runs) > 2:
        raise UsageError(f"{len(arguments.runs)} runs: compare takes one or two")
    runs = read_runs(arguments.runs)
    if len(runs) == 2:
        found = compare_runs(runs[0], runs[1], force=arguments.force, threshold=arguments.threshold)
        if (fewest := min(row.launches for row in found)) < ENOUGH_LAUNCHES:
            launches = f"{fewest} launch{'es'[: 2 * (fewest > 1)]}"
            enough = f"runs are told apart from {ENOUGH_LAUNCHES} launches of each on (--launches {ENOUGH_LAUNCHES})"
            say(f"ringbench: some cell has {launches} in a run; {enough}")
    else:
        found = compare_rows(
            runs[0].rows,
            arguments.algorithm,
            arguments.baseline,
            arguments.threshold,
            interleaved=took_turns(runs[0]),
        )
    flat = [row.to_json() for row in found]
    if len(runs) == 2 and arguments.format == "markdown":
        sys.stdout.write(render_change(runs[0], runs[1], flat))
    else:
        sys.stdout.write(render(flat, "compare", arguments.format))
    slower = [row for row in found if row.verdict == "slower"]
    if slower and arguments.fail_if_slower:
        cells = ", ".join(f"{row.algorithm} {format_size(row.nbytes)} N={row.nranks}" for row in slower[:4])
        more = f" and {len(slower) - 4} more" if len(slower) > 4 else ""
        say(f"ringbench: slower at {len(slower)} of {len(found)} cells: {cells}{more}")
        return 1
    return 0


def _fitted(arguments: argparse.Namespace) -> tuple[FitResult, list[Row]]:
    """Fit the rows of runs; return the fit, and the rows of rank counts that were to be left out."""
    from ringbench.model.beside import split_ranks
    from ringbench.model.causes import facts_of
    from ringbench.model.fit import fit_rows

    runs = read_runs(arguments.runs)
    rows = [row for run in runs for row in run.rows]
    others: list[Row] = []
    if arguments.command == "fit" and arguments.algorithms:
        rows = [row for row in rows if row.algorithm in arguments.algorithms]
    if arguments.command == "predict" and arguments.fit_ranks:
        rows, others = split_ranks(rows, arguments.fit_ranks)
    result = fit_rows(
        rows,
        include_oversubscribed=arguments.include_oversubscribed,
        assume=arguments.assume,
        resamples=arguments.resamples,
        facts=facts_of([job for run in runs for job in run.jobs]),
    )
    for note in result.notes:
        say(f"ringbench: {note}")
    return result, others


@showing
def fit_command(arguments: argparse.Namespace) -> int:
    """Fit the costs of links to runs, and show them."""
    from ringbench.model.explain import explain
    from ringbench.report.tables import render

    result, _ = _fitted(arguments)
    rows = [fit.to_json() for fit in result.segments]
    sys.stdout.write(render(rows, "fit", arguments.format, explain(result)))
    return 0


@showing
def predict_command(arguments: argparse.Namespace) -> int:
    """Predict times from a fit, or from the figures of links."""
    from ringbench.model.beside import beside
    from ringbench.model.explain import explain_left_out
    from ringbench.model.links import predict_links
    from ringbench.model.network import Link
    from ringbench.model.points import points_of
    from ringbench.model.predict import predict_run
    from ringbench.report.tables import render

    bare = {name: getattr(arguments, name) for name in ("alpha", "beta", "gamma", "inner", "outer", "ranks_per_node")}
    given = [f"--{name.replace('_', '-')}" for name, value in bare.items() if value is not None]
    if arguments.runs and (given or arguments.collective):
        raise UsageError(f"{[*given, '--collective'][0]} goes without a run: a run's links are fitted")
    if not arguments.runs and (arguments.assume or arguments.include_oversubscribed or arguments.fit_ranks):
        of_run = "--assume, --include-oversubscribed and --fit-ranks"
        raise UsageError(f"{of_run} are for a run that is fitted, and none is given")
    words: list[str] = []
    if arguments.runs:
        result, others = _fitted(arguments)
        found, notes = predict_run(result, arguments.ranks, arguments.sizes, arguments.algorithms)
        asked = [row for row in others if row.nranks in arguments.ranks]
        points, unshown = points_of(
            asked, include_oversubscribed=arguments.include_oversubscribed, assume=arguments.assume
        )
        found, held = beside(found, points)
        words = explain_left_out(result, held)
        for note in unshown:
            say(f"ringbench: to be predicted: {note}")
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
    sys.stdout.write(render([one.to_json() for one in found], "predict", arguments.format, words))
    return 0


def show_sweep(run: Run, folder: Path, format: str) -> None:
    """Print table, fit and comparison, and write them beside the run as Markdown."""
    from ringbench.model.causes import facts_of
    from ringbench.model.compare import compare_rows, took_turns
    from ringbench.model.explain import explain
    from ringbench.model.fit import fit_rows
    from ringbench.model.pool import table_cells
    from ringbench.report.straggler import render_straggler
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
    if format in ("csv", "json", "latex"):
        print_table(run.rows, format)
    else:
        if late := render_straggler(cells, format):
            sys.stdout.write(f"{late}\n")
        heading = "# In short" if format == "markdown" else "In short\n========"
        bullet = "- " if format == "markdown" else ""
        lines = summary(cells).splitlines()
        sys.stdout.write(f"{heading}\n\n" + "".join(f"{bullet}{line}\n" for line in lines))
    sys.stdout.flush()
    for note in notes:
        say(f"ringbench: {note}")
    tables = ", ".join(f"{kind}.md" for _, kind, _ in sections)
    say(f"ringbench: every sample is in {run.path}, the tables beside it in {tables}")


@showing
def import_command(arguments: argparse.Namespace) -> int:
    """Make a run of what other benchmarks printed."""
    from ringbench.launch.sweep import open_run
    from ringbench.records.importers.lines import NotSaidError
    from ringbench.records.importers.read import read_files

    try:
        found = read_files(arguments.files, nranks=arguments.nranks, collective=arguments.collective)
    except (NotSaidError, OSError) as error:
        raise UsageError(words_of(error)) from None
    except ValueError as error:
        raise WrongDataError(str(error)) from None
    try:
        file = open_run(arguments.out, found.provenance(sys.argv[1:]))
    except (ValueError, OSError) as error:
        raise UsageError(words_of(error)) from None
    with open(file, "ab") as stream:
        stream.writelines(map(encode, found.records()))
    for report in found.reports:
        for line in report.lines():
            say(f"ringbench: {line}")
    say(f"ringbench: {len(found.rows)} rows are in {file}")
    return 0

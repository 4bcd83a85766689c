"""The command that writes one page on runs: report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ringbench.arguments import UsageError
from ringbench.cli.showing import read_runs, showing, trained
from ringbench.cli.talk import say, words_of
from ringbench.records.provenance import package_version
from ringbench.records.run import Run, run_file

#: What the page is called in the folder of a run.
PAGE = "report.html"


@showing
def report_command(arguments: argparse.Namespace) -> int:
    """Write a page on runs, and print its name."""
    if arguments.out is None and len(arguments.runs) > 1:
        raise UsageError(f"a page on {len(arguments.runs)} runs is none of theirs: say --out FILE")
    out: Path = arguments.out or run_file(arguments.runs[0]).parent / PAGE
    content = _page(read_runs(arguments.runs))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror or error}") from None
    sys.stdout.write(f"{out}\n")
    return 0


def write_page_beside(run: Run) -> None:
    """Write the page of a run that was just measured into its folder, and say so, or why there is none."""
    out = run.path.parent / PAGE
    try:
        out.write_text(_page([run]), encoding="utf-8")
    except (ValueError, OSError) as error:
        say(f"ringbench: no page: {words_of(error)}")
        return
    say(f"ringbench: the page is {out}")


def _page(runs: Sequence[Run]) -> str:
    from ringbench.report.page.make import Steps, make_page

    steps = []
    for run in runs:
        found, turned = trained(run)
        if found:
            steps.append(Steps(run=run, cells=found, levers=turned))
    return make_page(runs, steps, package_version())

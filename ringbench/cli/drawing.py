"""The command that draws runs: plot."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringbench.arguments import UsageError
from ringbench.cli.showing import read_runs, showing, trained
from ringbench.cli.talk import say, words_of
from ringbench.records.row import Row
from ringbench.records.run import Run, run_file

if TYPE_CHECKING:
    from ringbench.report.figures.plan import Drawing


@showing
def plot_command(arguments: argparse.Namespace) -> int:
    """Draw runs, and print the names of the files written."""
    from ringbench.report.figures.plan import KINDS, drawings
    from ringbench.report.figures.save import FORMATS, check_format
    from ringbench.report.figures.style import check_matplotlib
    from ringbench.report.figures.views import pools

    check_matplotlib()
    for ending in arguments.format or ():
        check_format(ending)
    runs = read_runs(arguments.runs)
    keep = _chosen(runs, arguments)
    found = drawings(pools(runs, keep), arguments.kind or KINDS, _trained(runs, arguments))
    if wrong := sum(bool(row.wrong) for run in runs for row in run.rows if keep(row)):
        say(f"ringbench: {wrong} row{'s'[: wrong > 1]} left out: wrong result")
    out = arguments.out or run_file(arguments.runs[0]).parent / "plots"
    one = out.suffix.lower().removeprefix(".")
    if one not in FORMATS:
        drawn = False
        for name, encode in _made(found):
            for ending in arguments.format or ("svg",):
                _save(encode(ending), out / f"{name}.{ending}")
            drawn = True
        if not drawn:
            of_steps = list(arguments.kind or ()) == ["steps"]
            raise ValueError("nothing to draw" + (": steps are those of ringbench ddp" if of_steps else ""))
        return 0
    if arguments.format:
        raise UsageError(f"--format goes with a folder: {out} says itself what it is")
    made = [pair for pair, _ in zip(_made(found), range(2), strict=False)]
    if len(made) != 1:
        names = "nothing to draw" if not made else f"{made[0][0]}, {made[1][0]} and perhaps more"
        raise UsageError(f"{out} takes one figure, and there is not one: {names} (see --kind, --ranks, --algorithms)")
    _save(made[0][1](one), out)
    return 0


def _trained(runs: Sequence[Run], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the cells of training steps that are asked for."""
    for run in runs:
        for cell in trained(run)[0]:
            asked = ((arguments.ranks, cell["nranks"]), (arguments.algorithms, cell["algorithm"]))
            if all(values is None or value in values for values, value in asked):
                yield cell


def _chosen(runs: Sequence[Run], arguments: argparse.Namespace) -> Callable[[Row], bool]:
    """Return which rows are asked for; raise ValueError naming a value of which no run has rows."""
    asked = {
        "collective": [arguments.collective] if arguments.collective else None,
        "algorithm": arguments.algorithms,
        "nranks": arguments.ranks,
    }
    for name, values in asked.items():
        known = sorted({getattr(row, name, "allreduce") for run in runs for row in (*run.rows, *run.steps)})
        if unknown := [value for value in values or () if value not in known]:
            raise ValueError(f"no rows of {name} {unknown[0]!r}; there are: {', '.join(map(str, known)) or 'none'}")

    def keep(row: Row) -> bool:
        return all(values is None or getattr(row, name) in values for name, values in asked.items())

    return keep


def _made(found: Sequence[Drawing]) -> Iterator[tuple[str, Callable[[str], bytes]]]:
    """Make the figures one by one: its name, and what writes it in a format; say of each that cannot be drawn why."""
    from ringbench.report.figures.save import encoded

    for drawing in found:
        try:
            figure = drawing.make()
        except ValueError as error:
            say(f"ringbench: not drawn: {drawing.name}: {error}")
            continue
        yield drawing.name, partial(encoded, figure)


def _save(content: bytes, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(words_of(error)) from None
    sys.stdout.write(f"{file}\n")
    sys.stdout.flush()

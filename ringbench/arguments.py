"""The arguments of every command, and how each is read."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ringbench.records.settings import ORDERS, PLACEMENTS, SYNCS, THREAD_LEVELS, parse_names
from ringbench.records.units import parse_bandwidth, parse_latency, parse_ranks, parse_size, parse_sizes
from ringbench.schedule.parameters import parse_groups

FORMATS = ("text", "markdown", "csv", "json")


class UsageError(Exception):
    """Report a command that cannot be carried out as it was given: one line, exit status 2."""


def _checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make argparse show what a reader says of a value, instead of the reader's name."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _number(text: str, units: dict[str, float], what: str) -> float:
    for unit, factor in units.items():
        if text.endswith(unit):
            with contextlib.suppress(ValueError):
                number = float(text.removesuffix(unit)) * factor
                if 0 <= number < math.inf:
                    return number
    raise ValueError(f"malformed {what} {text!r}")


def _seconds(text: str) -> float:
    return _number(text, {"min": 60, "m": 60, "s": 1, "": 1}, "time")


def _fraction(text: str) -> float:
    return _number(text, {"%": 0.01, "": 1}, "fraction")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"malformed number {text!r}: a whole number, not negative, is needed")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) < 1:
        raise ValueError(f"{text}: at least 1 is needed")
    return int(text)


def _groups(text: str) -> str:
    parse_groups(text)
    return text


def _link(text: str) -> tuple[float, float]:
    latency, _, bandwidth = text.partition(",")
    return parse_latency(latency), parse_bandwidth(bandwidth)


class _Parser(argparse.ArgumentParser):
    """Parse arguments; say errors once for a whole MPI job."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to measure")
    add = group.add_argument
    add("--collective", metavar="NAME", help="allreduce (default), or another that `ringbench list` shows")
    names = _checked(lambda text: parse_names(text, "algorithms"))
    add("--algorithms", type=names, metavar="A,B", help=ALGORITHMS_HELP)
    add("--sizes", type=_checked(lambda text: tuple(parse_sizes(text))), metavar="SIZES", help=SIZES_HELP)
    add("--dtype", metavar="TYPE", help=f"{', '.join(DTYPES)} (default float32)")
    add("--op", metavar="OP", help="sum (default), average, prod, min, max, land or lor")
    add("--device", metavar="DEVICE", help="cpu (default) or cuda")
    add("--placement", choices=PLACEMENTS, help="in place (default), out of place, or both")
    add("--segment", type=_checked(parse_size), metavar="SIZE", help="longest message before it is cut, 0 for uncut")
    levels = "thread level MPI is started with (default multiple, as in mpi4py)"
    add("--thread-level", choices=THREAD_LEVELS, help=levels)
    _add_arguments(add)
    add("--choose-from", metavar="RUN", help="the run by which auto picks the fastest (default: a rule)")
    add("--limit", action="store_const", const=True, help="time bare Sendrecvs and additions too: column of_limit")
    order = "algorithms of a size take turns (interleaved, default), or run one after the other as in OSU (blocked)"
    add("--order", choices=ORDERS, help=order)
    sync = "ranks are aligned by a barrier (default), one of our own, or a common time on compared clocks (roundtime)"
    add("--sync", choices=SYNCS, help=sync)
    add("--buffers", type=_checked(_count), metavar="K", help="sets of buffers in turns: cold data (default 1, hot)")
    group = parser.add_argument_group("how long")
    add = group.add_argument
    add("--precision", type=_checked(_fraction), metavar="P", help="width of the interval to reach (default 5%%)")
    add("--min-samples", type=_checked(_count), metavar="N", help="samples of a case at least (default 8)")
    add("--max-samples", type=_checked(_count), metavar="N", help="samples of a case at most (default 1000)")
    add("--warmup", type=_checked(_count), metavar="N", help="iterations before the samples (default 5)")
    add("--time-budget", dest="time_budget_s", type=_checked(_seconds), metavar="S", help="for it all (default 60s)")
    add("--seed", type=_checked(_count), metavar="N", help="of the order of iterations (default 0)")


ALGORITHMS_HELP = "names that `ringbench list` shows, mpi for the library's own, auto for the best by rule or by a run"
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8 to int64", "uint8", "complex64", "complex128", "bool")
SIZES_HELP = "bytes of the whole vector: 8,1KiB,64MiB or a range 8:64MiB:x2; 1M = 1MiB = 2^20, 1MB = 10^6"


def _add_arguments(add: Callable[..., object], *, drawn: bool = False) -> None:
    """Add the arguments of schedules; a drawing has neither a size nor nodes to go by."""
    chunks, nodes = ("4", "one node") if drawn else ("by size", "what MPI finds")
    add("--root", type=_checked(_count), metavar="RANK", help="of bcast and reduce (default 0)")
    add("--chunks", type=_checked(_count), metavar="C", help=f"pieces of a pipelined schedule (default {chunks})")
    add("--groups", type=_checked(_groups), metavar="0,1/2,3", help=f"ranks of each node (default {nodes})")
    add("--outer", metavar="NAME", help="the allreduce between nodes in hierarchical ones (default ring)")


def _add_launcher(parser: argparse._ActionsContainer) -> None:
    add = parser.add_argument
    add("--mpirun", metavar="PATH", help="the launcher (default: the one beside this Python, or on PATH)")
    words = "further arguments of the launcher"
    add("--mpirun-args", type=_checked(shlex.split), default="", metavar="'ARGS'", help=words)


def _add_fit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = _checked(lambda text: parse_names(text, "algorithms"))
    add("--algorithms", type=names, metavar="A,B", help="only these")
    add("--assume", metavar="NAME", help="take the library's calls for this algorithm (default: whole calls)")
    add("--include-oversubscribed", action="store_true", help="fit rows whose ranks share cores too")
    drawn = "how often measurements are drawn anew for intervals (default 1000; 0: none)"
    add("--resamples", type=_checked(_count), default=1000, metavar="N", help=drawn)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the result on stdout (default text)")


def make_parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; it raises UsageError instead of ending the process."""
    parser = _Parser(
        prog="ringbench",
        description="Measure MPI collectives written by hand beside the MPI library's own.",
        epilog="Results go to stdout, progress and warnings to stderr. Exit status: 0, 1 for wrong data or a failed "
        "run, 2 for a command that cannot be carried out.",
    )
    parser.add_argument("--version", action="version", version=f"ringbench {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, help: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=help, description=help[0].upper() + help[1:] + ".", epilog=f"example: {example}"
        )

    sub = command("sweep", "start one MPI job for each rank count, and show what they measured", SWEEP_EXAMPLE)
    sub.add_argument("plan", nargs="?", metavar="PLAN.toml", help="settings in a file; options here override them")
    ranks = "rank counts, one job each (default 1,2,4,... up to the cores, or to the tasks of an allocation)"
    sub.add_argument("--ranks", type=_checked(lambda text: tuple(parse_ranks(text))), metavar="1,2,4", help=ranks)
    launches = "start every job so often (default 1): intervals then tell how launches differ"
    sub.add_argument("--launches", type=_checked(_count), metavar="K", help=launches)
    _add_settings(sub)
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder of run.jsonl (default ringbench-DATE-TIME)")
    sub.add_argument("--resume", action="store_true", help="go on with the run in DIR: measure only what is missing")
    _add_launcher(sub)
    sub.add_argument("--job-limit", type=_checked(_seconds), metavar="S", help="end a job that takes longer")
    _add_format(sub)

    sub = command("run", "measure one rank count; to be started by mpirun or srun", RUN_EXAMPLE)
    sub.add_argument("plan", nargs="?", metavar="PLAN.toml", help="settings in a file; options here override them")
    _add_settings(sub)
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder for run.jsonl (default: none is written)")
    for hidden, kind in (
        ("append", Path),
        ("append-at", int),
        ("cases-before", int),
        ("cases-total", int),
        ("budget-after", float),
        ("launch", int),
    ):
        sub.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    _add_format(sub)

    sub = command("table", "print the bandwidth table of a run", "ringbench table results/laptop")
    sub.add_argument("runs", nargs="+", metavar="RUN", help="a run.jsonl or its folder")
    _add_format(sub)
    sub = command("compare", "compare two algorithms of a run, or two runs", COMPARE_EXAMPLE)
    sub.add_argument("runs", nargs="+", metavar="RUN", help="one run, or the earlier and the later of two")
    sub.add_argument("--algorithm", default="ring", help="whose time is divided (default ring)")
    sub.add_argument("--baseline", default="mpi", help="by whose time (default mpi)")
    same = "differences below it are the same (default 2%%)"
    sub.add_argument("--threshold", type=_checked(_fraction), default=0.02, metavar="T", help=same)
    sub.add_argument("--fail-if-slower", action="store_true", help="exit status 1 where some cell is slower")
    sub.add_argument("--force", action="store_true", help="compare two unlike runs all the same, and say so")
    _add_format(sub)
    sub = command("fit", "fit latency and inverse bandwidth to a run", "ringbench fit results/laptop")
    sub.add_argument("runs", nargs="+", metavar="RUN", help="a run.jsonl or its folder")
    _add_fit(sub)
    _add_format(sub)
    sub = command("predict", "predict times of ranks and sizes that were not run", PREDICT_EXAMPLE)
    sub.add_argument("runs", nargs="*", metavar="RUN", help="a run.jsonl or its folder, to be fitted")
    sub.add_argument("--ranks", type=_checked(lambda text: tuple(parse_ranks(text))), metavar="8,16", required=True)
    sizes = _checked(lambda text: tuple(parse_sizes(text)))
    sub.add_argument("--sizes", type=sizes, metavar="SIZES", required=True, help=SIZES_HELP)
    _add_fit(sub)
    group = sub.add_argument_group("without a run: what a link costs")
    add = group.add_argument
    add("--collective", metavar="NAME", help="allreduce (default), or another that `ringbench list` shows")
    add("--alpha", type=_checked(parse_latency), metavar="2us", help="latency of a message")
    add("--beta", type=_checked(parse_bandwidth), metavar="50GB/s", help="bandwidth of a rank's link, each direction")
    add("--gamma", type=_checked(parse_bandwidth), metavar="100GB/s", help="bandwidth of additions (default: free)")
    pair = "link inside a node, and between nodes: latency and bandwidth, as in 1us,300GB/s"
    add("--inner", type=_checked(_link), metavar="A,B", help=pair)
    add("--outer", type=_checked(_link), metavar="A,B", help="the same between nodes; each rank has one of its own")
    add("--ranks-per-node", type=_checked(_positive), metavar="G", help="ranks that fill a node before the next")
    _add_format(sub)
    sub = command("verify", "prove every algorithm's schedule, without MPI", "ringbench verify --max-ranks 16")
    sub.add_argument("--max-ranks", type=_checked(_count), metavar="N", help="for 1..N ranks (default 64)")
    sub.add_argument("--collective", metavar="NAME", help="of one collective only")
    sub.add_argument("--algorithms", type=_checked(lambda text: parse_names(text, "algorithms")), metavar="A,B")
    mutants = "try the checks instead: start MPI jobs of broken collectives, each of which must be caught"
    sub.add_argument("--mutants", action="store_true", help=mutants)
    group = sub.add_argument_group("with --mutants")
    ranks = "rank counts, one job each (default 2,3,4)"
    group.add_argument("--ranks", type=_checked(lambda text: tuple(parse_ranks(text))), metavar="2,3,4", help=ranks)
    _add_launcher(group)
    group.add_argument("--format", choices=("text", "json"), help="of the result on stdout (default text)")
    sub.add_argument("--append", type=Path, help=argparse.SUPPRESS)
    sub = command("list", "show the collectives and their algorithms", "ringbench list --format json")
    sub.add_argument("--warnings", action="store_true", help="show the warnings instead: letters, meaning, advice")
    sub.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    sub = command("draw", "show a schedule: who sends what when", DRAW_EXAMPLE)
    sub.add_argument("collective", metavar="COLLECTIVE")
    sub.add_argument("algorithm", metavar="ALGORITHM")
    sub.add_argument("-n", "--ranks", type=_checked(_count), default=4, metavar="N", help="number of ranks (default 4)")
    sub.add_argument("--svg", type=Path, metavar="FILE", help="write a picture too")
    _add_arguments(sub.add_argument, drawn=True)
    sub = command("doctor", "say what on this machine will spoil the numbers", "ringbench doctor --ranks 4")
    sub.epilog = f"Exit status: 0 where nothing does, 1 where something does, 2 for wrong usage. {sub.epilog}"
    sub.add_argument("--ranks", type=_checked(_positive), metavar="N", help="to be started (default: as many as cores)")
    sub.add_argument("--format", choices=("text", "json"), default="text", help="of the result (default text)")
    return parser


SWEEP_EXAMPLE = "ringbench sweep --ranks 2,4 --sizes 8:64MiB:x2 --algorithms ring,mpi --time-budget 60s"
RUN_EXAMPLE = "mpirun -n 4 ringbench run --sizes 8:64MiB:x4"
DRAW_EXAMPLE = "ringbench draw allreduce ring -n 4 --svg ring.svg"
PREDICT_EXAMPLE = "ringbench predict --alpha 2us --beta 50GB/s --ranks 8,64 --sizes 1KiB:1GiB:x32"
COMPARE_EXAMPLE = "ringbench compare results/laptop --algorithm ring --baseline mpi"

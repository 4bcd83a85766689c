"""The arguments of every command, and how each is read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ringbench.arguments_ddp import EXAMPLE as DDP_EXAMPLE
from ringbench.arguments_ddp import HELP as DDP_HELP
from ringbench.arguments_ddp import add_ddp
from ringbench.launch.slurm import parse_time
from ringbench.readers import FORMATS as FORMATS
from ringbench.readers import add_format as _add_format
from ringbench.readers import add_launcher as _add_launcher
from ringbench.readers import checked as _checked
from ringbench.readers import count as _count
from ringbench.readers import fraction as _fraction
from ringbench.readers import link as _link
from ringbench.readers import number as _number
from ringbench.readers import positive as _positive
from ringbench.readers import seconds as _seconds
from ringbench.readers import straggler_text
from ringbench.records.settings import MEMORIES, ORDERS, PLACEMENTS, STAGINGS, SYNCS, THREAD_LEVELS, parse_names
from ringbench.records.units import parse_bandwidth, parse_latency, parse_ranks, parse_size, parse_sizes
from ringbench.schedule.parameters import INNERS, parse_groups

STYLES = ("osu", "nccl", "imb")


class UsageError(Exception):
    """Report a command that cannot be carried out as it was given: one line, exit status 2."""


def _groups(text: str) -> str:
    parse_groups(text)
    return text


def _late(text: str) -> tuple[int, float]:
    rank, _, late = text.partition(":")
    return _count(rank), parse_latency(late)


def _slow_rank(text: str) -> tuple[int, float]:
    rank, _, factor = text.partition(":")
    slower = _number(factor, {"x": 1, "": 1}, "factor")
    if slower == 0:
        raise ValueError(f"malformed factor {factor!r}: above 0, as in 2x")
    return _count(rank), slower


def _slow_link(text: str) -> tuple[int, int, float]:
    one, dash, rest = text.partition("-")
    if not dash:
        raise ValueError(f"malformed slow link {text!r}: two ranks and a factor, as in 3-4:10x")
    return (_count(one), *_slow_rank(rest))


class _Parser(argparse.ArgumentParser):
    """Parse arguments, none of them abbreviated; say errors once for a whole MPI job."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

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
    sync = "align ranks by a barrier (default), one of our own, a common time (roundtime); once for 20 calls (loop)"
    add("--sync", choices=SYNCS, help=sync)
    add("--buffers", type=_checked(_count), metavar="K", help="sets of buffers in turns (default 1): cold data")
    late = "have a rank come late: rank=1,delay=5ms or rank=rotate,delay=10%%,jitter=1ms; who waits for it?"
    add("--straggler", type=_checked(straggler_text), metavar="WHO", help=late)
    memory = "of the buffers: each rank's own (private, default), or common to the ranks of a node (shared)"
    add("--memory", choices=MEMORIES, help=memory)
    staging = "messages of a device's arrays: as they are (none, default), or copied through the host"
    add("--staging", choices=STAGINGS, help=staging)
    group = parser.add_argument_group("how long")
    add = group.add_argument
    add("--precision", type=_checked(_fraction), metavar="P", help="width of the interval to reach (default 5%%)")
    add("--min-samples", type=_checked(_count), metavar="N", help="samples of a case at least (default 12)")
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
    inside = "ring" if drawn else "by memory"
    add("--inner", choices=INNERS, help=f"what hierarchical ones do inside nodes (default {inside})")


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--collective", default="allreduce", metavar="NAME", help="allreduce (default), or another of `ringbench list`")
    names = _checked(lambda text: parse_names(text, "algorithms"))
    add("--algorithm", type=names, default="ring", metavar="A,B", help="one or several (default ring)")
    ranks = _checked(lambda text: tuple(parse_ranks(text)))
    add("--ranks", type=ranks, required=True, metavar="N,M", help="numbers of ranks")
    sizes = _checked(lambda text: tuple(parse_sizes(text)))
    add("--size", type=sizes, required=True, metavar="SIZES", help="bytes of the whole vector: 1GiB, or 8:64MiB:x8")
    add("--root", type=_checked(_count), metavar="RANK", help="of bcast and reduce (default 0)")
    add("--chunks", type=_checked(_positive), metavar="C", help="pieces of a pipelined schedule (default 4)")
    add("--between", metavar="NAME", help="the allreduce between nodes in hierarchical ones (default ring)")
    add("--inside", choices=INNERS, help="what hierarchical ones do inside nodes (default ring)")
    add("--trace", type=Path, metavar="FILE", help="write who does what when, for chrome://tracing")
    group = parser.add_argument_group("the network", "TIME is as in 2us, COST as in 50GB/s")
    add = group.add_argument
    time, cost, link = _checked(parse_latency), _checked(parse_bandwidth), _checked(_link)
    add("--alpha", type=time, metavar="TIME", help="of a message")
    add("--beta", type=cost, metavar="COST", help="of a byte moved")
    add("--gamma", type=cost, default=0.0, metavar="COST", help="of a byte reduced (default 0)")
    add("--inner", type=link, metavar="A,B", help="alpha,beta inside a node, instead of --alpha and --beta")
    add("--outer", type=link, metavar="A,B", help="alpha,beta between nodes")
    add("--ranks-per-node", type=_checked(_positive), metavar="G", help="nodes of so many ranks, the last of the rest")
    add("--groups", type=_checked(parse_groups), metavar="0,1/2,3", help="ranks of each node")
    group = parser.add_argument_group("what closed forms miss", "each may be given several times, but for --skew")
    add = group.add_argument
    add("--skew", type=time, default=0.0, metavar="TIME", help="ranks start at random within it, always the same way")
    add("--late", type=_checked(_late), action="append", default=[], metavar="RANK:TIME", help="starts so much later")
    slow = "takes so many times as long: 3:2x, its messages too"
    add("--slow-rank", type=_checked(_slow_rank), action="append", default=[], metavar="RANK:F", help=slow)
    slow = "messages between two ranks take so many times as long: 3-4:10x"
    add("--slow-link", type=_checked(_slow_link), action="append", default=[], metavar="A-B:F", help=slow)
    _add_format(parser)


def _add_fit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = _checked(lambda text: parse_names(text, "algorithms"))
    add("--algorithms", type=names, metavar="A,B", help="only these")
    add("--assume", metavar="NAME", help="take the library's calls for this algorithm (default: whole calls)")
    add("--include-oversubscribed", action="store_true", help="fit rows whose ranks share cores too")
    drawn = "how often measurements are drawn anew for intervals (default 1000; 0: none)"
    add("--resamples", type=_checked(_count), default=1000, metavar="N", help=drawn)


class _Version(argparse.Action):
    """Print what is installed, found out only when it is asked for, and end."""

    def __init__(self, tell: Callable[[], str], **options: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **options)
        self.tell = tell

    def __call__(self, parser: argparse.ArgumentParser, *unused: Any) -> NoReturn:
        parser._print_message(self.tell(), sys.stdout)
        parser.exit()


def make_parser(versions: Callable[[], str] = str) -> argparse.ArgumentParser:
    """Return the parser of all commands; it raises UsageError instead of ending the process.

    ``versions`` tells what is installed.
    """
    parser = _Parser(
        prog="ringbench",
        description="Measure MPI collectives written by hand beside the MPI library's own.",
        epilog="Results go to stdout, progress and warnings to stderr. Exit status: 0, 1 for wrong data or a failed "
        "run, 2 for a command that cannot be carried out.",
    )
    parser.add_argument("--version", action=_Version, tell=versions, help="show what is installed, MPI and CuPy too")
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
    sub.add_argument("--check", action="store_true", help="only start the largest job, and see that all ranks are one")
    sub.add_argument("--quiet", action="store_true", help="say nothing of progress; warnings and errors remain")
    sub.add_argument("--job-limit", type=_checked(_seconds), metavar="S", help="end a job that takes longer")
    sub.add_argument("--report", action="store_true", help="write report.html beside the run, as ringbench report does")
    _add_format(sub)

    sub = command("run", "measure one rank count; to be started by mpirun or srun", RUN_EXAMPLE)
    sub.add_argument("plan", nargs="?", metavar="PLAN.toml", help="settings in a file; options here override them")
    _add_settings(sub)
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder for run.jsonl (default: none is written)")
    sub.add_argument("--quiet", action="store_true", help="say nothing of progress; warnings and errors remain")
    sub.add_argument("--check", action="store_true", help="only say who takes part, and see that all ranks are one job")
    for hidden, kind in (
        ("append", Path),
        ("append-at", int),
        ("cases-before", int),
        ("cases-total", int),
        ("budget-after", float),
        ("launch", int),
        ("live", int),
        ("tried", int),
    ):
        sub.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    _add_format(sub)

    sub = command("table", "print the bandwidth table of runs", TABLE_EXAMPLE)
    sub.add_argument("runs", nargs="+", metavar="RUN", help="a run.jsonl or its folder")
    _add_format(sub)
    shape = sub.add_mutually_exclusive_group()
    shape.add_argument("--wide", action="store_true", help="all columns, however wide (CSV and JSON always have them)")
    pivot = "sizes down and algorithms across, with the fastest marked and the ratio to mpi"
    shape.add_argument("--pivot", choices=("algorithm",), help=pivot)
    style = "the columns of osu_allreduce -f, nccl-tests or IMB, for programs that read those"
    shape.add_argument("--style", choices=STYLES, help=style)

    sub = command("plot", "draw runs: bandwidth, time, winners, the model, every sample", PLOT_EXAMPLE)
    sub.add_argument("runs", nargs="+", metavar="RUN", help="a run.jsonl or its folder; unlike ones are drawn apart")
    sub.add_argument("--kind", type=_checked(lambda text: parse_names(text, "kinds")), metavar="A,B", help=PLOT_KINDS)
    names = _checked(lambda text: parse_names(text, "algorithms"))
    sub.add_argument("--algorithms", type=names, metavar="A,B", help="only these")
    sub.add_argument("--collective", metavar="NAME", help="only this one")
    sub.add_argument(
        "--ranks", type=_checked(lambda text: tuple(parse_ranks(text))), metavar="2,4", help="only these rank counts"
    )
    out = "folder for the figures (default: plots in that of the first run), or the one figure's FILE.svg or FILE.png"
    sub.add_argument("--out", type=Path, metavar="DIR", help=out)
    formats = _checked(lambda text: parse_names(text, "formats"))
    sub.add_argument("--format", type=formats, metavar="svg,png", help="of the files in a folder (default svg)")

    sub = command("report", "write one page of HTML on runs: answer, warnings, tables, figures, model", REPORT_EXAMPLE)
    sub.add_argument("runs", nargs="+", metavar="RUN", help="a run.jsonl or its folder; unlike ones stand apart")
    out = "the page (default: report.html in the folder of the first run)"
    sub.add_argument("--out", type=Path, metavar="FILE", help=out)

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
    ranks = "fit these rank counts alone, and show what the run measured of others beside what is predicted of them"
    sub.add_argument("--fit-ranks", type=_checked(lambda text: tuple(parse_ranks(text))), metavar="2,4", help=ranks)
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
    add_ddp(command("ddp", DDP_HELP, DDP_EXAMPLE))
    sub = command("import", "read what other benchmarks wrote: OSU, IMB, nccl-tests, rccl-tests, CSV", IMPORT_EXAMPLE)
    sub.add_argument("files", nargs="+", metavar="FILE", help="what one of these tools printed, or logs around it")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for run.jsonl")
    ranks = "number of ranks, where a file does not say"
    sub.add_argument("--nranks", type=_checked(_positive), metavar="N", help=ranks)
    sub.add_argument("--collective", metavar="NAME", help="which collective it is, where a file does not say")
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
    _add_simulate(
        command("simulate", "play schedules on a network of thousands of ranks, without MPI", SIMULATE_EXAMPLE)
    )
    sub = command("doctor", "say what on this machine will spoil the numbers", "ringbench doctor --ranks 4")
    sub.epilog = f"Exit status: 0 where nothing does, 1 where something does, 2 for wrong usage. {sub.epilog}"
    sub.add_argument("--ranks", type=_checked(_positive), metavar="N", help="to be started (default: as many as cores)")
    sub.add_argument(
        "--device", default="cpu", metavar="DEVICE", help="cpu (default) or cuda: what of GPUs there is too"
    )
    sub.add_argument("--format", choices=("text", "json"), default="text", help="of the result (default text)")
    sub = command("slurm", "print the job script of a plan, or submit it", SLURM_EXAMPLE)
    sub.add_argument("plan", metavar="PLAN.toml", help="settings in a file")
    nodes = "numbers of nodes to measure on, in one allocation of the largest"
    sub.add_argument(
        "--nodes", type=_checked(lambda text: tuple(parse_ranks(text))), required=True, metavar="1,2,4", help=nodes
    )
    sub.add_argument("--ntasks-per-node", type=_checked(_count), required=True, metavar="N", help="ranks of a node")
    sub.add_argument("--time", type=_checked(parse_time), metavar="LIMIT", help="as Slurm writes it (default by plan)")
    sub.add_argument("--partition", metavar="NAME")
    sub.add_argument("--account", metavar="NAME")
    sub.add_argument("--gpus-per-node", type=_checked(_count), metavar="N", help="one for each rank")
    sub.add_argument("--array", action="store_true", help="a job of its own for each number of nodes")
    sub.add_argument("--launcher", metavar="NAME", help="mpirun (default) or srun")
    sub.add_argument("--mpi", dest="mpi_type", metavar="TYPE", help="of srun (default: what fits the MPI library)")
    sub.add_argument("--setup", action="append", metavar="LINE", help="of the shell, such as a module to load")
    sub.add_argument("--submit", action="store_true", help="give it to sbatch, and print the job's number")
    sub = command("lab", "run a command on an emulated cluster: nodes with slow links on this machine", LAB_EXAMPLE)
    sub.add_argument("--nodes", type=_checked(_count), default=4, metavar="N", help="number of nodes (default 4)")
    sub.add_argument("--ranks-per-node", type=_checked(_count), default=1, metavar="N", help="(default 1)")
    sub.add_argument("--rate", default="400mbit", metavar="RATE", help="what a node sends at most (default 400mbit)")
    sub.add_argument("--delay", metavar="TIME", help="added to every link, as in 200us (default none)")
    sub.add_argument("--slurm", action="store_true", help="with a Slurm that starts the jobs")
    selftest = "send bare messages between the nodes instead: exit status 1 where one passes faster than the link"
    sub.add_argument("--selftest", action="store_true", help=selftest)
    sub.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    sub.add_argument("line", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what runs on the head")
    sub = command("completion", "print what bash or zsh needs to complete these words", COMPLETION_EXAMPLE)
    sub.add_argument("shell", choices=("bash", "zsh"))
    return parser


COMPLETION_EXAMPLE = "ringbench completion bash > ~/.local/share/bash-completion/completions/ringbench"
SWEEP_EXAMPLE = "ringbench sweep --ranks 2,4 --sizes 8:64MiB:x2 --algorithms ring,mpi --time-budget 60s"
RUN_EXAMPLE = "mpirun -n 4 ringbench run --sizes 8:64MiB:x4"
IMPORT_EXAMPLE = "ringbench import osu_allreduce.txt --nranks 16 --out out/osu"
SLURM_EXAMPLE = "ringbench slurm benchmarks/quickstart.toml --nodes 1,2,4 --ntasks-per-node 8 --partition short"
LAB_EXAMPLE = "ringbench lab --nodes 4 -- ringbench sweep --sizes 8:16MiB:x8 --algorithms ring,mpi"
DRAW_EXAMPLE = "ringbench draw allreduce ring -n 4 --svg ring.svg"
SIMULATE_EXAMPLE = "ringbench simulate --algorithm ring --ranks 4096 --size 1GiB --alpha 2us --beta 50GB/s"
PREDICT_EXAMPLE = "ringbench predict --alpha 2us --beta 50GB/s --ranks 8,64 --sizes 1KiB:1GiB:x32"
TABLE_EXAMPLE = "ringbench table results/laptop --pivot algorithm"
PLOT_EXAMPLE = "ringbench plot results/laptop --kind bandwidth,ratio --ranks 4 --out figures"
REPORT_EXAMPLE = "ringbench report results/laptop --out report.html"
PLOT_KINDS = (
    "bandwidth, latency, ratio (to MPI's own), winner (at each N and size), scaling, step (the fitted cost of a "
    "message), predicted (against measured), samples (in order), steps (of training, by bucket size); default all"
)
COMPARE_EXAMPLE = "ringbench compare results/laptop --algorithm ring --baseline mpi"

"""The arguments of ``ringbench ddp``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringbench.readers import add_format, add_launcher, checked, count, positive, seconds, straggler_text
from ringbench.records.ddp_settings import COMPUTES, latency, link, parse_bucket_sizes, parse_counts
from ringbench.records.settings import STAGINGS, THREAD_LEVELS, parse_names
from ringbench.records.units import parse_bandwidth, parse_latency, parse_ranks, parse_size

HELP = "measure steps of data-parallel training: how much of the gradients' all-reduce hides behind backward"
EXAMPLE = "mpirun -n 4 ringbench ddp --workload resnet50 --backward 200ms --bucket-sizes 1MiB:16MiB:x4"


def _names(what: str) -> Callable[[str], Any]:
    return checked(lambda text: parse_names(text, what))


def _text(read: Callable[[str], object]) -> Callable[[str], Any]:
    """Check a text by reading it, and keep it as it is."""

    def check(text: str) -> str:
        read(text)
        return text

    return checked(check)


def _ratio(text: str) -> float:
    try:
        return float(text.removesuffix("x"))
    except ValueError:
        raise ValueError(f"malformed ratio {text!r}: a number from 1 on, as in 2 or 2x") from None


def _norm(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"malformed norm {text!r}: a number above 0") from None


def add_ddp(parser: argparse.ArgumentParser) -> None:
    """Add all arguments of the command."""
    add = parser.add_argument
    add("file", nargs="?", metavar="PLAN.toml", help="settings in a file; options here override them")
    add("--plan", action="store_true", help="predict instead of measuring: needs neither MPI nor ranks")
    ranks = "outside of an MPI job: start one with so many ranks each; with --plan: the ranks shown (default 8)"
    add("--ranks", type=checked(lambda text: tuple(parse_ranks(text))), metavar="1,2,4", help=ranks)
    _add_workload(parser.add_argument_group("what is trained").add_argument)
    _add_ways(parser.add_argument_group("how", "every combination is one row").add_argument)
    _add_links(parser.add_argument_group("what links cost", "for predictions").add_argument)
    add = parser.add_argument_group("with --plan").add_argument
    critical = "warn of global batches above it: more samples a step are then of little use"
    add("--critical-batch", type=checked(positive), metavar="B", help=critical)
    add("--ratio", type=checked(_ratio), metavar="R", help="compress so many times (default 2, as fp16 does)")
    encode = "at which gradients are compressed and restored (default: for nothing)"
    add("--encode", type=checked(parse_bandwidth), metavar="10GB/s", help=encode)
    group = parser.add_argument_group("the run")
    add = group.add_argument
    add("--out", type=Path, metavar="DIR", help="folder for run.jsonl (default: that of jobs that are started)")
    add("--resume", action="store_true", help="go on with the run in DIR: measure only what is missing")
    add(
        "--trace", type=Path, metavar="FILE", help="write one step of each row for chrome://tracing (FILE-N of N ranks)"
    )
    add("--job-limit", type=checked(seconds), default=1800.0, metavar="S", help="end a job that takes longer (30min)")
    add_launcher(group)
    for hidden, kind in (("append", Path), ("append-at", int)):
        add(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    add_format(parser)


def _add_workload(add: Callable[..., object]) -> None:
    add("--workload", metavar="NAME", help="resnet50, bert-large, gpt2 or llama-7b, or FILE.toml with [[layer]] tables")
    backward = "of a micro-batch, all layers (default: what the built-ins need at 50 TFLOP/s, or the file's times)"
    add("--backward", dest="backward_s", type=checked(parse_latency), metavar="100ms", help=backward)
    add("--batch", type=checked(positive), metavar="B", help="samples of a micro-batch (default 64, 16, 8, 1)")
    add("--dtype", metavar="TYPE", help="of gradients: float32 (default), float64, float16 or bfloat16")
    add("--device", metavar="DEVICE", help="cpu (default) or cuda")
    staging = "messages of a device's gradients: as they are (none, default), or copied through the host"
    add("--staging", choices=STAGINGS, help=staging)
    add("--compute", choices=COMPUTES, help="sleep (default: for fewer cores than ranks), or work on the device")


def _add_ways(add: Callable[..., object]) -> None:
    engines = "blocking, thread, poll, iallreduce, iallreduce_progress, none (default blocking,thread)"
    add("--engines", type=_names("engines"), metavar="A,B", help=engines)
    sizes = "a bucket closes when it has so many bytes: 1:64MiB:x2 (default 25MiB; with --plan 256KiB to 256MiB)"
    add("--bucket-sizes", type=checked(parse_bucket_sizes), metavar="SIZES", help=sizes)
    add("--first-bucket", type=checked(parse_size), metavar="SIZE", help="the first one, if less (default 1MiB)")
    add("--accumulate", type=checked(parse_counts), metavar="1,2", help="micro-batches of a step (default 1)")
    add("--algorithm", dest="algorithms", type=_names("algorithms"), metavar="A,B", help="of allreduce (default ring)")
    packed = "none (default), fp16, bf16, powersgd:RANK, sign, topk:DENSITY"
    add("--compress", type=_names("compressions"), metavar="A,B", help=packed)
    add("--polls", type=checked(positive), metavar="K", help="how often a layer lets reductions go on (default 1)")
    add("--clip", type=checked(_norm), metavar="NORM", help="clip averaged gradients to this norm (default: not)")
    late = "have a rank come late to each step: rank=1,delay=5ms or rank=rotate,delay=10%%,jitter=1ms"
    add("--straggler", type=checked(straggler_text), metavar="WHO", help=late)
    add("--thread-level", choices=THREAD_LEVELS, help="MPI is started with (default multiple)")
    add("--steps", type=checked(positive), metavar="N", help="steps of each row (default 10)")
    add("--warmup", type=checked(count), metavar="N", help="steps before them (default 2)")
    add("--seed", type=checked(count), metavar="N", help="of the order of steps (default 0)")


def _add_links(add: Callable[..., object]) -> None:
    add("--alpha", type=_text(latency), metavar="2us", help="latency of a message (default 0)")
    add("--beta", type=_text(parse_bandwidth), metavar="50GB/s", help="bandwidth of a rank's link, each direction")
    add("--gamma", type=_text(parse_bandwidth), metavar="100GB/s", help="bandwidth of additions (default: free)")
    add("--inner", type=_text(link), metavar="A,B", help="inside a node, instead of --alpha and --beta: 1us,300GB/s")
    add("--outer", type=_text(link), metavar="A,B", help="between nodes, of which each rank has one of its own")
    add("--shared-link", action="store_const", const=True, help="or the ranks of a node share one to the others")
    add("--ranks-per-node", type=checked(positive), metavar="G", help="ranks that fill a node before the next")
    add("--fit", metavar="RUN", help="a run of ringbench sweep whose links are fitted")

"""The arguments of ``ringbench ddp``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ringbench.readers import add_format, checked, link, positive
from ringbench.records.settings import parse_names
from ringbench.records.units import parse_bandwidth, parse_latency, parse_ranks, parse_size, parse_sizes

HELP = "measure data-parallel training steps: how much of the gradients' all-reduce hides behind backward"
EXAMPLE = "ringbench ddp --plan --workload gpt2 --beta 50GB/s --ranks 8"


def _names(what: str) -> Callable[[str], Any]:
    return checked(lambda text: parse_names(text, what))


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(parse_sizes(text))
    if sizes[0] < 1:
        raise ValueError(f"{text}: a bucket has 1 byte or more")
    return sizes


def _counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(positive(part.strip()) for part in text.split(",")))


def _latency(text: str) -> float:
    return 0.0 if text == "0" else parse_latency(text)


def _ratio(text: str) -> float:
    try:
        return float(text.removesuffix("x"))
    except ValueError:
        raise ValueError(f"malformed ratio {text!r}: a number from 1 on, as in 2 or 2x") from None


def add_ddp(parser: argparse.ArgumentParser) -> None:
    """Add all arguments of the command."""
    parser.add_argument("file", nargs="?", metavar="PLAN.toml", help="settings in a file; options override them")
    parser.add_argument(
        "--plan", action="store_true", help="predict instead of measuring: neither MPI nor ranks needed"
    )
    ranks = "rank counts, one job each (default those of the machine); with --plan those shown (default 8)"
    parser.add_argument("--ranks", type=checked(lambda text: tuple(parse_ranks(text))), metavar="1,2,4", help=ranks)
    _add_workload(parser.add_argument_group("what is trained").add_argument)
    _add_ways(parser.add_argument_group("how gradients are reduced", "several of each: all combinations").add_argument)
    group = parser.add_argument_group("what links cost", "for predictions: given, or fitted to a run")
    _add_links(group.add_argument)
    add = parser.add_argument_group("with --plan").add_argument
    critical = "warn of global batches above it: more samples a step are then of little use"
    add("--critical-batch", type=checked(positive), metavar="B", help=critical)
    add("--ratio", type=checked(_ratio), metavar="R", help="compress so many times (default 2, as float16 does)")
    encode = "at which gradients are compressed and restored (default: for nothing)"
    add("--encode", type=checked(parse_bandwidth), metavar="10GB/s", help=encode)
    add_format(parser)


def _add_workload(add: Callable[..., object]) -> None:
    add("--workload", metavar="NAME", help="resnet50, bert-large, gpt2 or llama-7b, or FILE.toml with [[layer]] tables")
    backward = "of a micro-batch, all layers (default: what the built-ins need at 50 TFLOP/s, or the file's times)"
    add("--backward", dest="backward_s", type=checked(parse_latency), metavar="100ms", help=backward)
    add("--batch", type=checked(positive), metavar="B", help="samples of a micro-batch (default 64, 16, 8, 1)")
    add("--dtype", metavar="TYPE", help="of gradients: float32 (default), float64, float16 or bfloat16")


def _add_ways(add: Callable[..., object]) -> None:
    engines = "blocking, thread (default), polling, iallreduce, iallreduce_progress, none"
    add("--engines", type=_names("engines"), metavar="A,B", help=engines)
    sizes = "caps of buckets, as in 1:64MiB:x2 (default 25MiB; with --plan 256KiB to 256MiB)"
    add("--bucket-sizes", type=checked(_sizes), metavar="SIZES", help=sizes)
    add("--first-bucket", type=checked(parse_size), metavar="SIZE", help="cap of the first one (default 1MiB)")
    add("--accumulate", type=checked(_counts), metavar="1,2", help="micro-batches of a step (default 1)")
    add("--algorithm", dest="algorithms", type=_names("algorithms"), metavar="A,B", help="of allreduce (default ring)")
    add("--between", metavar="NAME", help="the allreduce between nodes in hierarchical ones (default ring)")


def _add_links(add: Callable[..., object]) -> None:
    time, cost, pair = checked(_latency), checked(parse_bandwidth), checked(link)
    add("--alpha", type=time, metavar="2us", help="latency of a message (default 0)")
    add("--beta", type=cost, metavar="50GB/s", help="bandwidth of a rank's link, each direction")
    add("--gamma", type=cost, metavar="100GB/s", help="bandwidth of additions (default: free)")
    add("--inner", type=pair, metavar="A,B", help="inside a node, instead of --alpha and --beta: 1us,300GB/s")
    add("--outer", type=pair, metavar="A,B", help="between nodes, of which each rank has one of its own")
    add("--shared-link", action="store_const", const=True, help="or the ranks of a node share one to the others")
    add("--ranks-per-node", type=checked(positive), metavar="G", help="ranks that fill a node before the next")
    add("--fit", metavar="RUN", help="a run of ringbench sweep whose links are fitted")

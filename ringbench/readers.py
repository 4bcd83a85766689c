"""How arguments are read, and those that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
from collections.abc import Callable
from typing import Any

from ringbench.records.straggler import parse_straggler
from ringbench.records.units import parse_bandwidth, parse_latency

FORMATS = ("text", "markdown", "latex", "csv", "json")


def checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make argparse show what a reader says of a value, instead of the reader's name."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def number(text: str, units: dict[str, float], what: str) -> float:
    """Return a number, not negative, times the factor of its unit; raise ValueError naming what is malformed."""
    for unit, factor in units.items():
        if text.endswith(unit):
            with contextlib.suppress(ValueError):
                number = float(text.removesuffix(unit)) * factor
                if 0 <= number < math.inf:
                    return number
    raise ValueError(f"malformed {what} {text!r}")


def seconds(text: str) -> float:
    """Return the seconds in ``90``, ``90s`` or ``2min``."""
    return number(text, {"min": 60, "m": 60, "s": 1, "": 1}, "time")


def fraction(text: str) -> float:
    """Return the share in ``0.05`` or ``5%``."""
    return number(text, {"%": 0.01, "": 1}, "fraction")


def count(text: str) -> int:
    """Return a whole number, not negative."""
    if not text.isdecimal():
        raise ValueError(f"malformed number {text!r}: a whole number, not negative, is needed")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number from 1 on."""
    if count(text) < 1:
        raise ValueError(f"{text}: at least 1 is needed")
    return int(text)


def straggler_text(text: str) -> str:
    """Return who comes late, always written in the same way."""
    return str(parse_straggler(text))


def link(text: str) -> tuple[float, float]:
    """Return seconds of a message and of a byte from ``1us,300GB/s``."""
    latency, _, bandwidth = text.partition(",")
    return parse_latency(latency), parse_bandwidth(bandwidth)


def add_launcher(parser: argparse._ActionsContainer) -> None:
    """Add what says how jobs are started."""
    add = parser.add_argument
    add("--mpirun", metavar="PATH", help="the launcher, or srun (default: mpirun beside this Python)")
    words = "further arguments of the launcher"
    add("--mpirun-args", type=checked(shlex.split), default="", metavar="'ARGS'", help=words)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the format of the result."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the result on stdout (default text)")

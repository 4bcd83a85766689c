"""How tables write numbers, sizes and what rows have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from ringbench.records.units import format_size
from ringbench.report.kind import Flat


def one_line(text: str) -> str:
    """Return a text without line breaks and double blanks."""
    return " ".join(text.split())


def number(number: int, noun: str) -> str:
    """Write a number of things: ``1 row``, ``2 rows``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def digits(value: float | None) -> str:
    """Write four significant digits, without an exponent where that is readable."""
    if value is None:
        return "-"
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:#.3g}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.4g}".rstrip(".")


def microseconds(seconds: float | None) -> str:
    """Write a time in us with four digits."""
    return digits(None if seconds is None else seconds * 1e6)


def bounds(low: float | None, high: float | None, write: Callable[[float | None], str]) -> str:
    """Write an interval."""
    return "-" if low is None or high is None else f"[{write(low)}, {write(high)}]"


def sent(nbytes: int | None) -> str:
    """Write bytes exactly where that is short, otherwise with four digits in the largest binary unit."""
    if nbytes is None:
        return "-"
    exact = format_size(nbytes)
    if len(exact) <= len("1023KiB"):
        return exact
    power = min((nbytes.bit_length() - 1) // 10, 4)
    return f"{nbytes / 2 ** (10 * power):.4g}{'KMGT'[power - 1]}iB"


def place(row: Flat) -> str:
    """Say what a block is of: collective, operation, type, device, ranks, placement."""
    ranks = f", {number(row['nranks'], 'rank')}" if isinstance(row["nranks"], int) else ""
    return f"{row['collective']} {row['op']} {row['dtype']} on {row['device']}{ranks}, {placement(row)}"


def placement(row: Flat) -> str:
    """Say whether the result overwrites the input."""
    return "in place" if row["in_place"] else "out of place"


def launches(members: Sequence[Flat]) -> str:
    """Say how many launches the rows come from."""
    fewest, most = (bound(member["launches"] for member in members) for bound in (min, max))
    return f"{most if fewest == most else f'{fewest} to {most}'} launch{'es'[: 2 * (most > 1)]}"


def remarks(name: str, rows: Sequence[Flat]) -> list[str]:
    """Say what was decided at which sizes: neighbours with the same remark as one range."""
    ordered = sorted((row for row in rows if row.get("remark")), key=lambda row: row["nbytes"])
    found = []
    for remark, group in groupby(ordered, key=lambda row: row["remark"]):
        sizes = [format_size(row["nbytes"]) for row in group]
        found.append(f"{remark} ({sizes[0] if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'})")
    return [f"{name}: {'; '.join(found)}"] if found else []

"""The answer in a few lines: is it right, which algorithm when, what can be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ringbench.records.guards import CROWDED
from ringbench.records.stats import CONFIDENCE, launch_confidence
from ringbench.records.units import format_size

Flat = Mapping[str, Any]

GROUP = ("collective", "op", "dtype", "device", "nranks", "in_place")


def summary(rows: Sequence[Flat]) -> str:
    """Say in a few lines of ASCII what the flat rows of a bandwidth table show.

    How many results are right; for each group of 2 or more ranks the algorithm with the smallest median at each range
    of sizes, or those that it cannot be told apart from; and what speaks against the numbers.
    """
    checked = [row for row in rows if row["wrong"] is not None]
    wrong = [row for row in checked if row["wrong"]]
    lines = [f"right: {len(checked) - len(wrong)} of {len(checked)} cases, each checked on every rank"]
    lines += [
        f"WRONG: {row['algorithm']} at {format_size(row['nbytes'])} on {row['nranks']} ranks" for row in wrong[:8]
    ]
    measured = [row for row in rows if row["nranks"] > 1 and row["median_s"] is not None and not row["wrong"]]
    measured.sort(key=lambda row: (*(row[name] for name in GROUP), row["nbytes"]))
    for key, members in groupby(measured, key=lambda row: tuple(row[name] for name in GROUP)):
        lines.append(_fastest(key, list(members)))
    if measured:
        lines.append(
            "fastest: by medians whose intervals do not meet; a verdict, as of compare, asks for a rank test too"
        )
    launches = min((row["launches"] for row in rows), default=1)
    confidence = launch_confidence(launches)
    if confidence is None:
        lines.append("intervals are those of one launch; another may differ by more (see --launches)")
    elif confidence < CONFIDENCE:
        lines.append(
            f"intervals are those of {launches} launches; where launches differ, that many hold the median one "
            f"in {confidence:.0%} of cases, and 6 are needed for {CONFIDENCE:.0%}"
        )
    else:
        lines.append(f"intervals are those of {launches} launches")
    return "".join(f"{line}\n" for line in lines)


def _fastest(key: tuple[Any, ...], members: Sequence[Flat]) -> str:
    collective, _, dtype, _, nranks, in_place = key
    ranges: list[list[Any]] = []
    for nbytes, cell in groupby(members, key=lambda row: row["nbytes"]):
        best = _best(list(cell))
        if ranges and ranges[-1][0] == best:
            ranges[-1][2] = nbytes
        else:
            ranges.append([best, nbytes, nbytes])
    words = [
        f"{name} at {format_size(low)}" if low == high else f"{name} from {format_size(low)} to {format_size(high)}"
        for name, low, high in ranges
    ]
    place = "in place" if in_place else "out of place"
    what = f"fastest {collective} of {dtype} on {nranks} ranks {place}"
    if any(CROWDED & set(row["warnings"]) for row in members):
        return f"{what}: not to be said, ranks share cores"
    return f"{what}: {', '.join(words)}"


def leaders(cell: Sequence[Flat]) -> tuple[str | None, set[str]]:
    """Return the name with the smallest median of one size, and those whose intervals reach to its interval.

    Rows without a median, or with a wrong result, take no part; where no other is left there is no name.
    """
    right = [row for row in cell if row["median_s"] is not None and not row["wrong"]]
    if not right:
        return None, set()
    best = min(right, key=lambda row: row["median_s"])
    end = best["median_s"] if best["ci_high_s"] is None else best["ci_high_s"]
    near = {row["algorithm"] for row in right if (row["ci_low_s"] or row["median_s"]) <= end}
    return best["algorithm"], near - {best["algorithm"]}


def _best(cell: Sequence[Flat]) -> str:
    """Return the name with the smallest median, with those whose intervals reach to it."""
    best, near = leaders(cell)
    names = [str(best), *sorted(near)]
    return " or ".join(names) if len(names) < 4 else f"{names[0]} or {len(near)} others"

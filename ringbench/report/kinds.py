"""The other kinds of tables: comparisons, fits, predictions and simulations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from ringbench.records.row import DIRECT
from ringbench.records.units import format_size, rough_size
from ringbench.report.bandwidth import TABLE
from ringbench.report.kind import Columns, Flat, Kind
from ringbench.report.writing import bounds, digits, launches, microseconds, number, place, placement, remarks, sent


def verdict_line(comparisons: Sequence[Flat]) -> str:
    """Say in one line at how many sizes, and which, the algorithm of these comparisons beats its baseline.

    All must share everything but the size. Raises ValueError where there are none.
    """
    if not comparisons:
        raise ValueError("no comparisons to sum up")
    ordered = sorted(comparisons, key=lambda row: row["nbytes"])
    found = {verdict: sum(row["verdict"] == verdict for row in ordered) for verdict in ("faster", "slower", "same")}
    where = f" ({_ranges(ordered)})" if found["faster"] else ""
    unknown = len(ordered) - sum(found.values())
    same = f", the same at {found['same']}" if found["same"] else ""
    return (
        f"{ordered[0]['algorithm']} is faster than {ordered[0]['baseline']} at {found['faster']} of "
        f"{number(len(ordered), 'size')}{where}, slower at {found['slower']}{same}, cannot tell at {unknown}"
    )


def _ranges(ordered: Sequence[Flat]) -> str:
    """Name the sizes at which it is faster, those next to each other as one range."""
    ranges = []
    for faster, group in groupby(ordered, key=lambda row: row["verdict"] == "faster"):
        sizes = [format_size(row["nbytes"]) for row in group]
        if faster:
            ranges.append(sizes[0] if len(sizes) == 1 else f"from {sizes[0]} to {sizes[-1]}")
    return ", ".join(ranges)


def _compare_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    ratio = f"ratio = time of {row['algorithm']} / time of {row['baseline']}"
    own, other = row.get("memory", "private"), row.get("baseline_memory", "private")
    where = f"; {row['algorithm']} in {own} memory, {row['baseline']} in {other}" if "shared" in (own, other) else ""
    own, other = row.get("transfer", DIRECT), row.get("baseline_transfer", DIRECT)
    if own == other != DIRECT:
        where += f"; messages {own}"
    elif own != other:
        where += f"; messages of {row['algorithm']} {own}, of {row['baseline']} {other}"
    return f"{place(row)}; {launches(members)}, {ratio}{where}"


def _fit_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    what = f"{row['algorithm']} of {row['collective']}, {row['op']} {row['dtype']} on {row['device']}"
    unit = "messages; latency alpha in us, 1/beta in GB/s (10^9 B/s)"
    if row["basis"] == "call":
        unit = f"whole calls; {unit.removeprefix('messages; ')}"
    return f"{what}, {placement(row)}, N = {row['nranks']}: {unit}"


def _predict_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    if row["basis"] == "given":
        return f"{row['collective']} on the given links, {number(row['nranks'], 'rank')}; predicted times in us"
    return f"{place(row)}; predicted times in us, GB/s = 10^9 B/s"


def _simulate_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    return f"{row['collective']}, {number(row['nranks'], 'rank')}; {row['network']}; times in us"


def _simulate_closing(members: Sequence[Flat]) -> list[str]:
    names = sorted({row["algorithm"] for row in members})
    lines = []
    for name in names:
        own = [row for row in members if row["algorithm"] == name]
        reached = max(own, key=lambda row: row["bytes_reached_max"])
        if reached["bytes_reached_max"]:
            size, nbytes = sent(reached["bytes_reached_max"]), format_size(reached["nbytes"])
            lines.append(f"{name}: the busiest rank reads and writes {size} of other ranks' memory at {nbytes}")
        lines += remarks(name, own)
    return lines


def _compare_closing(members: Sequence[Flat]) -> list[str]:
    return [verdict_line(members)]


def _fit_closing(members: Sequence[Flat]) -> list[str]:
    """Say where the curve breaks and why, what an addition costs, and how far off it is where it was not fitted."""
    ordered = sorted(members, key=lambda row: row["segment"])
    breaks = [
        f"break between {format_size(low['message_high_nbytes'])} and {format_size(high['message_low_nbytes'])}: "
        f"probably {high['cause']}"
        for low, high in pairwise(ordered)
        if high["cause"]
    ]
    row = ordered[0]
    within = _inverse_bounds(row["gamma_low_s_per_byte"], row["gamma_high_s_per_byte"])
    timed = "" if row["gamma_from"] == "messages" else f", from {row['gamma_from']}"
    gamma = [f"1/gamma {digits(row['reduction_gb_per_s'])} GB/s {within}{timed}"] if row["reduction_gb_per_s"] else []
    left = [
        f"{what} {row[f'heldout_{name}_mape']:.1%} off, at most {row[f'heldout_{name}_worst']:.0%}"
        for name, what in (("ranks", "rank counts"), ("sizes", "sizes"))
        if row[f"heldout_{name}_mape"] is not None
    ]
    return [*breaks, *gamma, *([f"left out: {'; '.join(left)}"] if left else [])]


def _predict_closing(members: Sequence[Flat]) -> list[str]:
    ordered = sorted((row for row in members if row["best"]), key=lambda row: row["nbytes"])
    ranges = dict.fromkeys((row["algorithm"], row["wins_from_nbytes"], row["wins_to_nbytes"]) for row in ordered)
    words = [
        f"{name} at {rough_size(low)}" if low == high else f"{name} from {rough_size(low)} to {rough_size(high)}"
        for name, low, high in ranges
    ]
    return [f"fastest: {', '.join(words)}"] if words else []


def _inverse_bounds(low: float | None, high: float | None) -> str:
    """Write the interval of a bandwidth [GB/s], from that of the cost of a byte [s]."""
    if low is None or high is None:
        return "-"
    slowest = digits(1 / high / 1e9) if high else "inf"
    return f"[{slowest}, {digits(1 / low / 1e9) if low else 'inf'}]"


_COMPARE: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "ratio": lambda row: digits(row["ratio"]),
    "95% interval": lambda row: bounds(row["ratio_low"], row["ratio_high"], digits),
    "verdict": lambda row: str(row["verdict"]),
}

_FIT: Columns = {
    "message": lambda row: f"{sent(row['message_low_nbytes'])} to {sent(row['message_high_nbytes'])}",
    "alpha": lambda row: microseconds(row["alpha_s"]),
    "95%": lambda row: bounds(row["alpha_low_s"], row["alpha_high_s"], microseconds),
    "1/beta": lambda row: digits(row["bandwidth_gb_per_s"]),
    "95% ": lambda row: _inverse_bounds(row["beta_low_s_per_byte"], row["beta_high_s_per_byte"]),
    "mape": lambda row: f"{row['mape']:.1%} ({row['worst']:.0%})",
}

_PREDICT: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "algorithm": lambda row: str(row["algorithm"]),
    "time(us)": lambda row: microseconds(row["predicted_s"]),
    "95% interval": lambda row: bounds(row["low_s"], row["high_s"], microseconds),
    "algbw": lambda row: digits(row["algbw_gb_per_s"]),
    "best": lambda row: "*" if row["best"] else "",
    "measured": lambda row: microseconds(row["measured_s"]),
    "error": lambda row: "-" if row["error"] is None else f"{row['error']:+.1%}",
}

_SIMULATE: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "algorithm": lambda row: str(row["algorithm"]),
    "time(us)": lambda row: microseconds(row["simulated_s"]),
    "closed": lambda row: microseconds(row["closed_s"]),
    "over": lambda row: "-" if row["over_closed"] is None else f"{round(row['over_closed'], 6) + 0:+.1%}",
    "rounds": lambda row: str(row["rounds"]),
    "sent": lambda row: sent(row["bytes_sent_max"]),
    "alpha": lambda row: f"{row['alpha_share']:.1%}",
    "beta": lambda row: f"{row['beta_share']:.1%}",
    "gamma": lambda row: f"{row['gamma_share']:.1%}",
    "wait": lambda row: f"{row['waiting_share']:.1%}",
    "idle": lambda row: f"{row['idle_share']:.1%}",
}

COMPARE = Kind(
    keys=("collective", "op", "dtype", "device", "nranks", "in_place", "algorithm", "baseline"),
    heading=_compare_heading,
    order=("nbytes",),
    columns=_COMPARE,
    closing=_compare_closing,
    notes=(
        "ratio below 1: the first named is faster; a verdict needs an interval without 1 and a rank test at 5 %, "
        "corrected for all cells, and between runs one over launches; same: within the threshold of 1",
    ),
)

FIT = Kind(
    keys=("basis", "collective", "algorithm", "op", "dtype", "device", "in_place", "nranks"),
    heading=_fit_heading,
    order=("segment",),
    columns=_FIT,
    closing=_fit_closing,
    notes=(
        "link: alpha is the cost of a message and beta of a byte on every schedule's critical path, at any N; gamma is "
        "that of an added byte, and inside beta where there is no line of it",
        "call: the schedule is not known, or depends on size or nodes; alpha and beta are those of a whole call at "
        "that N, by vector size",
        "mape: mean (worst) error of the points in the segment; left out: the same, of what was predicted of each rank "
        "count, or size, without it",
    ),
)

SIMULATE = Kind(
    keys=("collective", "nranks", "network"),
    heading=_simulate_heading,
    order=("nbytes", "algorithm"),
    columns=_SIMULATE,
    closing=_simulate_closing,
    notes=(
        "closed, over: the closed form, for links that are all alike and ranks that start together, and how far above "
        "it the simulation is",
        "alpha, beta, gamma, wait: what the critical path is made of: messages, bytes moved and reduced, a late start",
        "idle: the share of all ranks' time in which they neither send, receive nor reduce",
    ),
)

PREDICT = Kind(
    keys=("collective", "op", "dtype", "device", "in_place", "nranks"),
    heading=_predict_heading,
    order=("nbytes", "algorithm"),
    columns=_PREDICT,
    closing=_predict_closing,
    notes=(
        "best: the fastest of those that need no switch that adds; interval: 95 %, of the fit and of the scatter of "
        "the points about it",
    ),
    rare={"measured": "measured_s", "error": "error"},
    rare_notes={
        "measured": "measured, error: a median the fit has not seen, and how far above it the prediction is",
    },
)

KINDS = {"table": TABLE, "compare": COMPARE, "fit": FIT, "simulate": SIMULATE, "predict": PREDICT}

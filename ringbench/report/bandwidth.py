"""The bandwidth table: the columns of nccl-tests, the interval, and what speaks against each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringbench.records.row import DIRECT, ESTIMAND, MANNER, Row
from ringbench.records.straggler import NOBODY
from ringbench.records.units import format_size
from ringbench.report.kind import Columns, Flat, Kind
from ringbench.report.writing import bounds, digits, launches, microseconds, number, place, remarks, sent


def _heading(members: Sequence[Flat]) -> str:
    row = members[0]
    cold = f", {row['buffers']} sets of buffers in turns" if row["buffers"] > 1 else ""
    sample = "" if row["estimand"] == ESTIMAND else f"; a sample is the {row['estimand']}"
    late = "" if row["straggler"] == NOBODY else f"; late on purpose: {row['straggler']}"
    cold += "" if row["transfer"] == DIRECT else f", messages {row['transfer']}"
    return f"{place(row)}{cold}{sample}{late}; {launches(members)}, times in us, GB/s = 10^9 B/s"


def _closing(members: Sequence[Flat]) -> list[str]:
    """Sum up every algorithm without a mean over sizes: its peak, its latency, its failures."""
    names = sorted({row["algorithm"] for row in members})
    lines = []
    for name in names:
        own = [row for row in members if row["algorithm"] == name]
        lines += [_summary(name, own), *remarks(name, own)]
    return lines


def _summary(name: str, rows: Sequence[Flat]) -> str:
    right = [row for row in rows if not row["wrong"]]
    peak = max((row for row in right if row["busbw_gb_per_s"] is not None), key=_busbw, default=None)
    # Several launches may hold the smallest size: the least of their medians is the latency.
    small = min(
        (row for row in right if row["median_s"] is not None),
        key=lambda row: (row["nbytes"], row["median_s"]),
        default=None,
    )
    parts = [
        f"peak busbw {digits(_busbw(peak))} GB/s at {format_size(peak['nbytes'])}" if peak else "no busbw",
        f"latency {microseconds(small['median_s'])} us at {format_size(small['nbytes'])}" if small else "no latency",
    ]
    if any(row["memory"] == "shared" for row in rows):
        parts.append("in shared memory")
    if len(right) < len(rows):
        parts.append(f"FAIL in {len(rows) - len(right)} of {number(len(rows), 'row')}")
    return f"{name}: {', '.join(parts)}"


def _busbw(row: Flat) -> float:
    return float(row["busbw_gb_per_s"])


def _check(row: Flat) -> str:
    return "-" if row["wrong"] is None else "FAIL" if row["wrong"] else "0"


_COLUMNS: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "count": lambda row: str(row["count"]),
    "type": lambda row: str(row["dtype"]),
    "redop": lambda row: str(row["op"]),
    "algorithm": lambda row: str(row["algorithm"]),
    "time(us)": lambda row: microseconds(row["median_s"]),
    "95% interval": lambda row: bounds(row["ci_low_s"], row["ci_high_s"], microseconds),
    "algbw": lambda row: digits(row["algbw_gb_per_s"]),
    "busbw": lambda row: digits(row["busbw_gb_per_s"]),
    "sent": lambda row: sent(row["bytes_sent_max"]),
    "wrong": _check,
    "of_limit": lambda row: digits(row["of_limit"]),
}

_FURTHER: Columns = {
    "samples": lambda row: str(row["samples"]),
    "launches": lambda row: str(row["launches"]),
    "stop": lambda row: str(row["stop"] or "-"),
    "min(us)": lambda row: microseconds(row["min_s"]),
    "max(us)": lambda row: microseconds(row["max_s"]),
    "osu_avg(us)": lambda row: microseconds(row["osu_avg_s"]),
    "osu_min(us)": lambda row: microseconds(row["osu_min_s"]),
    "osu_max(us)": lambda row: microseconds(row["osu_max_s"]),
    "late": lambda row: str(row["late"]),
    "clock error(us)": lambda row: microseconds(row["clock_error_s"]),
}


def _fields() -> tuple[str, ...]:
    """Return the names in a row of the table: the same whatever was measured."""
    row = Row(
        collective="allreduce",
        algorithm="ring",
        op="sum",
        dtype="float32",
        device="cpu",
        nranks=1,
        nbytes=0,
        count=0,
        in_place=True,
        launch=0,
        samples_s=(),
    )
    return tuple(row.table_cell())


TABLE = Kind(
    keys=("collective", "op", "dtype", "device", "nranks", "in_place", *MANNER),
    heading=_heading,
    order=("nbytes", "algorithm"),
    columns=_COLUMNS,
    closing=_closing,
    rare={"of_limit": "of_limit"},
    rare_notes={
        "of_limit": "of_limit: what the steps' bare Sendrecvs and additions take, measured beside, / the time; above 1 "
        "where segments are added from cache, or steps only send or only receive, and below some 10 us, where what "
        "surrounds each bare call counts as often as there are calls"
    },
    shed=(("sent",), ("type", "redop"), ("count",)),  # type and operation stand in the heading too
    fields=_fields(),
)

#: Every column, as wide as that may be.
WIDE = replace(
    TABLE,
    columns={**_COLUMNS, **_FURTHER},
    rare={**TABLE.rare, "clock error(us)": "clock_error_s"},
    shed=(),
)

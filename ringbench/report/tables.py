"""Tables of bandwidths, comparisons and fits, as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from ringbench.records.guards import GUARDS
from ringbench.records.row import ESTIMAND
from ringbench.records.units import format_size, rough_size

WIDTH = 100
FORMATS = ("text", "markdown", "csv", "json")

Flat = Mapping[str, Any]


def render(rows: Sequence[Flat], kind: str, format: str, words: Sequence[str] = ()) -> str:
    """Return flat rows of one ``kind`` of table in one ``format``.

    ``words`` are lines for people, below the tables. JSON is an array of the rows as they are; CSV is RFC 4180 with the
    same columns, an empty field for None, lists joined by ``;``. Always pure ASCII, so that any locale can print it,
    and ended by a line break. Raises ValueError for an unknown kind or format, and for NaN or Infinity in JSON.
    """
    if kind not in _BLOCKS:
        raise ValueError(f"unknown kind of table {kind!r}; known: {', '.join(_BLOCKS)}")
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    if format == "json":
        return _json(rows)
    text = _csv(rows) if format == "csv" else _blocks(rows, kind, words, markdown=format == "markdown")
    return text.encode("ascii", "backslashreplace").decode()


def verdict_line(comparisons: Sequence[Flat]) -> str:
    """Say in one line at how many sizes, and which, the algorithm of these comparisons beats its baseline.

    All must share everything but the size. Raises ValueError where there are none.
    """
    if not comparisons:
        raise ValueError("no comparisons to sum up")
    ordered = sorted(comparisons, key=lambda row: row["nbytes"])
    number = {verdict: sum(row["verdict"] == verdict for row in ordered) for verdict in ("faster", "slower", "same")}
    where = f" ({_ranges(ordered)})" if number["faster"] else ""
    unknown = len(ordered) - sum(number.values())
    same = f", the same at {number['same']}" if number["same"] else ""
    return (
        f"{ordered[0]['algorithm']} is faster than {ordered[0]['baseline']} at {number['faster']} of "
        f"{_number(len(ordered), 'size')}{where}, slower at {number['slower']}{same}, cannot tell at {unknown}"
    )


def _ranges(ordered: Sequence[Flat]) -> str:
    """Name the sizes at which it is faster, those next to each other as one range."""
    ranges = []
    for faster, group in groupby(ordered, key=lambda row: row["verdict"] == "faster"):
        sizes = [format_size(row["nbytes"]) for row in group]
        if faster:
            ranges.append(sizes[0] if len(sizes) == 1 else f"from {sizes[0]} to {sizes[-1]}")
    return ", ".join(ranges)


def _json(rows: Sequence[Flat]) -> str:
    lines = [json.dumps(dict(row), allow_nan=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def _csv(rows: Sequence[Flat]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    if columns:
        writer.writerow(columns)
    writer.writerows([_csv_field(row.get(name)) for name in columns] for row in rows)
    return out.getvalue()


def _csv_field(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _blocks(rows: Sequence[Flat], kind: str, words: Sequence[str], *, markdown: bool) -> str:
    keys, heading, order, columns, closing = _BLOCKS[kind]
    if kind == "table" and any(row.get("of_limit") is not None for row in rows):
        shown = {name: write for name, write in columns.items() if name != "samples"}  # or it would be too wide
        columns = {**shown, "of_limit": lambda row: _digits(row.get("of_limit"))}

    def block(row: Flat) -> list[Any]:
        return [row[name] for name in keys]

    ordered = sorted(rows, key=lambda row: (block(row), [row[name] for name in order]))
    codes = _codes(ordered)
    warn = ["warn"] if any("warnings" in row for row in rows) else []
    parts = []
    for _, group in groupby(ordered, key=block):
        members = list(group)
        cells = [[write(row) for write in columns.values()] + [_flags(row, codes) for _ in warn] for row in members]
        grid = _grid([*columns, *warn], cells, markdown)
        parts.append(_join(heading(members), grid, [*closing(members), *_reasons(members)], markdown))
    if words:
        parts.append(_join("", "", words, markdown))
    legend = _legend(kind, ordered, codes)
    return "\n".join([*parts, _join("", "", legend, markdown)] if legend else parts) or "no rows\n"


def _join(heading: str, grid: str, lines: Iterable[str], markdown: bool) -> str:
    """Put a heading, a grid and the lines under it together."""
    lines = [_one_line(line) for line in lines]
    if markdown:
        parts = [f"### {heading}" if heading else "", grid, "\n".join(f"- {line}" for line in lines)]
        return "\n\n".join(part for part in parts if part) + "\n"
    return "".join(f"{part}\n" for part in (_wrap(heading), grid, *map(_wrap, lines)) if part)


def _wrap(line: str) -> str:
    # A verdict stays on one line for whoever searches for it.
    if " is faster than " in line:
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _grid(headers: Sequence[str], cells: Sequence[Sequence[str]], markdown: bool) -> str:
    """Draw the cells; text has one space between columns where two would make it wider than the page."""
    from tabulate import DataRow, TableFormat, tabulate

    align = ["left" if name in _LEFT else "right" for name in headers]
    if markdown:
        return str(tabulate(cells, headers, tablefmt="github", disable_numparse=True, colalign=align))
    grid = ""
    for gap in ("  ", " "):
        line = DataRow("", gap, "")
        style = TableFormat(None, None, None, None, line, line, 0, None)
        # The names go in as a row: tabulate would pad a header by two.
        drawn = str(tabulate([headers, *cells], tablefmt=style, disable_numparse=True, colalign=align))
        grid = "\n".join(row.rstrip() for row in drawn.splitlines())
        if max(map(len, grid.splitlines())) <= WIDTH:
            break
    return grid


def _table_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    cold = f", {row['buffers']} sets of buffers in turns" if row["buffers"] > 1 else ""
    sample = "" if row["estimand"] == ESTIMAND else f"; a sample is the {row['estimand']}"
    return f"{_place(row)}{cold}{sample}; {_launches(members)}, times in us, GB/s = 10^9 B/s"


def _launches(members: Sequence[Flat]) -> str:
    fewest, most = (bound(member["launches"] for member in members) for bound in (min, max))
    return f"{most if fewest == most else f'{fewest} to {most}'} launch{'es'[: 2 * (most > 1)]}"


def _compare_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    ratio = f"ratio = time of {row['algorithm']} / time of {row['baseline']}"
    own, other = row.get("memory", "private"), row.get("baseline_memory", "private")
    where = f"; {row['algorithm']} in {own} memory, {row['baseline']} in {other}" if "shared" in (own, other) else ""
    return f"{_place(row)}; {_launches(members)}, {ratio}{where}"


def _fit_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    what = f"{row['algorithm']} of {row['collective']}, {row['op']} {row['dtype']} on {row['device']}"
    place = "in place" if row["in_place"] else "out of place"
    unit = "messages; latency alpha in us, 1/beta and 1/gamma in GB/s (10^9 B/s)"
    if row["basis"] == "call":
        unit = f"whole calls; {unit.removeprefix('messages; ')}"
    return f"{what}, {place}, N = {row['nranks']}: {unit}"


def _predict_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    if row["basis"] == "given":
        return f"{row['collective']} on the given links, {_number(row['nranks'], 'rank')}; predicted times in us"
    return f"{_place(row)}; predicted times in us, GB/s = 10^9 B/s"


def _simulate_heading(members: Sequence[Flat]) -> str:
    row = members[0]
    return f"{row['collective']}, {_number(row['nranks'], 'rank')}; {row['network']}; times in us"


def _simulate_closing(members: Sequence[Flat]) -> list[str]:
    names = sorted({row["algorithm"] for row in members})
    lines = []
    for name in names:
        own = [row for row in members if row["algorithm"] == name]
        reached = max(own, key=lambda row: row["bytes_reached_max"])
        if reached["bytes_reached_max"]:
            size, nbytes = _sent(reached["bytes_reached_max"]), format_size(reached["nbytes"])
            lines.append(f"{name}: the busiest rank reads and writes {size} of other ranks' memory at {nbytes}")
        lines += _remarks(name, own)
    return lines


def _place(row: Flat) -> str:
    ranks = f", {_number(row['nranks'], 'rank')}" if isinstance(row["nranks"], int) else ""
    placement = "in place" if row["in_place"] else "out of place"
    return f"{row['collective']} {row['op']} {row['dtype']} on {row['device']}{ranks}, {placement}"


def _table_closing(members: Sequence[Flat]) -> list[str]:
    """Sum up every algorithm without a mean over sizes: its peak, its latency, its failures."""
    names = sorted({row["algorithm"] for row in members})
    lines = []
    for name in names:
        own = [row for row in members if row["algorithm"] == name]
        lines += [_summary(name, own), *_remarks(name, own)]
    return lines


def _remarks(name: str, rows: Sequence[Flat]) -> list[str]:
    """Say what was decided at which sizes: neighbours with the same remark as one range."""
    ordered = sorted((row for row in rows if row.get("remark")), key=lambda row: row["nbytes"])
    found = []
    for remark, group in groupby(ordered, key=lambda row: row["remark"]):
        sizes = [format_size(row["nbytes"]) for row in group]
        found.append(f"{remark} ({sizes[0] if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'})")
    return [f"{name}: {'; '.join(found)}"] if found else []


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
        f"peak busbw {_digits(_busbw(peak))} GB/s at {format_size(peak['nbytes'])}" if peak else "no busbw",
        f"latency {_microseconds(small['median_s'])} us at {format_size(small['nbytes'])}" if small else "no latency",
    ]
    if any(row.get("memory") == "shared" for row in rows):
        parts.append("in shared memory")
    if len(right) < len(rows):
        parts.append(f"FAIL in {len(rows) - len(right)} of {_number(len(rows), 'row')}")
    return f"{name}: {', '.join(parts)}"


def _busbw(row: Flat) -> float:
    return float(row["busbw_gb_per_s"])


def _compare_closing(members: Sequence[Flat]) -> list[str]:
    return [verdict_line(members)]


def _fit_closing(members: Sequence[Flat]) -> list[str]:
    """Say where the curve breaks and why, and how far off it is where it was not fitted."""
    ordered = sorted(members, key=lambda row: row["segment"])
    return [
        f"break between {format_size(low['message_high_nbytes'])} and {format_size(high['message_low_nbytes'])}: "
        f"probably {high['cause']}"
        for low, high in pairwise(ordered)
        if high["cause"]
    ]


def _predict_closing(members: Sequence[Flat]) -> list[str]:
    ordered = sorted((row for row in members if row["best"]), key=lambda row: row["nbytes"])
    ranges = dict.fromkeys((row["algorithm"], row["wins_from_nbytes"], row["wins_to_nbytes"]) for row in ordered)
    words = [
        f"{name} at {rough_size(low)}" if low == high else f"{name} from {rough_size(low)} to {rough_size(high)}"
        for name, low, high in ranges
    ]
    return [f"fastest: {', '.join(words)}"] if words else []


def _off(mape: float | None, worst: float | None) -> str:
    return "-" if mape is None or worst is None else f"{mape:.1%} ({worst:.0%})"


def _reasons(members: Sequence[Flat]) -> list[str]:
    """Say for every cell that is missing why it is; long lists of places are cut short."""
    places: dict[str, list[str]] = {}
    for row in members:
        if row.get("reason"):
            size = format_size(row["nbytes"])
            places.setdefault(row["reason"], []).append(size if "baseline" in row else f"{row['algorithm']} {size}")
    return [f'"-" at {_some(where)}: {reason}' for reason, where in places.items()]


def _some(items: Sequence[str]) -> str:
    named = ", ".join(items[:4])
    return named if len(items) <= 4 else f"{named} and {len(items) - 4} more"


def _codes(rows: Sequence[Flat]) -> dict[str, str]:
    """Give every warning seen its letter, or a number where it has none."""
    seen = dict.fromkeys(warning for row in rows for warning in row.get("warnings", ()))
    unknown = (str(number) for number in range(1, len(seen) + 1))
    return {warning: GUARDS[warning].letter if warning in GUARDS else next(unknown) for warning in seen}


def _flags(row: Flat, codes: Mapping[str, str]) -> str:
    return ",".join(codes[warning] for warning in row["warnings"])


def _legend(kind: str, rows: Sequence[Flat], codes: Mapping[str, str]) -> list[str]:
    lines = [
        f"{code} = {warning}: {GUARDS[warning].meaning}; {GUARDS[warning].advice}"
        if warning in GUARDS
        else f"{code} = {warning}"
        for warning, code in codes.items()
    ]
    if kind != "table" or any(row.get("of_limit") is not None for row in rows):
        lines += _NOTES[kind] if rows else []
    failed = sum(bool(row.get("wrong")) for row in rows)
    return [*lines, f"FAIL: wrong result in {failed} of {_number(len(rows), 'row')}"] if failed else lines


#: What a reader of each kind has to know, said once at the end.
_NOTES = {
    "table": [
        "of_limit: what the steps' bare Sendrecvs and additions take, measured beside, / the time; above 1 where "
        "segments are added from cache, or steps only send or only receive, and below some 10 us, where what surrounds "
        "each bare call counts as often as there are calls"
    ],
    "compare": [
        "ratio below 1: the first named is faster; a verdict needs an interval without 1 and a rank test at 5 %, "
        "corrected for all cells, and between runs one over launches; same: within the threshold of 1"
    ],
    "fit": [
        "link: alpha is the cost of a message and beta of a byte on every schedule's critical path, at any N; gamma is "
        "that of an added byte, - where it is inside beta",
        "call: the schedule is not known, or depends on size or nodes; alpha and beta are those of a whole call at "
        "that N, by vector size",
        "mape: mean (worst) error of the points in the segment; left-out N, left-out size: of what was predicted "
        "without them",
    ],
    "predict": [
        "best: the fastest of those that need no switch that adds; interval: 95 %, of the fit and of the scatter of "
        "the points about it",
    ],
    "simulate": [
        "closed, over: the closed form, for links that are all alike and ranks that start together, and how far above "
        "it the simulation is",
        "alpha, beta, gamma, wait: what the critical path is made of: messages, bytes moved and reduced, a late start",
        "idle: the share of all ranks' time in which they neither send, receive nor reduce",
    ],
}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _digits(value: float | None) -> str:
    """Write four significant digits, without an exponent where that is readable."""
    if value is None:
        return "-"
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:#.3g}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.4g}".rstrip(".")


def _microseconds(seconds: float | None) -> str:
    return _digits(None if seconds is None else seconds * 1e6)


def _bounds(low: float | None, high: float | None, write: Callable[[float | None], str]) -> str:
    return "-" if low is None or high is None else f"[{write(low)}, {write(high)}]"


def _sent(nbytes: int | None) -> str:
    """Write bytes exactly where that is short, otherwise with four digits in the largest binary unit."""
    if nbytes is None:
        return "-"
    exact = format_size(nbytes)
    if len(exact) <= len("1023KiB"):
        return exact
    power = min((nbytes.bit_length() - 1) // 10, 4)
    return f"{nbytes / 2 ** (10 * power):.4g}{'KMGT'[power - 1]}iB"


def _verdict_of_check(row: Flat) -> str:
    return "-" if row["wrong"] is None else "FAIL" if row["wrong"] else "0"


def _bandwidth_bounds(row: Flat) -> str:
    low, high = row["beta_low_s_per_byte"], row["beta_high_s_per_byte"]
    if low is None or high is None:
        return "-"
    slowest = _digits(1 / high / 1e9) if high else "inf"
    return f"[{slowest}, {_digits(1 / low / 1e9) if low else 'inf'}]"


_LEFT = ("algorithm", "verdict", "basis", "warn")

Columns = Mapping[str, Callable[[Flat], str]]

_TABLE: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "algorithm": lambda row: str(row["algorithm"]),
    "time(us)": lambda row: _microseconds(row["median_s"]),
    "95% interval": lambda row: _bounds(row["ci_low_s"], row["ci_high_s"], _microseconds),
    "algbw": lambda row: _digits(row["algbw_gb_per_s"]),
    "busbw": lambda row: _digits(row["busbw_gb_per_s"]),
    "sent": lambda row: _sent(row["bytes_sent_max"]),
    "wrong": _verdict_of_check,
    "samples": lambda row: str(row["samples"]),
}

_COMPARE: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "ratio": lambda row: _digits(row["ratio"]),
    "95% interval": lambda row: _bounds(row["ratio_low"], row["ratio_high"], _digits),
    "verdict": lambda row: str(row["verdict"]),
}

_FIT: Columns = {
    "message": lambda row: f"{_sent(row['message_low_nbytes'])} to {_sent(row['message_high_nbytes'])}",
    "alpha": lambda row: _microseconds(row["alpha_s"]),
    "95%": lambda row: _bounds(row["alpha_low_s"], row["alpha_high_s"], _microseconds),
    "1/beta": lambda row: _digits(row["bandwidth_gb_per_s"]),
    "95% ": _bandwidth_bounds,
    "1/gamma": lambda row: _digits(row["reduction_gb_per_s"]),
    "mape": lambda row: _off(row["mape"], row["worst"]),
    "left-out N": lambda row: _off(row["heldout_ranks_mape"], row["heldout_ranks_worst"]),
    "left-out size": lambda row: _off(row["heldout_sizes_mape"], row["heldout_sizes_worst"]),
    "points": lambda row: str(row["points"]),
}

_PREDICT: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "algorithm": lambda row: str(row["algorithm"]),
    "time(us)": lambda row: _microseconds(row["predicted_s"]),
    "95% interval": lambda row: _bounds(row["low_s"], row["high_s"], _microseconds),
    "algbw": lambda row: _digits(row["algbw_gb_per_s"]),
    "best": lambda row: "*" if row["best"] else "",
}

_SIMULATE: Columns = {
    "size": lambda row: format_size(row["nbytes"]),
    "algorithm": lambda row: str(row["algorithm"]),
    "time(us)": lambda row: _microseconds(row["simulated_s"]),
    "closed": lambda row: _microseconds(row["closed_s"]),
    "over": lambda row: "-" if row["over_closed"] is None else f"{round(row['over_closed'], 6) + 0:+.1%}",
    "rounds": lambda row: str(row["rounds"]),
    "sent": lambda row: _sent(row["bytes_sent_max"]),
    "alpha": lambda row: f"{row['alpha_share']:.1%}",
    "beta": lambda row: f"{row['beta_share']:.1%}",
    "gamma": lambda row: f"{row['gamma_share']:.1%}",
    "wait": lambda row: f"{row['waiting_share']:.1%}",
    "idle": lambda row: f"{row['idle_share']:.1%}",
}

#: For each kind: what one block shares, its heading, the order within, its columns, and its closing lines.
_BLOCKS: dict[
    str,
    tuple[
        tuple[str, ...],
        Callable[[Sequence[Flat]], str],
        tuple[str, ...],
        Columns,
        Callable[[Sequence[Flat]], list[str]],
    ],
] = {
    "table": (
        ("collective", "op", "dtype", "device", "nranks", "in_place", "buffers", "estimand"),
        _table_heading,
        ("nbytes", "algorithm"),
        _TABLE,
        _table_closing,
    ),
    "compare": (
        ("collective", "op", "dtype", "device", "nranks", "in_place", "algorithm", "baseline"),
        _compare_heading,
        ("nbytes",),
        _COMPARE,
        _compare_closing,
    ),
    "fit": (
        ("basis", "collective", "algorithm", "op", "dtype", "device", "in_place", "nranks"),
        _fit_heading,
        ("segment",),
        _FIT,
        _fit_closing,
    ),
    "simulate": (
        ("collective", "nranks", "network"),
        _simulate_heading,
        ("nbytes", "algorithm"),
        _SIMULATE,
        _simulate_closing,
    ),
    "predict": (
        ("collective", "op", "dtype", "device", "in_place", "nranks"),
        _predict_heading,
        ("nbytes", "algorithm"),
        _PREDICT,
        _predict_closing,
    ),
}

"""The bandwidth table in the columns of osu_allreduce -f, nccl-tests or IMB, for programs that read those.

A time is what these tools mean by one: the mean over iterations of each rank's own time, averaged over ranks, in us
with three decimals. A row of which that is not known, since another tool measured it, has that tool's mean instead.
Sizes are those of the tool too. Comment lines before each table say what the tool has no words for; ``import`` reads
all of it back without options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from ringbench.records.importers.nccl import DTYPES, OPS, PROGRAMS
from ringbench.records.provenance import package_version
from ringbench.records.row import ESTIMAND, MANNER
from ringbench.records.straggler import NOBODY
from ringbench.records.units import format_size
from ringbench.report.kind import Flat
from ringbench.report.writing import one_line
from ringbench.schedule.semantics import collective_named

#: Whose size is that of one rank's block, with OSU and IMB. IMB's reduce_scatter was the vector's until 2018.
_BLOCKS = ("allgather", "alltoall")

_OSU_NAMES = {"bcast": "Broadcast", "alltoall": "All-to-All Personalized Exchange"}
_FIRST, _SIDE = (12, 13, 11, 8, 7), (13, 9, 9, 8)  # how wide columns of nccl-tests are
_PROGRAMS = {collective: program for program, collective in PROGRAMS.items()}
_TYPES = {dtype: name for name, dtype in reversed(DTYPES.items())}
_OPERATIONS = {op: name for name, op in OPS.items()}


def render_style(rows: Sequence[Flat], style: str) -> str:
    """Return the rows of a bandwidth table as ``osu``, ``nccl`` or ``imb`` would print them, in ASCII.

    One table for each collective, algorithm and number of ranks (and operation, type, device, sets of buffers,
    estimand; with ``osu`` and ``imb`` also placement). Rows without a time, and sizes that the tool cannot express, are
    named in a comment. Raises ValueError for an unknown style.
    """
    if style not in _STYLES:
        raise ValueError(f"unknown style {style!r}; known: {', '.join(_STYLES)}")
    keys: tuple[str, ...] = ("collective", "algorithm", "nranks", "op", "dtype", "device", *MANNER)
    if style != "nccl":
        keys = (*keys, "in_place")

    def block(row: Flat) -> list[object]:
        return [*(row[name] for name in keys), row["osu_avg_s"] is None]

    ordered = sorted(rows, key=lambda row: (block(row), row["nbytes"]))
    like, write = _STYLES[style]
    parts = []
    for _, group in groupby(ordered, key=block):
        members = list(group)
        shown = [row for row in members if _unfit(row, style) is None]
        said = _said(members[0], like, keys)
        left = [f"# left out: {format_size(row['nbytes'])}: {why}" for row in members if (why := _unfit(row, style))]
        parts.append("\n".join([*said, *(write(shown) if shown else []), *left]) + "\n")
    return ("\n".join(parts) or "# no rows\n").encode("ascii", "backslashreplace").decode()


def _said(row: Flat, like: str, keys: Sequence[str]) -> list[str]:
    """Return the lines of which the tool knows nothing."""
    names = [name for name in ("op", "dtype", "device", "in_place") if name in keys]
    lines = [f"# ringbench {package_version()}, in the columns of {like}"]
    lines += [f"# algorithm {row['algorithm']}", f"# nranks {row['nranks']}"]
    lines += [f"# {name} {str(row[name]).lower() if name == 'in_place' else row[name]}" for name in names]
    if row["buffers"] > 1:
        lines.append(f"# buffers {row['buffers']}")
    if row["osu_avg_s"] is None:
        lines.append(f"# estimand {one_line(row['estimand'])}")
    elif row["estimand"] != ESTIMAND:
        means = "mean over iterations and ranks of the local duration, where a row of ringbench has the"
        lines.append(f"# estimand {means} {one_line(row['estimand'])}")
    return lines


def _mean(row: Flat) -> float | None:
    mean = row["median_s"] if row["osu_avg_s"] is None else row["osu_avg_s"]
    return None if mean is None else float(mean)


def _unfit(row: Flat, style: str) -> str | None:
    """Say why the row cannot be printed, None where it can."""
    if _mean(row) is None:
        return one_line(row["reason"] or "no time")
    if row["straggler"] != NOBODY:
        return f"late on purpose: {row['straggler']}"
    if style != "nccl" and row["collective"] in _BLOCKS and row["nbytes"] % row["nranks"]:
        return f"no whole number of bytes for each of {row['nranks']} ranks"
    return None


def _size(row: Flat) -> int:
    return int(row["nbytes"] // row["nranks"] if row["collective"] in _BLOCKS else row["nbytes"])


def _us(seconds: float | None) -> str:
    return "N/A" if seconds is None else f"{seconds * 1e6:.3f}"


def _right(cells: Sequence[str], wide: Sequence[int]) -> str:
    """Write cells on the right of their columns, with a blank before each however long it is."""
    return "".join(f" {cell:>{width - 1}}" for cell, width in zip(cells, wide, strict=True))


def _osu(rows: Sequence[Flat]) -> list[str]:
    name = _OSU_NAMES.get(rows[0]["collective"], rows[0]["collective"].capitalize())
    ranked = rows[0]["osu_avg_s"] is not None
    checked = all(row["wrong"] is not None for row in rows)
    further = [("Min Latency(us)", "osu_min_s"), ("Max Latency(us)", "osu_max_s")] if ranked else []
    heads = ["Avg Latency(us)", *(head for head, _ in further), *["Iterations"][:ranked], *["Validation"][:checked]]
    lines = [f"# OSU MPI {name} Latency Test v7.4", "# Size".ljust(10) + _right(heads, [18] * len(heads))]
    for row in rows:
        cells = [_us(_mean(row)), *(_us(row[key]) for _, key in further), *[str(row["samples"])][:ranked]]
        cells += ["Fail" if row["wrong"] else "Pass"][:checked]
        lines.append(str(_size(row)).ljust(10) + _right(cells, [18] * len(heads)))
    return lines


def _imb(rows: Sequence[Flat]) -> list[str]:
    ranked = rows[0]["osu_avg_s"] is not None
    checked = all(row["wrong"] is not None for row in rows)
    times = [("t_min[usec]", "osu_min_s"), ("t_max[usec]", "osu_max_s")] if ranked else []
    heads = ["#bytes", "#repetitions", *(head for head, _ in times), "t_avg[usec]", *["defects"][:checked]]
    rule = "#" + "-" * 64
    lines = [rule, f"# Benchmarking {rows[0]['collective'].capitalize()}", f"# #processes = {rows[0]['nranks']}", rule]
    lines.append(_right(heads, [14] * len(heads)))
    for row in rows:
        cells = [str(_size(row)), str(row["samples"]), *(_us(row[key]) for _, key in times), _us(_mean(row))]
        cells += ["1.00" if row["wrong"] else "0.00"][:checked]
        lines.append(_right(cells, [14] * len(heads)))
    return lines


def _nccl(rows: Sequence[Flat]) -> list[str]:
    side = _right(["time", "algbw", "busbw", "#wrong"], _SIDE)
    units = _right(["(us)", "(GB/s)", "(GB/s)", ""], _SIDE)
    row = rows[0]
    dtype = str(_TYPES.get(row["dtype"], row["dtype"]))
    op = str(_OPERATIONS.get(row["op"], row["op"]))
    lines = [
        f"# Collective test starting: {_PROGRAMS[row['collective']]}_perf",
        f"#{'out-of-place':>81}{'in-place':>39}",
        "#" + _right(["size", "count", "type", "redop", "root"], _FIRST) + side + side,
        "#" + (_right(["(B)", "(elements)", "", "", ""], _FIRST) + units + units).rstrip(),
    ]
    for _, pair in groupby(rows, key=lambda row: row["nbytes"]):
        placed = {row["in_place"]: row for row in pair}
        row = next(iter(placed.values()))
        # The count is that of what one rank sends or receives, whichever is less.
        count = row["count"] // (row["nranks"] if collective_named(row["collective"]).per_rank else 1)
        first = _right([str(row["nbytes"]), str(count), dtype, op, "-1"], _FIRST)
        lines.append(" " + first + "".join(_nccl_side(placed.get(in_place)) for in_place in (False, True)))
    return lines


def _nccl_side(row: Flat | None) -> str:
    """Return time, algbw, busbw and wrong elements of one placement; a wrong result has no bandwidth."""
    cells = ["N/A"] * 4
    if row is not None:
        mean = _mean(row)
        cells[0] = _us(mean)
        if mean and not row["wrong"]:
            algbw = row["nbytes"] / mean / 1e9
            busbw = float(algbw * collective_named(row["collective"]).bus_factor(row["nranks"]))
            cells[1:3] = [f"{algbw:.4f}", f"{busbw:.4f}"]
        cells[3] = "N/A" if row["wrong"] is None else str(row["wrong"])
    return _right(cells, _SIDE)


_STYLES: dict[str, tuple[str, Callable[[Sequence[Flat]], list[str]]]] = {
    "osu": ("OSU Micro-Benchmarks 7.4", _osu),
    "nccl": ("nccl-tests 2.17", _nccl),
    "imb": ("Intel MPI Benchmarks 2018", _imb),
}

"""The tables of data-parallel training: what was predicted of steps, by bucket size, rank count and lever."""

from __future__ import annotations

from collections.abc import Sequence

from ringbench.records.straggler import NOBODY
from ringbench.records.units import rough_size
from ringbench.report.tables import Columns, Flat, Kind, render


def milliseconds(seconds: float | None) -> str:
    """Write a time in ms with four digits."""
    return "-" if seconds is None else figure(seconds * 1e3)


def share(value: float | None) -> str:
    """Write a share in per cent."""
    return "-" if value is None else f"{value:.1%}"


def figure(value: float | None) -> str:
    """Write a number with four digits."""
    if value is None:
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def _model(row: Flat) -> str:
    return f"{row['workload']}, {row['parameters'] / 1e6:.4g} M {row['dtype']}"


def _how(row: Flat) -> str:
    packed = f", sent {row['ratio']:g} times smaller" if row["ratio"] > 1 else ""
    return f"{row['algorithm']}, {row['engine']}, accumulate {row['accumulate']}{packed}"


def _ranks(row: Flat) -> str:
    return f"{row['nranks']} rank{'s'[: row['nranks'] != 1]}"


_TIMES: Columns = {
    "compute": lambda row: milliseconds(row["compute_s"]),
    "comm": lambda row: milliseconds(row["communication_s"]),
    "exposed": lambda row: milliseconds(row["exposed_s"]),
    "hidden": lambda row: share(row["hidden_share"]),
    "step": lambda row: milliseconds(row["step_s"]),
}

_GAINS: Columns = {"speed-up": lambda row: figure(row["speedup"]), "efficiency": lambda row: share(row["efficiency"])}

_BUCKETS = Kind(
    keys=("workload", "parameters", "dtype", "nranks", "algorithm", "engine", "accumulate", "ratio"),
    heading=lambda rows: f"{_model(rows[0])}; {_ranks(rows[0])}, {_how(rows[0])}; ms predicted",
    order=("bucket_nbytes",),
    columns={
        "bucket": lambda row: rough_size(row["bucket_nbytes"]),
        "buckets": lambda row: str(row["buckets"]),
        **_TIMES,
        **_GAINS,
        "best": lambda row: "*" if row["best"] else "",
    },
    closing=lambda rows: [],
)

_RANKS = Kind(
    keys=("workload", "parameters", "dtype", "algorithm", "engine", "accumulate", "ratio"),
    heading=lambda rows: f"{_model(rows[0])}; {_how(rows[0])}, the best buckets; ms predicted",
    order=("nranks",),
    columns={
        "ranks": lambda row: str(row["nranks"]),
        "bucket": lambda row: rough_size(row["bucket_nbytes"]),
        **_TIMES,
        **_GAINS,
        "global batch": lambda row: str(row["global_batch"]),
    },
    closing=lambda rows: [],
)

_LEVERS = Kind(
    keys=("workload", "parameters", "dtype", "nranks", "engine"),
    heading=lambda rows: f"{_model(rows[0])}; {_ranks(rows[0])}, {rows[0]['engine']}; ms predicted",
    order=("place",),
    columns={
        "lever": lambda row: str(row["lever"]),
        "bucket": lambda row: rough_size(row["bucket_nbytes"]),
        "accumulate": lambda row: str(row["accumulate"]),
        "algorithm": lambda row: str(row["algorithm"]),
        "smaller": lambda row: f"{row['ratio']:g}x",
        "comm": _TIMES["comm"],
        "exposed": _TIMES["exposed"],
        "step": _TIMES["step"],
        "samples/s": lambda row: figure(row["samples_per_s"]),
        "speed-up": _GAINS["speed-up"],
        "gain": lambda row: "-" if row["gain"] is None else f"{row['gain']:.2f}x",
    },
    closing=lambda rows: [],
    notes=(
        "comm: all buckets reduced by themselves; exposed: what the step takes longer than its computing",
        "speed-up: samples per second over those of one rank with the same accumulation; gain: over those of no lever",
    ),
)

_PARTS = {"buckets": _BUCKETS, "ranks": _RANKS, "levers": _LEVERS}


def render_plan(rows: Sequence[Flat], format: str, words: Sequence[str] = ()) -> str:
    """Return the predicted steps as text: one table for each part, or one array or list of all of them."""
    if format in ("csv", "json"):
        return render(rows, _BUCKETS, format)
    parts = []
    for part, kind in _PARTS.items():
        own = [{**row, "place": place} for place, row in enumerate(rows) if row["part"] == part]
        if own:
            parts.append(render(own, kind, format, words if part == "buckets" else ()))
    return "\n".join(parts)


def _engine(row: Flat) -> str:
    """Name the engine, and what it runs where that is not one thing alone."""
    return str(row["engine"]) if row["algorithm"] in ("mpi", "none") else f"{row['engine']} {row['algorithm']}"


def _width(row: Flat) -> str:
    """Write how wide the interval of the step is, as a share of it."""
    return "-" if row["ci_low_s"] is None else f"{(row['ci_high_s'] - row['ci_low_s']) / row['step_s']:.1%}"


def _predicted(row: Flat) -> str:
    """Write what the timeline makes of the row, and by how much the step is longer."""
    step = row["timeline_s"] if row["predicted_s"] is None else row["predicted_s"]
    return f"{milliseconds(step)} ({row['step_s'] / step - 1:+.0%})" if step > 0 else "-"


def _shares(row: Flat) -> str:
    whole, possible = share(row["hidden_share"]), share(row["possible_share"])
    return f"{whole} ({possible})" if row["possible_share"] is not None else whole


def _steps_heading(rows: Sequence[Flat]) -> str:
    row = rows[0]
    late = "" if row["straggler"] == NOBODY else f", late on purpose: {row['straggler']}"
    packed = "" if row["compress"] == "none" else f", {row['compress']}"
    how = f"accumulate {row['accumulate']}{packed}, compute by {row['compute']}{late}"
    return f"{_model(row)} on {row['device']}; {_ranks(row)}, {how}; times in ms"


def _steps_closing(rows: Sequence[Flat]) -> list[str]:
    """Say what is wrong with rows, which bucket size is best, and who waits where somebody was late."""
    lines = []
    for row in rows:
        name = f"{_engine(row)} {rough_size(row['bucket_nbytes'])}"
        if row["note"]:
            lines.append(f"{name}: {row['note']}")
        if row["straggler"] != NOBODY:
            waits = ", ".join(f"{rank}: {milliseconds(wait)}" for rank, wait in enumerate(row["finish_s"]))
            lines.append(f"{name}: late by {', '.join(map(milliseconds, row['late_s']))}; waits after backward {waits}")
        if row["best"] and row["recommended_nbytes"] is not None:
            best, told = rough_size(row["bucket_nbytes"]), rough_size(row["recommended_nbytes"])
            lines.append(f"{_engine(row)}: the best bucket size is {best}; the model says {told}")
    return lines


_SHARED = ("workload", "parameters", "dtype", "device", "nranks", "accumulate", "compress", "compute", "straggler")
_WHICH: Columns = {"bucket": lambda row: rough_size(row["bucket_nbytes"]), "engine": _engine}

STEPS = Kind(
    keys=_SHARED,
    heading=_steps_heading,
    order=("place",),
    columns={
        **_WHICH,
        "step": _TIMES["step"],
        "width": _width,
        "predicted": _predicted,
        "comm": _TIMES["comm"],
        "exposed": _TIMES["exposed"],
        "hidden": _shares,
    },
    closing=_steps_closing,
    notes=(
        "step: median of the slowest rank; width: of its 95 % interval; predicted: by the timeline, from links if "
        "their costs are given, else from each bucket's reduction alone, and how much longer the step is",
        "comm: reductions alone; exposed: step - compute alone; hidden: 1 - exposed / comm (and of what could be "
        "hidden: not the last bucket, nor what does not fit beside backward)",
    ),
)

BESIDE = Kind(
    keys=_SHARED,
    heading=_steps_heading,
    order=("place",),
    columns={
        **_WHICH,
        "compute": _TIMES["compute"],
        "slowdown": lambda row: "-" if row["slowdown"] is None else f"{row['slowdown']:.3f}",
        "OSU": lambda row: share(row["osu"]),
        "IMB": lambda row: share(row["imb"]),
        "sent": lambda row: rough_size(row["wire_nbytes"]),
        "samples/s": lambda row: figure(row["samples_per_s"]),
        "speed-up": lambda row: "-" if row["speedup"] is None else f"{row['speedup']:.3f}",
        "efficiency": _GAINS["efficiency"],
    },
    closing=lambda rows: [f"speed-up over {n} rank{'s'[: n > 1]}" for n in {row["speedup_from"] for row in rows} if n],
    notes=(
        "compute: alone; slowdown: of backward, beside communication; OSU, IMB: overlap as osu_iallreduce and IMB-NBC "
        "define it, of the same times; sent: by a rank at least",
        "speed-up: samples per second over those of the fewest ranks that trained the same, at their fastest; "
        "efficiency: by the ranks added",
    ),
)


MEASURED_LEVERS = Kind(
    keys=("workload", "parameters", "dtype", "nranks", "engine"),
    heading=lambda rows: f"{_model(rows[0])}; {_ranks(rows[0])}, {rows[0]['engine']}, levers; ms measured",
    order=("place",),
    columns={
        "lever": lambda row: str(row["lever"]),
        "bucket": _WHICH["bucket"],
        "accumulate": lambda row: str(row["accumulate"]),
        "algorithm": lambda row: str(row["algorithm"]),
        "compress": lambda row: str(row["compress"]),
        "step": _TIMES["step"],
        "speed-up": lambda row: _times(row["speedup"]),
        "predicted": lambda row: _times(row["predicted_speedup"]),
        "gain": lambda row: _times(row["gain"]),
        "predicted ": lambda row: _times(row["predicted_gain"]),
    },
    closing=lambda rows: [],
    notes=(
        "speed-up: over the fewest ranks of the run, at their fastest; gain: samples per second over those of no "
        "lever; predicted: both by the timeline",
    ),
)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def render_measured_levers(rows: Sequence[Flat], format: str) -> str:
    """Return what each lever brought as text or Markdown; nothing where there are none."""
    return render(rows, MEASURED_LEVERS, format) if rows else ""


def render_steps(rows: Sequence[Flat], format: str) -> str:
    """Return measured steps as text or Markdown, in two tables, or as CSV or JSON in one."""
    if format in ("csv", "json"):
        return render(rows, STEPS, format)
    placed = [{**row, "place": place} for place, row in enumerate(rows)]
    bare = [{name: value for name, value in row.items() if name not in ("warnings", "wrong")} for row in placed]
    return "\n".join([render(placed, STEPS, format), render(bare, BESIDE, format)])

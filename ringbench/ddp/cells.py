"""What measured steps come to: exposed and hidden communication, what the timeline makes of them, and speed-ups."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ringbench.ddp.choices import LIBRARYS_OWN
from ringbench.ddp.costs import Costs
from ringbench.ddp.timeline import Bucket, Time, Timeline, overlap, timeline, unavoidable
from ringbench.records.ddp_row import DdpRow
from ringbench.records.ddp_settings import DdpSettings
from ringbench.records.stats import median_interval
from ringbench.records.straggler import NOBODY

#: What rows must share to be told apart by their bucket size alone, and to be the same on more ranks.
_BUT_BUCKETS = ("workload", "dtype", "device", "nranks", "engine", "algorithm", "accumulate", "compress", "compute")
_BUT_RANKS = ("workload", "dtype", "device", "compute")


def cells(rows: Sequence[DdpRow], costs: Costs | None = None) -> list[dict[str, Any]]:
    """Return one flat dictionary for each row, in order.

    ``step_s``, ``compute_s`` and ``communication_s`` are medians, with the interval of the first. ``exposed_s`` is what
    the step takes longer than computing alone, ``hidden_share`` the rest of the communication as a share of it, and
    ``possible_share`` as a share of what could be hidden; see ``overlap``, also for ``osu``, ``imb`` and ``note``.
    ``timeline_s`` is the step by the timeline, with computing and each bucket's reduction as they were measured alone;
    ``predicted_s`` the same with the reductions that ``costs`` tell. ``slowdown`` is what backward takes beside
    communication, over what it takes alone.

    ``samples_per_s`` counts those of all ranks; ``speedup`` is over ``speedup_from`` ranks, the fewest of the run that
    train the same, whose fastest row is taken; ``efficiency`` is that for each of the ranks added. ``best`` marks the
    fastest bucket size, and ``recommended_nbytes`` is that of the model: the line alpha + beta * bytes through the
    measured reductions (or ``costs``), on the timeline.
    """
    found = [_cell(row, costs) for row in rows]
    for row, cell in zip(rows, found, strict=True):
        cell |= _speedup(row, rows)
    for at, row in enumerate(rows):
        alike = [number for number, other in enumerate(rows) if _shared(row, other, _BUT_BUCKETS)]
        if len(alike) > 1:
            believed = [number for number in alike if not _impossible(found[number]) and not rows[number].wrong]
            best = min(believed, key=lambda number: found[number]["step_s"], default=None)
            found[at] |= {"best": at == best, "recommended_nbytes": _recommended([rows[n] for n in alike], costs)}
    return found


def _impossible(cell: dict[str, Any]) -> bool:
    """Say whether a step is shorter than what was measured alone, so that no share of it is hidden or not."""
    return cell["hidden_share"] is None and cell["communication_s"] > 0


def _shared(one: DdpRow, other: DdpRow, names: Sequence[str]) -> bool:
    same = all(getattr(one, name) == getattr(other, name) for name in names)
    return same and one.straggler == other.straggler


def _cell(row: DdpRow, costs: Costs | None) -> dict[str, Any]:
    (step, low, high), compute, communication = row.step, row.compute_alone[0], row.communication_alone[0]
    played = _played(row)
    within = _half(row.samples_s) + _half(row.compute_samples_s)
    late = max(row.late_s, default=0.0) if row.straggler != "none" else 0.0
    seen = overlap(compute + late, communication, step, unavoidable_s=unavoidable(played), within_s=within)
    backward = float(np.median(row.backward_samples_s))
    return {
        "workload": row.workload,
        "parameters": row.parameters,
        "dtype": row.dtype,
        "device": row.device,
        "nranks": row.nranks,
        "engine": row.engine,
        "algorithm": row.algorithm,
        "bucket_nbytes": row.cap_nbytes,
        "buckets": len(row.bucket_nbytes),
        "accumulate": row.accumulate,
        "compress": row.compress,
        "compute": row.compute,
        "step_s": step,
        "ci_low_s": low,
        "ci_high_s": high,
        "compute_s": compute,
        "communication_s": communication,
        "exposed_s": seen.exposed_s,
        "hidden_share": seen.hidden_share,
        "possible_share": seen.possible_share,
        "osu": seen.osu,
        "imb": seen.imb,
        "slowdown": backward / compute if compute > 0 else None,
        "timeline_s": played.step_s,
        "predicted_s": _predicted(row, costs),
        "samples_per_s": _rate(row),
        "speedup": None,
        "speedup_from": None,
        "efficiency": None,
        "global_batch": row.nranks * row.batch * row.accumulate,
        "best": None,
        "recommended_nbytes": None,
        "wire_nbytes": row.wire_nbytes,
        "finish_s": list(row.finish_s),
        "late_s": list(row.late_s),
        "straggler": row.straggler,
        "samples": len(row.samples_s),
        "wrong": row.wrong,
        "note": "wrong averages" if row.wrong else seen.note,
        "warnings": list(row.warnings),
    }


def _half(samples: Sequence[float]) -> float:
    """Return half the width of the median's interval, or of the range where there are too few samples for one."""
    _, low, high = median_interval(samples)
    return (max(samples) - min(samples) if low is None or high is None else high - low) / 2


def _played(row: DdpRow, times: Sequence[float] | None = None) -> Timeline:
    """Return the timeline of a row: its gradients ready in proportion to what computing takes alone."""
    compute = row.compute_alone[0]
    scale = compute / row.nominal_s if row.nominal_s > 0 else 1.0
    times = row.bucket_s if times is None else times
    buckets = [Bucket(nbytes=at, ready_s=ready * scale) for at, ready in enumerate(row.ready_s)]
    return timeline(buckets, times.__getitem__, compute, row.engine)


def _predicted(row: DdpRow, costs: Costs | None) -> float | None:
    """Return the step that given or fitted links tell; None where they do not know the algorithm or compression."""
    if costs is None or row.compress != "none":
        return None
    try:
        time = (lambda nbytes: 0.0) if row.algorithm == "none" else costs.time(row.algorithm, row.nranks)
    except ValueError:
        return None
    return _played(row, [time(nbytes) for nbytes in row.bucket_nbytes]).step_s


def _rate(row: DdpRow) -> float | None:
    return row.nranks * row.batch * row.accumulate / row.step[0] if row.step[0] > 0 else None


#: What can be turned to get faster, by the names of their levers.
LEVERS = {
    "bucket size": "bucket_nbytes",
    "accumulation": "accumulate",
    "algorithm": "algorithm",
    "compression": "compress",
}


def levers(found: Sequence[dict[str, Any]], settings: DdpSettings) -> list[dict[str, Any]]:
    """Return measured cells side by side for each rank count and engine: no lever, each by itself, and all of them.

    No lever is the first that the settings name of everything. Turned by itself a lever is at its best, also where that
    is worse than not turned; all of them are where most samples per second are. ``gain`` is over no lever, and
    ``predicted_...`` is what the timeline says of it.
    """
    values = {"bucket_nbytes": settings.bucket_sizes, "accumulate": settings.accumulate}
    values |= {"algorithm": settings.algorithms, "compress": settings.compress}  # type: ignore[dict-item]
    fixed = {name: of[0] for name, of in values.items()}
    lines: list[dict[str, Any]] = []
    calm = [one for one in found if one["straggler"] == NOBODY and not one["wrong"] and one["samples_per_s"]]
    base = min((one["nranks"] for one in calm), default=1)
    for nranks, engine in dict.fromkeys((one["nranks"], one["engine"]) for one in calm):
        alike = [one for one in calm if (one["nranks"], one["engine"]) == (nranks, engine)]
        none = [one for one in alike if all(one[name] == value for name, value in fixed.items())]
        if len(none) != 1 or (nranks == base and any(one["nranks"] > base for one in calm)):
            continue
        chosen = {"none": none[0]}
        for lever, name in LEVERS.items():
            turned = [one for one in alike if {other for other in fixed if one[other] != fixed[other]} == {name}]
            if turned:
                chosen[lever] = max(turned, key=_samples)
        if len(chosen) > 2:
            chosen["all"] = max(alike, key=_samples)
            first = [one for one in calm if one["nranks"] == base and one["engine"] != "none"]
            fewest = max(map(_samples, first), default=0.0)
            for place, (lever, one) in enumerate(chosen.items()):
                own, without = _foretold(one), _foretold(none[0])
                told = own / fewest if fewest and base < nranks else None
                gain = {"gain": _samples(one) / _samples(none[0]), "predicted_gain": own / without}
                lines.append({**one, "lever": lever, "place": place, "predicted_speedup": told, **gain})
    return lines


def _samples(cell: dict[str, Any]) -> float:
    return float(cell["samples_per_s"])


def _foretold(cell: dict[str, Any]) -> float:
    """Return the samples per second that the timeline says."""
    step = cell["timeline_s"] if cell["predicted_s"] is None else cell["predicted_s"]
    return float(cell["global_batch"] / step)


def _speedup(row: DdpRow, rows: Sequence[DdpRow]) -> dict[str, Any]:
    """Return the speed-up over the fewest ranks that trained the same, as fast as any way of theirs."""
    alike = [other for other in rows if all(getattr(other, name) == getattr(row, name) for name in _BUT_RANKS)]
    alike = [other for other in alike if other.straggler == "none" and other.engine != "none" and not other.wrong]
    fewest = min((other.nranks for other in alike), default=row.nranks)
    rates = [rate for other in alike if other.nranks == fewest and (rate := _rate(other))]
    own = _rate(row)
    if fewest == row.nranks or not rates or own is None or row.wrong:
        return {}
    speedup = own / max(rates)
    return {"speedup": speedup, "speedup_from": fewest, "efficiency": speedup * fewest / row.nranks}


def line(rows: Sequence[DdpRow]) -> Time:
    """Return the line alpha + beta * bytes with the least relative errors through all buckets that were reduced.

    Neither is below 0. Of a single size the line goes through 0.
    """
    points = [(nbytes, s) for row in rows for nbytes, s in zip(row.bucket_nbytes, row.bucket_s, strict=True) if s > 0]
    if not points:
        return lambda nbytes: 0.0
    nbytes, times = (np.array(column, float) for column in zip(*points, strict=True))
    through_zero = float(np.average(times / nbytes)), 0.0
    beta, alpha = np.polyfit(nbytes, times, 1, w=1 / times) if len(set(nbytes)) > 1 else through_zero
    if alpha < 0:
        beta, alpha = through_zero
    if beta < 0:
        beta, alpha = 0.0, float(np.median(times))
    return lambda size: float(alpha + beta * size)


def _recommended(rows: Sequence[DdpRow], costs: Costs | None) -> int | None:
    """Return the bucket size that has the shortest step by the model, the largest of equal ones."""
    if rows[0].engine == "none":
        return None
    time = line(rows)
    if costs is not None and rows[0].compress == "none" and rows[0].engine not in LIBRARYS_OWN:
        with suppress(ValueError):
            time = costs.time(rows[0].algorithm, rows[0].nranks)
    steps = {row.cap_nbytes: _played(row, [time(nbytes) for nbytes in row.bucket_nbytes]).step_s for row in rows}
    return max(size for size, step in steps.items() if step <= min(steps.values()) * 1.001)

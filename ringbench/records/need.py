"""Who gets how much of a time budget: shares by what is still needed to reach the precision asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from ringbench.records.row import Row

Item = TypeVar("Item", bound=Hashable)

#: Below this size a round is latency: as a first guess it then costs what one of this size does.
FLOOR_NBYTES = 256 * 1024

#: What is planned beyond a need that was seen: launches differ.
HEADROOM = 1.2


def row_need_s(row: Row, precision: float, max_samples: int) -> float:
    """Return the seconds of sampling in which a row like this one would get as narrow as asked for.

    The width of an interval falls with the square root of the number of samples. One that ended by itself needs what
    it took.
    """
    taken = len(row.samples_s)
    if not taken:
        return 0.0
    middle, low, high = row.summary
    factor = 1.0
    if row.stop == "budget":
        width = (high - low) / middle if middle and low is not None and high is not None else 2 * precision
        ratio = width / precision
        factor = min(max(1.0, ratio * ratio), max(1.0, max_samples / taken))
    return sum(row.samples_s) * factor


def needs(rows: Iterable[Row], precision: float, max_samples: int) -> dict[tuple[int, bool], float]:
    """Return the seconds that each size and placement needs, by the latest launch that has them."""
    latest: dict[tuple[int, bool], tuple[int, float]] = {}
    for row in rows:
        key = (row.nbytes, row.in_place)
        launch, so_far = latest.get(key, (row.launch, 0.0))
        if row.launch < launch:
            continue
        so_far = so_far if row.launch == launch else 0.0
        latest[key] = row.launch, so_far + row_need_s(row, precision, max_samples)
    return {key: seconds for key, (_, seconds) in latest.items()}


def weights(
    groups: Sequence[tuple[int, bool]], known: Mapping[tuple[int, bool], float]
) -> dict[tuple[int, bool], float]:
    """Return what sizes and placements need, in one unit: seconds where they are known, else by the bytes."""
    guess = {group: float(max(FLOOR_NBYTES, group[0])) for group in groups}
    both = [group for group in groups if known.get(group)]
    unit = sum(known[group] for group in both) / sum(guess[group] for group in both) if both else 1.0
    return {group: known.get(group) or guess[group] * unit for group in groups}


def job_share_s(left_s: float, job: Item, jobs: Sequence[Item], known: Mapping[Item, float]) -> float:
    """Return the seconds out of ``left_s`` for one of the jobs that are left, it being among them.

    A job like it that is over says what it needs. What is not known yet shares what those that are known leave; where
    they leave nothing, it is taken to need as much as they do.
    """
    left_s = max(0.0, left_s)
    seen = {other: HEADROOM * known[other] for other in jobs if other in known}
    reserved = sum(seen[other] for other in jobs if other in seen)
    strangers = sum(other not in seen for other in jobs)
    guess = (left_s - reserved) / strangers if strangers else 0.0
    if guess <= 0 and strangers < len(jobs):
        guess = reserved / (len(jobs) - strangers)
    total = reserved + strangers * guess
    return left_s * seen.get(job, guess) / total if total > 0 else left_s / len(jobs)

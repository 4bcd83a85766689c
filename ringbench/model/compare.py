"""Compare two algorithms of one run, or two runs: ratio of median times, its interval, a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from ringbench.model.resample import SEED, pooled_median, pooled_ratio, resampled, resampled_ratios
from ringbench.records.guards import GUARDS
from ringbench.records.row import AWARE, DIRECT, MANNER, STAGED, Row
from ringbench.records.run import Run
from ringbench.records.settings import Settings

MIN_SAMPLES = 6
SIGNIFICANCE = 0.05
THRESHOLD = 0.02

#: Of each of two runs, so that a rank test over them can reach 5 %.
ENOUGH_LAUNCHES = 4

#: From here on the exact distribution takes seconds, and the normal one is as good.
MANY_LAUNCHES = 20
FASTER, SLOWER, SAME, CANNOT_TELL = "faster", "slower", "same", "cannot tell"
FORCED = "forced"

#: What two rows must share to be compared, in the order in which comparisons are listed. Two algorithms may need
#: different memory, and NCCL has its own way from device to device: they are compared all the same, and the ways named;
#: two runs of one algorithm are not, nor messages that are staged with messages that are not.
PLACES = ("memory", "transfer")
CELL = (
    *("collective", "op", "dtype", "device", "nranks", "in_place"),
    *(name for name in MANNER if name not in PLACES),
    "nbytes",
)

Cells = Mapping[tuple[Any, ...], Sequence[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Hold how long ``algorithm`` takes relative to ``baseline`` in one cell: below 1 it is faster.

    ``ratio_low`` and ``ratio_high`` bound the ratio with 95 %. ``p_value`` is that of a rank test, after Holm's
    correction for all the cells compared at once. ``launch_p_value`` is that of a rank test over the launches' medians,
    None where both sides were measured in the same launches. ``memory`` and ``baseline_memory`` say where their buffers
    were. The verdict is ``faster`` or ``slower`` where the interval
    leaves out 1 and the tests agree at 5 %, ``same`` where the difference is then below the threshold or the whole
    interval is, else ``cannot tell``; ``reason`` says why there is no interval. ``launches`` are those of the side with
    fewer.
    """

    collective: str
    nranks: int
    nbytes: int
    algorithm: str
    baseline: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    in_place: bool
    verdict: str
    op: str
    dtype: str
    device: str
    reason: str | None
    p_value: float | None
    launch_p_value: float | None
    launches: int
    warnings: tuple[str, ...]
    memory: str = "private"
    baseline_memory: str = "private"
    transfer: str = DIRECT
    baseline_transfer: str = DIRECT

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as one flat dictionary."""
        return {**asdict(self), "warnings": list(self.warnings)}


def compare_rows(
    rows: Iterable[Row],
    algorithm: str = "ring",
    baseline: str = "mpi",
    threshold: float = THRESHOLD,
    *,
    interleaved: bool = True,
) -> list[Comparison]:
    """Compare two algorithms wherever both have rows that agree in collective, op, dtype, device, N, size, placement.

    Launches that have both are compared within each, and where the algorithms took turns, round by round. One rank
    exchanges nothing, so its rows are no comparison. Raises ValueError where either has no rows, naming those that do,
    and where they share no cell.
    """
    rows = [row for row in rows if row.nranks > 1]
    names = sorted({row.algorithm for row in rows})
    for name in (algorithm, baseline):
        if name not in names:
            raise ValueError(
                f"no rows of algorithm {name!r} on 2 or more ranks; there are rows of: {', '.join(names) or 'none'}"
            )
    ours = _cells((row for row in rows if row.algorithm == algorithm), CELL)
    theirs = _cells((row for row in rows if row.algorithm == baseline), CELL)
    shared = _shared(ours, theirs, f"{algorithm} and {baseline}")
    for cell in shared:
        for side, rows_of in ((algorithm, ours[cell]), (baseline, theirs[cell])):
            if len(memories := {row.memory for row in rows_of}) > 1:
                raise ValueError(
                    f"rows of {side} in {' and in '.join(sorted(memories))} memory are not compared as one"
                )
        if {STAGED, AWARE} <= {row.transfer for row in (*ours[cell], *theirs[cell])}:
            raise ValueError(f"rows whose messages are {STAGED} and rows whose messages are {AWARE} are not compared")
    found = [
        _compare(ours[cell], theirs[cell], algorithm, baseline, paired=True, rounds=interleaved) for cell in shared
    ]
    return _judged(found, threshold)


def compare_runs(run1: Run, run2: Run, *, force: bool = False, threshold: float = THRESHOLD) -> list[Comparison]:
    """Compare ``run2`` with ``run1`` wherever both have rows of the same algorithm and cell; below 1 run2 is faster.

    Raises ValueError listing what the runs do not share: schema, MPI library, thread level, order, hosts of the same
    rank counts, or every rank count, dtype, device, estimand or number of buffers. With ``force`` they are compared all
    the same, across a field in which each run has one value, and every comparison carries the warning ``forced``.
    Raises ValueError where no cell is shared. A verdict needs 4 launches of both.
    """
    unlike = _unlike(run1, run2)
    if unlike and not force:
        listed = "; ".join(f"{field}: {one} against {two}" for field, (one, two) in unlike.items())
        raise ValueError(f"the runs are unlike: {listed} (--force compares them all the same)")
    across = [name for name in unlike if all(len(_values(run, name)) == 1 for run in (run1, run2))]
    fields = ("algorithm", *(name for name in (*CELL, *PLACES) if name not in across))
    ours, theirs = (_cells((row for row in run.rows if row.nranks > 1), fields) for run in (run2, run1))
    labels = (FORCED,) if unlike else ()
    found = [
        _compare(ours[cell], theirs[cell], ours[cell][0].algorithm, f"{cell[0]} of {run1.path}", labels)
        for cell in _shared(ours, theirs, "the two runs")
    ]
    return _judged(found, threshold)


def _cells(rows: Iterable[Row], fields: Sequence[str]) -> Cells:
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        cells[tuple(getattr(row, name) for name in fields)].append(row)
    return dict(cells)


def _shared(ours: Cells, theirs: Cells, who: str) -> list[tuple[Any, ...]]:
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        raise ValueError(f"nothing to compare: {who} have no cell in common")
    return shared


def _unlike(run1: Run, run2: Run) -> dict[str, tuple[str, str]]:
    """Return both runs' values of every field that makes them different experiments."""
    pairs = {name: (_values(run1, name), _values(run2, name)) for name in ("nranks", "dtype", "device", *MANNER)}
    # More rank counts or dtypes in one run do no harm: a cell is compared only where both have it.
    differing = {name: (one, two) for name, (one, two) in pairs.items() if not one & two} | differing_places(run1, run2)
    return {name: (_listed(one), _listed(two)) for name, (one, two) in differing.items()}


def differing_places(run1: Run, run2: Run) -> dict[str, tuple[set[Any], set[Any]]]:
    """Return both runs' values of what makes rows of the same cell different experiments, where they differ.

    Those are schema, MPI library, thread level, order, and the hosts of the rank counts that both have.
    """
    common = _values(run1, "nranks") & _values(run2, "nranks")
    readers: dict[str, Callable[[Run], set[Any]]] = {
        "mpi_library": lambda run: _of_jobs(run, "mpi_library"),
        "thread_level": lambda run: _of_jobs(run, "thread_level"),
        "hosts": lambda run: _hosts(run, common),
        "schema_version": _schema,
        "order": _order,
    }
    pairs = {name: (read(run1), read(run2)) for name, read in readers.items()}
    return {name: (one, two) for name, (one, two) in pairs.items() if one != two}


def _values(run: Run, name: str) -> set[Any]:
    return {getattr(row, name) for row in run.rows} if name in (*CELL, *PLACES) else set()


def _of_jobs(run: Run, name: str) -> set[Any]:
    return {_plain(job.get(name)) for job in run.jobs}


def _plain(value: Any) -> Any:
    """Return a value as it is where a file can well hold it, else how it is written."""
    return value if value is None or isinstance(value, str) else repr(value)


def took_turns(run: Run) -> bool:
    """Say whether the algorithms of a run took turns; before there was a choice, they did."""
    return _order(run) == {Settings().order}


def _order(run: Run) -> set[Any]:
    settings = run.provenance.get("settings")
    order = settings.get("order") if isinstance(settings, dict) else None
    return {_plain(order) or Settings().order}


def _schema(run: Run) -> set[Any]:
    return {run.provenance.get("schema_version")}


def _hosts(run: Run, rank_counts: set[int]) -> set[Any]:
    """Return who sat where, rank by rank, for the rank counts that both runs have (all where they share none)."""
    hosts = [job.get("hosts") or () for job in run.jobs]
    return {_places(names) for names in hosts if not rank_counts or len(names) in rank_counts}


def _places(names: Sequence[str]) -> str:
    runs = ((name, len(list(same))) for name, same in groupby(names))
    return "+".join(f"{name}*{ranks}" if ranks > 1 else name for name, ranks in runs)


def _listed(values: set[Any]) -> str:
    texts = (str(value) for value in sorted(values, key=lambda value: (str(type(value)), value)))
    return ", ".join(text if text.isprintable() else repr(text) for text in texts) or "none"


def _compare(
    ours: Sequence[Row],
    theirs: Sequence[Row],
    algorithm: str,
    baseline: str,
    labels: tuple[str, ...] = (),
    *,
    paired: bool = False,
    rounds: bool = False,
) -> Comparison:
    first = ours[0]
    ratio, low, high, reason = _ratio(ours, theirs, algorithm, baseline, paired)
    return Comparison(
        collective=first.collective,
        nranks=first.nranks,
        nbytes=first.nbytes,
        algorithm=algorithm,
        baseline=baseline,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        in_place=first.in_place,
        verdict=CANNOT_TELL,
        op=first.op,
        dtype=first.dtype,
        device=first.device,
        reason=reason,
        p_value=None if low is None else _rank_test(ours, theirs, paired and rounds),
        launch_p_value=None if low is None or (paired and _pairs(ours, theirs)) else _launch_test(ours, theirs),
        launches=min(len(ours), len(theirs)),
        memory=first.memory,
        baseline_memory=theirs[0].memory,
        transfer=first.transfer,
        baseline_transfer=theirs[0].transfer,
        warnings=(*labels, *_in_order({warning for row in (*ours, *theirs) for warning in row.warnings})),
    )


def _in_order(warnings: set[str]) -> list[str]:
    """Return warnings as they are explained, those of other versions last."""
    places = list(GUARDS)
    return sorted(warnings, key=lambda name: (places.index(name) if name in places else len(places), name))


def _judged(found: list[Comparison], threshold: float) -> list[Comparison]:
    """Correct the p-values for all cells together (Holm 1979), then give the verdicts."""
    tested = sorted((one.p_value, at) for at, one in enumerate(found) if one.p_value is not None)
    corrected, least = {}, 0.0
    for place, (p, at) in enumerate(tested):
        least = max(least, min(1.0, p * (len(tested) - place)))
        corrected[at] = least
    return [
        replace(one, p_value=corrected.get(at), verdict=_verdict(one, corrected.get(at), threshold))
        for at, one in enumerate(found)
    ]


def _verdict(one: Comparison, p: float | None, threshold: float) -> str:
    low, high = one.ratio_low, one.ratio_high
    if p is None or one.ratio is None or low is None or high is None:
        return CANNOT_TELL
    if one.launch_p_value is not None and one.launches < ENOUGH_LAUNCHES:
        return CANNOT_TELL  # also of sides that are much alike: so might two unlike ones be
    if 1 / (1 + threshold) < low <= high < 1 + threshold:
        return SAME
    if max(p, one.launch_p_value or 0.0) >= SIGNIFICANCE or low <= 1 <= high:
        return CANNOT_TELL
    if 1 / (1 + threshold) < one.ratio < 1 + threshold:
        return SAME
    return FASTER if high < 1 else SLOWER


def _rank_test(ours: Sequence[Row], theirs: Sequence[Row], paired: bool) -> float:
    """Return the p-value of no difference: Wilcoxon's signed ranks where samples come in pairs, else Mann-Whitney.

    A pair is one round of one launch, in which both ran one after the other.
    """
    from scipy.stats import mannwhitneyu, wilcoxon

    pairs = _pairs(ours, theirs) if paired else None
    if pairs:
        both = [(a, b) for one, other in pairs for a, b in zip(one, other, strict=False)]
        differences = np.log([a / b for a, b in both])
        return float(wilcoxon(differences, zero_method="zsplit").pvalue) if differences.any() else 1.0
    one, other = (np.concatenate([row.samples_s for row in side]) for side in (ours, theirs))
    return float(mannwhitneyu(one, other).pvalue)


def _launch_test(ours: Sequence[Row], theirs: Sequence[Row]) -> float:
    """Return the p-value of no difference between launches, by the ranks of their medians; exact for few of them.

    Samples of one launch share what that launch was given, so between runs it is launches that count: 3 against 3
    never reach 5 %, 4 against 4 do. Not corrected for the number of cells, which few launches could not pay for.
    """
    from scipy.stats import mannwhitneyu

    one, other = ([row.summary[0] for row in side] for side in (ours, theirs))
    method = "exact" if max(len(one), len(other)) <= MANY_LAUNCHES else "asymptotic"
    return float(mannwhitneyu(one, other, method=method).pvalue)


def _ratio(
    ours: Sequence[Row], theirs: Sequence[Row], algorithm: str, baseline: str, paired: bool
) -> tuple[float | None, float | None, float | None, str | None]:
    """Return the ratio and the ends of its interval, and why one of them is missing."""
    sides = ((algorithm, ours), (baseline, theirs))
    for fault in (_wrong, _unmeasured, _unclocked):
        faults = [f"{name}: {found}" for name, side in sides if (found := fault(side))]
        if faults:
            return None, None, None, "; ".join(faults)
    pairs = _pairs(ours, theirs) if paired else None
    ratio = pooled_ratio(pairs) if pairs else pooled_median(_samples(ours)) / pooled_median(_samples(theirs))
    few = [f"{name}: {found}" for name, side in sides if (found := _few(side))]
    if few:
        return ratio, None, None, "; ".join(few)
    random = np.random.default_rng(SEED)
    if pairs:
        replicates = resampled_ratios(pairs, random)
    else:
        replicates = resampled(_samples(ours), random) / resampled(_samples(theirs), random)
    low, high = np.percentile(replicates, [2.5, 97.5])
    return ratio, float(low), float(high), None


def _pairs(ours: Sequence[Row], theirs: Sequence[Row]) -> list[tuple[Sequence[float], Sequence[float]]] | None:
    """Return both sides' samples launch by launch; None where they were not measured in the same jobs."""
    one, other = ({(row.launch, row.job): row.samples_s for row in side} for side in (ours, theirs))
    return [(one[launch], other[launch]) for launch in sorted(one)] if one.keys() == other.keys() else None


def _samples(side: Sequence[Row]) -> list[Sequence[float]]:
    return [row.samples_s for row in side]


def _wrong(side: Sequence[Row]) -> str | None:
    return "wrong result" if any(row.wrong for row in side) else None


def _unmeasured(side: Sequence[Row]) -> str | None:
    return next((row.reason or "no samples" for row in side if not row.samples_s), None)


def _unclocked(side: Sequence[Row]) -> str | None:
    return "shorter than the clock can tell" if any(min(row.samples_s) <= 0 for row in side) else None


def _few(side: Sequence[Row]) -> str | None:
    samples = sum(len(row.samples_s) for row in side)
    return f"{samples} samples where {MIN_SAMPLES} are needed" if samples < MIN_SAMPLES else None

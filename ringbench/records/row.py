"""One measured cell: what ran, every raw sample, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from ringbench.records.stats import launch_confidence, median_interval
from ringbench.records.straggler import NOBODY
from ringbench.schedule.semantics import collective_named

#: What makes one cell another: rows that differ here are never pooled.
KEY = ("collective", "algorithm", "op", "dtype", "device", "nranks", "nbytes", "in_place", "launch")

#: What one cell's samples share besides: rows that differ here are of one cell, but never pooled.
MANNER = ("buffers", "estimand", "straggler", "memory", "transfer")

#: How messages of arrays travel: of the host's as they are; of a device's by a library that takes them, through the
#: host, or by NCCL.
DIRECT, AWARE, STAGED, NCCL = "direct", "cuda-aware", "staged", "nccl"

#: What a sample is where nothing else was asked for.
ESTIMAND = "max over ranks of the local duration after a barrier"

#: What a file must hold for the fields that everything else computes with.
_KINDS: dict[str, type] = {
    **dict.fromkeys(
        ("collective", "algorithm", "op", "dtype", "device", *("estimand", "straggler", "memory", "transfer")), str
    ),
    **dict.fromkeys(("nranks", "nbytes", "count", "launch", "late", "buffers"), int),
    **dict.fromkeys(("samples_s", "rank_means_s", "warmup_s", "warnings", "late_s", "waits_s"), tuple),
    "in_place": bool,
}

_LIMIT = 2**63


@dataclass(frozen=True, kw_only=True)
class Row:
    """Hold one cell of a run. Times in seconds; ``nbytes`` and ``count`` are of the whole vector.

    ``estimand`` says what a sample is, ``late`` how many iterations do not count because a rank was late, and
    ``clock_error_s`` how far off the comparison of two ranks' clocks may be. ``buffers`` sets of buffers took turns,
    in ``private`` memory or in memory that the ranks of a node have in common, ``shared``.
    ``transfer`` says how messages of a device's arrays travel: ``cuda-aware``, ``staged`` or ``nccl``.
    ``job`` counts the MPI jobs of the row's file: only rows of one job may have been measured in turns.
    ``warmup_s`` are the samples before, kept but counted nowhere. ``rank_means_s`` are the means of each rank's own
    durations over the same iterations, in rank order: what OSU and IMB report are their average, least and greatest.
    ``wrong`` counts wrong elements over all ranks and checks, None where nothing was checked. ``bytes_sent_max`` is
    what the busiest rank sends, None where the library does not say. ``stop`` says which rule ended sampling: ``ci``,
    ``budget`` or ``max``. ``reason`` says why there are no samples, ``remark`` what was decided by size, by nodes or by
    ``auto``. ``limit_s`` is what the steps' bare Sendrecvs and reductions add up to, ``addition_s`` what the longest of
    these reductions, of ``addition_nbytes``, takes by itself.
    ``straggler`` says who came late to the samples; ``calm_s`` is then the median without, from the same rounds,
    ``late_s`` how late each rank was on the mean, and ``waits_s`` by how much its call took longer than without.
    """

    collective: str
    algorithm: str
    op: str
    dtype: str
    device: str
    nranks: int
    nbytes: int
    count: int
    in_place: bool
    launch: int
    samples_s: tuple[float, ...]
    rank_means_s: tuple[float, ...] = ()
    warmup_s: tuple[float, ...] = ()
    wrong: int | None = None
    wrong_detail: str | None = None
    identical_bits: bool | None = None
    bytes_sent_max: int | None = None
    segment_nbytes: int | None = None
    stop: str | None = None
    reason: str | None = None
    remark: str | None = None
    limit_s: float | None = None
    addition_nbytes: int | None = None
    addition_s: float | None = None
    warnings: tuple[str, ...] = ()
    late: int = 0
    clock_error_s: float | None = None
    buffers: int = 1
    estimand: str = ESTIMAND
    straggler: str = NOBODY
    calm_s: float | None = None
    late_s: tuple[float, ...] = ()
    waits_s: tuple[float, ...] = ()
    memory: str = "private"
    transfer: str = DIRECT
    job: int = field(default=0, compare=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what identifies the cell within a run."""
        return tuple(getattr(self, name) for name in KEY)

    @property
    def missed(self) -> bool:
        """Say whether there are no samples for want of a round in which all ranks were on time: worth another try."""
        return not self.samples_s and self.late > 0

    @property
    def usable(self) -> bool:
        """Say whether the row may carry a bandwidth and enter fits: right, and measured."""
        return not self.wrong and bool(self.samples_s)

    @cached_property
    def summary(self) -> tuple[float | None, float | None, float | None]:
        """Return the median and its 95 % interval in seconds."""
        return median_interval(self.samples_s) if self.samples_s else (None, None, None)

    @property
    def rank_average(self) -> float | None:
        """Return OSU's "Avg Latency" and IMB's t_avg: the average over ranks of their means over iterations."""
        return sum(self.rank_means_s) / len(self.rank_means_s) if self.rank_means_s else None

    def bandwidths(self) -> tuple[float | None, float | None, str | None]:
        """Return algbw and busbw in GB/s (10^9 B/s), or None with the reason."""
        time = self.summary[0]
        if self.wrong:
            return None, None, "wrong result"
        if time is None:
            return None, None, self.reason or "no samples"
        if time <= 0:
            return None, None, "shorter than the clock can tell"
        if self.nbytes == 0:
            return None, None, "zero bytes have no bandwidth"
        if self.nranks == 1:
            return None, None, "one rank moves nothing"
        algbw = self.nbytes / time / 1e9
        return algbw, float(algbw * collective_named(self.collective).bus_factor(self.nranks)), None

    def table_cell(self) -> dict[str, Any]:
        """Return the row of the bandwidth table: one flat dictionary, units in the names."""
        time, low, high = self.summary
        algbw, busbw, reason = self.bandwidths()
        return {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "op": self.op,
            "dtype": self.dtype,
            "device": self.device,
            "nranks": self.nranks,
            "nbytes": self.nbytes,
            "count": self.count,
            "median_s": time,
            "ci_low_s": low,
            "ci_high_s": high,
            "min_s": min(self.samples_s, default=None),
            "max_s": max(self.samples_s, default=None),
            "osu_avg_s": self.rank_average,
            "osu_min_s": min(self.rank_means_s, default=None),
            "osu_max_s": max(self.rank_means_s, default=None),
            "algbw_gb_per_s": algbw,
            "busbw_gb_per_s": busbw,
            "bytes_sent_max": self.bytes_sent_max,
            "in_place": self.in_place,
            "samples": len(self.samples_s),
            "launches": 1,
            "launch_confidence": launch_confidence(1),
            "wrong": self.wrong,
            "warnings": list(self.warnings),
            "reason": reason,
            "stop": self.stop,
            "late": self.late,
            "clock_error_s": self.clock_error_s,
            "buffers": self.buffers,
            "estimand": self.estimand,
            "memory": self.memory,
            "transfer": self.transfer,
            "of_limit": self.limit_s / time if self.limit_s and time and not self.wrong else None,
            "remark": self.remark,
            "straggler": self.straggler,
            "calm_s": self.calm_s,
            "late_s": list(self.late_s),
            "waits_s": list(self.waits_s),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the row as it stands in ``run.jsonl``."""
        values = asdict(self)
        del values["job"]  # which follows from the place in the file
        return {"kind": "row", **values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, job: int = 0) -> Row:
        """Read a row of a file's job back; fields of a newer version are ignored.

        Raises ValueError naming what is missing, or is not what it should be.
        """
        values = {name: value for name, value in data.items() if name in _NAMES}
        for name in ("samples_s", "rank_means_s", "warmup_s", "warnings", "late_s", "waits_s"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        try:
            row = cls(**values, job=job)
        except TypeError as error:
            raise ValueError(f"not a row of a run: {error}") from None
        for name, kind in _KINDS.items():
            value = getattr(row, name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise _not_a_row(name, value)
        collective_named(row.collective)
        if "|" in row.algorithm:
            raise _not_a_row("algorithm", row.algorithm)
        for name in ("wrong", "bytes_sent_max", "addition_nbytes"):
            value = getattr(row, name)
            if value is not None and (type(value) is not int or not 0 <= value < _LIMIT):
                raise _not_a_row(name, value)
        for name in ("wrong_detail", "reason", "remark"):
            value = getattr(row, name)
            if value is not None and not isinstance(value, str):
                raise _not_a_row(name, value)
        if not all(isinstance(text, str) for text in row.warnings):
            raise _not_a_row("warnings", row.warnings)
        for name in ("nranks", "nbytes", "count"):
            if not (name == "nranks") <= getattr(row, name) < _LIMIT:
                raise _not_a_row(name, getattr(row, name))
        if (row.count == 0) != (row.nbytes == 0) or row.count > row.nbytes:
            raise _not_a_row("count", row.count)
        times = (row.limit_s, row.addition_s, row.clock_error_s, row.calm_s)
        bare = [time for time in times if time is not None]
        for name in ("late", "buffers"):
            if not (name == "buffers") <= getattr(row, name) < _LIMIT:
                raise _not_a_row(name, getattr(row, name))
        for name in ("algorithm", "op", "dtype", "device", "wrong_detail", "reason", "remark", "stop", *MANNER[1:]):
            value = getattr(row, name)
            if value is not None and not (isinstance(value, str) and value.replace("\n", " ").isprintable()):
                raise _not_a_row(name, value)  # what a terminal might obey
        if not all(text.isprintable() for text in row.warnings):
            raise _not_a_row("warnings", row.warnings)
        for time in (*row.samples_s, *row.rank_means_s, *row.warmup_s, *row.late_s, *row.waits_s, *bare):
            if type(time) is float and 1e-12 < time < 1e12:  # as all but a few are, of very many
                continue
            if isinstance(time, bool) or not isinstance(time, (int, float)) or not (time == 0 or 1e-12 < time < 1e12):
                raise _not_a_row("a sample", time)
        return row


_NAMES = frozenset(known.name for known in fields(Row)) - {"job"}


def _not_a_row(name: str, value: object) -> ValueError:
    shown = repr(value)
    return ValueError(f"not a row of a run: {name} is {shown if len(shown) < 60 else shown[:60] + '...'}")

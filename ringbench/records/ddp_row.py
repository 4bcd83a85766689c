"""One measured way of training: every step's time, and those of computing and communicating alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from ringbench.records.stats import median_interval
from ringbench.records.straggler import NOBODY

#: What makes one row another: rows that differ here are never pooled.
DDP_KEY = (
    "workload",
    "dtype",
    "device",
    "nranks",
    "engine",
    "algorithm",
    "cap_nbytes",
    "accumulate",
    "compress",
    "compute",
    "straggler",
)

_TIMES = (
    "samples_s",
    "compute_samples_s",
    "communication_samples_s",
    "backward_samples_s",
    "bucket_s",
    "ready_s",
    "finish_s",
    "late_s",
)
_KINDS: dict[str, type] = {
    **dict.fromkeys(
        ("workload", "dtype", "device", "engine", "algorithm", "compress", "compute", "straggler", "library"), str
    ),
    **dict.fromkeys(
        ("nranks", "parameters", "layers", "batch", "cap_nbytes", "first_nbytes", "accumulate", "wire_nbytes"), int
    ),
    **dict.fromkeys((*_TIMES, "bucket_nbytes", "warnings"), tuple),
}


@dataclass(frozen=True, kw_only=True)
class DdpRow:
    """Hold the steps of one engine. Times in seconds, of the slowest rank after a barrier unless said otherwise.

    ``samples_s`` are whole steps of ``accumulate`` micro-batches. In turns with them were measured
    ``compute_samples_s``, the same steps without reductions, and ``communication_samples_s``, all reductions one after
    the other without computing. ``backward_samples_s`` are the steps up to the end of backward: what communication
    slows computing down by. ``bucket_nbytes`` are the bytes of the buckets in the order of reduction, ``bucket_s`` the
    medians of their reductions alone, and ``ready_s`` when each should be ready, in a step that computes as long as the
    workload says, ``nominal_s``. ``cap_nbytes`` closes a bucket, the first one ``first_nbytes``.

    ``finish_s`` is for each rank how long it waited for reductions after backward, and ``late_s`` how late it came on
    purpose, on the mean. ``wire_nbytes`` are sent by a rank at least, ``wrong`` counts wrong elements of averages (None
    where compression makes them differ). ``library`` is the MPI library.
    """

    workload: str
    parameters: int
    layers: int
    batch: int
    dtype: str
    device: str
    nranks: int
    engine: str
    algorithm: str
    cap_nbytes: int
    first_nbytes: int
    accumulate: int
    compress: str
    compute: str
    nominal_s: float
    samples_s: tuple[float, ...]
    compute_samples_s: tuple[float, ...]
    communication_samples_s: tuple[float, ...]
    backward_samples_s: tuple[float, ...]
    bucket_nbytes: tuple[int, ...]
    bucket_s: tuple[float, ...]
    ready_s: tuple[float, ...]
    finish_s: tuple[float, ...]
    wire_nbytes: int
    wrong: int | None = None
    late_s: tuple[float, ...] = ()
    straggler: str = NOBODY
    library: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what identifies the row within a run."""
        return tuple(getattr(self, name) for name in DDP_KEY)

    @cached_property
    def step(self) -> tuple[float, float | None, float | None]:
        """Return the median of the steps and its 95 % interval."""
        return median_interval(self.samples_s)

    @cached_property
    def compute_alone(self) -> tuple[float, float | None, float | None]:
        """Return the same for steps without reductions."""
        return median_interval(self.compute_samples_s)

    @cached_property
    def communication_alone(self) -> tuple[float, float | None, float | None]:
        """Return the same for reductions without computing; zeros where there are none."""
        return median_interval(self.communication_samples_s) if self.communication_samples_s else (0.0, 0.0, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the row as it stands in ``run.jsonl``."""
        return {"kind": "ddp", **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DdpRow:
        """Read a row back; fields of a newer version are ignored. Raises ValueError naming what does not fit."""
        known = {known.name for known in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name in known
        }
        try:
            row = cls(**values)
        except TypeError as error:
            raise ValueError(f"not a row of ringbench ddp: {error}") from None
        for name, kind in _KINDS.items():
            value: Any = getattr(row, name)
            right = type(value) is kind and (kind is not str or str(value).isprintable())
            if not right or (kind is int and not 0 <= int(value) < 2**63):
                raise _not_a_row(name, value)
        for name in ("nranks", "accumulate", "cap_nbytes", "batch"):
            if not getattr(row, name):
                raise _not_a_row(name, 0)
        for name in _TIMES:
            for time in getattr(row, name):
                if type(time) not in (int, float) or not 0 <= time < 1e12:
                    raise _not_a_row(name, time)
        if type(row.nominal_s) not in (int, float) or not 0 <= row.nominal_s < 1e12:
            raise _not_a_row("nominal_s", row.nominal_s)
        if not row.samples_s or not row.compute_samples_s:
            raise _not_a_row("samples_s", ())
        if row.wrong is not None and (type(row.wrong) is not int or row.wrong < 0):
            raise _not_a_row("wrong", row.wrong)
        if len({len(row.bucket_nbytes), len(row.bucket_s), len(row.ready_s)}) > 1:
            raise _not_a_row("bucket_s", row.bucket_s)
        if not all(type(nbytes) is int and 0 <= nbytes < 2**63 for nbytes in row.bucket_nbytes):
            raise _not_a_row("bucket_nbytes", row.bucket_nbytes)
        if not all(isinstance(text, str) and text.isprintable() for text in row.warnings):
            raise _not_a_row("warnings", row.warnings)
        return row


def _not_a_row(name: str, value: object) -> ValueError:
    shown = repr(value)
    return ValueError(f"not a row of ringbench ddp: {name} is {shown if len(shown) < 60 else shown[:60] + '...'}")

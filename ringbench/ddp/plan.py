"""What data-parallel training would get on a network: bucket sizes, rank counts and levers, predicted without MPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from ringbench.ddp.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES
from ringbench.ddp.costs import Costs, hierarchy
from ringbench.ddp.timeline import Bucket, Time, Timeline, buckets_of, check_engine, timeline
from ringbench.ddp.workloads import Workload
from ringbench.model.links import HIERARCHICAL
from ringbench.records.units import format_size

#: Steps that differ by less are equally good: of their buckets the largest are taken.
EQUAL = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Say how a step is done: on how many ranks, by which engine and algorithm, and in what buckets.

    ``bucket_nbytes`` closes a bucket, the first one ``first_nbytes`` if less; ``accumulate`` micro-batches make a step;
    a bucket's bytes are divided by ``ratio`` before they are sent, at ``encode_s_per_byte``.
    """

    nranks: int
    engine: str = "thread"
    algorithm: str = "ring"
    bucket_nbytes: int = BUCKET_BYTES
    first_nbytes: int = FIRST_BUCKET_BYTES
    accumulate: int = 1
    ratio: float = 1.0
    encode_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        check_engine(self.engine)
        for name in ("nranks", "bucket_nbytes", "first_nbytes", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be at least 1")
        if not 1 <= self.ratio < 1e6:
            raise ValueError(f"ratio {self.ratio}: must be 1 (no compression) or more")

    @property
    def filling(self) -> tuple[int, int, int]:
        """Return what buckets depend on: their limit, that of the first, and the accumulation."""
        return self.bucket_nbytes, min(self.first_nbytes, self.bucket_nbytes), self.accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """Hold one predicted step. ``part`` is the table it belongs to: ``buckets``, ``ranks`` or ``levers``.

    Times in seconds. ``speedup`` is the samples per second of all ranks, over those of one rank with the same
    accumulation, and ``efficiency`` that by rank. ``global_batch`` is ranks x batch x accumulation, and ``gain`` of a
    ``lever`` its samples per second over those without any. ``best`` marks the fastest of a part.
    """

    part: str
    workload: str
    parameters: int
    dtype: str
    nranks: int
    engine: str
    algorithm: str
    bucket_nbytes: int
    buckets: int
    accumulate: int
    ratio: float
    compute_s: float
    communication_s: float
    exposed_s: float
    hidden_share: float | None
    step_s: float
    samples_per_s: float | None
    speedup: float | None
    efficiency: float | None
    global_batch: int
    lever: str | None = None
    gain: float | None = None
    best: bool = False
    basis: str = "given"
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the row as one flat dictionary, units in the names."""
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Predict the steps of a workload on a network. ``critical_batch`` is the batch beyond which more is of no use."""

    workload: Workload
    costs: Costs
    dtype: str = "float32"
    ranks_per_node: int | None = None
    critical_batch: int | None = None
    filled: dict[tuple[int, int, int], list[Bucket]] = field(default_factory=dict, compare=False, repr=False)
    times: dict[tuple[str, int], Time] = field(default_factory=dict, compare=False, repr=False)

    def step(self, case: Case) -> Timeline:
        """Return the timeline of one step; raise ValueError where the algorithm's time is not known."""
        key = case.filling
        if key not in self.filled:
            self.filled[key] = buckets_of(self.workload, self.dtype, *key)
        which = (case.algorithm, case.nranks)
        if which not in self.times:  # the same sizes come again and again
            self.times[which] = lru_cache(maxsize=None)(self.costs.time(*which))
        sent = [
            replace(bucket, nbytes=round(bucket.nbytes / case.ratio), encode_s=bucket.nbytes * case.encode_s_per_byte)
            for bucket in self.filled[key]
        ]
        return timeline(sent, self.times[which], case.accumulate * self.workload.compute_s, case.engine)

    def row(self, part: str, case: Case) -> PlanRow:
        """Return the row of one case."""
        found = self.step(case)
        batch = self.workload.batch * case.accumulate
        efficiency = found.compute_s / found.step_s if found.compute_s > 0 else None
        too_large = self.critical_batch is not None and case.nranks * batch > self.critical_batch
        return PlanRow(
            part=part,
            workload=self.workload.name,
            parameters=self.workload.parameters,
            dtype=self.dtype,
            nranks=case.nranks,
            engine=case.engine,
            algorithm=case.algorithm,
            bucket_nbytes=case.bucket_nbytes,
            buckets=len(self.filled[case.filling]),
            accumulate=case.accumulate,
            ratio=case.ratio,
            compute_s=found.compute_s,
            communication_s=found.communication_s,
            exposed_s=found.exposed_s,
            hidden_share=found.hidden_share,
            step_s=found.step_s,
            samples_per_s=case.nranks * batch / found.step_s if found.step_s > 0 else None,
            speedup=None if efficiency is None else case.nranks * efficiency,
            efficiency=efficiency,
            global_batch=case.nranks * batch,
            basis=self.costs.basis,
            warnings=(f"the global batch is above the critical {self.critical_batch}",) if too_large else (),
        )

    def best_bucket(self, case: Case, sizes: Sequence[int]) -> Case:
        """Return the case with the bucket size whose step is the shortest; of equal ones the largest."""
        cases = [replace(case, bucket_nbytes=nbytes) for nbytes in sizes]
        steps = [self.step(one).step_s for one in cases]
        equal = [one for one, step_s in zip(cases, steps, strict=True) if step_s <= min(steps) * (1 + EQUAL)]
        return max(equal, key=lambda one: one.bucket_nbytes)

    def bucket_rows(self, case: Case, sizes: Sequence[int]) -> list[PlanRow]:
        """Return a row for each bucket size, the fastest marked."""
        rows = [self.row("buckets", replace(case, bucket_nbytes=nbytes)) for nbytes in sizes]
        best = self.best_bucket(case, sizes).bucket_nbytes
        return [replace(row, best=row.bucket_nbytes == best) for row in rows]

    def rank_rows(self, case: Case, ranks: Sequence[int], sizes: Sequence[int]) -> list[PlanRow]:
        """Return a row for each number of ranks, with the bucket size that is best there."""
        return [self.row("ranks", self.best_bucket(replace(case, nranks=nranks), sizes)) for nranks in ranks]

    def lever_rows(
        self, case: Case, sizes: Sequence[int], accumulate: int, ratio: float, encode_s_per_byte: float
    ) -> list[PlanRow]:
        """Return rows side by side: the case as it is, each lever by itself, and all of them."""
        replace(case, ratio=ratio)  # or it makes no sense
        levers: dict[str, dict[str, Any]] = {
            "bucket size": {},
            "accumulation": {"accumulate": accumulate},
            "hierarchy": {"algorithm": HIERARCHICAL},
            "compression": {"ratio": ratio, "encode_s_per_byte": encode_s_per_byte},
        }
        if accumulate <= case.accumulate:
            del levers["accumulation"]
        if case.algorithm == HIERARCHICAL or not hierarchy(self.costs, case.nranks, self.ranks_per_node):
            del levers["hierarchy"]
        if ratio <= case.ratio:
            del levers["compression"]
        cases = {"none": case}
        for name, changes in levers.items():
            changed = replace(case, **changes)
            cases[name] = self.best_bucket(changed, sizes) if name == "bucket size" else changed
        together = replace(case, **{name: value for changes in levers.values() for name, value in changes.items()})
        cases["all"] = self.best_bucket(together, sizes)
        rows = [replace(self.row("levers", changed), lever=name) for name, changed in cases.items()]
        without = rows[0].samples_per_s
        return [
            replace(row, gain=row.samples_per_s / without if row.samples_per_s and without else None) for row in rows
        ]


def words(rows: Sequence[PlanRow]) -> list[str]:
    """Return what the rows come to, in lines for people."""
    lines = []
    best = next((row for row in rows if row.part == "buckets" and row.best), None)
    if best is not None:
        lines.append(
            f"best bucket size on {best.nranks} ranks: {format_size(best.bucket_nbytes)} ({best.buckets} buckets)"
        )
    return lines

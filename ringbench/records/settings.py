"""What to measure: the settings of a sweep, from a TOML plan or the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ringbench.records.straggler import parse_straggler
from ringbench.records.units import parse_ranks, parse_size, parse_sizes
from ringbench.schedule.parameters import check_value, parse_groups, value_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_SECONDS = 366 * 86400.0
MAX_COUNT = 1_000_000
MAX_LAUNCHES = 1000
PLACEMENTS = ("in", "out", "both")
ORDERS = ("interleaved", "blocked")
SYNCS = ("barrier", "dissemination", "roundtime", "loop")
MAX_BUFFERS = 1024
MEMORIES = ("private", "shared")
STAGINGS = ("none", "host")
THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Say what one job measures and when it stops.

    ``sizes`` in bytes of the whole vector. Sampling of a cell ends when the 95 % interval of its median is narrower
    than ``precision`` times the median, after ``max_samples``, or when its share of ``time_budget_s`` is used up, but
    never before ``min_samples`` (or ``max_samples``, if fewer). ``segment`` None means the measured default, 0 uncut;
    ``thread_level`` is what MPI is started with. ``root``, ``chunks`` (None: by the size), ``groups`` (None: the nodes
    that MPI finds; else as in ``0,1/2,3``), ``outer`` and ``inner`` (None: ``shared_memory`` in shared memory, else
    ``ring``) are the arguments of those schedules that take them; ``choose_from`` is the run that ``auto`` goes by
    (None: a rule); ``limit`` has the bare Sendrecv and addition timed. ``order`` says whether the algorithms of a size
    take turns in random order, or each runs its iterations in a row; ``sync`` how ranks are aligned before each;
    ``buffers`` how many sets of buffers take turns, so that data are cold. ``straggler`` says which rank comes late, as
    in ``rank=1,delay=5ms`` (None: none does). ``memory`` says where buffers are; those of algorithms that need shared
    memory are in it in any case. ``staging`` says whether messages of a device's arrays go through buffers of the
    ``host``, or are given to the MPI library as they are.
    """

    collective: str = "allreduce"
    algorithms: tuple[str, ...] = ("ring", "mpi")
    sizes: tuple[int, ...] = tuple(8 * 4**power for power in range(12))
    dtype: str = "float32"
    op: str = "sum"
    device: str = "cpu"
    placement: str = "in"
    segment: int | None = None
    thread_level: str = "multiple"
    root: int = 0
    chunks: int | None = None
    groups: str | None = None
    outer: str = "ring"
    inner: str | None = None
    choose_from: str | None = None
    limit: bool = False
    order: str = "interleaved"
    sync: str = "barrier"
    buffers: int = 1
    straggler: str | None = None
    memory: str = "private"
    staging: str = "none"
    precision: float = 0.05
    min_samples: int = 12
    max_samples: int = 1000
    warmup: int = 5
    time_budget_s: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError naming a value that makes no sense whatever the machine."""
        if self.placement not in PLACEMENTS:
            raise ValueError(f"unknown placement {self.placement!r}; known: {', '.join(PLACEMENTS)}")
        if self.thread_level not in THREAD_LEVELS:
            raise ValueError(f"unknown thread level {self.thread_level!r}; known: {', '.join(THREAD_LEVELS)}")
        if self.order not in ORDERS:
            raise ValueError(f"unknown order {self.order!r}; known: {', '.join(ORDERS)}")
        if self.sync not in SYNCS:
            raise ValueError(f"unknown sync {self.sync!r}; known: {', '.join(SYNCS)}")
        if self.memory not in MEMORIES:
            raise ValueError(f"unknown memory {self.memory!r}; known: {', '.join(MEMORIES)}")
        if self.staging not in STAGINGS:
            raise ValueError(f"unknown staging {self.staging!r}; known: {', '.join(STAGINGS)}")
        if not 1 <= self.buffers <= MAX_BUFFERS:
            raise ValueError(f"buffers {self.buffers}: must be 1 to {MAX_BUFFERS}")
        if not self.algorithms or not self.sizes:
            raise ValueError("nothing to measure: at least one algorithm and one size are needed")
        if not 0 < self.precision < 1:
            raise ValueError(f"precision {self.precision}: must be between 0 and 1, as in 0.05")
        for name, number in (("min samples", self.min_samples), ("max samples", self.max_samples)):
            if number < 1:
                raise ValueError(f"{name} {number}: must be at least 1")
        if self.warmup < 0:
            raise ValueError(f"warm-up {self.warmup}: must not be negative")
        if not 0 < self.time_budget_s <= MAX_SECONDS:
            raise ValueError(f"time budget {self.time_budget_s}: must be more than 0 seconds, and a year at most")
        for name, number in (("max samples", self.max_samples), ("warm-up", self.warmup)):
            if number > MAX_COUNT:
                raise ValueError(f"{name} {number}: {MAX_COUNT} at most")
        for name in ("root", "chunks", "outer", "inner"):
            if getattr(self, name) is not None:
                check_value(name, getattr(self, name))
        if self.groups is not None:
            check_value("groups", parse_groups(self.groups))
        if self.seed < 0:
            raise ValueError(f"seed {self.seed}: must not be negative")
        if self.straggler is not None:
            parse_straggler(self.straggler)

    @property
    def placements(self) -> tuple[bool, ...]:
        """Return the values of ``in_place`` to run."""
        return {"in": (True,), "out": (False,), "both": (True, False)}[self.placement]

    @property
    def cells(self) -> list[tuple[int, bool]]:
        """Return the sizes and values of ``in_place`` in the order in which they are measured."""
        return [(nbytes, in_place) for nbytes in sorted(self.sizes) for in_place in self.placements]

    def arguments(self) -> list[str]:
        """Return the command line of ``ringbench run`` that says the same."""
        words = [
            f"--collective={self.collective}",
            f"--algorithms={','.join(self.algorithms)}",
            f"--sizes={','.join(map(str, self.sizes))}",
            f"--dtype={self.dtype}",
            f"--op={self.op}",
            f"--device={self.device}",
            f"--placement={self.placement}",
            f"--thread-level={self.thread_level}",
            f"--precision={self.precision}",
            f"--min-samples={self.min_samples}",
            f"--max-samples={self.max_samples}",
            f"--warmup={self.warmup}",
            f"--time-budget={self.time_budget_s}",
            f"--seed={self.seed}",
            f"--root={self.root}",
            f"--outer={self.outer}",
            f"--order={self.order}",
            f"--sync={self.sync}",
            f"--buffers={self.buffers}",
            f"--memory={self.memory}",
            f"--staging={self.staging}",
        ]
        for name in ("segment", "chunks", "groups", "inner", "choose_from", "straggler"):
            if getattr(self, name) is not None:
                words.append(f"--{name.replace('_', '-')}={getattr(self, name)}")
        return [*words, "--limit"] if self.limit else words

    def to_json(self) -> dict[str, Any]:
        """Return the settings for provenance."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Hold the settings of each job, the rank counts to start it with (None: what the machine has), and how often.

    ``names`` says whether the algorithms were named, or are only the default.
    """

    settings: Settings
    ranks: tuple[int, ...] | None = None
    launches: int = 1
    names: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError naming a number of launches that makes no sense."""
        if not 1 <= self.launches <= MAX_LAUNCHES:
            raise ValueError(f"launches {self.launches}: must be 1 to {MAX_LAUNCHES}")


def parse_names(value: object, what: str) -> tuple[str, ...]:
    """Return names from ``"a,b"`` or a list, each once, in order; raise ValueError where one is empty."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError(f"malformed {what} {value!r}: a list of names")
    return tuple(dict.fromkeys(part.strip() for part in parts))


def _sizes(value: object) -> tuple[int, ...]:
    return tuple(parse_sizes(",".join(map(str, value)) if isinstance(value, list) else str(value)))


def _ranks(value: object) -> tuple[int, ...]:
    return tuple(parse_ranks(",".join(map(str, value)) if isinstance(value, list) else str(value)))


def _kind(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "a string")


def _groups(value: object) -> str:
    """Read groups as on the command line, ``"0,1/2,3"``, or as lists, ``[[0, 1], [2, 3]]``."""
    if isinstance(value, list):
        value = value_text(check_value("groups", value))
    if not isinstance(value, str):
        raise ValueError(f"groups = {value!r}: must be as in '0,1/2,3'")
    return value


def _of_kind(name: str, kind: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise ValueError(f"{name} = {value!r}: must be {_kind(kind)}")
        return value

    return read


_READERS: dict[str, Callable[[object], object]] = {
    "algorithms": lambda value: parse_names(value, "algorithms"),
    "sizes": _sizes,
    "ranks": _ranks,
    "segment": lambda value: parse_size(str(value)),
    "chunks": _of_kind("chunks", int),
    "launches": _of_kind("launches", int),
    "groups": _groups,
    "inner": _of_kind("inner", str),
    "choose_from": _of_kind("choose_from", str),
    "straggler": _of_kind("straggler", str),
}


def read_plan(path: str | Path) -> SweepPlan:
    """Read a sweep plan from TOML: the fields of Settings, ``ranks`` and ``launches``.

    Raises ValueError naming the file and the key that is unknown or has the wrong kind, OSError where there is no file.
    """
    path = Path(path)
    data = read_toml(path)
    try:
        return plan_from(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of TOML; raise ValueError naming it where it is none, OSError where there is no file."""
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path}: not TOML: nested too deep") from None
    except ValueError as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    return data


def plan_from(data: Mapping[str, Any]) -> SweepPlan:
    """Make a sweep plan from the keys of a TOML file; raise ValueError naming a key that does not fit."""
    defaults = asdict(Settings())
    values: dict[str, Any] = {}
    for key, value in data.items():
        if value is None:  # only in the settings of an earlier run: TOML has no null
            continue
        if key in _READERS:
            values[key] = _READERS[key](value)
        elif key not in defaults:
            known = ", ".join(sorted({*defaults, "ranks", "launches"}))
            raise ValueError(f"unknown key {key!r}; known: {known}")
        else:
            kind = type(defaults[key])
            if kind is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if type(value) is not kind:
                raise ValueError(f"{key} = {value!r}: must be {_kind(kind)}")
            values[key] = value
    ranks, launches = values.pop("ranks", None), values.pop("launches", 1)
    return SweepPlan(settings=Settings(**values), ranks=ranks, launches=launches, names="algorithms" in values)


def override(settings: Settings, **changes: Any) -> Settings:
    """Return the settings with those changes that are not None."""
    known = {known.name for known in fields(Settings)}
    return replace(settings, **{name: value for name, value in changes.items() if name in known and value is not None})

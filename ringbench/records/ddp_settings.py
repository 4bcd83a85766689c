"""What to train and how: the settings of ``ringbench ddp``, from a TOML plan or the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ringbench.records.settings import MAX_COUNT, STAGINGS, THREAD_LEVELS, parse_names, read_toml
from ringbench.records.straggler import parse_straggler
from ringbench.records.units import parse_bandwidth, parse_latency, parse_ranks, parse_size, parse_sizes

COMPUTES = ("sleep", "work")

#: The keys of a plan's file that make it its own workload.
LAYERS = ("layer", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpSettings:
    """Say what is trained, in which ways gradients are reduced, and what links are said to cost.

    ``workload`` is a built-in or a file; a micro-batch has ``batch`` samples, and its backward pass takes
    ``backward_s`` (None: what the workload says). Every combination of ``engines``, ``algorithms``, ``bucket_sizes`` in
    bytes, ``accumulate`` micro-batches and ``compress`` is one row, of ``steps`` steps after ``warmup``. ``compute`` is
    ``sleep`` or ``work``; ``polls`` is how often a layer lets reductions go on. ``straggler`` says who is late,
    ``staging`` whether messages of a device's gradients go through the host.

    The links are for predictions: as texts with their units, ``inner`` and ``outer`` as ``1us,300GB/s``; ``fit`` is a
    run whose links are fitted instead.
    """

    workload: str = ""
    backward_s: float | None = None
    batch: int | None = None
    dtype: str = "float32"
    device: str = "cpu"
    staging: str = "none"
    engines: tuple[str, ...] = ("blocking", "thread")
    bucket_sizes: tuple[int, ...] = (25 * 2**20,)
    first_bucket: int = 2**20
    accumulate: tuple[int, ...] = (1,)
    algorithms: tuple[str, ...] = ("ring",)
    compress: tuple[str, ...] = ("none",)
    compute: str = "sleep"
    polls: int = 1
    clip: float | None = None
    straggler: str | None = None
    thread_level: str = "multiple"
    steps: int = 10
    warmup: int = 2
    seed: int = 0
    alpha: str | None = None
    beta: str | None = None
    gamma: str | None = None
    inner: str | None = None
    outer: str | None = None
    ranks_per_node: int | None = None
    shared_link: bool = False
    fit: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError naming a value that makes no sense whatever the machine."""
        for name, known in (("compute", COMPUTES), ("thread_level", THREAD_LEVELS), ("staging", STAGINGS)):
            if getattr(self, name) not in known:
                raise ValueError(f"unknown {name.replace('_', ' ')} {getattr(self, name)!r}; known: {', '.join(known)}")
        for name in ("engines", "bucket_sizes", "accumulate", "algorithms", "compress"):
            if not getattr(self, name):
                raise ValueError(f"{name}: at least one is needed")
        for name, least in (("steps", 1), ("warmup", 0), ("polls", 1), ("first_bucket", 1), ("seed", 0)):
            if not least <= getattr(self, name) <= max(MAX_COUNT, self.first_bucket):
                raise ValueError(f"{name} {getattr(self, name)}: must be {least} to {MAX_COUNT}")
        for name in ("bucket_sizes", "accumulate"):
            for number in getattr(self, name):
                if number < 1:
                    raise ValueError(f"{name} {number}: must be at least 1")
        if self.clip is not None and not 0 < self.clip < 1e300:
            raise ValueError(f"clip {self.clip}: must be a norm above 0")
        if self.straggler is not None:
            parse_straggler(self.straggler)
        if self.alpha is not None:
            latency(self.alpha)
        for name in ("beta", "gamma"):
            if getattr(self, name) is not None:
                parse_bandwidth(getattr(self, name))
        for name in ("inner", "outer"):
            if getattr(self, name) is not None:
                link(getattr(self, name))

    def arguments(self) -> list[str]:
        """Return the command line that says the same."""
        words = []
        for name, value in asdict(self).items():
            option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
            if value is True:
                words.append(option)
            elif isinstance(value, tuple):
                words.append(f"{option}={','.join(map(str, value))}")
            elif value is not None and value is not False:
                words.append(f"{option}={value}{'s' * (name == 'backward_s')}")
        return words

    def to_json(self) -> dict[str, Any]:
        """Return the settings for provenance."""
        return asdict(self)


#: Options that are not called like their field.
_OPTIONS = {"backward_s": "backward", "algorithms": "algorithm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpPlan:
    """Hold the settings, the rank counts to start jobs with (None: what the machine has), and what was named."""

    settings: DdpSettings
    ranks: tuple[int, ...] | None = None
    named: frozenset[str] = frozenset()


def latency(text: str) -> float:
    """Return the seconds in a latency, which may be 0."""
    return 0.0 if text == "0" else parse_latency(text)


def link(text: str) -> tuple[float, float]:
    """Return seconds of a message and of a byte from ``1us,300GB/s``."""
    time, _, bandwidth = text.partition(",")
    return latency(time), parse_bandwidth(bandwidth)


def parse_counts(value: object) -> tuple[int, ...]:
    """Return whole numbers from 1 on from ``1,2,4`` or a list; raise ValueError naming one that is none."""
    return tuple(parse_ranks(",".join(map(str, value)) if isinstance(value, list) else str(value)))


def parse_bucket_sizes(value: object) -> tuple[int, ...]:
    """Return the bytes of bucket sizes from ``1:64MiB:x2`` or a list; raise ValueError where one is below 1."""
    sizes = tuple(parse_sizes(",".join(map(str, value)) if isinstance(value, list) else str(value)))
    if sizes[0] < 1:
        raise ValueError(f"bucket size {sizes[0]}: must be at least 1")
    return sizes


def _of_kind(name: str, *kinds: type) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        if type(value) not in kinds:
            raise ValueError(f"{name} = {value!r}: must be {' or '.join(kind.__name__ for kind in kinds)}")
        return float(value) if kinds[0] is float else value  # type: ignore[arg-type]

    return read


_READERS: dict[str, Callable[[object], Any]] = {
    "backward": lambda value: parse_latency(str(value)),
    "batch": _of_kind("batch", int),
    "engines": lambda value: parse_names(value, "engines"),
    "bucket_sizes": parse_bucket_sizes,
    "first_bucket": lambda value: parse_size(str(value)),
    "accumulate": parse_counts,
    "algorithms": lambda value: parse_names(value, "algorithms"),
    "compress": lambda value: parse_names(value, "compressions"),
    "clip": _of_kind("clip", float, int),
    "ranks": parse_counts,
    "ranks_per_node": _of_kind("ranks_per_node", int),
    **{name: _of_kind(name, str) for name in ("straggler", "alpha", "beta", "gamma", "inner", "outer", "fit")},
}


def read_ddp_plan(path: str | Path) -> DdpPlan:
    """Read a plan from TOML: the fields of DdpSettings (``backward`` as ``"100ms"``), ``ranks``, and maybe layers.

    A file with ``[[layer]]`` tables is its own workload. Raises ValueError naming the file and the key that is unknown
    or has the wrong kind, OSError where there is no file.
    """
    path = Path(path)
    data = read_toml(path)
    try:
        if "layer" in data:
            if "workload" in data:
                raise ValueError(f"workload = {data['workload']!r}: the file has layers of its own")
            data["workload"] = str(path)
        return ddp_plan_from({name: value for name, value in data.items() if name not in LAYERS})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def ddp_plan_from(data: Mapping[str, Any]) -> DdpPlan:
    """Make a plan from the keys of a TOML file; raise ValueError naming a key that does not fit."""
    defaults = asdict(DdpSettings())
    known = {*defaults, "ranks", "backward"} - {"backward_s"}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            raise ValueError(f"unknown key {key!r}; known: {', '.join(sorted(known))}")
        read = _READERS.get(key) or _of_kind(key, type(defaults[key]))
        values["backward_s" if key == "backward" else key] = read(value)
    ranks = values.pop("ranks", None)
    return DdpPlan(settings=DdpSettings(**values), ranks=ranks, named=frozenset(values))


def settings_from_json(data: Mapping[str, Any]) -> DdpSettings:
    """Read settings back from provenance; fields of a newer version are ignored."""
    known = {known.name for known in fields(DdpSettings)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name in known
    }
    try:
        return DdpSettings(**values)
    except TypeError as error:
        raise ValueError(f"not the settings of ringbench ddp: {error}") from None


def override_ddp(plan: DdpPlan, /, **changes: Any) -> DdpPlan:
    """Return the plan with those changes that are not None."""
    known = {known.name for known in fields(DdpSettings)}
    values = {name: value for name, value in changes.items() if name in known and value is not None}
    ranks = changes.get("ranks") or plan.ranks
    return DdpPlan(settings=replace(plan.settings, **values), ranks=ranks, named=plan.named | values.keys())

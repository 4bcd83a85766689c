"""What is trained: layers in forward order, the parameters of each, and how long each computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ringbench.ddp.architectures import ARCHITECTURES, FLOPS_PER_SECOND, Part
from ringbench.records.ddp_settings import DdpSettings
from ringbench.records.settings import read_toml
from ringbench.records.units import parse_latency

MAX_LAYERS = 100_000
MAX_PARAMETERS = 2**50
MAX_SECONDS = 86400.0

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Hold one layer: the shapes of its parameters, and the seconds of its forward and backward pass.

    The gradients of all its parameters are ready when its backward pass ends. A layer may have no parameters.
    """

    name: str
    shapes: tuple[Shape, ...]
    forward_s: float = 0.0
    backward_s: float = 0.0

    def __post_init__(self) -> None:
        for shape in self.shapes:
            if any(length < 1 for length in shape):
                raise ValueError(f"layer {self.name!r}: shape {list(shape)}: must be whole numbers above 0")
        if self.parameters > MAX_PARAMETERS:
            raise ValueError(f"layer {self.name!r}: parameters {self.parameters}: 2^50 at most")
        for name, time in (("forward", self.forward_s), ("backward", self.backward_s)):
            if not 0 <= time <= MAX_SECONDS:
                raise ValueError(f"layer {self.name!r}: {name} {time} s: must be a time of a day at most")

    @property
    def parameters(self) -> int:
        """Return how many numbers are trained here."""
        return sum(math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Hold the layers of a model in forward order, and how many samples (or sequences) one micro-batch has."""

    name: str
    layers: tuple[Layer, ...]
    batch: int = 1

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError(f"workload {self.name}: no layers")
        if len(self.layers) > MAX_LAYERS:
            raise ValueError(f"workload {self.name}: {len(self.layers)} layers: {MAX_LAYERS} at most")
        if not self.parameters:
            raise ValueError(f"workload {self.name}: no parameters")
        if self.batch < 1:
            raise ValueError(f"workload {self.name}: batch {self.batch}: must be at least 1")

    @property
    def parameters(self) -> int:
        """Return how many numbers are trained in all."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def forward_s(self) -> float:
        """Return the seconds of the forward pass of one micro-batch."""
        return math.fsum(layer.forward_s for layer in self.layers)

    @property
    def backward_s(self) -> float:
        """Return the seconds of the backward pass of one micro-batch."""
        return math.fsum(layer.backward_s for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Return the seconds of both passes of one micro-batch."""
        return self.forward_s + self.backward_s

    def scaled(self, backward_s: float) -> Workload:
        """Return the workload whose backward pass takes so long in all, every layer and forward in proportion.

        Raises ValueError where no layer takes any time, so that there is no proportion.
        """
        total = self.backward_s
        if total <= 0:
            raise ValueError(f"workload {self.name}: its layers have no backward times that could be scaled")
        factor = backward_s / total
        layers = [
            replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
            for layer in self.layers
        ]
        return replace(self, layers=tuple(layers))


def workload_named(name: str, *, backward_s: float | None = None, batch: int | None = None) -> Workload:
    """Return a built-in workload, or that of a file that ends in ``.toml``.

    ``backward_s`` is what the whole backward pass of a micro-batch takes; each layer gets its part of it by the
    floating-point operations (in a file, by the times that it gives), and forward half of that. Without it a built-in
    takes what ``batch`` samples need at 50 TFLOP/s. Raises ValueError naming what is unknown or malformed, OSError
    where there is no such file.
    """
    if name.endswith(".toml"):
        found = read_workload(name)
    elif name in ARCHITECTURES:
        found = built_in(name, batch)
    else:
        raise ValueError(f"unknown workload {name!r}; known: {', '.join(ARCHITECTURES)}, or a file that ends in .toml")
    found = found if batch is None else replace(found, batch=batch)
    return found if backward_s is None else found.scaled(backward_s)


def built_in(name: str, batch: int | None = None) -> Workload:
    """Return a built-in workload as it computes at 50 TFLOP/s: backward twice the operations of forward."""
    architecture = ARCHITECTURES[name]
    samples = architecture.batch if batch is None else batch

    def layer(part: Part) -> Layer:
        forward_s = part.flops * samples / FLOPS_PER_SECOND
        return Layer(name=part.name, shapes=part.shapes, forward_s=forward_s, backward_s=2 * forward_s)

    return Workload(name=name, layers=tuple(map(layer, architecture.parts())), batch=samples)


def read_workload(path: str | Path) -> Workload:
    """Read a workload from TOML: ``[[layer]]`` tables in forward order, ``name`` and ``batch`` if wanted.

    The file may be a plan of ``ringbench ddp`` too, whose other keys say how to train. Raises ValueError naming the
    file and the value that does not fit, OSError where there is no file.
    """
    path = Path(path)
    try:
        data = {name: value for name, value in read_toml(path).items() if name in KEYS or name not in PLAN_KEYS}
        return workload_from(data, path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


#: The keys of a file that make up a workload, and those that only a plan has.
KEYS = ("name", "batch", "layer")
PLAN_KEYS = frozenset({known.name for known in fields(DdpSettings)} | {"backward", "ranks"})


def workload_from(data: Mapping[str, Any], name: str) -> Workload:
    """Make a workload from the keys of a TOML file; raise ValueError naming a key or value that does not fit."""
    unknown = next((key for key in data if key not in KEYS), None)
    if unknown is not None:
        raise ValueError(f"unknown key {unknown!r}; a workload has {', '.join(KEYS)}")
    tables = data.get("layer")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ValueError("no [[layer]]: a workload is a list of such tables, in forward order")
    given, batch = data.get("name", name), data.get("batch", 1)
    if not isinstance(given, str) or not given.isprintable() or not given.strip():
        raise ValueError(f"name = {given!r}: must be a name")
    if type(batch) is not int:
        raise ValueError(f"batch = {batch!r}: must be a whole number")
    layers: list[Layer] = []
    for number, table in enumerate(tables, 1):
        layers += _layers(number, table)
        if len(layers) > MAX_LAYERS:
            raise ValueError(f"layer {number}: {MAX_LAYERS} layers at most")
    return Workload(name=given, layers=tuple(layers), batch=batch)


def _layers(number: int, table: Mapping[str, Any]) -> Sequence[Layer]:
    where = f"layer {number}"
    unknown = next((key for key in table if key not in _READERS), None)
    if unknown is not None:
        raise ValueError(f"{where}: unknown key {unknown!r}; known: {', '.join(_READERS)}")
    try:
        found = {key: _READERS[key](value) for key, value in table.items()}
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if ("parameters" in found) == ("shape" in found):
        raise ValueError(f"{where}: give either parameters or shape")
    shapes: tuple[Shape, ...] = found.get("shape") or (((found["parameters"],),) if found["parameters"] else ())
    one = Layer(
        name=found.get("name", f"layer{number}"),
        shapes=shapes,
        forward_s=found.get("forward", 0.0),
        backward_s=found.get("backward", 0.0),
    )
    repeat: int = found.get("repeat", 1)
    if repeat == 1:
        return [one]
    return [replace(one, name=f"{one.name}.{index}") for index in range(repeat)]


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"name = {value!r}: must be a name")
    return value


def _whole(name: str, least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} = {value!r}: must be a whole number from {least} to {most}")
        return value

    return read


def _shapes(value: object) -> tuple[Shape, ...]:
    """Read one shape, ``[64, 3, 7, 7]``, or those of several parameters, ``[[64, 3, 7, 7], [64]]``."""
    shapes: Any = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    for shape in shapes:
        if not isinstance(shape, list) or not shape or not all(type(length) is int and length > 0 for length in shape):
            raise ValueError(f"shape = {value!r}: must be whole numbers above 0, as in [64, 3, 7, 7], or several such")
    return tuple(tuple(shape) for shape in shapes)


def _time(name: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        if value == 0 and type(value) is int:
            return 0.0
        if not isinstance(value, str):
            raise ValueError(f"{name} = {value!r}: must be a time with its unit, as in '20ms'")
        try:
            return parse_latency(value)
        except ValueError:
            raise ValueError(f"{name} = {value!r}: must be a time with its unit, as in '20ms'") from None

    return read


_READERS: dict[str, Callable[[object], Any]] = {
    "name": _name,
    "parameters": _whole("parameters", 0, MAX_PARAMETERS),
    "shape": _shapes,
    "backward": _time("backward"),
    "forward": _time("forward"),
    "repeat": _whole("repeat", 1, MAX_LAYERS),
}

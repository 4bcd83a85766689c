"""What stands at each point of a figure, in words, for a page on which one can point at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Hold a place in points from the upper left corner, where an SVG of the figure has it, and what is there."""

    x: float
    y: float
    text: str


def spots(figure: Figure) -> list[Spot]:
    """Return the places of all values in a figure that has been saved before, which lays it out.

    A text is the name of the curve, and what one reads off both axes, with the interval of the value where it has one.
    """
    scale = 72 / figure.dpi
    height = figure.get_figheight() * 72
    found = []
    for axes in figure.axes:
        for name, x, y, bar in _values(axes):
            if not (isfinite(x) and isfinite(y)):
                continue
            across, up = axes.transData.transform((x, y))
            interval = f" [{', '.join(map(axes.format_ydata, bar))}]" if bar else ""
            text = f"{name}: {axes.format_xdata(x)}, {axes.format_ydata(y)}{interval}"
            found.append(Spot(x=float(across) * scale, y=height - float(up) * scale, text=text))
    return found


def _values(axes: Axes) -> Iterator[tuple[str, float, float, tuple[float, ...]]]:
    """Yield name, place and interval of the values of curves with bars, and of those lines that have a name."""
    from matplotlib.container import ErrorbarContainer

    for container in axes.containers:
        if isinstance(container, ErrorbarContainer) and container[0] is not None:
            bars = [segment for lines in container[2] for segment in lines.get_segments()]
            if _marked(container[0]):
                for (x, y), bar in zip(container[0].get_xydata(), bars, strict=True):
                    ends = tuple(sorted(float(end) for _, end in bar))
                    yield str(container.get_label()), float(x), float(y), ends if ends[0] < ends[-1] else ()
    for line in axes.lines:
        name = str(line.get_label())
        if _marked(line) and not name.startswith(("_child", "_nolegend_")):
            for x, y in np.asarray(line.get_xydata()):
                yield name.removeprefix("_"), float(x), float(y), ()


def _marked(line: Any) -> bool:
    return line.get_marker() not in ("", " ", "None", None)

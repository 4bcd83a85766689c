"""Bandwidth and time against size: a line with intervals for each algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringbench.report.figures.style import (
    GREY,
    axis_of_bytes,
    axis_of_numbers,
    axis_of_seconds,
    drawn,
    legend,
    sheet,
    style_of,
)
from ringbench.report.figures.views import Cell, View, by_algorithm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A value with the ends of its interval, None where there is none.
Bounded = tuple[float, float | None, float | None]


@drawn
def bandwidth(view: View) -> Figure:
    """Draw busbw [GB/s] against size, and the limit of the fastest schedule where bare Sendrecvs were timed.

    Raises ValueError saying why where no cell has a bandwidth.
    """

    def value(cell: Cell) -> Bounded | None:
        busbw, time = cell["busbw_gb_per_s"], cell["median_s"]
        if busbw is None:
            return None
        low, high = (busbw * time / end if end else None for end in (cell["ci_high_s"], cell["ci_low_s"]))
        return busbw, low, high

    figure, axes, values = _against_size(view, value)
    best: dict[int, float] = {}
    for cell in view.cells:
        if cell["of_limit"] and cell["busbw_gb_per_s"]:
            best[cell["nbytes"]] = max(best.get(cell["nbytes"], 0.0), cell["busbw_gb_per_s"] / cell["of_limit"])
    if best:
        axes.plot(
            list(best),
            list(best.values()),
            color=GREY,
            linestyle=(0, (4, 2)),
            zorder=1.5,
            label="limit: bare Sendrecv + add",
        )
        values += best.values()
    axis_of_numbers(axes.yaxis, min(values), max(values), "bus bandwidth (GB/s)")
    legend(figure, *axes.get_legend_handles_labels())
    return figure


@drawn
def latency(view: View) -> Figure:
    """Draw the median time against size. Raises ValueError saying why where nothing was measured."""

    def value(cell: Cell) -> Bounded | None:
        time = cell["median_s"]
        return (time, cell["ci_low_s"], cell["ci_high_s"]) if time else None

    figure, axes, values = _against_size(view, value)
    axis_of_seconds(axes.yaxis, min(values), max(values), "median time")
    legend(figure, *axes.get_legend_handles_labels())
    return figure


def _against_size(view: View, value: Callable[[Cell], Bounded | None]) -> tuple[Figure, Axes, list[float]]:
    """Draw a value of each cell, with its interval, and return all values too."""
    lines: dict[str, list[tuple[int, Bounded]]] = {}
    for name, cells in by_algorithm(view.cells).items():
        found = [(cell["nbytes"], bounded) for cell in cells if cell["nbytes"] and (bounded := value(cell))]
        if found:
            lines[name] = found
    if not lines:
        raise ValueError(view.missing)
    figure, (axes,) = sheet(view.title)
    for name, found in lines.items():
        line_with_bars(axes, name, found, hollow=view.crowded)
    sizes = [nbytes for found in lines.values() for nbytes, _ in found]
    axis_of_bytes(axes.xaxis, min(sizes), max(sizes), "size of the vector")
    return figure, axes, [bounded[0] for found in lines.values() for _, bounded in found]


def line_with_bars(
    axes: Axes, algorithm: str, found: list[tuple[int, Bounded]], *, hollow: bool = False, label: str | None = None
) -> None:
    """Draw one algorithm's values with the bars of their intervals; hollow markers where ranks share cores."""
    style: dict[str, Any] = style_of(algorithm)
    at, values = [x for x, _ in found], [bounded[0] for _, bounded in found]
    # Samples so few that there is no interval have no bar; no median lies outside its own interval.
    down = [max(0.0, middle - low) if low is not None else 0.0 for _, (middle, low, _) in found]
    up = [max(0.0, high - middle) if high is not None else 0.0 for _, (middle, _, high) in found]
    axes.errorbar(
        at,
        values,
        yerr=[down, up],
        label=label or algorithm,
        elinewidth=0.8,
        capsize=1.6,
        capthick=0.6,
        markerfacecolor="white" if hollow else style["color"],
        markeredgewidth=0.7,
        **style,
    )

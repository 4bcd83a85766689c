"""How the time grows with the number of ranks, beside what the bytes alone would make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringbench.records.guards import CROWDED
from ringbench.records.units import rough_size
from ringbench.report.figures.style import (
    BLACK,
    SMALL,
    axis_of_seconds,
    drawn,
    in_order,
    legend,
    read_off,
    sheet,
    style_of,
)
from ringbench.report.figures.views import Cell, View, by_algorithm
from ringbench.schedule.semantics import collective_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawn
def scaling(view: View) -> Figure:
    """Draw the median time against N at a short, a middle and a long size, and the ideal line.

    The ideal keeps the bus bandwidth that the fastest has on the fewest ranks: its time grows as the bytes that each
    rank must move. Raises ValueError where no algorithm was measured on two rank counts of 2 and more.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullLocator

    cells = [cell for cell in view.cells if cell["median_s"] and cell["nranks"] > 1 and cell["nbytes"]]
    sizes = [nbytes for nbytes in sorted({cell["nbytes"] for cell in cells}) if _grows(cells, nbytes)]
    if not sizes:
        raise ValueError("no algorithm was measured on two rank counts of 2 and more")
    chosen = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
    figure, panels = sheet(
        view.title_of(cell["nranks"] for cell in cells), height=0.6 + 1.2 * len(chosen), rows=len(chosen)
    )
    factor = collective_named(view.rows[0].collective).bus_factor
    names: set[str] = set()
    crowded = False
    for axes, nbytes in zip(panels, chosen, strict=True):
        here = [cell for cell in cells if cell["nbytes"] == nbytes]
        counts = sorted({cell["nranks"] for cell in here})
        values = []
        for name, found in by_algorithm(here).items():
            style: dict[str, Any] = style_of(name)
            x, times = [cell["nranks"] for cell in found], [cell["median_s"] for cell in found]
            down = [max(0.0, cell["median_s"] - (cell["ci_low_s"] or cell["median_s"])) for cell in found]
            up = [max(0.0, (cell["ci_high_s"] or cell["median_s"]) - cell["median_s"]) for cell in found]
            axes.errorbar(x, times, yerr=[down, up], elinewidth=0.8, capsize=1.6, **{**style, "marker": ""})
            for cell in found:
                shared = bool(CROWDED & set(cell["warnings"]))
                crowded = crowded or shared
                face = "white" if shared else style["color"]
                point = {**style, "linestyle": "", "markerfacecolor": face, "markeredgewidth": 0.7, "label": f"_{name}"}
                axes.plot(cell["nranks"], cell["median_s"], zorder=3, **point)
            values += times
            names.add(name)
        best = min(cell["median_s"] for cell in here if cell["nranks"] == counts[0])
        ideal = [best * float(factor(nranks) / factor(counts[0])) for nranks in counts]
        axes.plot(counts, ideal, color=BLACK, linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, list(map(str, counts)))
        axes.xaxis.set_minor_locator(NullLocator())
        axis_of_seconds(axes.yaxis, min([*values, *ideal]), max([*values, *ideal]), "")
        read_off(axes.xaxis, lambda nranks: f"N = {nranks:.0f}")
        axes.set_title(rough_size(nbytes), loc="left", fontsize=SMALL, pad=2)
        axes.set_xlim(counts[0] / 1.06, counts[-1] * 1.06)
    panels[-1].set_xlabel("ranks N")
    figure.supylabel("median time", fontsize=7)
    handles = [Line2D([], [], **style_of(name)) for name in in_order(names)]  # type: ignore[arg-type]
    handles.append(Line2D([], [], color=BLACK, linewidth=0.8, linestyle=(0, (1, 1.5))))
    labels = [*in_order(names), "ideal: same bus bandwidth"]
    if crowded:
        handles.append(Line2D([], [], linestyle="", marker="o", color=BLACK, markerfacecolor="white"))
        labels.append("hollow: ranks share cores")
    legend(figure, handles, labels)
    return figure


def _grows(cells: Sequence[Cell], nbytes: int) -> bool:
    here = [cell for cell in cells if cell["nbytes"] == nbytes]
    return any(len({cell["nranks"] for cell in found}) > 1 for found in by_algorithm(here).values())

"""Times as ratios to the library's own call, and the sizes at which an algorithm passes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import TYPE_CHECKING

from ringbench.model.compare import FASTER, SLOWER, Comparison, compare_rows
from ringbench.records.units import rough_size
from ringbench.report.figures.curves import Bounded, line_with_bars
from ringbench.report.figures.style import (
    BLACK,
    axis_of_bytes,
    axis_of_ratios,
    drawn,
    in_order,
    legend,
    sheet,
    style_of,
)
from ringbench.report.figures.views import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = "mpi"


@drawn
def ratio(view: View) -> Figure:
    """Draw time / time of MPI's own against size with intervals, and mark where a verdict turns.

    Raises ValueError where there are no rows of both, or no cell has a ratio.
    """
    rows = [row for row in view.rows if not row.wrong]
    names = sorted({row.algorithm for row in rows if row.nranks > 1})
    if view.nranks == [1]:
        raise ValueError("one rank moves nothing")
    if BASELINE not in names:
        raise ValueError(f"no rows of {BASELINE!r} on 2 or more ranks to compare with")
    if names == [BASELINE]:
        raise ValueError(f"no rows but those of {BASELINE!r}")
    figure, (axes,) = sheet(view.title)
    drawn_ratios: list[tuple[int, Bounded]] = []
    for name in in_order(set(names) - {BASELINE}):
        try:
            compared = compare_rows(rows, name, BASELINE, interleaved=view.pool.interleaved)
        except ValueError:  # it shares no size with the baseline
            continue
        found = [(one.nbytes, (one.ratio, one.ratio_low, one.ratio_high)) for one in compared if one.ratio]
        found = [one for one in found if one[0]]
        if not found:
            continue
        crossings = crossovers(compared)
        where = f" ({', '.join(rough_size(round(size)) for size in crossings)})" if crossings else ""
        line_with_bars(axes, name, found, hollow=view.crowded, label=f"{name}{where}")
        for size in crossings:
            axes.plot(size, 1.0, marker="|", markersize=7, markeredgewidth=1.2, color=style_of(name)["color"], zorder=4)
        drawn_ratios += found
    if not drawn_ratios:
        raise ValueError(f"no size at which {BASELINE!r} and another were measured")
    sizes = [nbytes for nbytes, _ in drawn_ratios]
    values = [value for _, bounded in drawn_ratios for value in bounded if value]
    axis_of_bytes(axes.xaxis, min(sizes), max(sizes), "size of the vector")
    axis_of_ratios(axes.yaxis, min([*values, 0.9]), max([*values, 1.1]), "time / time of mpi\n(below 1: faster)")
    axes.axhline(1.0, color=BLACK, linewidth=0.8, zorder=1.5)
    legend(
        figure,
        *axes.get_legend_handles_labels(),
        title="| and in brackets: sizes at which a verdict turns",
        title_fontsize=6.5,
    )
    return figure


def crossovers(compared: Sequence[Comparison]) -> list[float]:
    """Return the sizes [B] at which the ratio passes 1 between a verdict faster and the next that says slower.

    Between them the logarithm of the ratio is taken for a straight line in that of the size. A cell that cannot be told
    apart decides nothing; where there are two or more between, nobody knows where the ratio passes 1.
    """
    cells = [one for one in sorted(compared, key=lambda one: one.nbytes) if one.nbytes]
    sure = [(at, one) for at, one in enumerate(cells) if one.verdict in (FASTER, SLOWER)]
    found = []
    for (at, one), (where, other) in pairwise(sure):
        if where - at <= 2 and one.verdict != other.verdict and one.ratio and other.ratio:
            share = log(one.ratio) / (log(one.ratio) - log(other.ratio))
            found.append(exp(log(one.nbytes) + share * log(other.nbytes / one.nbytes)))
    return found

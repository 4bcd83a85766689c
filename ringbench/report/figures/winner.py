"""Which algorithm is the fastest at which size on how many ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringbench.records.guards import CROWDED
from ringbench.records.units import rough_size
from ringbench.report.figures.style import drawn, in_order, legend, read_off, seconds, sheet, style_of
from ringbench.report.figures.views import Cell, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIGHT = 0.35


@drawn
def winner(view: View) -> Figure:
    """Draw the fastest algorithm of each rank count and size; pale where another one's interval reaches to it.

    ``auto`` stands for another algorithm, so it wins nothing. Raises ValueError where no cell has two algorithms.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    cells: dict[tuple[int, int], list[Cell]] = {}
    for cell in view.cells:
        if cell["median_s"] and cell["algorithm"] != "auto" and cell["nranks"] > 1:
            cells.setdefault((cell["nranks"], cell["nbytes"]), []).append(cell)
    cells = {place: _alone_if_any(members) for place, members in cells.items()}
    cells = {place: members for place, members in cells.items() if len(members) > 1}
    if not cells:
        raise ValueError("no size and rank count at which two algorithms were measured")
    ranks, sizes = (sorted(set(values)) for values in zip(*cells, strict=True))
    figure, (axes,) = sheet(view.title_of(ranks), height=0.95 + 0.24 * len(ranks))
    winners = set()
    for (nranks, nbytes), members in cells.items():
        best = min(members, key=lambda cell: cell["median_s"])
        style = style_of(best["algorithm"])
        x, y = sizes.index(nbytes), ranks.index(nranks)
        pale = LIGHT if _undecided(best, members) else 1.0
        axes.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=style["color"], alpha=pale, edgecolor="white", linewidth=0.8)
        )
        ink = "white" if pale == 1.0 else style["color"]
        label = f"_{best['algorithm']}, {seconds(best['median_s'])}"
        axes.plot(x, y, linestyle="", marker=style["marker"], markersize=2.8, color=ink, label=label)
        winners.add(best["algorithm"])
    crowded = {place[0] for place, members in cells.items() if any(CROWDED & set(one["warnings"]) for one in members)}
    note = f"pale: another's interval reaches to it{'; * ranks share cores' * bool(crowded)}"
    axes.set_yticks(range(len(ranks)), [f"{nranks}{'*' * (nranks in crowded)}" for nranks in ranks])
    step = -(-len(sizes) // 7)
    axes.set_xticks(range(0, len(sizes), step), [rough_size(nbytes) for nbytes in sizes[::step]])
    axes.set(
        xlim=(-0.5, len(sizes) - 0.5), ylim=(-0.5, len(ranks) - 0.5), xlabel=f"size of the vector\n{note}", ylabel="N"
    )
    read_off(axes.xaxis, lambda x: rough_size(sizes[round(x)]))
    read_off(axes.yaxis, lambda y: f"N = {ranks[round(y)]}")
    axes.grid(False)
    won = in_order(winners)
    handles = [
        (
            Patch(facecolor=style["color"]),
            Line2D([], [], linestyle="", marker=style["marker"], color="white", markersize=2.8),
        )
        for style in (style_of(name) for name in won)
    ]
    legend(figure, handles, won)
    return figure


def _alone_if_any(members: list[Cell]) -> list[Cell]:
    """Return those whose ranks have cores of their own, if there are any: the others do not compete with them."""
    alone = [cell for cell in members if not CROWDED & set(cell["warnings"])]
    return alone or members


def _undecided(best: Cell, members: list[Cell]) -> bool:
    end = best["ci_high_s"] or best["median_s"]
    return any((cell["ci_low_s"] or cell["median_s"]) <= end for cell in members if cell is not best)

"""Every sample in the order in which it was taken: drift, modes and outliers, cell by cell."""

from __future__ import annotations

from math import log
from statistics import median
from typing import TYPE_CHECKING

from ringbench.records.guards import GUARDS
from ringbench.records.row import Row
from ringbench.records.units import rough_size
from ringbench.report.figures.style import SMALL, drawn, seconds, sheet, style_of
from ringbench.report.figures.views import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 6

#: Samples beyond this factor of the median stand at the edge of their strip.
EDGE = 2.0

#: More dots than this are kept as an image in an SVG.
MANY = 2000


@drawn
def samples(view: View) -> Figure:
    """Draw a strip for each size of one algorithm: each sample over the median, launches one after the other.

    Raises ValueError where no cell has samples enough.
    """
    cells: dict[int, list[Row]] = {}
    for row in view.rows:
        if row.samples_s and not row.wrong:
            cells.setdefault(row.nbytes, []).append(row)
    cells = {nbytes: rows for nbytes, rows in sorted(cells.items()) if sum(len(r.samples_s) for r in rows) >= FEWEST}
    cells = {nbytes: rows for nbytes, rows in cells.items() if min(min(row.samples_s) for row in rows) > 0}
    if not cells:
        raise ValueError(f"no cell has {FEWEST} samples and more")
    name = view.rows[0].algorithm
    colour = style_of(name)["color"]
    figure, (axes,) = sheet(f"{view.title}, {name}", height=0.75 + 0.24 * len(cells))
    right, dots = [], sum(len(row.samples_s) for rows in cells.values() for row in rows)
    for strip, rows in enumerate(cells.values()):
        ordered = sorted(rows, key=lambda row: (row.launch, row.job))
        middle = median(sample for row in ordered for sample in row.samples_s)
        total, before = sum(len(row.samples_s) for row in ordered), 0
        axes.axhline(strip, color="#BBBBBB", linewidth=0.4, zorder=1)
        for at, row in enumerate(ordered):
            x = [(before + number + 0.5) / total for number in range(len(row.samples_s))]
            far = [log(sample / middle, EDGE) for sample in row.samples_s]
            y = [strip + 0.42 * max(-1.0, min(1.0, value)) for value in far]
            axes.plot(
                x,
                y,
                linestyle="",
                marker=".",
                markersize=1.8,
                markeredgewidth=0,
                color=colour,
                alpha=0.95 if at % 2 == 0 else 0.45,
                rasterized=dots > MANY,
            )
            before += len(row.samples_s)
        letters = ",".join(sorted({_letter(warning) for row in ordered for warning in row.warnings}))
        right.append(f"{seconds(middle)}, {total}{f'  {letters}' if letters else ''}")
    axes.set_yticks(range(len(cells)), [rough_size(nbytes) for nbytes in cells])
    other = axes.secondary_yaxis("right")
    other.set_yticks(range(len(cells)), right, fontsize=SMALL - 1)
    other.tick_params(length=0)
    other.set_ylabel("median, samples, warnings", fontsize=SMALL - 0.5)
    axes.set(xlim=(0, 1), ylim=(-0.6, len(cells) - 0.4), ylabel="size of the vector")
    axes.set_xticks([])
    launches = max(map(len, cells.values()))
    shades = f" (shades: {launches} launches)" if launches > 1 else ""
    axes.set_xlabel(f"samples, first to last{shades};\na strip spans half to twice the median")
    axes.grid(False)
    return figure


def _letter(warning: str) -> str:
    return GUARDS[warning].letter if warning in GUARDS else "?"

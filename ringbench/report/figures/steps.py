"""How long a training step takes by the size of its buckets, and what of that is communication nobody hides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ringbench.report.figures.style import (
    BLACK,
    COLOURS,
    DASHES,
    MARKERS,
    axis_of_bytes,
    drawn,
    legend,
    read_off,
    sheet,
)
from ringbench.report.figures.views import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Cells that differ here never stand in one figure.
_FIGURE = ("workload", "dtype", "device", "nranks", "accumulate", "compute", "straggler")

#: Lines of one figure, in the order of the engines everywhere.
_ENGINES = ("blocking", "thread", "poll", "iallreduce", "iallreduce_progress")


def of_steps(cells: Iterable[Cell]) -> Iterator[tuple[tuple[tuple[str, str], ...], list[Cell]]]:
    """Yield what tells each figure from the others, and the cells that it shows."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        if not cell["wrong"]:
            found.setdefault(tuple(cell[name] for name in _FIGURE), []).append(cell)
    for key, members in sorted(found.items()):
        values = dict(zip(_FIGURE, key, strict=True))
        yield (
            (
                ("workload", str(values["workload"])),
                ("dtype", str(values["dtype"])),
                ("device", str(values["device"])),
                ("nranks", f"n{values['nranks']}"),
                ("accumulate", f"accumulate{values['accumulate']}"),
                ("compute", str(values["compute"])),
                ("straggler", str(values["straggler"])),
            ),
            members,
        )


@drawn
def steps(cells: Sequence[Cell]) -> Figure:
    """Draw the median step against the bucket size, with intervals, for each engine, algorithm and compression.

    Hollow points are what the timeline predicts, the dotted line is computing alone: what is above it is exposed.
    Raises ValueError where no line has two bucket sizes.
    """
    from matplotlib.lines import Line2D

    lines: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell["engine"] != "none":
            lines.setdefault((cell["engine"], cell["algorithm"], cell["compress"]), []).append(cell)
    sizes = sorted({cell["bucket_nbytes"] for found in lines.values() for cell in found})
    if len(sizes) < 2:
        raise ValueError("steps were measured with a single bucket size")
    first = cells[0]
    micro = f", {first['accumulate']} micro-batches a step" if first["accumulate"] > 1 else ""
    figure, (axes,) = sheet(f"{first['workload']}, {first['dtype']} on {first['device']}, N = {first['nranks']}{micro}")
    handles, labels = [], []
    several = {at: len({name[at] for name in lines}) > 1 for at in (1, 2)}
    for at, (name, found) in enumerate(sorted(lines.items(), key=lambda item: _rank(item[0]))):
        found.sort(key=lambda cell: cell["bucket_nbytes"])
        colour = COLOURS[at % len(COLOURS)]
        style: dict[str, Any] = {
            "color": colour,
            "marker": MARKERS[at % len(MARKERS)],
            "linestyle": DASHES[at // len(COLOURS) % 4],
        }
        x, times = [cell["bucket_nbytes"] for cell in found], [cell["step_s"] * 1e3 for cell in found]
        down = [1e3 * max(0.0, cell["step_s"] - (cell["ci_low_s"] or cell["step_s"])) for cell in found]
        up = [1e3 * max(0.0, (cell["ci_high_s"] or cell["step_s"]) - cell["step_s"]) for cell in found]
        label = " ".join([name[0], *(name[part] for part in (1, 2) if several[part])])
        axes.errorbar(x, times, yerr=[down, up], elinewidth=0.8, capsize=1.6, label=label, **style)
        told = [1e3 * (cell["predicted_s"] or cell["timeline_s"]) for cell in found]
        hollow = {**style, "linestyle": "", "markerfacecolor": "white", "label": f"_{label}, predicted"}
        axes.plot(x, told, **hollow, markeredgewidth=0.7, zorder=3)
        handles.append(Line2D([], [], **style))
        labels.append(label)
    alone = 1e3 * min(cell["compute_s"] for cell in cells)
    axes.axhline(alone, color=BLACK, linewidth=0.8, linestyle=(0, (1, 1.5)))
    handles += [
        Line2D([], [], linestyle="", marker="o", color=BLACK, markerfacecolor="white"),
        Line2D([], [], color=BLACK, linewidth=0.8, linestyle=(0, (1, 1.5))),
    ]
    axis_of_bytes(axes.xaxis, sizes[0], sizes[-1], "bucket size")
    axes.set_ylabel("step (ms)")
    read_off(axes.yaxis, lambda value: f"{value:.4g} ms")
    axes.set_ylim(bottom=0)
    legend(figure, handles, [*labels, "hollow: predicted", "computing alone"])
    return figure


def _rank(name: tuple[str, str, str]) -> tuple[Any, ...]:
    engine, algorithm, compress = name
    return _ENGINES.index(engine) if engine in _ENGINES else len(_ENGINES), algorithm, compress

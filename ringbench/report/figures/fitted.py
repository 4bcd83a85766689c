"""What the model says: times of all schedules on one step curve, and what it predicts of what it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringbench.model.fit import FitResult, Model
from ringbench.model.heldout import HeldOut
from ringbench.model.points import LINK, Point
from ringbench.records.units import rough_size
from ringbench.report.figures.style import (
    BLACK,
    GREY,
    axis_of_bytes,
    axis_of_seconds,
    drawn,
    in_order,
    legend,
    seconds,
    sheet,
    style_of,
)
from ringbench.report.figures.views import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAND = 0.25
PALE = "#DDDDDD"


@drawn
def step(view: View, result: FitResult) -> Figure:
    """Draw the time of one message against its length: measured calls, cut into messages, and the fitted curve.

    A call stands at the mean length of the messages on its critical path, less what its additions cost. Raises
    ValueError where no schedule was fitted.
    """
    model = next((model for model in result.models if model.basis == LINK), None)
    if model is None:
        raise ValueError("no algorithm whose messages are known was fitted, only whole calls")
    curve, shape = model.curve, model.curve.shape
    figure, (axes,) = sheet(_title(view, model.points))
    counts = model.nranks
    times = []
    for name in in_order(point.row.algorithm for point in model.points):
        for at, nranks in enumerate(counts):
            mine = [one for one in model.points if (one.row.algorithm, one.row.nranks) == (name, nranks)]
            found = [message_of(one, model) for one in mine]
            found = [one for one in found if one[1] > 0]
            times += [time for _, time in found]
            style: dict[str, Any] = {**style_of(name), "linestyle": ""}
            axes.plot(
                *zip(*found, strict=True) if found else ((), ()),
                **style,
                label=name if at == 0 else f"_{name}",
                markersize=3.2,
                markeredgewidth=0.6,
                markerfacecolor=_face(style["color"], at),
            )
    lengths = model.lengths
    words = []
    for at in range(shape.segments):
        inside = [length for length in lengths if shape.segment(length) == at]
        # From break to break: it lies somewhere between the two lengths beside it.
        first = shape.breaks[at - 1] if at else inside[0]
        x = np.geomspace(first, shape.breaks[at] if at < shape.segments - 1 else inside[-1], 60)
        alpha, beta = curve.alphas[at], curve.betas[at]
        slope = f"m / ({1 / beta / 1e9:.3g} GB/s)" if beta else "0 m"
        upto = f" to {rough_size(round(inside[-1]))}" if at < shape.segments - 1 else " beyond" if at else ""
        words.append(f"fit{upto}: {seconds(alpha)} + {slope}")
        label = "fit" if at == 0 else None
        axes.plot(x, alpha + beta * x, color=BLACK, linewidth=1.2, zorder=3, label=label)
        times += list(alpha + beta * x)
    for place in shape.breaks:
        axes.axvline(place, color=GREY, linewidth=0.8, linestyle=":")
        side = "center" if shape.segments == 2 else "right" if place == shape.breaks[0] else "left"
        axes.annotate(
            f"break {rough_size(round(place))}",
            (place, 1.01),
            xycoords=("data", "axes fraction"),
            ha=side,
            va="bottom",
            fontsize=6,
            color="#555555",
            annotation_clip=False,
        )
    axis_of_bytes(axes.xaxis, lengths[0], lengths[-1], "\n".join(["length m of one message", *words]))
    axis_of_seconds(axes.yaxis, min(times), max(times), "time of one message")
    legend(figure, *axes.get_legend_handles_labels())
    return figure


def message_of(point: Point, model: Model) -> tuple[float, float]:
    """Return the mean length [B] of the messages of a call, and the mean time [s] of one, without additions."""
    number = sum(count for _, count in point.messages)
    gamma = model.curve.gamma(point.reduction) or 0.0
    return point.moved / number, (point.time_s - gamma * point.reduced) / number


@drawn
def predicted(view: View, result: FitResult) -> Figure:
    """Draw what a fit predicts of each size, and each rank count, that it was not shown, against what was measured.

    Raises ValueError where nothing could be left out.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    held = [(one, one.left == "nbytes") for model in result.models for one in (model.sizes, model.ranks) if one]
    if not held:
        raise ValueError("too few sizes to leave one out and predict it from the others")
    points = [
        (point, time, sizes) for one, sizes in held for point, time in zip(one.points, one.predicted_s, strict=True)
    ]
    figure, (axes,) = sheet(_title(view, [point for point, _, _ in points]), height=2.6)
    low = min(min(point.time_s, time) for point, time, _ in points) / 1.3
    high = max(max(point.time_s, time) for point, time, _ in points) * 1.3
    axes.plot([low, high], [low, high], color=BLACK, linewidth=0.8, zorder=1.5)
    axes.fill_between(
        [low, high],
        [low * (1 - BAND), high * (1 - BAND)],
        [low * (1 + BAND), high * (1 + BAND)],
        color=PALE,
        linewidth=0,
        zorder=1,
    )
    for point, time, sizes in points:
        style: dict[str, Any] = {**style_of(point.row.algorithm), "linestyle": ""}
        face = style["color"] if sizes else "white"
        row = point.row
        label = f"_{row.algorithm}, {rough_size(row.nbytes)}, N = {row.nranks}"
        axes.plot(point.time_s, time, **style, label=label, markersize=3.2, markeredgewidth=0.6, markerfacecolor=face)
    axis_of_seconds(axes.xaxis, low, high, "measured time")
    axis_of_seconds(axes.yaxis, low, high, "predicted without it")
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.text(
        0.03,
        0.97,
        "\n".join(map(_error, ("nbytes", "nranks"), _both(held))).strip(),
        transform=axes.transAxes,
        ha="left",
        va="top",
        fontsize=6,
    )
    names = in_order(point.row.algorithm for point, _, _ in points)
    handles = [Line2D([], [], **{**style_of(name), "linestyle": ""}) for name in names]  # type: ignore[arg-type]
    band = Patch(color=PALE, linewidth=0)
    legend(figure, [*handles, band], [*names, f"within {BAND:.0%}"])
    return figure


def _both(held: Sequence[tuple[HeldOut, bool]]) -> tuple[list[float], list[float]]:
    found: dict[bool, list[float]] = {True: [], False: []}
    for one, sizes in held:
        found[sizes] += map(abs, one.errors)
    return found[True], found[False]


def _error(left: str, errors: Sequence[float]) -> str:
    if not errors:
        return ""
    what = "left-out sizes" if left == "nbytes" else "left-out rank counts (hollow)"
    return f"{what}: {np.mean(errors):.0%} off on average"


def _face(colour: str, at: int) -> str:
    """Return the face of a marker: full for the fewest ranks, hollow for the next, pale for the others."""
    return (colour, "white", "#CCCCCC")[min(at, 2)]


def _title(view: View, points: Sequence[Point]) -> str:
    """Return where and what; a fit spans all rank counts and collectives that it has points of."""
    row = points[0].row
    what = ", ".join(sorted({point.row.collective for point in points}))
    place = "in place" if row.in_place else "out of place"
    counts = {point.row.nranks for point in points}
    return f"{view.pool.title(counts)}\n{what}, {row.device}, {place}"

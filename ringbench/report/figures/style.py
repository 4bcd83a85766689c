"""How every figure looks: width of a column, palette, axes of bytes and seconds, legends off the data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any, ParamSpec
from zlib import crc32

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.records.units import format_seconds, rough_size
from ringbench.schedule.registry import algorithms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Parameters = ParamSpec("Parameters")

#: A column of a paper, in inches.
WIDTH = 3.4

SMALL = 6.5

#: Black is the library's own. Okabe and Ito 2008, without the yellow that does not show as a line on white.
BLACK = "#000000"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DARK = ("#003F62", "#753400", "#005740", "#70435C", "#7F5700", "#2F6380")
#: Those farthest from all above, and from black and grey, for eyes that lack red or green too (distances in Oklab).
MORE = ("#0000FF", "#5A87FF", "#A5C3A5", "#3C2DB4", "#0F69F0", "#D21EC3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
GREY = "#777777"

#: These come first, so that the ones most often drawn together differ most; a new one changes none of them.
FIRST = (
    *("ring", "recursive_doubling", "rabenseifner", "naive", "parameter_server", "swing"),
    *("hierarchical", "double_binary_tree", "binomial_tree", "swing_latency", "hierarchical_leaders", "bine"),
    *("shared_memory", "shared_copy"),
)

_RC: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.4,
    "axes.axisbelow": True,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.2,
    "text.parse_math": False,  # or a host called a$b$c would be a formula
    "svg.fonttype": "none",
    "svg.hashsalt": "ringbench",
    "savefig.dpi": 300,
}


def check_matplotlib() -> None:
    """Raise ValueError saying what to do where there is no Matplotlib, or too old a one."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("figures need Matplotlib: pip install 'ringbench[plot]'") from None
    if matplotlib.__version_info__ < (3, 7):
        raise ValueError(f"figures need Matplotlib 3.7 or later, not {matplotlib.__version__}")


@contextmanager
def styled() -> Iterator[None]:
    """Draw, or save, in the style of the house, whatever the user's own settings are."""
    from matplotlib.style import context

    with context(["default", _RC]):
        yield


def drawn(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Have a function draw its figure in the style of the house."""

    @wraps(draw)
    def inside(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with styled():
            return draw(*args, **kwargs)

    return inside


@cache
def style_of(algorithm: str) -> dict[str, str]:
    """Return colour, marker and dashes of an algorithm: the same in every figure, whatever else is in it.

    Names that the registry does not know get theirs from a checksum of the name.
    """
    if algorithm == "mpi":
        return {"color": BLACK, "marker": "o", "linestyle": "-"}
    if algorithm == "auto":
        return {"color": GREY, "marker": "x", "linestyle": ":"}
    names = _names()
    at = names.index(algorithm) if algorithm in names else crc32(algorithm.encode())
    turn = at // len(COLOURS)
    return {
        "color": (COLOURS, DARK, MORE)[turn % 3][at % len(COLOURS)],
        "marker": MARKERS[(at + 1) % len(MARKERS)],
        "linestyle": DASHES[turn % len(DASHES)],
    }


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of algorithms in the order in which every figure lists them: the library's own is the last."""
    known = _names()
    return sorted(
        set(names), key=lambda name: (name == "mpi", known.index(name) if name in known else len(known), name)
    )


def _names() -> list[str]:
    return list(dict.fromkeys([*FIRST, *(known.name for known in algorithms())]))


def sheet(title: str, *, height: float = 2.2, width: float = WIDTH, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with its title and as many axes below each other; ``height`` [in] is without the legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no window, no display
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(w_pad=0.07, h_pad=0.03)  # type: ignore[call-arg]  # the constrained one takes them
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, int(width * 18.5))]
    figure.suptitle("\n".join(lines), x=0.015, ha="left", fontsize=7)
    figure.set_figheight(height + 0.11 * len(lines))
    return figure, list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], **options: Any) -> None:
    """Put a legend below the axes, in as many columns as fit, and make the figure so much higher."""
    if not handles:
        return
    letters = figure.get_figwidth() * 20
    columns = max(1, min(4, len(labels), int(letters // (max(map(len, labels)) + 6))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **options)
    figure.set_figheight(figure.get_figheight() + 0.14 * ceil(len(labels) / columns) + 0.06)


def axis_of_bytes(axis: Axis, low: float, high: float, label: str, *, most: int = 7) -> None:
    """Make a logarithmic axis with ticks at powers of two, in B, KiB, MiB."""
    first, last = ceil(log2(low) - 1e-9), floor(log2(high) + 1e-9)
    stride = next(step for step in (1, 2, 3, 4, 5, 10, 20, 40) if (last - first) // step < most)
    ticks = [2.0**power for power in range(first, last + 1, stride)] or [low]
    _scale(axis, 2, ticks, [rough_size(round(tick)) if tick >= 1 else f"{tick:g}B" for tick in ticks], label)
    read_off(axis, lambda value: rough_size(round(value)))
    _limits(axis, low, high)


def axis_of_numbers(axis: Axis, low: float, high: float, label: str) -> None:
    """Make a logarithmic axis with ticks at powers of ten, or at 1, 2, 5 where there are few of those."""
    ticks = decimals(low, high)
    _scale(axis, 10, ticks, [f"{tick:g}" for tick in ticks], label)
    unit = label.partition("(")[2].rstrip(")")
    read_off(axis, lambda value: f"{value:.4g} {unit}".rstrip())


def axis_of_seconds(axis: Axis, low: float, high: float, label: str) -> None:
    """Make a logarithmic axis of times, with a unit at each tick."""
    ticks = decimals(low, high)
    _scale(axis, 10, ticks, list(map(seconds, ticks)), label)
    read_off(axis, seconds)


def axis_of_ratios(axis: Axis, low: float, high: float, label: str) -> None:
    """Make a logarithmic axis of ratios, with ticks at powers of two, and between them where there are few."""
    powers = range(floor(log2(low)), ceil(log2(high)) + 1)
    stride = ceil(len(powers) / 8)
    factors = (1.0, 1.25, 1.5, 1.75) if high / low < 2 else (1.0, 1.5) if high / low < 5 else (1.0,)
    ticks = [factor * 2.0**power for power in powers if power % stride == 0 for factor in factors]
    ticks = [tick for tick in ticks if low / 1.2 <= tick <= high * 1.2]
    _scale(axis, 2, ticks, [f"{tick:.3g}" for tick in ticks], label)
    read_off(axis, lambda value: f"{value:.3f}")


def read_off(axis: Axis, write: Callable[[float], str]) -> None:
    """Say how a value is written that somebody reads off the axis, by pointing at it."""
    name = "fmt_xdata" if axis is axis.axes.xaxis else "fmt_ydata"
    setattr(axis.axes, name, write)


def seconds(time: float) -> str:
    """Write a time with a unit, in three digits."""
    number = format_seconds(float(f"{time:.3g}"))
    for unit in ("us", "ms", "s"):
        if number.endswith(unit):
            return f"{number.removesuffix(unit)} {unit.replace('us', 'µs')}"
    return number


def decimals(low: float, high: float) -> list[float]:
    """Return ticks between two numbers above 0: powers of ten, with 2 and 5 times them where those are few."""
    first, last = floor(log10(low) - 1e-9), ceil(log10(high) + 1e-9)
    span = log10(high / low)
    factors = (1, 2, 5) if span < 2.2 else (1,)
    stride = max(1, ceil((last - first) / 7))
    found = [factor * 10.0**power for power in range(first, last + 1, stride) for factor in factors]
    inside = [float(f"{tick:.6g}") for tick in found if low / 1.3 <= tick <= high * 1.3]
    return inside or [low]


def _scale(axis: Axis, base: int, ticks: Sequence[float], labels: Sequence[str], label: str) -> None:
    from matplotlib.ticker import NullLocator

    axis._set_axes_scale("log", base=base)  # type: ignore[attr-defined]  # set_xscale or set_yscale, whichever it is
    axis.set_ticks(ticks, labels)
    axis.set_minor_locator(NullLocator())
    axis.set_label_text(label)


def _limits(axis: Axis, low: float, high: float) -> None:
    room = (high / low) ** 0.04 if high > low else 2.0
    axis.set_view_interval(low / room, high * room, ignore=True)

"""Figures as SVG inside a page: small, with names that do not meet, and with a text at each value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ringbench.report.figures.hover import Spot, spots
from ringbench.report.figures.save import encoded
from ringbench.report.page.html import element, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ringbench.report.figures.plan import Drawing

#: What a page has of each set of rows; the samples are too many for one, and each has a figure of its own.
KINDS = ("bandwidth", "latency", "ratio", "winner", "scaling", "step", "predicted", "steps")

#: More figures of one place are not drawn: each takes a third of a second, and nobody looks at them all.
MOST = 18

#: Those that say most in the least room come first where there is not room for all.
FIRST = ("winner", "step", "predicted", "scaling")

TITLES = {
    "bandwidth": "Bus bandwidth against size",
    "latency": "Time against size",
    "ratio": "Time as a ratio to that of MPI's own",
    "winner": "The fastest of each size and rank count",
    "scaling": "Time against the number of ranks",
    "step": "What one message costs: measured, and fitted",
    "predicted": "Predicted without it, against measured",
    "steps": "A step of training against the size of its buckets",
}

#: What paints the background, which is the page's here.
_PAPER = "fill: #ffffff"

_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"#([\w-]+)")
_NAME = re.compile(r"\{.*\}")


@dataclass(slots=True)
class Styles:
    """Hold the style of every element of all figures of a page once, as a class."""

    names: dict[str, str] = field(default_factory=dict)

    def named(self, style: str) -> str:
        """Return the class of a style."""
        return self.names.setdefault(style, f"s{len(self.names)}")

    def sheet(self) -> str:
        """Return the rules of all classes."""
        return "".join(f".{name}{{{style}}}" for style, name in self.names.items())


def inline(figure: Figure, number: int, styles: Styles) -> str:
    """Return a figure as an SVG element to stand in a page; ``number`` tells its names from those of other figures."""
    root = ElementTree.fromstring(encoded(figure, "svg"))
    used = {match for one in root.iter() for value in one.attrib.values() for match in _REFERENCE.findall(value)}
    content = "".join(_written(child, f"f{number}-", used, styles) for child in root)
    marks = "".join(map(_mark, spots(figure)))
    return f'<svg viewBox="{root.get("viewBox")}" role="img">{content}{marks}</svg>'


def _mark(spot: Spot) -> str:
    return f'<circle class="h" cx="{spot.x:.1f}" cy="{spot.y:.1f}" r="4"><title>{text(spot.text)}</title></circle>'


def _written(one: ElementTree.Element, prefix: str, used: set[str], styles: Styles) -> str:
    """Write an element again, without what nobody refers to, and with two digits where there were six."""
    name = _NAME.sub("", one.tag)
    if name in ("metadata", "style") or one.get("style") == _PAPER:
        return ""
    words = []
    for key, value in one.attrib.items():
        key = _NAME.sub("", key)
        if key == "id":
            if value not in used:
                continue
            value = prefix + value
        elif key == "style":
            key, value = "class", styles.named(value)
        elif key in ("href", "clip-path"):
            value = _REFERENCE.sub(rf"#{prefix}\1", value)
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            value = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
            value = value.replace("\n", "").strip()
        words.append(f' {key}="{text(value)}"')
    inside = text(one.text) if one.text and one.text.strip() else ""
    inside += "".join(_written(child, prefix, used, styles) for child in one)
    if name == "defs" and not inside:
        return ""
    if name == "g" and not words:
        return inside
    return f"<{name}{''.join(words)}>{inside}</{name}>" if inside else f"<{name}{''.join(words)}/>"


def plots(found: Sequence[Drawing], room: int, number: int, styles: Styles) -> tuple[str, list[str]]:
    """Return as many figures as there is room for [B], and lines on those that are not there.

    ``number`` is that of the first figure on the page.
    """
    made: dict[str, list[str]] = {kind: [] for kind in KINDS}
    missing, left_out = [], []
    order = sorted(found, key=lambda one: one.kind not in FIRST)
    for at, drawing in enumerate(order, number):
        if room <= 0 or sum(map(len, made.values())) >= MOST:
            left_out.append(drawing.name)
            continue
        try:
            drawn = inline(drawing.make(), at, styles)
        except ValueError as error:
            missing.append(f"not drawn: {drawing.name}: {error}")
            continue
        if len(drawn) > room:
            left_out.append(drawing.name)
            continue
        room -= len(drawn)
        made[drawing.kind].append(element("figure", element("figcaption", text(TITLES[drawing.kind])) + drawn))
    figures = "".join(one for own in made.values() for one in own)
    if left_out:
        named = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        missing.append(f"{len(left_out)} more would make the page too large: ringbench plot draws them all ({named})")
    return element("div", figures, {"class": "plots"}) if figures else "", missing

"""Write figures so that the same figure is the same file: no date, no random names."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from ringbench.report.figures.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")


def check_format(format: str) -> None:
    """Raise ValueError for a format in which no figure is written."""
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r} of a figure; known: {', '.join(FORMATS)}")


def encoded(figure: Figure, format: str) -> bytes:
    """Return a figure as a file of ``svg`` or ``png``; raise ValueError for another format."""
    check_format(format)
    stream = io.BytesIO()
    unsaid = {"Date": None, "Creator": None} if format == "svg" else {"Software": None}
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a host may be named in any script
        figure.savefig(stream, format=format, metadata=unsaid)
    return stream.getvalue()

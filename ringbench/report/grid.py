"""Headers and cells as a grid of text, Markdown or LaTeX, and the lines around it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ringbench.report.writing import one_line

WIDTH = 100

#: Columns of words; all others are of numbers, which stand on the right.
LEFT = frozenset(
    (
        *("algorithm", "type", "redop", "stop", "warn", "verdict", "basis", "lever", "engine"),
        *("", "cell", "before", "after"),
    )
)

Cells = Sequence[Sequence[str]]


def widths(headers: Sequence[str], cells: Cells) -> list[int]:
    """Return how wide each column has to be."""
    return [max(map(len, column)) for column in zip(headers, *cells, strict=True)]


def draw(headers: Sequence[str], cells: Cells, format: str, gap: str = "  ") -> str:
    """Return the grid without a line break at its end; ``gap`` stands between the columns of text."""
    align = ["left" if name in LEFT else "right" for name in headers]
    if format == "text":
        # Padded here: tabulate would look at each cell once more, which takes half of the time of a long table.
        pads = [str.ljust if side == "left" else str.rjust for side in align]
        rows = [[name.strip() for name in headers], *cells]
        wide = widths(rows[0], cells)
        padded = ([pad(cell, width) for pad, cell, width in zip(pads, row, wide, strict=True)] for row in rows)
        return "\n".join(gap.join(row).rstrip() for row in padded)
    from tabulate import tabulate

    if format == "markdown":
        cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    style = "pipe" if format == "markdown" else "latex"
    return str(tabulate(cells, headers, tablefmt=style, disable_numparse=True, colalign=align))


def join(heading: str, grid: str, lines: Iterable[str], format: str) -> str:
    """Put a heading, a grid and the lines under it together; in LaTeX the words are comments."""
    lines = [one_line(line) for line in lines]
    if format == "markdown":
        parts = [f"### {heading}" if heading else "", grid, "\n".join(f"- {line}" for line in lines)]
        return "\n\n".join(part for part in parts if part) + "\n"
    if format == "latex":
        parts = [f"% {heading}" if heading else "", grid, *(f"% {line}" for line in lines)]
        return "".join(f"{part}\n" for part in parts if part)
    return "".join(f"{part}\n" for part in (wrap(heading), grid, *map(wrap, lines)) if part)


def wrap(line: str) -> str:
    """Break a line that is wider than the page; a verdict stays whole for whoever searches for it."""
    if " is faster than " in line:
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)

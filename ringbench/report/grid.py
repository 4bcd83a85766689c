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

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # behind a line's end it would begin an argument
}
_ESCAPES = str.maketrans(_LATEX)


def widths(headers: Sequence[str], cells: Cells) -> list[int]:
    """Return how wide each column has to be."""
    return [max(map(len, column)) for column in zip(headers, *cells, strict=True)]


def draw(headers: Sequence[str], cells: Cells, format: str, gap: str = "  ") -> str:
    """Return the grid without a line break at its end; ``gap`` stands between the columns of text."""
    left = [name in LEFT for name in headers]
    if format == "latex":
        lines = [" & ".join(cell.translate(_ESCAPES) for cell in row) + r" \\" for row in (headers, *cells)]
        columns = "".join("l" if at_left else "r" for at_left in left)
        begin, end = f"\\begin{{tabular}}{{{columns}}}\n\\hline", "\\hline\n\\end{tabular}"
        return "\n".join([begin, lines[0], "\\hline", *lines[1:], end])
    if format == "markdown":
        cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
        # Two more than the header: a table drawn anew with longer cells then changes in fewer lines.
        wide = [max(width, len(name) + 2) for name, width in zip(headers, widths(headers, cells), strict=True)]
        rule = ["-" * (width + 1) + ("-" if at_left else ":") for width, at_left in zip(wide, left, strict=True)]
        lines = [f"| {' | '.join(row)} |" for row in _padded([headers, *cells], wide, left)]
        return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])
    return "\n".join(gap.join(row).rstrip() for row in _padded([headers, *cells], widths(headers, cells), left))


def _padded(cells: Cells, wide: Sequence[int], left: Sequence[bool]) -> Iterable[list[str]]:
    for row in cells:
        columns = zip(row, wide, left, strict=True)
        yield [cell.ljust(width) if at_left else cell.rjust(width) for cell, width, at_left in columns]


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

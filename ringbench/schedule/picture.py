"""The parts of an SVG picture of a schedule, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ringbench.schedule.trace import Move, Named, Trace, stretches

#: Arrows from Okabe and Ito's palette, blocks from Tol's light one (made for black letters on it): neither needs full
#: colour vision, and no block looks like an arrow.
COLOURS = {"+": "#0072B2", "=": "#D55E00", "/": "#222222"}
TINTS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#44BB99", "#BBCC33", "#99DDFF", "#AAAA00", "#CCCCCC")
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
BOLD = ' font-weight="bold"'


EFFECTS = {"+": ("add", "which adds it"), "=": ("overwrite", "where it overwrites")}
LANE, SIZE = 22, 12


class _Canvas:
    """Collect the elements of a picture, and how far to the right its text reaches."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.right = 0.0

    def text(self, x: float, y: float, text: str, size: int = SIZE, anchor: str = "middle", more: str = "") -> None:
        # The font is not known here; a letter of a sans-serif font is on average no wider than 0.62 of its size.
        self.right = max(self.right, x + 0.62 * size * len(text) * {"start": 1, "middle": 0.5, "end": 0}[anchor])
        place = f'x="{x:g}" y="{y:g}"' + (f' font-size="{size}"' if size != SIZE else "")
        place += f' text-anchor="{anchor}"' if anchor != "middle" else ""
        self.parts.append(f"<text {place}{more}>{escape(text)}</text>")

    def path(self, commands: str, more: str) -> None:
        if commands:
            self.parts.append(f'<path d="{commands}" {more}/>')

    def head(self, x: float, y: float, sign: str) -> None:
        """Draw an arrowhead that ends at (x, y), with a plus in a disc above it where what arrives is added."""
        self.path(f"M{x:g} {y:g}l-6 -10h12z", f'fill="{COLOURS[sign]}"')
        if sign == "+":
            self.path(f"M{x - 8:g} {y - 17:g}a8 8 0 1 1 16 0a8 8 0 1 1 -16 0z", f'fill="{COLOURS[sign]}"')
            self.path(f"M{x - 5:g} {y - 17:g}h10m-5 -5v10", 'stroke="#FFFFFF" stroke-width="2.5" fill="none"')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wire:
    """Hold where an arrow starts and ends, and the left edges of the cells that it takes from and brings to."""

    start: float
    end: float
    sent: list[float]
    received: list[float]
    move: Move


def _lanes(wires: Sequence[_Wire]) -> list[int]:
    """Return for each arrow the highest lane in which it touches none before it."""
    taken: list[list[tuple[float, float]]] = []
    chosen = []
    for wire in wires:
        low, high = min(wire.start, wire.end) - 8, max(wire.start, wire.end) + 8
        free = (n for n, lane in enumerate(taken) if all(high < left or right < low for left, right in lane))
        chosen.append(next(free, len(taken)))
        if chosen[-1] == len(taken):
            taken.append([])
        taken[chosen[-1]].append((low, high))
    return chosen


class Picture(_Canvas):
    """Lay out a trace: ranks side by side, time downwards, messages on horizontal lanes between two states."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace, self.y = trace, 84.0
        self.memory = [dict(memory) for memory in trace.start]
        self.places = [named for named in trace.start[0] if named[0] in trace.places]
        self.bars = max(map(len, trace.bringers)) if trace.reduces else 1
        self.bar = 18 if self.bars == 1 else 12 if self.bars < 6 else max(3, 48 // self.bars)
        self.height = self.bars * self.bar
        texts = [trace.spell([named]) for named in self.places]
        if self.bars == 1:
            texts += [trace.mark(n % trace.nblocks, c) for m in trace.memory for (_, n), c in m.items()]
        self.cell = max(
            min(48, max(34, 150 // len(self.places)), 300 // len(self.places)), 6 + 8 * max(map(len, texts))
        )
        self.width = self.cell * len(self.places)
        # Between the columns, where no arrow goes down, is room for a message's label.
        labels = [36 + 8 * len(self.label(move)) for move in trace.moves if move.peer is not None]
        alone = [14 + 7.5 * len(trace.action(move)) - self.width for move in trace.moves if move.peer is None]
        self.gutter = max([*labels, *alone, 120 - self.width, 24])
        self.left = 70 + self.gutter / 2

    def label(self, move: Move) -> str:
        """Return what stands on an arrow."""
        text = self.trace.spell(move.sources)
        return ("+" if move.sign == "+" else "") + (text if len(text) < 13 else f"{len(move.sources)} blocks")

    def x(self, rank: int, place: float = 0) -> float:
        """Return the left edge of a rank's column, or of a cell in it."""
        return self.left + rank * (self.width + self.gutter) + place * self.cell

    def edges(self, rank: int, named: Sequence[Named]) -> list[float]:
        """Return the left edges of some cells; those of the middle for a message without content."""
        return [self.x(rank, self.places.index(one)) for one in named] or [self.x(rank, (len(self.places) - 1) / 2)]

    def state(self, changed: Sequence[Move]) -> None:
        """Draw what all ranks hold after some moves: a cell for each block, in it a bar for each contribution."""
        for move in changed:
            self.memory[move.rank].update(zip(move.targets, move.after, strict=True))
        trace, cell, top, height = self.trace, self.cell, self.y + 16, self.height
        fills: dict[str, str] = {}
        frames = {"changed": "", "held": "", "empty": ""}
        texts: list[tuple[float, float, str, int, str]] = []
        now = {(move.rank, named) for move in changed for named in move.targets}
        for rank, memory in enumerate(self.memory):
            for named, x in zip(self.places, self.edges(rank, self.places), strict=True):
                block, content = named[1] % trace.nblocks, memory[named]
                texts.append((x + cell / 2, top - 4, trace.spell([named]), 12, BOLD if content else ""))
                kind = "changed" if (rank, named) in now else "held" if content else "empty"
                frames[kind] += f"M{x + 1:g} {top:g}h{cell - 2:g}v{height}h{2 - cell:g}z"
                bars = [trace.bringers[block].index(rank) if self.bars > 1 else 0 for rank, _ in content]
                for run in stretches(bars):
                    tint = TINTS[min(content)[1] % len(TINTS)]
                    shape = f"M{x + 1:g} {top + run[0] * self.bar:g}h{cell - 2:g}v{len(run) * self.bar}h{2 - cell:g}z"
                    fills[tint] = fills.get(tint, "") + shape
                for bar in bars if self.bar > 10 else ():
                    text = str(bar) if self.bars > 1 else trace.mark(block, content)[1:]
                    texts.append((x + cell / 2, top + bar * self.bar + self.bar / 2 + 3.5, text, 10, ""))
        self.path("".join(frames.values()), 'fill="#FFFFFF"')
        for tint, path in fills.items():
            self.path(path, f'fill="{tint}"')
        self.path(frames["empty"], 'fill="none" stroke="#AAAAAA" stroke-dasharray="3 3"')
        self.path(frames["held"], 'fill="none" stroke="#777777"')
        self.path(frames["changed"], 'fill="none" stroke="#111111" stroke-width="2.5"')
        for x, y, text, size, more in texts:
            self.text(x, y, text, size, more=more)
        self.y = top + height

    def messages(self, round: int, moves: Sequence[Move]) -> None:
        """Draw an arrow for each message, short ones above long ones; those that would touch get lanes of their own."""
        wires = self._wires(moves)
        lanes = _lanes(wires)
        top = self.y
        self.y += 24 + LANE * (max(lanes) + 1) + 30
        self.text(14, (top + self.y) / 2 + 5, f"round {round}", 15, "start", BOLD)
        for wire, lane in zip(wires, lanes, strict=True):
            self._arrow(wire, round, top + 4, top + 24 + LANE * lane)

    def _wires(self, moves: Sequence[Move]) -> list[_Wire]:
        # One rank often sends and receives in the same cell: one arrow stands a little to the left, one to the right.
        aside = min(6, self.cell / 4)
        wires = []
        for move in moves:
            assert move.peer is not None
            sent, received = self.edges(move.peer, move.sources), self.edges(move.rank, move.targets)
            start, end = (self._middle(edges) + side for edges, side in ((sent, -aside), (received, aside)))
            own = (self._middle(self.edges(move.rank, one.sources)) - aside for one in moves if one.peer == move.rank)
            if any(abs(end - other) < aside for other in own):
                end -= 2 * aside
            wires.append(_Wire(start=start, end=end, sent=sent, received=received, move=move))
        return sorted(wires, key=lambda wire: (abs(wire.end - wire.start), wire.start))

    def _middle(self, edges: Sequence[float]) -> float:
        return (min(edges) + max(edges) + self.cell) / 2

    def meets(self, meets: Sequence[Sequence[int]]) -> None:
        """Draw a line across the columns of those who meet."""
        for members in meets:
            for run in stretches(sorted(members)):
                left, right = self.x(run[0]) - 4, self.x(run[-1]) + self.width + 4
                self.path(f"M{left:g} {self.y + 18:g}H{right:g}", 'stroke="#222222" stroke-width="3" class="meet"')
        self.text(14, self.y + 22, "meet", 14, "start")
        self.y += 26

    def _arrow(self, wire: _Wire, round: int, top: float, y: float) -> None:
        move, turn = wire.move, 8 if wire.start < wire.end else -8
        assert move.peer is not None
        colour, (kind, effect) = COLOURS[move.sign], EFFECTS[move.sign]
        what = f"round {round}: rank {move.peer} sends {self.trace.spell(move.sources)} to rank {move.rank}, {effect}"
        self.parts.append(f'<g class="message {kind}"><title>{escape(what)}</title>')
        line = f"M{wire.start:g} {top:g}V{y - 8:g}q0 8 {turn} 8H{wire.end - turn:g}q{turn} 0 {turn} 8V{self.y - 9:g}"
        # A white rim lifts a line above those that it crosses.
        self.path(line, 'stroke="#FFFFFF" stroke-width="7" fill="none"')
        dash = ' stroke-dasharray="7 4"' if move.sign == "=" else ""
        self.path(line, f'stroke="{colour}" stroke-width="2.5" fill="none"{dash}')
        for xs, edge in ((wire.sent, top), (wire.received, self.y)):
            bars = "".join(f"M{x + 2:g} {edge:g}h{self.cell - 4:g}" for x in xs)
            self.path(bars, f'stroke="{colour}" stroke-width="4"')
        self.head(wire.end, self.y, move.sign)
        text = self.label(move)
        middle = self.x(move.peer) + (self.width + self.gutter / 2 if turn > 0 else -self.gutter / 2)
        box = f"M{middle - 4 * len(text) - 6:g} {y - 9:g}h{8 * len(text) + 12}v18h{-8 * len(text) - 12}z"
        self.path(box, f'fill="#FFFFFF" stroke="{colour}" stroke-width="1.5"')
        self.text(middle, y + 4.5, text, 13, more=f'{BOLD} fill="{colour}"')
        self.parts.append("</g>")

    def alone(self, moves: Sequence[Move]) -> None:
        """Write what ranks do without a message."""
        lines = [0] * self.trace.nranks
        for move in moves:
            lines[move.rank] += 1
            x, y = self.x(move.rank) + self.width / 2, self.y + 4 + 16 * lines[move.rank]
            self.text(x, y, self.trace.action(move), more=f' fill="{COLOURS[move.sign]}" class="local"')
        self.text(14, self.y + 12 + 8 * max(lines), "local", 14, "start")
        self.y += 12 + 16 * max(lines)

    def ranks(self, y: float) -> None:
        """Name the columns."""
        for rank in range(self.trace.nranks):
            self.text(self.x(rank) + self.width / 2, y, f"rank {rank}", 15, more=BOLD)

    def strips(self, top: float, bottom: float) -> None:
        """Put a grey strip behind each rank's column."""
        shapes = (
            f"M{self.x(rank) - 5:g} {top:g}h{self.width + 10:g}v{bottom - top:g}h{-self.width - 10:g}z"
            for rank in range(self.trace.nranks)
        )
        self.parts.insert(0, f'<path d="{"".join(shapes)}" fill="#F5F5F5"/>')

    def legend(self) -> None:
        """Explain the signs that occur."""
        signs = {(move.sign, move.peer is None) for move in self.trace.moves}
        bar = "a cell is a block; its bars are the ranks, 0 on top, filled once their contribution is in"
        lines = [
            ("+", "+A on a solid line with a plus: A is added to what is there", ("+", False) in signs),
            ("=", "A on a dashed line without a plus: A overwrites what is there", ("=", False) in signs),
            ("", bar if self.bars > 1 else "a cell is a block; filled: it is there", True),
            ("", "a thick frame: it has just changed", True),
            (
                "",
                "A += B, A = B: without a message, B is added to A, B overwrites A",
                bool(signs & {("+", True), ("=", True)}),
            ),
            ("", "A /= N: A is divided by the number of ranks if the operation is an average", ("/", True) in signs),
            ("", "a thick line: its ranks go on when all have come", bool(self.trace.meets)),
            *(("", f"{name}: {text}", True) for name, text in self.trace.explain_places()),
        ]
        self.text(14, self.y + 34, "legend", 15, "start", BOLD)
        for sign, line, shown in lines:
            if shown:
                self.y += 34 if sign else 24
                if sign:
                    self.head(self.left + 8, self.y + (8 if sign == "+" else 1), sign)
                self.text(self.left + (26 if sign else 0), self.y, line, 14, "start")

    def svg(self, description: str) -> str:
        """Return the picture, wide enough for its columns and its text."""
        width, height = max(self.right, self.x(self.trace.nranks) - self.gutter / 2) + 14, self.y + 14
        size = f'width="{width:.0f}" height="{height:.0f}"'
        font = f'font-family="{FONT}" font-size="{SIZE}" text-anchor="middle" fill="#111111"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" {font} '
            'role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(self.trace.headline)}</title>',
            f'<desc id="desc">{escape(description)}</desc>',
            f'<rect {size} fill="#FFFFFF"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

"""Draw a schedule: who sends what to whom in which round, as a text table or as an SVG picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from ringbench.schedule.picture import BOLD, Picture
from ringbench.schedule.registry import Algorithm
from ringbench.schedule.trace import Content, Move, Named, Trace, runs

#: More ranks than these make a table or a picture that nobody can read.
MAX_TEXT, MAX_SVG = 64, 32

#: A table is cut where it would be wider than COLUMNS, a line in a cell where it would be longer than WRAP.
COLUMNS, WRAP = 100, 28


def draw_text(algorithm: Algorithm, nranks: int) -> str:
    """Draw a schedule as an ASCII table: a row for each round, a column for each rank.

    A cell says what the rank sends, what it receives and what it does alone, with the contributions that each block
    holds afterwards. Ranks that would make the table wider than 100 columns go into another table below. Raises
    ValueError for fewer than 1 or more than 64 ranks and for a schedule that cannot end.
    """
    trace = Trace(algorithm, nranks, MAX_TEXT)
    ranks = range(nranks)
    rows: list[list[list[str]]] = [[[] for _ in ranks] for _ in range(max(trace.now) + 2)]
    for label, memories in ((0, trace.start), (-1, trace.memory)):
        for rank, memory in enumerate(memories):
            held: list[tuple[Named, Content]] = [
                (("work", block), memory["work", block]) for block in range(trace.nblocks)
            ]
            # At the end what is not complete is a left-over that the collective gives nobody.
            held = [(n, c) for n, c in held if c and (label == 0 or not trace.reduces or trace.complete(n[1], c))]
            rows[label][rank].append(trace.spell([named for named, _ in held], [content for _, content in held]))
    for depth, members in trace.meets:
        for rank in members:
            rows[depth][rank].append(f"meet {runs(members, str)}")
    for move in trace.moves:
        if move.peer is not None:
            rows[move.round][move.peer].append(f"{trace.spell(move.sources)} -> {move.rank}")
    for move in trace.moves:
        if move.peer is None:
            line = trace.action(move, move.after)
        else:
            line = f"{trace.spell(move.targets, move.after)} {'<+' if move.sign == '+' else '<-'} {move.peer}"
        rows[move.round][move.rank].append(line)

    wrapped = [[[part for line in cell for part in _wrap(line)] for cell in row] for row in rows]
    width = max(len(line) for row in [[[f"rank {nranks - 1}"]], *wrapped] for cell in row for line in cell)
    fitting = max(1, (COLUMNS - len("round")) // (width + len(" | ")))
    each = -(-nranks // -(-nranks // fitting))  # as many tables as must be, about equally wide
    lines = [trace.headline]
    for first in range(0, nranks, each):
        shown = ranks[first : first + each]
        lines += ["", _row("round", [f"rank {rank}" for rank in shown], width)]
        rule = "-+-".join(["-----", *("-" * width for _ in shown)])
        for number, row in enumerate(wrapped):
            if not any(row) and 0 < number < len(rows) - 1:
                continue  # within the rounds of a meet
            name = "start" if number == 0 else "end" if number == len(rows) - 1 else str(number)
            lines += [rule] if name in ("start", "1", "end") else []
            for cells in zip_longest([name], *(row[rank] for rank in shown), fillvalue=""):
                lines.append(_row(cells[0], cells[1:], width))
    return "\n".join([*lines, "", *_text_legend(trace, "\n".join(lines))]) + "\n"


def _waves(moves: Sequence[Move]) -> list[list[Move]]:
    """Part the moves of a round so that no rank gives twice, gets twice, or gives what it gets at the same time.

    Messages are one wave. What passes through shared memory between two meets may be more.
    """
    waves: list[list[Move]] = []
    gives, gets = dict[int | None, int](), dict[int, int]()
    written = dict[tuple[int | None, Named], int]()
    for move in moves:
        before = [written.get((move.peer, named), 0) for named in move.sources]
        at = max(gives.get(move.peer, 0), gets.get(move.rank, 0), *before, 0)
        gives[move.peer] = gets[move.rank] = at + 1
        written |= {(move.rank, named): at + 1 for named in move.targets}
        waves += [[]] if at == len(waves) else []
        waves[at].append(move)
    return waves


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(line, WRAP, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _row(label: str, cells: Sequence[str], width: int) -> str:
    return " | ".join([f"{label:<5}", *(f"{cell:<{width}}" for cell in cells)]).rstrip()


def _text_legend(trace: Trace, shown: str) -> list[str]:
    """Explain the signs that occur in a table."""
    moved = (
        (" -> ", "A -> 1", "sends block A to rank 1"),
        (" <- ", "A <- 1", "receives A from rank 1, which overwrites what was in A"),
        (" <+ ", "A <+ 1", "receives A from rank 1 and adds it to what was in A"),
    )
    shared = (
        ("meet ", "meet 0-2", "goes on when ranks 0 to 2 have all come here"),
        (" -> ", "A -> 1", "block A goes to rank 1, which reads it, or has it written, in shared memory"),
        (" <- ", "A <- 1", "takes A from the memory of rank 1, which overwrites what was in A"),
        (" <+ ", "A <+ 1", "takes A from the memory of rank 1 and adds it to what was in A"),
    )
    explained = (
        *(shared if trace.shares else moved),
        (" = ", "A = tA", "copies tA over A, without a message"),
        (" += ", "A += tA", "adds tA to A, without a message"),
        (" /= ", "A /= N", "divides A by the number of ranks if the operation is an average"),
        (":", "A:0,3", "A now holds the contributions of ranks 0 and 3")
        if trace.reduces
        else (":", "A:1B", "A now holds what was block B of rank 1"),
        (f"/{trace.nranks}", f"A:9/{trace.nranks}", f"A now holds the contributions of 9 of the {trace.nranks} ranks"),
        ("*", "A*", "A is complete: it holds the contributions of all ranks"),
        ("?", "A?", "A holds nothing yet"),
    )
    table = shown.partition("\n")[2]
    lines = [f"{example:<8} {text}" for sign, example, text in explained if sign in table]
    return lines + [f"{example:<8} {text}" for example, text in trace.explain_places()]


def draw_svg(algorithm: Algorithm, nranks: int) -> str:
    """Draw a schedule as a self-contained SVG picture: time flows downwards, a column for each rank.

    Between two states of all vectors every message is one arrow, solid with a plus where it is added and dashed where
    it overwrites. Raises ValueError for fewer than 1 or more than 32 ranks and for a schedule that cannot end.
    """
    trace = Trace(algorithm, nranks, MAX_SVG, " as a picture")
    picture = Picture(trace)
    picture.text(14, 30, trace.headline, 20, "start", BOLD)
    picture.text(14, 52, algorithm.summary, 13, "start")
    picture.ranks(78)
    picture.state([])
    states = [picture.y]
    meets = dict.fromkeys(depth for depth, _ in trace.meets)
    # What a message brings is there when its receiver leaves its step, which may be later than the message's round.
    events = {(at, move.peer is None) for move in trace.moves for at in (move.round, move.done)}
    for depth, alone in sorted(events | {(depth, False) for depth in meets}):
        if depth in meets:
            del meets[depth]
            picture.meets([ranks for at, ranks in trace.meets if at == depth])
        moves = [move for move in trace.moves if (move.round, move.peer is None) == (depth, alone)]
        if moves and alone:
            picture.alone(moves)
        changed = [m for m in trace.moves if (m.done, m.peer is None) == (depth, alone) and m.sign != "/"]
        *waves, last = _waves(moves) if moves and not alone else [[]]
        for wave in waves:
            picture.messages(depth, wave)
            picture.state([move for move in wave if move in changed])
            changed = [move for move in changed if move not in wave]
        if last:
            picture.messages(depth, last)
        if changed:
            picture.state(changed)
            states.append(picture.y)
    for label, y in (("start", states[0]), ("end", states[-1]))[: len(states)]:
        picture.text(14, y - picture.height / 2 + 5, label, 15, "start", BOLD)
    picture.ranks(picture.y + 24)
    picture.y += 30
    picture.strips(62, picture.y)
    picture.legend()
    return picture.svg(f"{algorithm.summary} Time flows downwards, one column for each rank.")

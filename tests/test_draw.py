from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.schedule.draw import COLUMNS, draw_svg, draw_text
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Local, Operations, Step, combine, copy, scale, spans, temp, work
from ringbench.schedule.trace import Trace, letter, runs

SVG = "{http://www.w3.org/2000/svg}"
ALL = pytest.mark.parametrize("algorithm", algorithms(), ids=lambda one: f"{one.collective}-{one.name}")


def made(*programs: list[Step | Local], blocks: int = 1, ntemp: int = 0, like: str = "allreduce") -> Algorithm:
    def generator(rank: int, nranks: int) -> Operations:
        return programs[rank]

    ring = algorithm_named(like, "ring")
    return replace(ring, generator=generator, blocks=lambda nranks: blocks, temp=lambda nranks: ntemp)


def table(text: str) -> list[list[str]]:
    """Return the rows of a table that is in one piece: cells with their lines joined, by round."""
    rows: list[list[str]] = []
    for line in text.split("\n\n")[1].splitlines()[1:]:
        cells = [cell.strip() for cell in line.split("|")]
        if "-+-" in line:
            continue
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{above}; {cell}" if cell else above for above, cell in zip(rows[-1], cells, strict=False)]
    return rows


RING = """\
allreduce ring: 4 ranks, 4 blocks (A-D), 6 rounds

round | rank 0       | rank 1       | rank 2       | rank 3
------+--------------+--------------+--------------+-------------
start | A-D:0        | A-D:1        | A-D:2        | A-D:3
------+--------------+--------------+--------------+-------------
1     | A -> 1       | B -> 2       | C -> 3       | D -> 0
      | D:0,3 <+ 3   | A:0,1 <+ 0   | B:1,2 <+ 1   | C:2,3 <+ 2
2     | D -> 1       | A -> 2       | B -> 3       | C -> 0
      | C:0,2,3 <+ 3 | D:0,1,3 <+ 0 | A:0-2 <+ 1   | B:1-3 <+ 2
3     | C -> 1       | D -> 2       | A -> 3       | B -> 0
      | B* <+ 3      | C* <+ 0      | D* <+ 1      | A* <+ 2
      | B* /= N      | C* /= N      | D* /= N      | A* /= N
4     | B -> 1       | C -> 2       | D -> 3       | A -> 0
      | A* <- 3      | B* <- 0      | C* <- 1      | D* <- 2
5     | A -> 1       | B -> 2       | C -> 3       | D -> 0
      | D* <- 3      | A* <- 0      | B* <- 1      | C* <- 2
6     | D -> 1       | A -> 2       | B -> 3       | C -> 0
      | C* <- 3      | D* <- 0      | A* <- 1      | B* <- 2
------+--------------+--------------+--------------+-------------
end   | A-D*         | A-D*         | A-D*         | A-D*

A -> 1   sends block A to rank 1
A <- 1   receives A from rank 1, which overwrites what was in A
A <+ 1   receives A from rank 1 and adds it to what was in A
A /= N   divides A by the number of ranks if the operation is an average
A:0,3    A now holds the contributions of ranks 0 and 3
A*       A is complete: it holds the contributions of all ranks
"""

NAIVE = """\
allreduce naive: 3 ranks, 1 block (A), 2 rounds

round | rank 0         | rank 1         | rank 2
------+----------------+----------------+---------------
start | A:0            | A:1            | A:2
------+----------------+----------------+---------------
1     | oA -> 1        | oA -> 2        | oA -> 0
      | t2A:2 <- 2     | t0A:0 <- 0     | t1A:1 <- 1
2     | oA -> 2        | oA -> 0        | oA -> 1
      | t1A:1 <- 1     | t2A:2 <- 2     | t0A:0 <- 0
      | A:0,1 += t1A   | A:0,1 += t0A   | t0A:0,1 += t1A
      | A* += t2A      | A* += t2A      | A* += t0A
------+----------------+----------------+---------------
end   | A*             | A*             | A*

A -> 1   sends block A to rank 1
A <- 1   receives A from rank 1, which overwrites what was in A
A += tA  adds tA to A, without a message
A:0,3    A now holds the contributions of ranks 0 and 3
A*       A is complete: it holds the contributions of all ranks
oA       block A of this rank's own input, which never changes
t2A      slot 2 for block A in scratch memory
"""

SERVER = """\
allreduce parameter_server: 3 ranks, 1 block (A), 4 rounds

round | rank 0     | rank 1     | rank 2
------+------------+------------+-----------
start | A:0        | A:1        | A:2
------+------------+------------+-----------
1     | A:0,1 <+ 1 | A -> 0     |
2     | A* <+ 2    |            | A -> 0
      | A* /= N    |            |
3     | A -> 1     | A* <- 0    |
4     | A -> 2     |            | A* <- 0
------+------------+------------+-----------
end   | A*         | A*         | A*

A -> 1   sends block A to rank 1
A <- 1   receives A from rank 1, which overwrites what was in A
A <+ 1   receives A from rank 1 and adds it to what was in A
A /= N   divides A by the number of ranks if the operation is an average
A:0,3    A now holds the contributions of ranks 0 and 3
A*       A is complete: it holds the contributions of all ranks
"""

GATHER = """\
allgather ring: 3 ranks, 3 blocks (A-C), 2 rounds

round | rank 0 | rank 1 | rank 2
------+--------+--------+-------
start | A      | B      | C
------+--------+--------+-------
1     | A -> 1 | B -> 2 | C -> 0
      | C <- 2 | A <- 0 | B <- 1
2     | C -> 1 | A -> 2 | B -> 0
      | B <- 2 | C <- 0 | A <- 1
------+--------+--------+-------
end   | A-C    | A-C    | A-C

A -> 1   sends block A to rank 1
A <- 1   receives A from rank 1, which overwrites what was in A
"""


@pytest.mark.parametrize(
    ("collective", "name", "nranks", "expected"),
    [
        ("allreduce", "ring", 4, RING),
        ("allreduce", "naive", 3, NAIVE),
        ("allreduce", "parameter_server", 3, SERVER),
        ("allgather", "ring", 3, GATHER),
    ],
)
def test_tables(collective: str, name: str, nranks: int, expected: str) -> None:
    assert draw_text(algorithm_named(collective, name), nranks) == expected


def test_what_is_left_over_is_not_shown_as_held_at_the_end() -> None:
    assert table(draw_text(algorithm_named("reduce_scatter", "ring"), 3))[-1] == ["end", "A*", "B*", "C*"]


def test_one_rank_has_no_rounds() -> None:
    text = draw_text(algorithm_named("allreduce", "ring"), 1)
    assert text.startswith("allreduce ring: 1 rank, 1 block (A), 0 rounds\n")
    assert table(text) == [["start", "A*"], ["end", "A*"]]


def test_a_row_is_a_round_of_dependence_and_not_a_step() -> None:
    chain = made(
        [Step(dest=1, send=work(0, 2))],
        [Step(source=0, recv=work(0, 2), combine=True), Step(dest=2, send=work(0, 2))],
        [Step(source=1, recv=work(0, 2), combine=True)],
        blocks=2,
    )
    assert table(draw_text(chain, 3)) == [
        ["start", "A,B:0", "A,B:1", "A,B:2"],
        ["1", "A,B -> 1", "A,B:0,1 <+ 0", ""],
        ["2", "", "A,B -> 2", "A,B* <+ 1"],
        ["end", "-", "-", "A,B*"],
    ]


def test_what_arrives_early_is_added_when_the_step_ends() -> None:
    # Rank 1 receives in round 1, but the same step sends to rank 2, which is ready only for round 2.
    early = made(
        [Step(dest=1, send=work(0))],
        [Step(dest=2, send=work(0), source=0, recv=work(0), combine=True)],
        [Step(source=3, recv=work(0), combine=True), Step(source=1, recv=work(0), combine=True)],
        [Step(dest=2, send=work(0))],
    )
    moves = {(move.peer, move.rank): (move.round, move.done) for move in Trace(early, 4, 4).moves}
    assert moves == {(0, 1): (1, 2), (3, 2): (1, 1), (1, 2): (2, 2)}
    assert table(draw_text(early, 4))[2] == ["2", "", "A -> 2", "A:1-3 <+ 1", ""]
    bodies = draw_svg(early, 4).split("round 2</text>")
    assert [body.count('stroke="#111111"') for body in bodies] == [1, 1]  # a row of changed cells after each round


def test_local_actions_stand_where_they_happen() -> None:
    both = made(
        [copy(work(0, 2), temp(2, 2)), Step(dest=1, send=temp(2), source=1, recv=temp(0)), combine(temp(0), work(0))],
        [Step(dest=0, send=work(0), source=0, recv=work(0), combine=True), scale(work(0))],
        blocks=2,
        ntemp=4,
    )
    assert table(draw_text(both, 2)) == [
        ["start", "A,B:0; t1A,B:0 = A,B", "A,B:1"],
        ["1", "t1A -> 1; t0A:1 <- 1; A* += t0A", "A -> 0; A* <+ 0; A* /= N"],
        ["end", "A*", "A*"],
    ]


def test_several_spans_and_what_was_never_written() -> None:
    text = draw_text(
        made(
            [Step(dest=1, send=(work(0), work(2), temp(1)))],
            [Step(source=0, recv=(work(0), work(2), work(1)))],
            blocks=3,
            ntemp=3,
        ),
        2,
    )
    assert table(text)[1] == ["1", "A,C tB -> 1", "A,C:0 B? <- 0"]
    assert "A?       A holds nothing yet" in text


def test_a_block_in_another_place_says_where_it_comes_from() -> None:
    swap = made(
        [Step(dest=1, send=work(0), source=1, recv=work(1))],
        [Step(dest=0, send=work(1), source=0, recv=work(0))],
        [],
        blocks=3,
        like="allgather",
    )
    rotated = made(
        [Step(dest=1, send=work(0))],
        [Step(source=0, recv=work(1))],
        blocks=2,
        like="allgather",
    )
    assert table(draw_text(swap, 3))[-1] == ["end", "A,B", "A,B", "C"]
    assert table(draw_text(rotated, 2))[-1] == ["end", "A", "B:0A"]


def test_many_blocks_have_names_of_their_own() -> None:
    names = [letter(block) for block in range(64 * 4)]
    assert names[:2] + names[25:28] + names[51:53] == ["A", "B", "Z", "A1", "B1", "Z1", "A2"]
    assert len(set(names)) == len(names)
    assert runs([0, 1, 2, 25, 26, 28], letter) == "A-C,Z,A1,C1"


def test_blocks_stand_in_the_order_in_which_they_travel() -> None:
    assert runs([28, 0, 2, 1, 25, 26], letter) == "C1,A,C,B,Z,A1"
    assert runs([2, 3, 4, 0, 1], letter) == "C-E,A,B"
    swapped = made(
        [Step(dest=1, send=(work(2), work(0, 2)))],
        [Step(source=0, recv=(work(2), work(0, 2)))],
        blocks=3,
    )
    assert table(draw_text(swapped, 2))[1] == ["1", "C,A,B -> 1", "C,A,B:0 <- 0"]
    assert "|   tE:0E = A-E            |   tE:1A = B-E,A          |" in draw_text(
        algorithm_named("alltoall", "bruck"), 5
    )


@pytest.mark.parametrize("nranks", [8, 16, 33, 64])
def test_wide_tables_are_split(nranks: int) -> None:
    text = draw_text(algorithm_named("allreduce", "ring"), nranks)
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert text.isascii()
    headers = [line for line in text.splitlines() if line.startswith("round |")]
    assert len(headers) > 1
    assert re.findall(r"rank \d+", " ".join(headers)) == [f"rank {rank}" for rank in range(nranks)]
    for label in ("start", "1", str(2 * (nranks - 1)), "end"):
        assert len(re.findall(rf"^{label} +\|", text, re.MULTILINE)) == len(headers)
    if nranks == 8:
        assert [line.count("|") for line in headers] == [4, 4]  # five would fit, but four and four are as many tables


@ALL
def test_no_table_is_too_wide(algorithm: Algorithm) -> None:
    text = draw_text(algorithm, 64)
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert ("A:9/64" in text) == (re.search(r"[A-Z]\d*:\d+/64 <", text) is not None)


@pytest.mark.parametrize(("draw", "most"), [(draw_text, 64), (draw_svg, 32)])
def test_limits(draw: type[str], most: int) -> None:
    server = algorithm_named("allreduce", "parameter_server")
    assert f"{most} ranks" in draw(server, most)  # type: ignore[call-overload]
    for nranks in (-1, 0, most + 1):
        what = " as a picture" if draw is draw_svg else ""
        with pytest.raises(ValueError, match=f"^nranks = {nranks}: can draw 1 to {most} ranks{what}$"):
            draw(server, nranks)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("programs", "fault"),
    [
        ([[Step(dest=1, send=work(0))], [Step(dest=0, send=work(0))]], "rank 0, round 0 waits for rank 1 for ever"),
        ([[Step(dest=2, send=work(0))], []], "rank 0 has rank 2 as its peer"),
        ([[Step(source=-1, recv=work(0))], []], "rank 0 has rank -1 as its peer"),
        ([[], [Step(source=1, recv=work(0))]], "rank 1 has rank 1 as its peer"),
        (
            [[Step(dest=1, send=work(0))], [Step(source=0, recv=work(0, 2))]],
            r"rank 0, round 0: sends block 0 to rank 1, which receives blocks 0\.\.1",
        ),
        (
            [
                [Step(dest=1, send=work(0)), Step(dest=1, send=work(0))],
                [Step(source=0, recv=work(0), combine=True), Step(source=0, recv=work(0), combine=True)],
            ],
            "rank 1, round 2: A would count what rank 0 brings twice$",
        ),
        ([[], [combine(work(1), work(1))]], "rank 1, round 0: B would count what rank 1 brings twice$"),
    ],
)
def test_a_schedule_that_cannot_be_played_is_refused(programs: list[list[Step | Local]], fault: str) -> None:
    for draw in (draw_text, draw_svg):
        with pytest.raises(ValueError, match=f"allreduce ring, 2 ranks: {fault}"):
            draw(made(*programs, blocks=2), 2)


@ALL
@pytest.mark.parametrize("nranks", range(1, 9))
def test_what_is_held_at_the_end_is_what_the_collective_promises(algorithm: Algorithm, nranks: int) -> None:
    collective, trace = collective_named(algorithm.collective), Trace(algorithm, nranks, nranks)
    checked = 0
    for rank in range(nranks):
        for block in range(trace.nblocks):
            if not collective.gets(rank, block, algorithm.root):
                continue
            sources = trace.bringers[block]
            wanted = {(source, block) for source in sources}
            if not collective.reduces and len(sources) > 1:
                wanted = {(block, rank)}
            assert trace.memory[rank]["work", block] == wanted
            checked += 1
    assert checked > 0


def messages(algorithm: Algorithm, nranks: int) -> Counter[tuple[str, int, int]]:
    """Return sender and receiver of each message, read from the receivers' programs alone.

    What passes through shared memory goes from the rank that has it to the rank whose memory changes.
    """
    found: Counter[tuple[str, int, int]] = Counter()
    for rank in range(nranks):
        for step in algorithm.operations(rank, nranks):
            if isinstance(step, Step) and step.source is not None:
                found["add" if step.combine else "overwrite", step.source, rank] += 1
            elif isinstance(step, Local) and not alone(step):
                giver, holder = (
                    next(rank if span.rank is None else span.rank for span in spans(side))
                    for side in (step.source, step.dest)
                )
                found["add" if step.action == "combine" else "overwrite", giver, holder] += 1
    return found


def alone(action: Local) -> bool:
    return all(span.rank is None for span in (*spans(action.source), *spans(action.dest)))


@ALL
@pytest.mark.parametrize("nranks", range(1, 9))
def test_text_of_every_algorithm(algorithm: Algorithm, nranks: int) -> None:
    text = draw_text(algorithm, nranks)
    tables, _, legend = text.rpartition("\n\n") if nranks > 1 else (text, "", "")
    found = messages(algorithm, nranks)
    assert tables.count(" -> ") == found.total()
    assert tables.count("<+ ") == sum(count for (kind, *_), count in found.items() if kind == "add")
    assert tables.count("<- ") == sum(count for (kind, *_), count in found.items() if kind == "overwrite")
    assert ("adds it" in legend) == ("<+ " in tables)
    assert "?" not in tables


@ALL
@pytest.mark.parametrize("nranks", range(1, 9))
def test_picture_of_every_algorithm(algorithm: Algorithm, nranks: int) -> None:
    root = ET.fromstring(draw_svg(algorithm, nranks))
    arrows: Counter[tuple[str, int, int]] = Counter()
    for group in root.iter(f"{SVG}g"):
        kind = group.attrib["class"].removeprefix("message ")
        title, label = group.findtext(f"{SVG}title") or "", group.findtext(f"{SVG}text") or ""
        sender, receiver = (int(found) for found in re.findall(r"rank (\d+)", title))
        arrows[kind, sender, receiver] += 1
        discs = [path for path in group.iter(f"{SVG}path") if "a8 8" in path.attrib["d"]]
        dashes = [path for path in group.iter(f"{SVG}path") if "stroke-dasharray" in path.attrib]
        assert (len(discs), len(dashes), label[0] == "+") == ((1, 0, True) if kind == "add" else (0, 1, False))
    assert arrows == messages(algorithm, nranks)

    lonely = Counter(
        {"combine": "+=", "copy": "=", "scale": "/="}[action.action]
        for rank in range(nranks)
        for action in algorithm.operations(rank, nranks)
        if isinstance(action, Local) and alone(action)
    )
    written = [text.text or "" for text in root.iter(f"{SVG}text") if text.get("class") == "local"]
    assert Counter(text.split()[1] for text in written) == lonely
    lines = [path for path in root.iter(f"{SVG}path") if path.get("class") == "meet"]
    assert bool(lines) == (algorithm.shared is not None and nranks > 1)


@ALL
@pytest.mark.parametrize("nranks", [1, 2, 5, 8])
def test_no_text_leaves_the_picture_and_no_label_meets_another(algorithm: Algorithm, nranks: int) -> None:
    root = ET.fromstring(draw_svg(algorithm, nranks))
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    for text in root.iter(f"{SVG}text"):
        left, right, size = extent(root, text)
        assert left >= 0, text.text
        assert right <= width, text.text
        assert size <= float(text.attrib["y"]) <= height - 4, text.text
    labels = [text for group in root.iter(f"{SVG}g") for text in group.iter(f"{SVG}text")]
    places = sorted((float(text.attrib["y"]), *extent(root, text)[:2]) for text in labels)
    for (y, _, right), (other_y, left, _) in pairwise(places):
        assert other_y - y >= 18 or right < left


def extent(root: ET.Element, text: ET.Element) -> tuple[float, float, float]:
    size = float(text.get("font-size") or root.attrib["font-size"])
    width = 0.6 * size * len(text.text or "")
    anchor = text.get("text-anchor") or root.attrib["text-anchor"]
    left = float(text.attrib["x"]) - width * {"start": 0, "middle": 0.5, "end": 1}[anchor]
    return left, left + width, size


@ALL
@pytest.mark.parametrize("nranks", [3, 5, 8])
def test_arrows_keep_clear_of_labels_and_of_each_other(algorithm: Algorithm, nranks: int) -> None:
    check_arrows(ET.fromstring(draw_svg(algorithm, nranks)))


def test_arrows_from_and_to_one_narrow_column_keep_clear() -> None:
    # The middle of A and D is half a narrow cell to the left of that of C: as far as the two arrows are put apart.
    sent, received = work(2), (work(0), work(3))
    check_arrows(
        ET.fromstring(
            draw_svg(
                made(
                    [Step(dest=1, send=sent, source=1, recv=received)],
                    [Step(dest=0, send=received, source=0, recv=sent)],
                    blocks=14,
                ),
                2,
            )
        )
    )


def check_arrows(root: ET.Element) -> None:
    strips = next(path.attrib["d"] for path in root.iter(f"{SVG}path"))
    columns = [(float(x), float(x) + float(width)) for x, width in re.findall(r"M([\d.]+) \S+?h([\d.]+)v", strips)]
    assert len(columns) == len({text.text for text in root.iter(f"{SVG}text") if (text.text or "").startswith("rank ")})
    bands: dict[float, list[tuple[float, float, float, float]]] = {}
    labels: dict[float, list[tuple[float, float, float]]] = {}
    for group in root.iter(f"{SVG}g"):
        path = next(path.attrib["d"] for path in group.iter(f"{SVG}path"))
        found = re.fullmatch(r"M([\d.]+) ([\d.]+)V([\d.]+)q\S+ \S+ \S+ 8H([\d.]+)q(-?8) 0 \S+ 8V([\d.]+)", path)
        assert found, path
        start, top, turn_y, before_turn, turn, _ = map(float, found.groups())
        bands.setdefault(top, []).append((start, turn_y + 8, before_turn + turn, turn))
        text = next(group.iter(f"{SVG}text"))
        labels.setdefault(top, []).append((float(text.attrib["y"]), *extent(root, text)[:2]))
    for top, arrows in bands.items():
        downs = sorted(x for start, _, end, _ in arrows for x in (start, end))
        assert min(after - before for before, after in pairwise(downs)) > 4
        for _, left, right in labels[top]:
            assert not [x for x in downs if left - 4 < x < right + 4]
            assert any(end < left and right < start for (_, end), (start, _) in pairwise(columns))
        lanes = sorted((lane, min(start, end), max(start, end)) for start, lane, end, _ in arrows)
        for (lane, _, right), (other, left, _) in pairwise(lanes):
            assert other - lane >= 22 or left > right


def test_names_are_escaped_and_nothing_is_loaded_from_elsewhere() -> None:
    text = draw_svg(replace(algorithm_named("allreduce", "ring"), name="<a & 'b'>"), 3)
    root = ET.fromstring(text)
    assert root.findtext(f"{SVG}title") == "allreduce <a & 'b'>: 3 ranks, 3 blocks (A-C), 4 rounds"
    assert root.findtext(f"{SVG}desc")
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "desc", "rect", "path", "g", "text"
    }  # fmt: skip
    assert "href" not in text
    assert "url(" not in text
    assert next(iter(root.iter(f"{SVG}rect"))).attrib["fill"] == "#FFFFFF"

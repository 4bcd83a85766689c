from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction

import pytest

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.report.algorithms import SYMBOLS, WIDTH, render_algorithms
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.semantics import COLLECTIVES
from ringbench.schedule.step import Operations

FORMATS = ("text", "markdown", "json")
LONG = "word " * 17 + "end."


def chosen(*names: tuple[str, str]) -> list[Algorithm]:
    return [algorithm_named(*name) for name in names]


def summed_up(algorithm: Algorithm, text: str) -> Algorithm:
    def generator(rank: int, nranks: int) -> Operations:
        yield from ()

    generator.__doc__ = text
    return replace(algorithm, generator=generator)


def test_text_has_the_librarys_own_beside_each_collectives() -> None:
    found = chosen(("reduce", "binomial"), ("allreduce", "ring"), ("allreduce", "parameter_server"))
    found = [summed_up(one, text) for one, text in zip(found, ("Up a tree.", LONG, "At rank 0."), strict=True)]
    assert render_algorithms(found, "text").splitlines() == [
        "allreduce",
        "  ring              word word word word word word word word word word word word word word word word",
        "                    word end.",
        "  parameter_server  At rank 0.",
        "  mpi               The MPI library's own.",
        "  auto              The best by a rule, or by a run.",
        "reduce",
        "  binomial          Up a tree.",
        "  mpi               The MPI library's own.",
        "  auto              The best by a rule, or by a run.",
    ]


def test_text_fits_a_terminal_and_loses_no_word() -> None:
    text = render_algorithms(algorithms(), "text")
    assert max(map(len, text.splitlines())) <= WIDTH == 100
    plain = " ".join(text.split())
    for algorithm in algorithms():
        assert f" {algorithm.name} {algorithm.summary} " in plain, algorithm.name


def test_every_registered_algorithm_is_listed_once_and_collectives_stand_in_order() -> None:
    lines = render_algorithms(algorithms(), "text").splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings == sorted(COLLECTIVES)
    listed, here = [], ""
    for line in lines:
        here = here if line.startswith(" ") else line
        if re.match(r"  \S", line):  # and no line that goes on with a summary
            listed.append((here, line.split()[0]))
    registered = [(algorithm.collective, algorithm.name) for algorithm in algorithms()]
    assert sorted(listed) == sorted([*registered, *((name, own) for name in COLLECTIVES for own in ("mpi", "auto"))])
    assert len(set(listed)) == len(listed)


def test_markdown_is_a_table_of_formulas_under_what_they_mean() -> None:
    ring = replace(algorithm_named("allreduce", "ring"), formulas=("2(N-1)", "2(N-1)/N"))
    lines = render_algorithms([ring, *chosen(("allreduce", "swing_latency"))], "markdown").splitlines()
    assert lines[:2] == [SYMBOLS, ""]
    assert lines[2] == "| collective | algorithm | rounds | bytes sent by the busiest rank, in S | bits | what |"
    assert set(lines[3]) == {"|", "-"}
    assert lines[4] == f"| allreduce | ring | 2(N-1) | 2(N-1)/N | identical | {ring.summary} |"
    assert "| swing_latency |" in lines[5]
    assert "| may differ |" in lines[5]
    assert len(lines) == 6


def test_every_algorithm_fills_its_line_of_the_table() -> None:
    lines = render_algorithms(algorithms(), "markdown").splitlines()[4:]
    assert len(lines) == len(algorithms())
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")]
        assert (len(cells), cells[0], cells[-1]) == (8, "", "")
        assert all(cells[1:-1]), line


def test_json_is_an_array_of_flat_objects() -> None:
    rows = json.loads(render_algorithms(algorithms(), "json"))
    by_name = {(row["collective"], row["algorithm"]): row for row in rows}
    assert len(by_name) == len(rows) == len(algorithms()) + len(COLLECTIVES)
    assert not any(isinstance(value, dict) for row in rows for value in row.values())
    for algorithm in algorithms():
        row = by_name[algorithm.collective, algorithm.name]
        assert (row["rounds"], row["sent"]) == algorithm.formulas
        assert row["identical_bits"] is algorithm.identical_bits
        assert row["summary"] == algorithm.summary
    assert by_name["bcast", "chain"]["arguments"] == ["root", "chunks"]
    assert by_name["allreduce", "ring"]["arguments"] == []
    assert by_name["alltoall", "mpi"] == {
        "collective": "alltoall",
        "algorithm": "mpi",
        "summary": "The MPI library's own.",
    }


@pytest.mark.parametrize("format", FORMATS)
def test_a_list_ends_its_last_line_and_any_terminal_can_show_it(format: str) -> None:
    text = render_algorithms(algorithms(), format)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert text.isascii()


#: Formulas in words, which no machine evaluates; tests of the schedules hold their closed forms.
WORDS = {"hierarchical", "hierarchical_leaders"}


def evaluated(text: str, nranks: int, chunks: int) -> Fraction:
    """Return the value of a formula as it is written."""
    f = nranks.bit_length() - 1
    names = {"N": nranks, "f": f, "p": 2**f, "L": (nranks - 1).bit_length(), "c": chunks}
    explicit = re.sub(r"(?<=[A-Za-z0-9)])(?=[A-Za-z(])", "*", text)  # names are single letters
    python = re.sub(r"[A-Za-z]+|[0-9]+", lambda found: f"Fraction({names.get(found[0], found[0])})", explicit)
    return Fraction(eval(python, {"Fraction": Fraction}))


@pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")
def test_the_formulas_of_the_table_say_what_the_closed_forms_give(algorithm: Algorithm) -> None:
    if algorithm.name in WORDS:
        assert all("node" in text for text in algorithm.formulas)
        return
    for nranks in range(3, 34):
        power = nranks & (nranks - 1) == 0
        found = Fraction(algorithm.rounds(nranks)), algorithm.sent(nranks)
        for text, value in zip(algorithm.formulas, found, strict=True):
            plain, _, folded = text.partition("; ")
            form = plain if power or not folded else folded.removesuffix(" folded")
            only_powers = form.endswith(" for N = 2^L")
            form = form.removesuffix(" for N = 2^L")
            written = evaluated(form.removeprefix("at most "), nranks, 4)
            if form.startswith("at most "):
                assert value <= written, (nranks, text)
            elif power or not only_powers:
                assert value == written, (nranks, text)

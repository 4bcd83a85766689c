from __future__ import annotations

from typing import Any

import pytest

from ringbench.schedule.parameters import (
    DEFAULTS,
    MAX_CHUNKS,
    Groups,
    Value,
    check_ranks,
    check_value,
    groups_of,
    pairs,
    parse_groups,
    samples,
    value_text,
)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("root", 0, 0),
        ("root", 7, 7),
        ("chunks", 1, 1),
        ("chunks", MAX_CHUNKS, MAX_CHUNKS),
        ("outer", "swing", "swing"),
        ("groups", None, None),
        ("groups", [[2, 3], (0, 1)], ((0, 1), (2, 3))),  # nodes in order, so that they are numbered alike everywhere
        ("groups", [range(2, 4), [1, 0]], ((1, 0), (2, 3))),  # but a node's first rank stays its leader
    ],
)
def test_values_are_brought_into_one_form(name: str, value: object, found: Value) -> None:
    assert check_value(name, value) == found


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("root", -1, "root -1: must be a rank"),
        ("root", True, "root True: must be a rank"),
        ("root", "0", "root '0': must be a rank"),
        ("root", None, "root None: must be a rank"),
        ("chunks", 0, "chunks 0: must be a number from 1 to 4096"),
        ("chunks", MAX_CHUNKS + 1, "chunks 4097: must be a number from 1 to 4096"),
        ("chunks", 1.5, "chunks 1.5: must be a number"),
        ("outer", None, "outer None: must be the name of an allreduce"),
        ("outer", 3, "outer 3: must be the name of an allreduce"),
        ("groups", (), r"groups \(\): must be groups of ranks, none empty"),
        ("groups", ((0,), ()), r"groups \(\(0,\), \(\)\): must be groups of ranks, none empty"),
        ("groups", 5, r"groups 5: must be groups of ranks, as in \(\(0, 1\), \(2, 3\)\)"),
        ("groups", ((0, "x"),), "groups .*: must be groups of ranks, as in"),
        ("group", 0, "unknown argument 'group' of a schedule; known: root, chunks, groups, outer"),
    ],
)
def test_values_that_no_number_of_ranks_could_make_right_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_value(name, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("root", 4, "^root 4: there are 4 ranks$"),
        ("groups", ((0, 1),), "^groups 0,1: must hold each of the ranks 0 to 3 once$"),
        ("groups", ((0, 1), (1, 2, 3)), "^groups 0,1/1,2,3: must hold each"),
        ("groups", ((0, 1, 2), (3, 4)), "^groups 0,1,2/3,4: must hold each"),
    ],
)
def test_values_are_held_against_the_number_of_ranks(name: str, value: Value, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_ranks(name, value, 4)


def test_what_fits_the_number_of_ranks_passes() -> None:
    check_ranks("root", 3, 4)
    check_ranks("groups", ((0, 3), (1, 2)), 4)
    check_ranks("groups", None, 4)
    check_ranks("chunks", 100, 4)


def test_all_ranks_share_a_node_unless_told_otherwise() -> None:
    assert groups_of(None, 3) == ((0, 1, 2),)
    assert groups_of(((0, 2), (1,)), 3) == ((0, 2), (1,))


@pytest.mark.parametrize(
    ("text", "groups"),
    [("0,1/2,3", ((0, 1), (2, 3))), ("0", ((0,),)), ("0,2/1", ((0, 2), (1,))), (" 0, 1 / 2", ((0, 1), (2,)))],
)
def test_groups_are_read_from_text_and_written_again(text: str, groups: Groups) -> None:
    assert parse_groups(text) == groups
    assert value_text(groups) == text.replace(" ", "")


@pytest.mark.parametrize("text", ["", "0,1/", "a", "0;1", "0,,1", "0/1.5"])
def test_malformed_groups_are_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=f"^malformed groups '{text}': must be as in 0,1/2,3$"):
        parse_groups(text)


def test_ranks_in_text_are_not_negative() -> None:
    with pytest.raises(ValueError, match=r"^malformed groups '0,-1': must be as in 0,1/2,3$"):
        parse_groups("0,-1")


@pytest.mark.parametrize(("value", "text"), [(3, "3"), ("ring", "ring"), (((0, 1), (2,)), "0,1/2")])
def test_values_are_written_as_the_command_line_takes_them(value: Value, text: str) -> None:
    assert value_text(value) == text


def test_pairs_of_an_odd_number_leave_one_alone() -> None:
    assert pairs(4) == ((0, 1), (2, 3))
    assert pairs(5) == ((0, 1), (2, 3), (4,))
    assert pairs(1) == ((0,),)


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_is_proved_are_values_that_fit(name: str) -> None:
    for nranks in range(1, 66):
        values = samples(name, nranks)
        assert values
        for value in values:
            assert check_value(name, value) == value
            check_ranks(name, value, nranks)


def test_layouts_that_are_proved_are_of_many_kinds() -> None:
    layouts = [groups_of(value, 12) for value in samples("groups", 12)]
    assert {len(layout) for layout in layouts} >= {2, 6, 12}
    assert any(len({len(group) for group in layout}) > 1 for layout in layouts)  # nodes of unlike size
    assert any(1 not in layout[0] and len(layout[0]) > 1 for layout in layouts)  # neighbours on different nodes

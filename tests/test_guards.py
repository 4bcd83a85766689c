"""The list of warnings: whatever is raised is in it, and what is in it is raised somewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ringbench.records.guards import CROWDED, GUARDS

SOURCE = Path(__file__).parents[1] / "ringbench"


def test_letters_and_names_are_their_own() -> None:
    letters = [guard.letter for guard in GUARDS.values()]
    assert len(set(letters)) == len(letters)
    assert all(len(letter) == 1 and letter.isascii() and letter.isalpha() for letter in letters)
    assert all(name == guard.name for name, guard in GUARDS.items())
    assert set(GUARDS) >= CROWDED


@pytest.mark.parametrize("name", GUARDS)
def test_each_says_what_it_means_and_what_to_do_in_a_line(name: str) -> None:
    guard = GUARDS[name]
    for text in (guard.meaning, guard.advice):
        assert text.isascii()
        assert text.isprintable()
        assert 10 < len(text) < 100
        assert not text.endswith(".")
        assert "|" not in text  # it stands in a Markdown table
    assert guard.about in ("ranks", "machine", "samples", "result", "comparison", "fit")


def test_each_is_raised_by_some_module() -> None:
    words = set()
    for file in SOURCE.rglob("*.py"):
        if file.name != "guards.py":
            tree = ast.parse(file.read_text(encoding="utf-8"))
            words |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    # The fit puts together "alpha" or "beta" and the rest.
    assert {name for name, guard in GUARDS.items() if guard.about != "fit"} - words == set()

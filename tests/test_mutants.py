from __future__ import annotations

from typing import Any

import pytest
from playthrough import fault

from ringbench.report.mutants import all_caught, render_mutants, verdict
from ringbench.runtime.mutants import BASES, PLAN_MUTANTS, Cell, counts
from ringbench.schedule import registry
from ringbench.schedule.mutate import SCHEDULE_MUTANTS, mutated, refusal
from ringbench.schedule.registry import algorithm_named, registered
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Step

CHANGES = {mutant.name: mutant for mutant in SCHEDULE_MUTANTS}
SPOILS = {mutant.name: mutant for mutant in PLAN_MUTANTS}
RING = algorithm_named("allreduce", "ring")

#: Where a changed schedule is right all the same: two ranks have no sum on the way, and who never divides may start to.
RIGHT = {
    ("reduce_scatter", "ring", "forgetful", 2),
    ("allreduce", "recursive_doubling", "forgetful", 2),
    ("reduce", "binomial", "forgetful", 2),
    ("reduce", "binomial", "forgetful", 3),
} | {
    (*base, "redivided", nranks)
    for base in (
        ("allreduce", "recursive_doubling"),
        ("allreduce", "naive"),
        ("reduce_scatter", "ring"),
        ("reduce", "binomial"),
        ("reduce_scatter", "shared_memory"),
    )
    for nranks in (2, 3, 4, 5, 8)
}


@pytest.mark.parametrize("nranks", [2, 3, 4, 5, 8])
@pytest.mark.parametrize(("collective", "algorithm"), [base[:2] for base in BASES])
def test_the_proof_refuses_every_changed_schedule_but_those_that_are_right(
    collective: str, algorithm: str, nranks: int
) -> None:
    base = algorithm_named(collective, algorithm)
    assert refusal(base, nranks) is None
    for mutant in SCHEDULE_MUTANTS:
        if mutant.applies(base, nranks):
            broken = mutated(base, mutant)
            right = (collective, algorithm, mutant.name, nranks) in RIGHT
            assert (refusal(broken, nranks) is None) == right, mutant.name
            if mutant.name != "misplaced" and not mutant.race:  # the one no blocks of unlike size allow
                assert (fault(broken, nranks) is None) == right, mutant.name


def test_no_mutant_changes_who_talks_to_whom() -> None:
    for mutant in SCHEDULE_MUTANTS:
        if mutant.race:  # a ring has no meets
            continue
        changed = mutated(RING, mutant)
        for rank in range(4):
            peers = [
                [(step.dest, step.source) for step in one.operations(rank, 4) if isinstance(step, Step)]
                for one in (RING, changed)
            ]
            assert peers[0] == peers[1], mutant.name
            assert len(peers[0]) == 6


def test_a_mutant_is_in_the_registry_for_a_while_only() -> None:
    broken = mutated(RING, CHANGES["dropped"])
    before = dict(registry._ALGORITHMS)
    with registered([broken]):
        assert algorithm_named("allreduce", "ring~dropped") is broken
        with pytest.raises(ValueError, match=r"ring~dropped.* is taken"), registered([broken]):
            pass
    assert before == registry._ALGORITHMS


def test_a_changed_schedule_keeps_the_root_it_is_given() -> None:
    broken = mutated(algorithm_named("reduce", "binomial"), CHANGES["doubled"]).given(root=2)
    assert broken.root == 2
    assert broken.name == "binomial~doubled"
    assert "counts rank" in str(refusal(broken, 4))


def test_what_is_broken_may_be_empty() -> None:
    dropped, scatter = CHANGES["dropped"], algorithm_named("reduce_scatter", "ring")
    assert [dropped.equivalent(scatter, 3, count) is None for count in (1, 2, 3)] == [False, True, True]


def cell(collective: str = "allreduce", nranks: int = 3, elements: int = 7, **more: Any) -> Cell:
    given = {"op": "sum", "dtype": "float32", "in_place": True, **more}
    return Cell(collective_named(collective), nranks=nranks, elements=elements, **given)


@pytest.mark.parametrize(
    ("name", "where", "same"),
    [
        ("remainder", cell(elements=6), True),
        ("remainder", cell(elements=7), False),
        ("shifted", cell(elements=1), True),
        ("shifted", cell(elements=2), False),
        ("flipped", cell("reduce_scatter", elements=2), True),
        ("flipped", cell("reduce_scatter", elements=3), False),
        ("absent", cell("allgather", elements=2), True),
        ("absent", cell("reduce_scatter", elements=1), False),
        ("idle", cell(elements=1), False),
    ],
)
def test_where_a_spoiled_plan_breaks_nothing(name: str, where: Cell, same: bool) -> None:
    assert SPOILS[name].applies(where)
    assert (SPOILS[name].equivalent(where) is not None) == same


def test_sizes_go_from_fewer_elements_than_ranks_to_odd_and_many() -> None:
    for nranks in (2, 3, 4, 5, 8):
        few, odd, many = counts("allreduce", nranks)
        assert few < nranks < odd < many
        assert odd % nranks
        assert all(count % nranks == 0 for count in counts("alltoall", nranks)[:2])


# The verdicts.


def outcome(mutant: str | None, wrong: int | None, equivalent: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "mutant": mutant,
        "breaks": mutant and "something",
        "collective": "allreduce",
        "algorithm": "ring",
        "op": "sum",
        "dtype": "float32",
        "nranks": 2,
        "count": 1,
        "in_place": True,
        "wrong": wrong,
        "detail": "element 0 is 14, not 15" if wrong else None,
        "equivalent": equivalent,
        "proof": None,
        **more,
    }


GOOD = [outcome(None, 0), outcome("idle", 3), outcome("remainder", 0, "nothing is left")]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (outcome("idle", 0), "survived"),
        (outcome(None, 1), "false alarm"),
        (outcome("remainder", 1, "nothing is left"), "false alarm"),
        (outcome("idle", None), "not run"),
    ],
)
def test_one_bad_cell_is_enough(bad: dict[str, Any], word: str) -> None:
    assert all_caught(GOOD)
    assert verdict(bad) == word
    assert not all_caught([*GOOD, bad])
    assert f"\n{word}: " in render_mutants([*GOOD, bad], "text")


def test_nothing_tried_is_nothing_caught() -> None:
    assert not all_caught([])
    assert not all_caught(GOOD[:1])
    assert not all_caught(GOOD[1:])


def test_the_text() -> None:
    text = render_mutants(GOOD, "text")
    assert text.splitlines() == [
        "caught    idle       something  in 1 of 1 cells",
        f"{'':21}allreduce ring sum float32, 2 ranks, 1 element, in place: element 0 is 14, not 15",
        "harmless  remainder  something  in 0 of 0 cells, 1 more where nothing breaks",
        "1 of 1 mutants caught in all of their cells (1 of 1), 1 of 1 cells of originals right",
    ]

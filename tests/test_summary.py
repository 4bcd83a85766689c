from __future__ import annotations

from typing import Any

from ringbench.records.guards import CROWDED
from ringbench.records.row import Row
from ringbench.report.summary import summary


def cell(algorithm: str, nbytes: int, seconds: float, nranks: int = 2, wrong: int = 0, **more: Any) -> dict[str, Any]:
    row = Row(
        collective="allreduce",
        algorithm=algorithm,
        op="sum",
        dtype="float32",
        device="cpu",
        nranks=nranks,
        nbytes=nbytes,
        count=nbytes // 4,
        in_place=True,
        launch=0,
        samples_s=(seconds,) * 8,
        wrong=wrong,
        **more,
    )
    return row.table_cell()


def test_the_fastest_is_named_by_ranges_of_sizes() -> None:
    rows = [cell("ring", nbytes, ring) for nbytes, ring in ((8, 3e-6), (1024, 4e-6), (2048, 1e-6))]
    rows += [cell("mpi", nbytes, 2e-6) for nbytes in (8, 1024, 2048)]
    text = summary(rows)
    assert "right: 6 of 6 cases" in text
    assert "on 2 ranks in place: mpi from 8B to 1KiB, ring at 2KiB\n" in text


def test_a_wrong_algorithm_is_named_and_never_the_fastest() -> None:
    text = summary([cell("ring", 8, 1e-6, wrong=3), cell("mpi", 8, 2e-6)])
    assert "right: 1 of 2 cases" in text
    assert "WRONG: ring at 8B on 2 ranks" in text
    assert "in place: mpi at 8B\n" in text


def test_one_rank_has_no_fastest_and_crowded_ranks_are_said() -> None:
    assert "fastest" not in summary([cell("ring", 8, 1e-6, nranks=1)])
    for warning in CROWDED:
        assert "4 ranks in place: not to be said, ranks share cores\n" in summary(
            [cell("ring", 8, 1e-6, nranks=4, warnings=(warning,))]
        )


def test_who_cannot_be_told_from_the_fastest_is_named_with_it() -> None:
    wide = {**cell("ring", 8, 1e-6), "ci_low_s": 0.5e-6, "ci_high_s": 3e-6}
    assert "in place: ring or mpi at 8B\n" in summary([wide, cell("mpi", 8, 2e-6)])
    assert "in place: ring at 8B\n" in summary([wide, cell("mpi", 8, 4e-6)])
    many = [cell(name, 8, 2e-6) for name in ("a", "b", "c", "d")]
    assert "in place: ring or 4 others at 8B\n" in summary([wide, *many])
    assert "in place: ring or a or b at 8B\n" in summary([wide, *many[:2]])


def test_the_last_line_says_of_how_many_launches_the_intervals_are() -> None:
    last = summary([cell("ring", 8, 1e-6)]).splitlines()[-1]
    assert last == "intervals are those of one launch; another may differ by more (see --launches)"
    several = [{**cell("ring", 8, 1e-6), "launches": 3}]
    assert summary(several).splitlines()[-1] == (
        "intervals are those of 3 launches; where launches differ, that many hold the median one in 75% of cases, "
        "and 6 are needed for 95%"
    )
    many = [{**cell("ring", 8, 1e-6), "launches": 6}]
    assert summary(many).splitlines()[-1] == "intervals are those of 6 launches"


def test_lines_are_ascii() -> None:
    assert summary([cell("ring", 8, 1e-6)]).isascii()

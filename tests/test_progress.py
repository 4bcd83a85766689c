from __future__ import annotations

from typing import Any

from ringbench.records.row import Row
from ringbench.records.settings import Settings
from ringbench.report.progress import Progress


def row(**changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": "ring",
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
    }
    values |= {"nranks": 2, "nbytes": 1024, "count": 256, "in_place": True, "launch": 0, "wrong": 0}
    values["samples_s"] = (98e-6,) * 3 + (100e-6,) * 4 + (102e-6,) * 3
    return Row(**(values | changes))


def test_cases_and_what_is_left_are_counted() -> None:
    progress = Progress(done=4, total=10, end=7.0, after=1000.0, clock=lambda: 4.0)
    line = progress.line(row())
    assert line == "[5/10] N=2 allreduce ring 1KiB in place: 100us [98us, 102us]; at most 1003 s of measuring left"
    few = progress.line(row(samples_s=(1e-4,) * 3, in_place=False))
    assert few == "[6/10] N=2 allreduce ring 1KiB out of place: 100us; at most 1003 s of measuring left"


def test_what_is_measured_now_follows_from_the_cases_that_are_finished() -> None:
    settings = Settings(sizes=(1024, 8), algorithms=("ring", "mpi"), placement="both")
    progress = Progress(done=4, total=12, end=7.0, after=0.0, clock=lambda: 4.0)
    said = [progress.current(settings, 2, cases) for cases in range(9)]
    assert said[0] == said[1] == "[4/12] at most 3 s of measuring left; now N=2 allreduce 8B in place: ring, mpi"
    assert said[2].endswith("now N=2 allreduce 8B out of place: ring, mpi")
    assert said[7].endswith("now N=2 allreduce 1KiB out of place: ring, mpi")
    assert said[8] == ""
    progress.line(row())
    assert progress.current(settings, 2, 1).startswith("[5/12] ")


def test_a_budget_that_is_over_leaves_nothing() -> None:
    assert (
        Progress(done=0, total=1, end=7.0, after=0.0, clock=lambda: 9.0)
        .line(row())
        .endswith("at most 0 s of measuring left")
    )


def test_wrong_results_and_reasons_are_said() -> None:
    progress = Progress(done=0, total=2, end=0.0, after=0.0)
    assert "WRONG (3 elements; rank 1: x)" in progress.line(row(wrong=3, wrong_detail="rank 1: x"))
    assert ": too big; " in progress.line(row(samples_s=(), reason="too big"))

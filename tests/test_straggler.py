from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ringbench.model.compare import compare_rows
from ringbench.model.fit import fit_rows
from ringbench.model.pool import table_cells
from ringbench.records.doubts import row_warnings
from ringbench.records.row import Row
from ringbench.records.settings import Settings, plan_from
from ringbench.records.straggler import Delay, Straggler, parse_straggler
from ringbench.report.straggler import render_straggler
from ringbench.report.tables import render
from ringbench.runtime.demands import check_schedules, check_settings
from ringbench.runtime.late import Delays, LateCall


@pytest.mark.parametrize(
    ("text", "found", "written"),
    [
        ("rank=1,delay=5ms", Straggler(rank=1, delay=Delay(seconds=0.005)), None),
        ("delay=10%, rank=rotate", Straggler(delay=Delay(share=0.1)), "rank=rotate,delay=10%"),
        ("jitter=2000us", Straggler(jitter=Delay(seconds=0.002)), "jitter=2ms"),
        (
            "rank=0,delay=1s,jitter=5%",
            Straggler(rank=0, delay=Delay(seconds=1.0), jitter=Delay(share=0.05)),
            "rank=0,delay=1s,jitter=5%",
        ),
    ],
)
def test_who_is_late_is_read_and_written(text: str, found: Straggler, written: str | None) -> None:
    assert parse_straggler(text) == found
    assert str(found) == (written or text)
    assert parse_straggler(str(found)) == found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "malformed straggler ''"),
        ("1", "malformed straggler '1'"),
        ("rank=1", "it lacks delay"),
        ("delay=5ms", "it lacks rank"),
        ("rank=1,delay=5", "malformed latency '5'"),
        ("rank=-1,delay=5ms", "malformed straggler rank '-1'"),
        ("rank=last,delay=5ms", "malformed straggler rank 'last'"),
        ("rank=1,delay=x%", "malformed straggler delay 'x%'"),
        ("rank=1,delay=0%", "malformed straggler delay '0%'"),
        ("rank=1,delay=nan%", "malformed straggler delay 'nan%'"),
        ("rank=1,delay=61s", "straggler delay 61s: 60 s at most"),
        ("rank=1,rank=2,delay=5ms", "malformed straggler"),
        ("colour=1", "malformed straggler"),
    ],
)
def test_what_is_malformed_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=r"straggler|latency") as found:
        parse_straggler(text)
    assert named in str(found.value)
    with pytest.raises(ValueError, match=r"straggler|latency"):
        Settings(straggler=text)


def test_a_rank_that_is_not_there_is_refused() -> None:
    parse_straggler("rank=3,delay=5ms").check_ranks(4)
    parse_straggler("rank=rotate,delay=5ms").check_ranks(1)
    with pytest.raises(ValueError, match="straggler rank 4: there are 4 ranks, from 0"):
        parse_straggler("rank=4,delay=5ms").check_ranks(4)


def late(text: str, rank: int, times: int, base_s: float = 0.1, nranks: int = 3) -> list[float]:
    delays = Delays(parse_straggler(text), rank, nranks, "seed")
    return [delays.next(base_s) for _ in range(times)]


def test_one_rank_is_late_or_each_in_its_turn() -> None:
    assert [late("rank=1,delay=5ms", rank, 3) for rank in range(3)] == [[0.0] * 3, [0.005] * 3, [0.0] * 3]
    turns = [late("rank=rotate,delay=10%", rank, 6) for rank in range(3)]
    assert [[round(seconds, 9) for seconds in one] for one in turns] == [
        [0.01, 0, 0, 0.01, 0, 0],
        [0, 0.01, 0, 0, 0.01, 0],
        [0, 0, 0.01, 0, 0, 0.01],
    ]


def test_jitter_differs_by_rank_and_is_the_same_in_every_job() -> None:
    own = [late("jitter=2ms", rank, 100) for rank in range(3)]
    assert own == [late("jitter=2ms", rank, 100) for rank in range(3)]
    assert len({tuple(one) for one in own}) == 3
    for one in own:
        assert all(0 <= seconds <= 0.002 for seconds in one)
        assert max(one) - min(one) > 0.0015
    both = late("rank=1,delay=5ms,jitter=50%", 1, 100)
    assert all(0.005 <= seconds <= 0.055 for seconds in both)


def test_a_call_is_late_from_its_beginning_on() -> None:
    made: list[None] = []
    call = LateCall(lambda: made.append(None), Delays(parse_straggler("rank=0,delay=1%"), 0, 1, ""))
    call()
    assert (len(made), call.made, call.late_s) == (1, 0, 0.0)
    call.begin(0.1)
    call()
    call()
    assert (len(made), call.made) == (3, 2)
    assert call.late_s >= 0.002


def row(straggler: str = "rank=1,delay=5ms", time: float = 0.006, nbytes: int = 1024, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": "ring",
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 3,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": tuple(time * part for part in (1.0, 1.01, 0.99, 1.0, 1.0, 1.0)),
        "wrong": 0,
        "straggler": straggler,
    }
    if straggler != "none":
        values |= {"calm_s": 0.001, "late_s": (0.0, 0.005, 0.0), "waits_s": (0.005, 0.0, 0.0048)}
    return Row(**{**values, **changes})


def test_disturbed_rows_say_so_and_are_kept_apart() -> None:
    calm = row("none", 0.001)
    assert row_warnings(row(), 1e-9) == ("disturbed",)
    assert row_warnings(calm, 1e-9) == ()
    assert Row.from_json(row().to_json()) == row()
    assert len(table_cells([row(), calm, row("jitter=1ms"), row(launch=1)])) == 3
    with pytest.raises(ValueError, match="have no cell in common"):
        compare_rows([row(), row("none", algorithm="mpi")])
    (compared,) = compare_rows([row(warnings=("disturbed",)), row(algorithm="mpi")])
    assert "disturbed" in compared.warnings
    sizes = [row("none", 1e-6 * nbytes, nbytes) for nbytes in (64, 1024, 8192)]
    result = fit_rows([*sizes, row(nbytes=2**20)], resamples=0)
    assert result.notes == ["1 row left out: ranks were late on purpose"]


@pytest.mark.parametrize(
    ("field", "value"), [("straggler", 3), ("straggler", "\x1b"), ("calm_s", "1"), ("late_s", 1), ("waits_s", [-1.0])]
)
def test_a_row_with_something_else_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"not a row of a run"):
        Row.from_json({**row().to_json(), field: value})


def test_the_table_tells_who_waits() -> None:
    cells = table_cells([row(), row("none", 0.001, 64)])
    shown = render_straggler(cells, "text")
    assert "late on purpose: rank=1,delay=5ms" in shown
    line = next(line for line in shown.splitlines() if line.startswith("1KiB"))
    assert line.split() == ["1KiB", "ring", "1000", "6000", "5000", "(1)", "100%", "0", "(1)", "to", "5000", "(0)"]
    assert "64B" not in shown
    assert render_straggler(table_cells([row("none")]), "text") == ""
    assert "late on purpose: rank=1,delay=5ms" in render(cells, "table", "text")


def test_settings_take_it_and_hand_it_on() -> None:
    settings = plan_from({"straggler": "rank=1,delay=5ms"}).settings
    assert "--straggler=rank=1,delay=5ms" in settings.arguments()
    assert not any("straggler" in word for word in Settings().arguments())
    check_settings(settings)
    with pytest.raises(ValueError, match="not with buffers"):
        check_settings(replace(settings, buffers=2))
    with pytest.raises(ValueError, match="not with limit"):
        check_settings(replace(settings, limit=True))
    with pytest.raises(ValueError, match="straggler rank 1: there are 1 ranks"):
        check_schedules(settings, 1)
    with pytest.raises(ValueError, match="straggler = 3"):
        plan_from({"straggler": 3})

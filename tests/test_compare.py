from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringbench.model.compare import ENOUGH_LAUNCHES, Comparison, compare_rows, compare_runs
from ringbench.records.row import Row
from ringbench.records.run import Run
from ringbench.report.tables import render

FIELDS = [
    *("collective", "nranks", "nbytes", "algorithm", "baseline", "ratio", "ratio_low", "ratio_high", "in_place"),
    *("verdict", "op", "dtype", "device", "reason", "p_value", "launch_p_value", "launches", "warnings"),
    *("memory", "baseline_memory", "transfer", "baseline_transfer"),
]


def row(algorithm: str, samples: Any = (1.0,) * 10, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 4,
        "nbytes": 1024,
        "count": 256,
        "in_place": True,
        "launch": 0,
        "samples_s": tuple(samples),
        "wrong": 0,
    }
    return Row(**{**values, **changes})


def run(rows: list[Row], name: str = "a", **changes: Any) -> Run:
    job = {"kind": "job", "mpi_library": "Open MPI 5.0.8", "hosts": ["n1"] * 4, **changes}
    provenance = {"kind": "provenance", "schema_version": job.pop("schema_version", 1)}
    return Run(path=Path(name) / "run.jsonl", provenance=provenance, jobs=(job,), rows=tuple(rows))


def only(comparisons: list[Comparison]) -> Comparison:
    (comparison,) = comparisons
    return comparison


def noise(seed: int, scale: float = 1.0, n: int = 30) -> Any:
    return scale * np.random.default_rng(seed).lognormal(0, 0.2, n)


def test_ratio_is_of_medians_not_means() -> None:
    got = only(compare_rows([row("ring", [7.0] * 99 + [700.0]), row("mpi", [14.0] * 100)]))
    assert (got.ratio, got.ratio_low, got.ratio_high, got.verdict) == (0.5, 0.5, 0.5, "faster")
    assert got.reason is None


def test_verdicts() -> None:
    for scale, verdict in ((0.5, "faster"), (2.0, "slower"), (1.0, "cannot tell")):
        got = only(compare_rows([row("ring", noise(1, scale)), row("mpi", noise(2))]))
        assert got.verdict == verdict
        assert got.ratio_low is not None
        assert got.ratio is not None
        assert got.ratio_high is not None
        assert got.ratio_low < got.ratio < got.ratio_high
        assert got.ratio == pytest.approx(scale, rel=0.2)
        assert got.reason is None


def test_alike_sides_are_rarely_told_apart_and_unlike_ones_mostly() -> None:
    told, inside = 0, 0
    for seed in range(200):
        same = only(compare_rows([row("ring", noise(2 * seed)), row("mpi", noise(2 * seed + 1))]))
        told += same.verdict != "cannot tell"
        apart = only(compare_rows([row("ring", noise(2 * seed, 1.3)), row("mpi", noise(2 * seed + 1))]))
        assert apart.ratio_low is not None
        assert apart.ratio_high is not None
        inside += apart.ratio_low <= 1.3 <= apart.ratio_high
        assert apart.verdict != "faster"
    assert told <= 20
    assert 180 <= inside < 200


def test_swapping_the_sides_inverts_the_ratio() -> None:
    rows = [row("ring", noise(3, 1.5)), row("mpi", noise(4))]
    there, back = only(compare_rows(rows)), only(compare_rows(rows, "mpi", "ring"))
    assert there.ratio is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert (there.verdict, back.verdict) == ("slower", "faster")


def test_an_algorithm_against_itself_is_one() -> None:
    got = only(compare_rows([row("mpi", noise(5))], "mpi", "mpi"))
    assert got.ratio == 1
    assert got.verdict == "cannot tell"


def test_order_of_samples_and_rows_does_not_matter() -> None:
    one, other = noise(6), noise(7)
    forward = compare_rows([row("ring", one), row("mpi", other)])
    assert compare_rows([row("mpi", other[::-1]), row("ring", one[::-1])]) == forward


def test_launches_count_alike_and_widen_the_interval() -> None:
    ring = [row("ring", noise(8, 1.0, 500), launch=0), row("ring", noise(9, 3.0, 6), launch=1)]
    got = only(compare_rows([*ring, row("mpi", [1.0] * 20)]))
    assert got.ratio == pytest.approx(2.0, rel=0.2)
    assert got.ratio_low == pytest.approx(1.0, rel=0.2)
    assert got.ratio_high == pytest.approx(3.0, rel=0.3)


def test_launches_that_have_both_are_compared_within_each() -> None:
    """Launches ten times apart hide a difference of a fifth between them, not within them."""
    rows = []
    for launch, slow in enumerate((1.0, 10.0, 3.0)):
        rows += [row("ring", noise(launch, 0.8 * slow, 60), launch=launch)]
        rows += [row("mpi", noise(launch + 50, slow, 60), launch=launch)]
    got = only(compare_rows(rows))
    assert got.verdict == "faster"
    assert got.ratio == pytest.approx(0.8, rel=0.1)
    assert got.ratio_high is not None
    assert got.ratio_high < 0.95
    unlike = only(compare_rows(rows[:-1]))  # the third launch lacks its baseline
    assert unlike.verdict == "cannot tell"


def test_rows_of_two_jobs_are_no_pairs() -> None:
    """A run that was gone on with may hold one algorithm of a size from before and the other from after."""
    ring, mpi = row("ring", noise(1, 0.7, 60)), row("mpi", noise(2, 1.0, 60))
    assert only(compare_rows([ring, mpi])).verdict == "faster"
    got = only(compare_rows([replace(ring, job=1), replace(mpi, job=2)]))
    assert got.verdict == "cannot tell"
    assert got.launch_p_value is not None


def test_a_difference_below_the_threshold_is_none() -> None:
    rows = [row("ring", noise(1, 1.0, 4000)), row("mpi", noise(1, 1.01, 4000))]  # round by round 1 % apart
    got = only(compare_rows(rows, threshold=0.001))
    assert got.p_value is not None
    assert got.p_value < 1e-6
    assert (only(compare_rows(rows)).verdict, only(compare_rows(rows, threshold=0.5)).verdict) == ("same", "same")
    wide = [row("ring", noise(1, 1.0, 30)), row("mpi", noise(2, 1.0, 30))]
    assert only(compare_rows(wide)).verdict == "cannot tell"  # 2 % is less than these samples can show


def test_no_verdict_where_the_ranks_disagree_with_the_medians() -> None:
    """Seven rounds of ten are slower by little, three faster by much: the rank test does not call that slower."""
    ring = [1.1] * 7 + [0.2] * 3
    got = only(compare_rows([row("ring", ring * 3), row("mpi", [1.0] * 30)]))
    assert got.ratio == pytest.approx(1.1)
    assert got.p_value is not None
    assert got.p_value > 0.05
    assert got.verdict == "cannot tell"


def test_rounds_are_pairs_only_where_the_algorithms_took_turns() -> None:
    """A hundredth apart round by round is plain in pairs, and nothing beside a spread of a fifth without them."""
    rows = [row("ring", noise(1, 1.0, 60)), row("mpi", noise(1, 1.01, 60))]
    turns, loops = (only(compare_rows(rows, interleaved=taken)) for taken in (True, False))
    assert turns.p_value is not None
    assert loops.p_value is not None
    assert turns.p_value < 1e-6
    assert loops.p_value > 0.5
    assert (turns.ratio, turns.ratio_low) == (loops.ratio, loops.ratio_low)


def test_p_values_are_corrected_for_all_cells_at_once() -> None:
    alone = only(compare_rows([row("ring", noise(3, 0.9, 12)), row("mpi", noise(4, 1.1, 12))]))
    rows = [row(name, noise(3 + at, scale, 12)) for at, (name, scale) in enumerate((("ring", 0.9), ("mpi", 1.1)))]
    rows += [row(name, noise(9, 1.0, 12), nbytes=8 * 2**k) for k in range(9) for name in ("ring", "mpi") if k != 7]
    many = {one.nbytes: one for one in compare_rows(rows)}
    assert alone.p_value is not None
    assert many[1024].p_value == pytest.approx(9 * alone.p_value)  # Holm: the least of nine
    assert {one.p_value for nbytes, one in many.items() if nbytes != 1024} == {1.0}


def test_an_algorithm_against_itself_is_told_apart_in_few_of_100_cells() -> None:
    rows = [
        row(name, noise(1000 * k + (name == "mpi"), 1.0, 40), nbytes=8 * (k + 1))
        for k in range(100)
        for name in ("ring", "mpi")
    ]
    verdicts = [one.verdict for one in compare_rows(rows)]
    assert len(verdicts) == 100
    assert sum(verdict in ("faster", "slower") for verdict in verdicts) <= 5


def test_many_samples_need_little_memory() -> None:
    rows = [row("ring", noise(1, n=2000)), row("mpi", noise(2, n=2000))]
    compare_rows(rows)
    tracemalloc.start()
    compare_rows(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_cells_pair_only_where_everything_agrees() -> None:
    changes = (
        {"nbytes": 2048, "count": 512},
        {"nranks": 2},
        {"in_place": False},
        {"dtype": "float64"},
        {"op": "max"},
        {"device": "cuda"},
        {"collective": "allgather"},
    )
    rows = [row("ring"), row("mpi")] + [row("ring", **change) for change in changes]
    assert only(compare_rows(rows)).nbytes == 1024
    both = [row(name, **change) for change in changes for name in ("ring", "mpi")]
    assert len(compare_rows(both)) == len(changes)


def test_sizes_ascend_within_a_block() -> None:
    rows = [row(name, nbytes=n, nranks=p) for p in (4, 2) for n in (65536, 8, 1024) for name in ("mpi", "ring")]
    assert [(c.nranks, c.nbytes) for c in compare_rows(rows)] == [(p, n) for p in (2, 4) for n in (8, 1024, 65536)]


@pytest.mark.parametrize(
    ("ring", "mpi", "reason"),
    [(2, 0, "ring: wrong result"), (0, 1, "mpi: wrong result"), (1, 1, "ring: wrong result; mpi: wrong result")],
)
def test_case_18_a_wrong_side_is_named(ring: int, mpi: int, reason: str) -> None:
    got = only(compare_rows([row("ring", [1.0] * 9, wrong=ring), row("mpi", [9.0] * 9, wrong=mpi)]))
    assert (got.ratio, got.ratio_low, got.ratio_high) == (None, None, None)
    assert (got.verdict, got.reason) == ("cannot tell", reason)


def test_one_wrong_launch_spoils_the_cell() -> None:
    got = only(compare_rows([row("ring"), row("ring", launch=1, wrong=1), row("mpi")]))
    assert got.reason == "ring: wrong result"


def test_missing_samples_and_times_have_reasons() -> None:
    few = only(compare_rows([row("ring", [1.0] * 5), row("mpi", [2.0] * 50)]))
    assert (few.ratio, few.ratio_low, few.verdict) == (0.5, None, "cannot tell")
    assert few.reason == "ring: 5 samples where 6 are needed"
    assert only(compare_rows([row("ring", [1.0] * 6), row("mpi", [2.0] * 6)])).verdict == "faster"
    none = only(compare_rows([row("ring", (), reason="needs 3GiB"), row("mpi")]))
    assert (none.ratio, none.reason) == (None, "ring: needs 3GiB")
    zero = only(compare_rows([row("ring"), row("mpi", [0.0] * 3 + [1.0] * 9)]))
    assert (zero.ratio, zero.reason) == (None, "mpi: shorter than the clock can tell")


def test_unknown_algorithms_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^no rows of algorithm 'rign' on 2 or more .* rows of: mpi, ring$"):
        compare_rows([row("ring"), row("mpi")], "rign")
    with pytest.raises(ValueError, match=r"'mpi' on 2 or more ranks; there are rows of: ring$"):
        compare_rows([row("ring")])
    with pytest.raises(ValueError, match="ring and mpi have no cell in common"):
        compare_rows([row("ring", nranks=2), row("mpi")])


def test_json_is_flat_in_order_and_carries_warnings_of_both_sides() -> None:
    got = only(compare_rows([row("ring", warnings=("noisy",)), row("mpi", warnings=("unpinned", "noisy"))]))
    flat = got.to_json()
    assert list(flat) == FIELDS
    assert flat["warnings"] == ["unpinned", "noisy"]
    assert json.loads(json.dumps(flat, allow_nan=False)) == flat


def launches(algorithm: str, count: int, scale: float = 1.0, seed: int = 0, spread: float = 0.0) -> list[Row]:
    """Return rows of some launches, each of which is slower or faster as a whole by about ``spread``."""
    of_launch = np.random.default_rng(seed).lognormal(0, spread, count)
    return [
        row(algorithm, noise(seed + 1000 * launch, scale * float(of_launch[launch])), launch=launch)
        for launch in range(count)
    ]


def test_runs_compare_the_second_with_the_first() -> None:
    steady = [row("mpi", [1.0] * 9, launch=launch) for launch in range(4)]
    before = run([*launches("ring", 4, 2.0), *steady], "a")
    after = run([*launches("ring", 4, 1.0, seed=5), *steady, row("naive")], "b")
    mpi, ring = compare_runs(before, after)
    assert (ring.algorithm, ring.baseline, ring.verdict) == ("ring", "ring of a/run.jsonl", "faster")
    assert ring.ratio == pytest.approx(0.5, rel=0.1)
    assert (mpi.algorithm, mpi.ratio, mpi.verdict) == ("mpi", 1.0, "same")
    assert ring.warnings == ()


@pytest.mark.parametrize(("count", "verdict"), [(1, "cannot tell"), (3, "cannot tell"), (4, "slower")])
def test_runs_are_told_apart_by_their_launches(count: int, verdict: str) -> None:
    got = only(compare_runs(run(launches("ring", count)), run(launches("ring", count, 3.0, seed=9), "b")))
    assert got.verdict == verdict
    assert got.p_value is not None
    assert got.p_value < 0.001  # the samples alone would tell
    assert got.launch_p_value is not None
    assert (got.launch_p_value < 0.05) == (count == 4)


def test_few_launches_of_one_side_are_not_made_up_for_by_many_of_the_other() -> None:
    got = only(compare_runs(run(launches("ring", 3)), run(launches("ring", 12, 9.0), "b")))
    assert got.launch_p_value is not None
    assert got.launch_p_value < 0.05
    assert got.verdict == "cannot tell"


def test_hot_and_cold_rows_are_not_compared_in_one_run_either() -> None:
    rows = [row("ring", buffers=1), row("mpi", buffers=8, launch=1)]
    with pytest.raises(ValueError, match="no cell in common"):
        compare_rows(rows)


def test_a_thousand_launches_are_compared_at_once() -> None:
    got = only(compare_runs(run(launches("ring", 300)), run(launches("ring", 300, 2.0, seed=4), "b")))
    assert got.verdict == "slower"


def test_enough_launches_are_just_enough() -> None:
    for count, enough in ((ENOUGH_LAUNCHES, True), (ENOUGH_LAUNCHES - 1, False)):
        got = only(compare_runs(run(launches("ring", count)), run(launches("ring", count, 9.0), "b")))
        assert (got.verdict == "slower") == enough


def test_a_run_and_its_repetition_are_told_apart_in_few_of_100_cells() -> None:
    """Launches differ by a third, samples within one by a fifth: the launches decide."""
    told = 0
    for seed in range(100):
        before = run(launches("ring", 4, seed=2 * seed, spread=0.3))
        after = run(launches("ring", 4, seed=2 * seed + 1, spread=0.3), "b")
        told += only(compare_runs(before, after)).verdict in ("faster", "slower")
    assert told <= 5


def test_rows_of_turns_and_rows_of_loops_are_unlike() -> None:
    old = run([row("ring")])
    turns, loops = (
        replace(old, provenance={**old.provenance, "settings": {"order": order}})
        for order in ("interleaved", "blocked")
    )
    assert only(compare_runs(turns, old)).ratio == 1
    with pytest.raises(ValueError, match="order: interleaved against blocked"):
        compare_runs(turns, loops)
    assert only(compare_runs(turns, loops, force=True)).warnings == ("forced",)


@pytest.mark.parametrize("change", [{"buffers": 8}, {"estimand": "last end - first start"}])
def test_rows_measured_in_two_manners_are_unlike(change: dict[str, Any]) -> None:
    one, two = run([row("ring")]), run([row("ring", **change)], "b")
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"{name}: .* against {value}"):
        compare_runs(one, two)
    assert only(compare_runs(one, two, force=True)).warnings == ("forced",)


def test_runs_may_differ_in_what_else_they_measured() -> None:
    before = run([row("ring"), row("ring", nranks=2)])
    after = run([row("ring"), row("ring", nranks=8), row("ring", dtype="float64")])
    assert only(compare_runs(before, after)).nranks == 4


@pytest.mark.parametrize(
    ("rows", "identity", "message"),
    [
        ({"nranks": 2}, {"hosts": ["n1"] * 2}, "nranks: 4 against 2"),
        ({"dtype": "float64"}, {}, "dtype: float32 against float64"),
        ({"device": "cuda"}, {}, "device: cpu against cuda"),
        ({}, {"mpi_library": "MPICH 4.3"}, "mpi_library: Open MPI 5.0.8 against MPICH 4.3"),
        ({}, {"thread_level": "single"}, "thread_level: None against single"),
        ({}, {"hosts": ["n1", "n1", "n2", "n2"]}, r"hosts: n1\*4 against n1\*2\+n2\*2"),
        ({}, {"schema_version": 2}, "schema_version: 1 against 2"),
    ],
)
def test_case_41_unlike_runs_are_refused_by_field_unless_forced(
    rows: dict[str, Any], identity: dict[str, Any], message: str
) -> None:
    before, after = run([row("ring")]), run([row("ring", **rows)], "b", **identity)
    with pytest.raises(ValueError, match=message) as refused:
        compare_runs(before, after)
    assert "\n" not in str(refused.value)
    forced = only(compare_runs(before, after, force=True))
    assert "forced" in forced.warnings
    assert forced.ratio == 1


def test_case_41_every_field_is_listed() -> None:
    after = run([row("ring", dtype="float64", device="cuda")], "b", mpi_library="x", hosts=["z"] * 4, schema_version=9)
    with pytest.raises(ValueError, match=r"dtype.*device.*mpi_library.*hosts.*schema_version"):
        compare_runs(run([row("ring")]), after)


def test_placement_of_ranks_is_part_of_the_hosts() -> None:
    before = run([row("ring")], hosts=["a", "b", "a", "b"])
    with pytest.raises(ValueError, match=r"a\+b\+a\+b against a\*2\+b\*2"):
        compare_runs(before, run([row("ring")], hosts=["a", "a", "b", "b"]))


def test_hosts_of_rank_counts_in_one_run_only_do_not_matter() -> None:
    before, after = run([row("ring")]), run([row("ring"), row("ring", nranks=2)])
    more = {"kind": "job", "mpi_library": "Open MPI 5.0.8", "hosts": ["n1", "n2"]}
    assert only(compare_runs(before, replace(after, jobs=(*after.jobs, more)))).warnings == ()


def test_runs_alike_but_without_a_common_cell_are_refused() -> None:
    with pytest.raises(ValueError, match="no cell in common"):
        compare_runs(run([row("ring", nbytes=8)]), run([row("ring", nbytes=16)]))


def test_two_algorithms_are_compared_whatever_memory_they_need_and_it_is_named() -> None:
    rows = [row("shared_memory", memory="shared"), row("mpi")]
    (found,) = compare_rows(rows, "shared_memory", "mpi")
    assert (found.memory, found.baseline_memory) == ("shared", "private")
    text = render([found.to_json()], "compare", "text")
    assert "shared_memory in shared memory, mpi in private" in " ".join(text.split())
    (alike,) = compare_rows([row("ring"), row("mpi")])
    assert "memory" not in render([alike.to_json()], "compare", "text")


def test_rows_of_one_algorithm_in_two_memories_are_no_launches_of_each_other() -> None:
    rows = [row("ring"), row("ring", memory="shared", launch=1), row("mpi"), row("mpi", launch=1)]
    with pytest.raises(ValueError, match="rows of ring in private and in shared memory are not compared as one"):
        compare_rows(rows, "ring", "mpi")


def test_runs_in_unlike_memory_are_not_compared() -> None:
    private, shared = run([row("ring")], "a"), run([row("ring", memory="shared")], "b")
    with pytest.raises(ValueError, match="memory: private against shared"):
        compare_runs(private, shared)
    (forced,) = compare_runs(private, shared, force=True)
    assert (forced.memory, forced.baseline_memory) == ("shared", "private")
    both = run([row("ring"), row("shared_memory", memory="shared")], "c")
    assert [one.algorithm for one in compare_runs(both, both)] == ["ring", "shared_memory"]

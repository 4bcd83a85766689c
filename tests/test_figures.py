"""What stands in the figures: values, intervals, colours, labels; and that unlike rows never share a curve."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ringbench.cli import main
from ringbench.model.compare import compare_rows
from ringbench.model.points import messages_of, schedule_of
from ringbench.records.row import Row
from ringbench.records.run import SCHEMA_VERSION, Run, append
from ringbench.records.settings import Settings
from ringbench.report.figures.curves import bandwidth, latency
from ringbench.report.figures.fitted import predicted, step
from ringbench.report.figures.plan import KINDS, drawings
from ringbench.report.figures.ratio import crossovers, ratio
from ringbench.report.figures.samples import samples
from ringbench.report.figures.save import encoded
from ringbench.report.figures.scaling import scaling
from ringbench.report.figures.steps import of_steps, steps
from ringbench.report.figures.style import axis_of_bytes, decimals, seconds, sheet, style_of
from ringbench.report.figures.views import View, pools, views, views_by_ranks
from ringbench.report.figures.winner import winner
from ringbench.schedule.registry import algorithms

SIZES = tuple(8 << shift for shift in range(0, 24, 2))
SPREAD = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.03, 0.97)
ALPHA, BETA, GAMMA = 2e-6, 1e-10, 4e-11
MPICH = {"kind": "job", "nranks": 2, "mpi_library": "MPICH Version:      5.0.2", "hosts": ["a", "a"]}
OPENMPI = {**MPICH, "mpi_library": "Open MPI v5.0.11, package: Open MPI user@localhost Distribution"}
PROVENANCE: dict[str, Any] = {
    "kind": "provenance",
    "schema_version": SCHEMA_VERSION,
    "host": "node$7$",
    "machine": {"cpu": "Some CPU", "cpus": 8},
    "settings": Settings(sizes=SIZES).to_json(),
    "ranks": [2],
}


def row(algorithm: str = "ring", nbytes: int = 1024, time: float = 1e-4, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "collective": "allreduce",
        "algorithm": algorithm,
        "op": "sum",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 2,
        "nbytes": nbytes,
        "count": nbytes // 4,
        "in_place": True,
        "launch": 0,
        "samples_s": tuple(time * part for part in SPREAD),
        "wrong": 0,
    }
    return Row(**{**values, **changes})


def modelled(names: Sequence[str], ranks: Sequence[int] = (2, 4, 8), **changes: Any) -> list[Row]:
    """Return rows that take what their schedules cost on a link, to the last digit."""
    found = []
    for name, nranks, nbytes in itertools.product(names, ranks, SIZES):
        algorithm = schedule_of("allreduce", name)
        assert algorithm is not None
        messages, reduced = messages_of(algorithm, nranks, nbytes)
        time = sum(number * (ALPHA + BETA * length) for length, number in messages) + GAMMA * reduced
        found.append(row(name, nbytes, time, nranks=nranks, **changes))
    return found


ROWS = [
    *(row("ring", n, 5e-6 + n * 1e-10) for n in SIZES),
    *(row("mpi", n, 1e-6 + n * 4e-10) for n in SIZES),
]


def run(
    rows: Sequence[Row] = ROWS, *, job: dict[str, Any] = OPENMPI, provenance: dict[str, Any] = PROVENANCE, **more: Any
) -> Run:
    return Run(path=Path("out/first/run.jsonl"), provenance=provenance, jobs=(job,), rows=tuple(rows), **more)


def view(rows: Sequence[Row] = ROWS, **options: Any) -> View:
    (pool,) = pools([run(rows, **options)])
    (found,) = views(pool)
    return found


def at_ranks(rows: Sequence[Row]) -> View:
    (pool,) = pools([run(rows)])
    (found,) = views_by_ranks(pool)
    return found


def written(folder: Path, rows: Sequence[Row] = ROWS, job: dict[str, Any] = OPENMPI) -> str:
    folder.mkdir()
    for record in (PROVENANCE, job, *(one.to_json() for one in rows), {"kind": "end", "status": "complete"}):
        append(folder / "run.jsonl", record)
    return str(folder)


def curves(axes: Axes) -> dict[str, ErrorbarContainer]:
    """Return the curves with bars by their label, up to its brackets."""
    found = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    return {str(one.get_label()).partition(" (")[0]: one for one in found}


def points(line: Line2D) -> list[tuple[Any, Any]]:
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]


def text_of(figure: Figure) -> str:
    return encoded(figure, "svg").decode()


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


# The style.


def test_every_algorithm_has_a_look_of_its_own() -> None:
    names = ["mpi", "auto", *dict.fromkeys(one.name for one in algorithms())]
    looks = [tuple(style_of(name).values()) for name in names]
    assert len(set(looks)) == len(names) > 15
    colours = [style_of(one.name)["color"] for one in algorithms("allreduce")]
    assert len(set(colours)) == len(colours) == 14


def test_a_name_nobody_knows_has_one_look_too() -> None:
    assert style_of("ring_of_another")["color"] == style_of("ring_of_another")["color"] != "#000000"


def test_colours_do_not_depend_on_what_else_is_drawn() -> None:
    names = ("ring", "rabenseifner", "naive", "mpi")
    rows = [row(name, n, 1e-6 + n * 1e-10) for name in names for n in SIZES]
    whole = curves(bandwidth(at_ranks(rows)).axes[0])
    for name in names:
        alone = curves(bandwidth(at_ranks([one for one in rows if one.algorithm == name])).axes[0])
        (line, other) = (found[name].lines[0] for found in (whole, alone))
        assert line.get_color() == other.get_color() == style_of(name)["color"]
        assert line.get_marker() == other.get_marker() == style_of(name)["marker"]


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (8, 2**27, ["8B", "128B", "2KiB", "32KiB", "512KiB", "8MiB", "128MiB"]),
        (2**20, 2**22, ["1MiB", "2MiB", "4MiB"]),
        (1000, 1000, ["1000B"]),
    ],
)
def test_axis_of_bytes(low: int, high: int, texts: list[str]) -> None:
    _, (axes,) = sheet("title")
    axis_of_bytes(axes.xaxis, low, high, "size")
    assert [text.get_text() for text in axes.get_xticklabels()] == texts
    left, right = axes.get_xlim()
    assert left < low <= high < right
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize(("low", "high"), [(1e-6, 2e-6), (1e-6, 1.0), (1e-3, 1e9), (3e-6, 3e-6)])
def test_there_are_a_few_ticks_whatever_the_range(low: float, high: float) -> None:
    ticks = decimals(low, high)
    assert 1 <= len(ticks) <= 9
    assert all(low / 1.4 <= tick <= high * 1.4 for tick in ticks)


@pytest.mark.parametrize(
    ("time", "text"), [(1e-6, "1 µs"), (1.2345e-5, "12.3 µs"), (2e-2, "20 ms"), (1.5, "1.5 s"), (1e-7, "0.1 µs")]
)
def test_seconds(time: float, text: str) -> None:
    assert seconds(time) == text


# What each figure shows.


def test_bandwidth_is_that_of_the_table() -> None:
    figure = bandwidth(at_ranks(ROWS))
    (axes,) = figure.axes
    found = curves(axes)
    assert found.keys() == {"ring", "mpi"}
    for name, curve in found.items():
        cells = [one for one in ROWS if one.algorithm == name]
        assert points(curve.lines[0]) == [(one.nbytes, pytest.approx(one.bandwidths()[1])) for one in cells]
        bars = curve.lines[2][0].get_segments()
        for one, bar in zip(cells, bars, strict=True):
            middle, low, high = one.summary
            busbw = one.bandwidths()[1]
            assert busbw
            assert middle
            assert low
            assert high
            assert [float(y) for _, y in bar] == pytest.approx([busbw * middle / high, busbw * middle / low])
    assert axes.get_ylabel() == "bus bandwidth (GB/s)"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert legend_of(figure) == ["ring", "mpi"]


def test_the_title_says_machine_library_and_ranks() -> None:
    text = text_of(bandwidth(at_ranks(ROWS)))
    assert "node$7$ (Some CPU, 8 cpus), Open MPI 5.0.11, N = 2" in text  # and the dollars start no formula
    assert "allreduce sum float32, cpu, in place" in text
    assert "ranks share cores" not in text
    assert "MPICH 5.0.2, N = 2" in view(job=MPICH).title
    assert view(job={**OPENMPI, "hosts": ["a", "b"]}).title.startswith("2 nodes: ")


@pytest.mark.parametrize("machine", [None, 7, {"cpu": ["x"], "cpus": "many"}, {"cpu": "evil\x1b[31m"}])
def test_a_machine_that_is_none_is_not_named(machine: object) -> None:
    bad = {**PROVENANCE, "host": None, "machine": machine}
    assert view(provenance=bad).title.startswith("machine not recorded, Open MPI 5.0.11, N = 2\n")


def test_the_limit_is_that_of_the_best_schedule() -> None:
    rows = [
        row("ring", 2**20, 1e-3, limit_s=8e-4),
        row("naive", 2**20, 2e-3, limit_s=1.5e-3),
        row("ring", 2**22, 4e-3, limit_s=2e-3),
        row("mpi", 2**22, 4e-3),
    ]
    figure = bandwidth(at_ranks(rows))
    (limit,) = [line for line in figure.axes[0].lines if str(line.get_label()).startswith("limit")]
    assert points(limit) == [(2**20, pytest.approx(2**20 / 8e-4 / 1e9)), (2**22, pytest.approx(2**22 / 2e-3 / 1e9))]
    assert legend_of(figure)[0] == "limit: bare Sendrecv + add"
    assert not any(text.startswith("limit") for text in legend_of(bandwidth(at_ranks(ROWS))))


def test_ranks_that_share_cores_are_hollow_and_named() -> None:
    figure = bandwidth(at_ranks([row(nbytes=n, warnings=("oversubscribed",)) for n in SIZES]))
    assert to_hex(curves(figure.axes[0])["ring"].lines[0].get_markerfacecolor()) == "#ffffff"
    assert "in place, ranks share cores" in text_of(figure)


def test_wrong_results_and_single_ranks_have_no_bandwidth() -> None:
    figure = bandwidth(at_ranks([row(nbytes=8, wrong=3), row(nbytes=16), row(nbytes=32)]))
    assert [x for x, _ in points(curves(figure.axes[0])["ring"].lines[0])] == [16, 32]
    with pytest.raises(ValueError, match="wrong result in 1 of 1 rows"):
        bandwidth(at_ranks([row(wrong=3)]))
    with pytest.raises(ValueError, match="one rank moves nothing"):
        bandwidth(at_ranks([row(nranks=1)]))
    with pytest.raises(ValueError, match="zero bytes"):
        bandwidth(at_ranks([row(nbytes=0)]))


def test_latency_is_the_median_time() -> None:
    axes = latency(at_ranks(ROWS)).axes[0]
    for name, curve in curves(axes).items():
        assert points(curve.lines[0]) == [(one.nbytes, one.summary[0]) for one in ROWS if one.algorithm == name]
    assert axes.get_ylabel() == "median time"
    assert {"10 µs", "100 µs"} <= {text.get_text() for text in axes.get_yticklabels()}


def test_launches_are_pooled_into_one_point() -> None:
    rows = [row(nbytes=8, time=time, launch=launch) for launch, time in enumerate((1e-6, 2e-6, 4e-6))]
    line = curves(latency(at_ranks(rows)).axes[0])["ring"].lines[0]
    assert points(line) == [(8, pytest.approx(2e-6))]


def test_ratio_is_that_of_compare_and_marks_where_it_turns() -> None:
    figure = ratio(at_ranks(ROWS))
    axes = figure.axes[0]
    compared = compare_rows(ROWS)
    assert points(curves(axes)["ring"].lines[0]) == [(one.nbytes, one.ratio) for one in compared]
    (crossing,) = crossovers(compared)
    assert crossing == pytest.approx(4e-6 / 3e-10, rel=0.2)  # where 5 us + n / (10 GB/s) = 1 us + n / (2.5 GB/s)
    (mark,) = [line for line in axes.lines if line.get_marker() == "|"]
    assert points(mark) == [(crossing, 1.0)]
    assert legend_of(figure) == [f"ring ({crossing / 1024:.3g}KiB)"]
    assert "below 1: faster" in axes.get_ylabel()


def test_what_cannot_be_told_apart_is_no_crossing() -> None:
    noisy = tuple(1e-5 * factor for factor in (0.2, 5.0, 1.0, 0.5, 2.0, 0.3, 3.0, 1.1))
    rows = [row(name, n, samples_s=noisy if name == "ring" else noisy[::-1]) for name in ("ring", "mpi") for n in SIZES]
    assert crossovers(compare_rows(rows)) == []


def test_a_turn_is_not_guessed_across_many_cells_that_decide_nothing() -> None:
    compared = compare_rows(ROWS)
    verdicts = {one.verdict for one in compared}
    first, last = min(compared, key=lambda one: one.nbytes), max(compared, key=lambda one: one.nbytes)
    assert {first.verdict, last.verdict} == {"faster", "slower"} <= verdicts
    between = replace(first, nbytes=4096, verdict="cannot tell")
    assert len(crossovers([first, last])) == len(crossovers([first, between, last])) == 1
    assert crossovers([first, between, replace(between, nbytes=8192), last]) == []


def test_ratio_needs_both() -> None:
    with pytest.raises(ValueError, match="no rows of 'mpi'"):
        ratio(at_ranks([row()]))
    with pytest.raises(ValueError, match="no rows but those of 'mpi'"):
        ratio(at_ranks([row("mpi")]))
    with pytest.raises(ValueError, match="one rank moves nothing"):
        ratio(at_ranks([row("mpi", nranks=1), row(nranks=1)]))
    with pytest.raises(ValueError, match="no size"):
        ratio(at_ranks([row("mpi", 8), row("ring", 16)]))


def test_winner_has_the_colour_of_the_fastest() -> None:
    rows = [
        *(row("ring", 8, 2e-6), row("mpi", 8, 1e-6), row("auto", 8, 1e-7)),
        *(row("ring", 1024, 1e-6), row("mpi", 1024, 2e-6), row("naive", 64, 1e-6)),
        *(row(name, 8, 1e-5, nranks=4, warnings=("oversubscribed",)) for name in ("ring", "mpi")),
    ]
    figure = winner(view(rows))
    axes = figure.axes[0]
    found = {
        (patch.get_x() + 0.5, patch.get_y() + 0.5): (to_hex(patch.get_facecolor()), patch.get_alpha())
        for patch in axes.patches
        if isinstance(patch, Rectangle)
    }
    ring, mpi = style_of("ring")["color"].lower(), style_of("mpi")["color"]
    assert found == {(0, 0): (mpi, 1.0), (1, 0): (ring, 1.0), (0, 1): (ring, 0.35)}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8B", "1KiB"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["2", "4*"]
    assert "* ranks share cores" in axes.get_xlabel()
    assert legend_of(figure) == ["ring", "mpi"]
    with pytest.raises(ValueError, match="two algorithms"):
        winner(view([row("ring", 8), row("mpi", 16), row("auto", 16)]))


def test_scaling_keeps_the_bandwidth_of_the_fewest_ranks() -> None:
    rows = modelled(("ring", "recursive_doubling"), (2, 4, 8))
    figure = scaling(view(rows))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["8B", "32KiB", "32MiB"]
    for axes, nbytes in zip(figure.axes, (8, 2**15, 2**25), strict=True):
        here = [one for one in rows if one.nbytes == nbytes]
        best = min(one.summary[0] or 0.0 for one in here if one.nranks == 2)
        (ideal,) = [line for line in axes.lines if line.get_color() == "#000000"]
        assert points(ideal)[:2] == [(2, pytest.approx(best)), (4, pytest.approx(1.5 * best))]
        assert points(ideal)[2] == (8, pytest.approx(1.75 * best))
        times = {(one.nranks, one.summary[0]) for one in here}
        assert times == {point for curve in axes.containers for point in points(curve[0])}
    with pytest.raises(ValueError, match="two rank counts"):
        scaling(view())


def test_step_curves_of_all_ranks_fall_on_one() -> None:
    rows = modelled(("ring", "recursive_doubling"))
    found = view(rows)
    figure = step(found, found.fitted)
    axes = figure.axes[0]
    dots = [one for line in axes.lines if line.get_linestyle() == "None" for one in points(line)]
    assert len(dots) == len(rows)
    assert [time for _, time in dots] == pytest.approx([ALPHA + BETA * length for length, _ in dots], rel=0.02)
    (line,) = [line for line in axes.lines if line.get_label() == "fit"]
    assert [time for _, time in points(line)] == pytest.approx([ALPHA + BETA * m for m, _ in points(line)], rel=0.02)
    assert axes.get_xlabel() == "length m of one message\nfit: 2 µs + m / (10 GB/s)"
    whole = view([one for one in ROWS if one.algorithm == "mpi"])
    with pytest.raises(ValueError, match="only whole calls"):
        step(whole, whole.fitted)


def test_a_break_of_the_step_curve_is_marked() -> None:
    rows = [row("ring", n, 2 * (2e-6 if n <= 2**12 else 2e-5) + n * 1e-10) for n in SIZES]
    found = view(rows)
    figure = step(found, found.fitted)
    (place,) = next(model for model in found.fitted.models).curve.shape.breaks
    (line,) = [one for one in figure.axes[0].lines if one.get_linestyle() == ":"]
    assert {x for x, _ in points(line)} == {place}
    assert f"break {place / 1024:.3g}KiB" in text_of(figure)


def test_predicted_against_measured() -> None:
    rows = [*modelled(("ring", "recursive_doubling")), *(one for one in ROWS if one.algorithm == "mpi")]
    found = view(rows)
    figure = predicted(found, found.fitted)
    dots = sorted(one for line in figure.axes[0].lines if line.get_linestyle() == "None" for one in points(line))
    held = [one for model in found.fitted.models for one in (model.sizes, model.ranks) if one]
    assert dots == sorted((p.time_s, t) for one in held for p, t in zip(one.points, one.predicted_s, strict=True))
    assert legend_of(figure) == ["ring", "recursive_doubling", "mpi", "within 25%"]
    assert "left-out rank counts (hollow): 0% off" in text_of(figure)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("measured time", "predicted without it")


def test_every_sample_is_there_in_order() -> None:
    jump = (1e-5,) * 10 + (1.5e-5,) * 9 + (9e-5,)
    rows = [
        row(nbytes=8, samples_s=jump[:10], launch=0, warnings=("bimodal", "drift")),
        row(nbytes=8, samples_s=jump[10:], launch=1, warnings=("a new one",)),
        row(nbytes=16, samples_s=(1e-5,) * 6),
        row(nbytes=32, samples_s=(1e-5,) * 2),
    ]
    figure = samples(at_ranks(rows))
    axes = figure.axes[0]
    dots = [points(line) for line in axes.lines if line.get_marker() == "."]
    assert [len(one) for one in dots] == [10, 10, 6]
    below, above, even = ([y for _, y in one] for one in dots)
    assert below == [pytest.approx(-0.42 * np.log2(1.25))] * 10
    assert above == [pytest.approx(0.42 * np.log2(1.2))] * 9 + [pytest.approx(0.42)]  # the last beyond the edge
    assert even == [1.0] * 6
    assert [x for x, _ in dots[0] + dots[1]] == pytest.approx([(at + 0.5) / 20 for at in range(20)])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["8B", "16B"]
    assert "12.5 µs, 20  ?,M,T" in text_of(figure)
    with pytest.raises(ValueError, match="6 samples and more"):
        samples(at_ranks(rows[3:]))


# Which rows share a figure.


@pytest.mark.parametrize(
    "change",
    [
        {"in_place": False},
        {"dtype": "float64"},
        {"op": "max"},
        {"device": "cuda"},
        {"buffers": 8},
        {"estimand": "last end - first start after a common time"},
        {"collective": "reduce_scatter"},
        {"nranks": 4},
        {"warnings": ("oversubscribed",)},
    ],
)
def test_unlike_rows_never_share_a_curve(change: dict[str, Any]) -> None:
    rows = [row(nbytes=n) for n in SIZES]
    others = [row(nbytes=n, time=2e-4, **change) for n in SIZES]
    found = drawings(pools([run([*rows, *others])]), ["latency", "samples"])
    assert len({one.name for one in found}) == 4
    shown = sorted({y for one in found[:2] for _, y in points(curves(one.make().axes[0])["ring"].lines[0])})
    assert shown == pytest.approx([1e-4, 2e-4])
    assert len({text_of(one.make()) for one in found[:2]}) == 2
    for one in found[:2]:
        assert len({y for _, y in points(curves(one.make().axes[0])["ring"].lines[0])}) == 1


def test_runs_of_one_place_are_launches_and_those_of_two_are_apart() -> None:
    first, again, other = run([row()]), run([row(time=3e-4)]), run([row()], job=MPICH)
    (pool,) = pools([first, again])
    assert [(one.launch, one.nbytes) for one in pool.rows] == [(0, 1024), (1, 1024)]
    assert [pool.mpi for pool in pools([first, other, again])] == ["Open MPI 5.0.11", "MPICH 5.0.2"]
    elsewhere = run([row()], provenance={**PROVENANCE, "host": "b"})
    assert len(pools([first, elsewhere])) == 2
    imported = run([row()], provenance={**PROVENANCE, "imported": [{"tools": [{"tool": "OSU", "version": "7.2"}]}]})
    assert len(pools([imported, imported])) == 2
    assert pools([imported])[0].title([2]).startswith("OSU 7.2 (machine, MPI not recorded)")
    assert len(pools([first, run([row(memory="shared")])])) == 2
    assert len(pools([first, run([row(algorithm="shared_memory", memory="shared")])])) == 1
    more = run([row(nranks=4)], job={**OPENMPI, "nranks": 4, "hosts": ["a"] * 4})
    assert len(pools([first, more])) == 1  # two rank counts of one machine, however they were started


def test_two_runs_with_the_same_name_write_two_files() -> None:
    found = drawings(pools([run(), run(job=MPICH)]), ["latency"])
    assert [one.name for one in found] == ["latency-allreduce-n2", "latency-allreduce-n2-2"]


# Files.


def test_the_same_figure_is_the_same_file() -> None:
    for kind in ("svg", "png"):
        assert encoded(latency(at_ranks(ROWS)), kind) == encoded(latency(at_ranks(ROWS)), kind)
    text = text_of(latency(at_ranks(ROWS)))
    assert "<dc:date>" not in text
    ElementTree.fromstring(text)
    with pytest.raises(ValueError, match="unknown format 'gif'"):
        encoded(latency(at_ranks(ROWS)), "gif")


def test_the_settings_of_the_user_change_nothing() -> None:
    usual = text_of(latency(at_ranks(ROWS)))
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "svg.fonttype": "path", "axes.grid": False}):
        assert text_of(latency(at_ranks(ROWS))) == usual
        assert matplotlib.rcParams["lines.linewidth"] == 9


def test_nothing_needs_a_display_or_loads_matplotlib_before_it_is_needed(tmp_path: Path) -> None:
    place = written(tmp_path / "r")
    code = (
        "import sys; import ringbench.report.figures.plan\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"from ringbench.cli import main\nassert main(['plot', {place!r}, '--kind', 'latency']) == 0\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    env = {"MPLBACKEND": "TkAgg", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "plots" / "latency-allreduce-n2.svg").is_file()


# The command.


def test_plot_writes_every_kind_and_names_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures"
    assert main(["plot", written(tmp_path / "r"), "--out", str(out)]) == 0
    said, err = capsys.readouterr()
    assert said.splitlines() == [str(out / file) for file in (
        "bandwidth-allreduce-n2.svg", "latency-allreduce-n2.svg", "ratio-allreduce-n2.svg", "winner-allreduce.svg",
        "step.svg", "predicted.svg", "samples-allreduce-n2-mpi.svg", "samples-allreduce-n2-ring.svg",
    )]  # fmt: skip
    assert sorted(out.iterdir()) == sorted(map(Path, said.splitlines()))
    assert err == (
        "ringbench: not drawn: scaling-allreduce: no algorithm was measured on two rank counts of 2 and more\n"
    )
    for file in out.iterdir():
        ElementTree.parse(file)


def test_plot_writes_what_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = written(tmp_path / "r", [*ROWS, *(row(nbytes=n, nranks=4) for n in SIZES)])
    one = tmp_path / "deep" / "one.png"
    words = ["plot", place, "--kind", "latency", "--ranks", "4", "--algorithms", "ring", "--collective", "allreduce"]
    assert main([*words, "--out", str(one)]) == 0
    assert capsys.readouterr().out == f"{one}\n"
    assert one.read_bytes().startswith(b"\x89PNG")
    assert main([*words, "--out", str(tmp_path / "both"), "--format", "svg,png"]) == 0
    assert [file.name for file in sorted((tmp_path / "both").iterdir())] == [
        "latency-allreduce-n4.png",
        "latency-allreduce-n4.svg",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kind", "pie"], "unknown kind of figure 'pie'; known: bandwidth, latency, ratio, winner, "),
        (["--algorithms", "rign"], "no rows of algorithm 'rign'; there are: mpi, ring"),
        (["--ranks", "3"], "no rows of nranks 3; there are: 2"),
        (["--collective", "bcast"], "no rows of collective 'bcast'; there are: allreduce"),
        (["--format", "gif"], "unknown format 'gif' of a figure; known: svg, png"),
        (["--out", "one.svg"], "one.svg takes one figure, and there is not one: bandwidth-allreduce-n2, latency-"),
        (["--out", "one.svg", "--format", "png"], "--format goes with a folder"),
        (["--out", "one.svg", "--kind", "scaling"], "one.svg takes one figure, and there is not one: nothing to draw"),
        (["--kind", "scaling"], "nothing to draw"),
        (["--out", "r/run.jsonl/x"], "Not a directory"),
    ],
)
def test_a_plot_that_cannot_be_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("r"))
    assert main(["plot", "r", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert [file.name for file in tmp_path.iterdir()] == ["r"]
    assert [file.name for file in (tmp_path / "r").iterdir()] == ["run.jsonl"]


def test_a_plot_of_no_run_and_of_wrong_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(tmp_path / "none")]) == 2
    (tmp_path / "x").write_text("{}\n")
    assert main(["plot", str(tmp_path / "x")]) == 1
    assert main(["plot", written(tmp_path / "r", [row(wrong=1)])]) == 2
    err = capsys.readouterr().err
    assert "1 row left out: wrong result" in err
    assert "not drawn: latency-allreduce-n2: wrong result in 1 of 1 rows" in err
    assert main(["plot", written(tmp_path / "s", [])]) == 2
    assert "nothing to draw" in capsys.readouterr().err


def test_without_matplotlib_plot_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = written(tmp_path / "r")
    monkeypatch.setattr(matplotlib, "__version_info__", (3, 6, 3))
    assert main(["plot", place]) == 2
    assert "figures need Matplotlib 3.7 or later" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", place]) == 2
    assert capsys.readouterr().err == "ringbench: figures need Matplotlib: pip install 'ringbench[plot]'\n"


def test_imported_runs_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "osu.txt"
    lines = "".join(f"{size} {1 + size / 1000:.2f}\n" for size in SIZES)
    log.write_text(f"# OSU MPI Allreduce Latency Test v7.2\n# Size       Avg Latency(us)\n{lines}")
    assert main(["import", str(log), "--nranks", "4", "--out", str(tmp_path / "r")]) == 0
    capsys.readouterr()
    assert main(["plot", str(tmp_path / "r"), "--out", str(tmp_path / "figures")]) == 0
    out, err = capsys.readouterr()
    drawn = {Path(line).name.partition("-")[0].partition(".")[0] for line in out.splitlines()}
    assert drawn == {"bandwidth", "latency", "predicted"}
    assert set(re.findall("not drawn: (\\w+)", err)) == set(KINDS) - drawn - {"steps"}
    assert "(machine, MPI not recorded), N = 4" in (tmp_path / "figures" / "latency-allreduce-n4.svg").read_text()


def test_help_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plot", "--help"])
    said = capsys.readouterr().out
    assert [kind for kind in KINDS if kind not in said] == []


def trained(engine: str = "thread", nbytes: int = 2**20, step_s: float = 0.3, **changes: Any) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "workload": "w",
        "dtype": "float32",
        "device": "cpu",
        "nranks": 4,
        "accumulate": 1,
        "compute": "sleep",
        "straggler": "nobody",
        "engine": engine,
        "algorithm": "ring",
        "compress": "none",
        "bucket_nbytes": nbytes,
        "step_s": step_s,
        "ci_low_s": 0.9 * step_s,
        "ci_high_s": 1.2 * step_s,
        "compute_s": 0.2,
        "timeline_s": 0.25,
        "predicted_s": None,
        "wrong": 0,
    }
    return {**cell, **changes}


def test_steps_are_drawn_by_bucket_size_beside_what_was_predicted() -> None:
    cells = [trained("thread", 2**20, 0.3), trained("thread", 2**22, 0.4, predicted_s=0.38)]
    cells += [trained("blocking", 2**20, 0.5), trained("blocking", 2**22, 0.6), trained("none", 2**20, 0.2)]
    ((_, members),) = of_steps([*cells, trained("poll", wrong=3)])
    figure = steps(members)
    (axes,) = figure.axes
    bars = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    assert [np.asarray(one.lines[0].get_ydata()).tolist() for one in bars] == [[500, 600], [300, 400]]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [np.asarray(line.get_ydata()).tolist() for line in hollow] == [[250, 250], [250, 380]]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["blocking", "thread", "hollow: predicted", "computing alone"]


def test_steps_of_unlike_training_never_share_a_figure() -> None:
    cells = [trained(nbytes=nbytes, nranks=n) for nbytes in (2**20, 2**22) for n in (2, 4)]
    found = drawings([], ["steps"], cells)
    assert [one.name for one in found] == ["steps-n2", "steps-n4"]
    with pytest.raises(ValueError, match="a single bucket size"):
        steps([trained()])


def test_plot_draws_steps_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(__file__).parents[1] / "results" / "emulated-cluster-2026-11-30" / "scaling_story-openmpi"
    assert main(["plot", str(run), "--ranks", "8", "--out", str(tmp_path), "--format", "svg"]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.split()]
    assert names == ["steps-n8-accumulate1.svg", "steps-n8-accumulate2.svg"]
    assert main(["plot", str(run), "--ranks", "8", "--algorithms", "hierarchical", "--out", str(tmp_path)]) == 0
    assert "thread" in (tmp_path / "steps-n8-accumulate1.svg").read_text(encoding="utf-8")

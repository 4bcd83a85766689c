"""The page of runs: all of it is there, nothing from a run becomes markup, and it stays small and alone."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_ddp_rows import row as step_row
from test_figures import OPENMPI, PROVENANCE, ROWS, modelled, row

from ringbench.arguments import make_parser
from ringbench.cli import main
from ringbench.model.pool import table_cells
from ringbench.records.row import Row
from ringbench.records.run import Run, append
from ringbench.records.settings import Settings, override
from ringbench.report.figures.curves import bandwidth
from ringbench.report.figures.hover import spots
from ringbench.report.figures.plan import drawings
from ringbench.report.figures.save import encoded
from ringbench.report.figures.views import pools, views_by_ranks
from ringbench.report.page import make, tables
from ringbench.report.page.make import LARGEST, make_page
from ringbench.report.page.origin import origin, repeat
from ringbench.report.page.plots import KINDS, Styles, inline
from ringbench.report.page.verdict import verdict
from ringbench.report.writing import microseconds

VOID = {"meta"}


class Structure(HTMLParser):
    """Read a page: its elements in order, what they hold, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def run(rows: Sequence[Row] = ROWS, *, path: str = "out/first/run.jsonl", **more: Any) -> Run:
    values: dict[str, Any] = {"provenance": PROVENANCE, "plan": PROVENANCE, "jobs": (OPENMPI,), "status": "complete"}
    return Run(path=Path(path), rows=tuple(rows), **{**values, **more})


def page(*runs: Run) -> str:
    return make_page(runs, (), "1.2")


@pytest.fixture(scope="module")
def whole() -> str:
    """Return the page of a run that has all a page may have but several rank counts."""
    return page(run())


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out figures, which take seconds."""
    monkeypatch.setattr(make, "drawings", lambda found, kinds: [])


def test_all_is_there_and_every_row_of_the_table(whole: str) -> None:
    found = Structure(whole)
    assert found.texts["h1"] == ["ringbench: out/first/run.jsonl"]
    assert found.texts["h2"] == ["node$7$ (Some CPU, 8 cpus), Open MPI 5.0.11, N = 2", "Where it comes from"]
    titles = ["What speaks against it", "Bandwidth", "ring beside mpi", "Figures", "The model", "Fitted"]
    assert found.texts["h3"] == [*titles, "out/first/run.jsonl"]
    cells = table_cells(ROWS)
    shown = [line for line in found.rows if len(line) > 9 and line[0] != "size"]
    assert len(shown) == len(cells) == len(ROWS)
    for cell in cells:
        (line,) = [one for one in shown if one[2] == cell["algorithm"] and one[1] == str(cell["count"])]
        assert microseconds(cell["median_s"]) in line
    words = " ".join(found.texts["li"])
    assert "left out and predicted: sizes" in words
    assert "trust: " in words
    assert sum(tag == "svg" for tag, _ in found.elements) == 6  # all kinds but scaling: this is one rank count


def said(rows: Sequence[Row]) -> str:
    return verdict(table_cells(rows))


def test_the_verdict_is_two_sentences(whole: str) -> None:
    words = said(ROWS)
    assert f'<p class="verdict">{words}</p>' in whole
    assert len(re.findall(r"[.](?= [A-Z]|$)", words)) == 2
    assert "mpi at 8B" in words
    assert "ring at 32MiB" in words
    assert f"All {len(ROWS)} results are right" in words
    assert f"1 of {len(ROWS)} results is wrong" in said([replace(ROWS[0], wrong=3), *ROWS[1:]])
    assert "cannot be said: ranks shared cores" in said([replace(one, warnings=("oversubscribed",)) for one in ROWS])
    assert said([row(nranks=1)]).startswith("Nothing can be said")
    assert "No result was checked" in said([replace(one, wrong=None) for one in ROWS])


HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)>"\' onload="alert(3)" </style></svg>&amp;'
PLAIN = "plain"


def doubtful(word: str) -> Run:
    """Return a run with a word wherever a file may have one."""
    warned = {"warnings": (word,), "remark": word, "reason": word, "wrong_detail": word}
    rows = [replace(one, **warned) for one in ROWS]  # type: ignore[arg-type]
    rows += [row(word, one.nbytes, 2e-5, **warned) for one in ROWS[:6]]
    settings = {**PROVENANCE["settings"], "outer": word}
    first = {
        **PROVENANCE,
        "host": word,
        "machine": {"cpu": word, "system": word},
        "command": ["ringbench", word],
        "variables": {"UCX_TLS": word},
        "settings": settings,
        word: word,
    }
    job = {**OPENMPI, "mpi_library": word, "hosts": [word], "ranks": [{"host": word, word: word}]}
    return run(
        rows, path=f"out/{word.replace('/', '').rstrip(chr(0))}/run.jsonl", provenance=first, plan=first, jobs=(job,)
    )


def test_nothing_from_a_run_becomes_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "KINDS", ("bandwidth", "winner", "predicted"))
    hostile, plain = Structure(page(doubtful(HOSTILE))), Structure(page(doubtful(PLAIN)))
    assert [tag for tag, _ in hostile.elements].count("script") == 1
    assert {tag for tag, _ in hostile.elements} == {tag for tag, _ in plain.elements}
    assert {names for _, names in hostile.elements} == {names for _, names in plain.elements}
    assert not any(name.startswith("on") for _, name, _ in hostile.attributes)
    assert sum("alert(1)" in text for text in hostile.texts["td"]) > 6  # it shows as what it is


def test_control_characters_do_not_reach_the_page(bare: None) -> None:
    found = page(doubtful("a\x1b[31mb\u202ec\x00"))
    assert not {"\x1b", "\u202e", "\x00"} & set(found)
    assert "a?[31mb?c?" in found


def test_a_page_needs_nothing_beside_it(whole: str) -> None:
    found = Structure(whole)
    assert not {"link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in found.elements}
    assert all(value.startswith("#") for _, name, value in found.attributes if name in ("href", "src"))
    (policy,) = [value for _, name, value in found.attributes if name == "content" and "default-src" in value]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "http://" not in whole
    assert whole == page(run())  # and it is the same whenever it is made


def test_names_in_figures_do_not_meet_and_lead_somewhere(whole: str) -> None:
    found = Structure(whole)
    names = [value for _, name, value in found.attributes if name == "id"]
    assert len(names) == len(set(names)) > 10
    used = {value[1:] for _, name, value in found.attributes if name == "href"}
    used |= {value[5:-1] for _, name, value in found.attributes if name == "clip-path"}
    assert used <= set(names)


def test_a_page_stays_small_and_says_what_gave_way(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [
        row(f"algorithm_{number}", nbytes, 1e-5 * (number + 1), nranks=nranks)
        for number, nbytes, nranks in itertools.product(range(45), [8 << n for n in range(25)], [2, 4])
    ]
    monkeypatch.setattr(make, "KINDS", ("winner", "latency"))  # the others take as long again
    monkeypatch.setattr(make, "_model", lambda pool, name: "")  # and so do curves of 45 algorithms
    text = page(run(many))
    assert len(text.encode()) < LARGEST
    assert "".join(Structure(text).texts["tbody"]).count("algorithm_") == len(many)
    monkeypatch.setattr(tables, "MOST", 10)
    monkeypatch.setattr(make, "LARGEST", 101_000)
    text = page(run())
    assert f"{len(ROWS) - 10} further rows are left out" in text
    assert "2 more would make the page too large: ringbench plot draws them all" in text


def test_without_matplotlib_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ValueError("figures need Matplotlib: pip install 'ringbench[plot]'")

    monkeypatch.setattr(make, "check_matplotlib", absent)
    found = Structure(page(run()))
    assert "svg" not in {tag for tag, _ in found.elements}
    assert sum("figures need Matplotlib" in text for text in found.texts["li"]) == 1
    assert "Bandwidth" in found.texts["h3"]


def test_unlike_runs_stand_apart_and_alike_ones_together(bare: None) -> None:
    elsewhere = {**PROVENANCE, "host": "other"}
    found = Structure(page(run(), run(path="out/second/run.jsonl"), run(provenance=elsewhere, path="c.jsonl")))
    assert [title.split(" ")[0] for title in found.texts["h2"]] == ["node$7$", "other", "Where"]
    assert found.texts["h3"][-3:] == ["out/first/run.jsonl", "out/second/run.jsonl", "c.jsonl"]


def test_what_a_fit_and_a_comparison_need_and_do_not_find_is_said(bare: None) -> None:
    text = page(run([row("naive", 8), row("naive", 64)]))
    assert "no fit: " in text
    assert "no comparison: " in text


# The command that repeats a run.


def test_the_command_repeats_what_was_measured() -> None:
    settings = Settings(
        algorithms=("ring", "swing", "mpi"), sizes=(8, 1000), placement="both", groups="0,1/2,3", seed=7
    )
    first = {
        **PROVENANCE,
        "settings": settings.to_json(),
        "ranks": [2, 4],
        "launches": 3,
        "lab": "nodes=4 ranks_per_node=1 rate=400mbit slurm=no",
        "variables": {"UCX_TLS": "tcp self"},
        "launcher": {"arguments": ["--map-by", ":OVERSUBSCRIBE"]},
        "command": ["ringbench", "sweep", "plan.toml"],
    }
    first = json.loads(json.dumps(first))
    words = shlex.split(" ".join(repeat(run(provenance=first, plan=first))))
    start = ["UCX_TLS=tcp self", "ringbench", "lab", "--nodes=4", "--ranks-per-node=1", "--rate=400mbit", "--"]
    assert words[: len(start)] == start
    asked = make_parser().parse_args(words[len(start) + 1 :])
    assert (asked.command, asked.ranks, asked.launches) == ("sweep", (2, 4), 3)
    assert asked.mpirun_args == ["--map-by", ":OVERSUBSCRIBE"]
    assert override(Settings(), **vars(asked)) == settings


def test_a_file_that_does_not_say_what_was_measured_is_not_repeated() -> None:
    for plan in ({}, {"settings": {"unknown": 1}}, {"settings": {"sizes": ["8X"]}}, {"settings": {}, "ranks": ["x"]}):
        found = run(provenance={**PROVENANCE, "settings": None, **plan}, plan=plan)
        assert repeat(found) == []
        assert "to repeat it" not in origin(found, "a run")
    assert repeat(run(provenance={**PROVENANCE, "imported": []})) == []


# What stands at the values of a figure.


def test_a_spot_is_where_the_value_is_drawn() -> None:
    (pool,) = pools([run()])
    (view,) = views_by_ranks(pool)
    figure = bandwidth(view)
    svg = ElementTree.fromstring(encoded(figure, "svg"))
    drawn = {
        (round(float(one.get("x", "0"))), round(float(one.get("y", "0"))))
        for one in svg.iter("{http://www.w3.org/2000/svg}use")
    }
    found = spots(figure)
    assert len(found) == len(view.cells) == len(ROWS)
    assert {(round(spot.x), round(spot.y)) for spot in found} <= drawn
    assert any(re.fullmatch(r"ring: 8B, 0\.0016 GB/s \[0\.0015\d* GB/s, 0\.0016\d* GB/s\]", one.text) for one in found)


def test_every_kind_of_figure_says_what_stands_at_its_values() -> None:
    (pool,) = pools(
        [run([*modelled(["ring", "recursive_doubling"]), *(row("mpi", n, 1e-5, nranks=2) for n in (8, 32))])]
    )
    texts: dict[str, list[str]] = {}
    for drawing in drawings([pool], KINDS):
        try:
            found = inline(drawing.make(), 1, Styles())
        except ValueError:
            continue
        texts.setdefault(drawing.kind, re.findall(r"<title>(.*?)</title>", found))
    assert set(texts) == set(KINDS) - {"steps"}  # those of training have a test of their own
    assert all(one and not any("_child" in text for text in one) for one in texts.values())
    assert any(re.match(r"ring: N = 4, .* µs$", text) for text in texts["scaling"])
    assert any(re.match(r"ring, 8B, N = 2: .* µs, .* µs$", text) for text in texts["predicted"])
    assert any(re.match(r"recursive_doubling, .* µs: 8B, N = 8$", text) for text in texts["winner"])


# The command.


def written(folder: Path, *records: dict[str, Any]) -> str:
    folder.mkdir()
    for record in records:
        append(folder / "run.jsonl", record)
    return str(folder)


def test_the_command_writes_the_page_into_the_folder_or_where_it_is_told(
    bare: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "r", PROVENANCE, OPENMPI, *(one.to_json() for one in ROWS), {"kind": "end"})
    assert main(["report", folder]) == 0
    assert capsys.readouterr().out == f"{folder}/report.html\n"
    assert main(["report", folder, "--out", str(tmp_path / "new" / "page.html")]) == 0
    capsys.readouterr()
    one, other = (Path(folder) / "report.html").read_text(), (tmp_path / "new" / "page.html").read_text()
    assert one == other
    Structure(one)
    assert main(["report", folder, "--out", f"{folder}/run.jsonl/x.html"]) == 2


def test_a_run_without_rows_has_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", written(tmp_path / "r", PROVENANCE)]) == 2
    assert capsys.readouterr().err.endswith("no rows to report on\n")
    assert not (tmp_path / "r" / "report.html").exists()


def test_steps_of_training_have_a_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [step_row(), step_row(0.4, number=4), step_row(0.5, number=1, engine="blocking")]
    first = {**PROVENANCE, "settings": {"workload": "<b>sixteen"}, "command": ["ringbench", "ddp"]}
    folder = written(tmp_path / "r", first, *(one.to_json() for one in rows), {"kind": "end", "status": "complete"})
    assert main(["report", folder]) == 0
    found = Structure((tmp_path / "r" / "report.html").read_text(encoding="utf-8"))
    assert found.texts["h2"] == ["sixteen on 4 ranks", "Where it comes from"]
    assert {"Steps", "Beside"} <= set(found.texts["h3"])
    (words,) = [text for text in found.texts["p"] if text.startswith("On 4 ranks")]
    assert "thread with ring and buckets of 512KiB: a step takes 335 ms" in words
    assert "The averages of all 3 checked rows are right" in words
    capsys.readouterr()


def test_the_bound_without_reductions_is_no_way_to_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(__file__).parents[1] / "results" / "emulated-cluster-2026-11-30" / "ddp_buckets-openmpi"
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    assert "On 4 ranks most samples per second come from thread with ring and buckets of 512KiB" in page
    texts = Structure(page).texts["title"]
    assert "thread ring: 512KiB, 338.8 ms [337.9 ms, 340.3 ms]" in texts, texts[:9]
    assert "thread ring, predicted: 512KiB, 336.1 ms" in texts
    assert "A step of training against the size of its buckets" in page


def test_a_run_cannot_have_a_pipe_read_or_variables_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who opens a file of somebody else's trusts it with neither."""
    kept = Path(__file__).parents[1] / "results" / "emulated-cluster-2026-11-30" / "ddp_buckets-openmpi" / "run.jsonl"
    pipe, file = tmp_path / "pipe", tmp_path / "run.jsonl"
    os.mkfifo(pipe)
    text = kept.read_text(encoding="utf-8")
    fit = '"fit":"results/emulated-cluster-2026-11-30/predict-openmpi"'
    assert text.count(fit) == 1
    variables = '"variables":{'
    assert text.count(variables) > 0
    file.write_text(
        text.replace(fit, f'"fit":"{pipe}"').replace(variables, f'{variables}"LD_PRELOAD":"/evil.so",', 1),
        encoding="utf-8",
    )
    assert main(["report", str(file), "--out", str(tmp_path / "page.html")]) == 0
    assert f"no predictions: {pipe}: no file of a run" in capsys.readouterr().err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "LD_PRELOAD=" not in page
    assert "OMPI_MCA_pml=ob1" in page


def test_several_runs_and_both_kinds_in_one_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Path(__file__).parents[1] / "results" / "emulated-cluster-2026-11-30"
    names = [str(kept / name) for name in ("scaling_link-openmpi", "ddp_buckets-openmpi")]
    assert main(["report", *names]) == 2
    assert "a page on 2 runs is none of theirs: say --out FILE" in capsys.readouterr().err
    both = tmp_path / "run.jsonl"
    both.write_text("".join(Path(name, "run.jsonl").read_text(encoding="utf-8") for name in names), encoding="utf-8")
    for command in ("report", "plot"):
        assert main([command, str(both), "--out", str(tmp_path / "out.svg")]) == 2
        assert "rows of ringbench sweep and of ringbench ddp in one file" in capsys.readouterr().err

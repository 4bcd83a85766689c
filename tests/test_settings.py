from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ringbench.arguments import make_parser
from ringbench.records.settings import Settings, SweepPlan, override, parse_names, plan_from, read_plan

OTHER = Settings(
    collective="reduce_scatter",
    algorithms=("ring", "auto"),
    sizes=(8, 1024, 3_000_000),
    dtype="int64",
    op="max",
    device="cuda",
    placement="both",
    segment=4096,
    thread_level="funneled",
    root=3,
    chunks=17,
    groups="0,2/1,3",
    outer="double_binary_tree",
    inner="shared_memory",
    choose_from="results/a run",
    limit=True,
    order="blocked",
    sync="roundtime",
    buffers=3,
    straggler="rank=1,delay=5ms",
    memory="shared",
    staging="host",
    precision=0.0125,
    min_samples=3,
    max_samples=13,
    warmup=0,
    time_budget_s=12.5,
    seed=42,
)


def read(folder: Path, text: str) -> SweepPlan:
    file = folder / "plan.toml"
    file.write_text(text, encoding="utf-8")
    return read_plan(file)


def test_a_plan_of_every_key(tmp_path: Path) -> None:
    text = """
        # what and where
        collective = "reduce_scatter"
        algorithms = ["ring", "auto", "ring"]
        sizes = ["8", "1KiB", "3MB"]
        ranks = [4, 1, 4]
        dtype = "int64"
        op = "max"
        device = "cuda"
        placement = "both"
        segment = "4KiB"
        thread_level = "funneled"
        # what schedules are told
        root = 3
        chunks = 17
        groups = "0,2/1,3"
        outer = "double_binary_tree"
        inner = "shared_memory"
        choose_from = "results/a run"
        limit = true
        order = "blocked"
        sync = "roundtime"
        buffers = 3
        straggler = "rank=1,delay=5ms"
        memory = "shared"
        staging = "host"
        # how long
        precision = 0.0125
        min_samples = 3
        max_samples = 13
        warmup = 0
        time_budget_s = 12.5
        seed = 42
    """
    assert read(tmp_path, text) == SweepPlan(settings=OTHER, ranks=(1, 4))


def test_an_empty_plan_is_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == SweepPlan(settings=Settings(), ranks=None)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('sizes = "8:64:x2,1KiB"', "sizes", (8, 16, 32, 64, 1024)),
        ("sizes = [1024, 8]", "sizes", (8, 1024)),
        ("sizes = 64", "sizes", (64,)),
        ('algorithms = "mpi, ring"', "algorithms", ("mpi", "ring")),
        ("segment = 0", "segment", 0),
        ("segment = 65536", "segment", 65536),
        ("time_budget_s = 90", "time_budget_s", 90.0),
        ("root = 0", "root", 0),
        ("chunks = 1", "chunks", 1),
        ('groups = "3,2/0/1"', "groups", "3,2/0/1"),
        ("groups = [[0, 2], [1, 3]]", "groups", "0,2/1,3"),
        ("groups = [[3, 2], [0]]", "groups", "0/3,2"),  # a node's first rank stays its leader
        ("limit = false", "limit", False),
    ],
)
def test_ways_to_write_a_value(tmp_path: Path, text: str, field: str, value: object) -> None:
    found = getattr(read(tmp_path, text).settings, field)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"), [("ranks = 4", (4,)), ('ranks = "1,2"', (1, 2)), ("ranks = [3, 2]", (2, 3))]
)
def test_ways_to_write_ranks(tmp_path: Path, text: str, value: tuple[int, ...]) -> None:
    assert read(tmp_path, text).ranks == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size = 8", r"unknown key 'size'; known: algorithms, .*, groups, .*, ranks, .*, sizes, "),
        ("[sweep]\nsizes = 8", "unknown key 'sweep'"),
        ("dtype = 32", "dtype = 32: must be a string"),
        ("warmup = 1.5", "warmup = 1.5: must be a whole number"),
        ("warmup = true", "warmup = True: must be a whole number"),
        ("precision = true", "precision = True: must be a number"),
        ('precision = "5%"', "precision = '5%': must be a number"),
        ("sizes = true", "malformed size 'True'"),
        ("sizes = []", "malformed size ''"),
        ("sizes = [1.5]", "malformed size '1.5'"),
        ('sizes = "8:4"', "malformed size range '8:4'"),
        ("segment = -1", "malformed size '-1'"),
        ("ranks = [0]", "malformed rank count '0'"),
        ("ranks = []", "malformed rank count ''"),
        ("ranks = [1.5]", "malformed rank count '1.5'"),
        ("algorithms = []", "nothing to measure"),
        ("algorithms = 3", "malformed algorithms 3"),
        ('algorithms = ["ring", 3]', r"malformed algorithms \['ring', 3\]"),
        ('algorithms = "ring,"', "malformed algorithms 'ring,'"),
        ('placement = "inside"', "unknown placement 'inside'; known: in, out, both"),
        ('thread_level = "many"', "unknown thread level 'many'; known: single, funneled, serialized, multiple"),
        ("precision = 0.0", "precision 0.0: must be between 0 and 1"),
        ("precision = nan", "precision nan: must be between 0 and 1"),
        ("precision = 5", "precision 5.0: must be between 0 and 1"),
        ("min_samples = 0", "must be at least"),
        ("max_samples = 0", "max samples 0: must be at least 1"),
        ("warmup = -1", "warm-up -1: must not be negative"),
        ("time_budget_s = 0", "time budget 0.0: must be more than 0"),
        ("time_budget_s = inf", "time budget inf: "),
        ("time_budget_s = nan", "time budget nan: "),
        ("seed = -1", "seed -1: must not be negative"),
        ("root = -1", "root -1: must be a rank"),
        ("root = true", "root = True: must be a whole number"),
        ('root = "0"', "root = '0': must be a whole number"),
        ("chunks = 0", "chunks 0: must be a number from 1 to 4096"),
        ("chunks = 4097", "chunks 4097: must be a number from 1 to 4096"),
        ("chunks = true", "chunks = True: must be a whole number"),
        ("chunks = 2.0", r"chunks = 2\.0: must be a whole number"),
        ('chunks = "2"', "chunks = '2': must be a whole number"),
        ("groups = 3", "groups = 3: must be as in '0,1/2,3'"),
        ("groups = true", "groups = True: must be as in '0,1/2,3'"),
        ("groups = []", r"groups \[\]: must be groups of ranks, none empty"),
        ("groups = [[0, 1], []]", r"groups \[\[0, 1\], \[\]\]: must be groups of ranks, none empty"),
        ("groups = [0, 1]", r"groups \[0, 1\]: must be groups of ranks, as in \(\(0, 1\), \(2, 3\)\)"),
        ('groups = [["a"]]', r"groups \[\['a'\]\]: must be groups of ranks, as in \(\(0, 1\), \(2, 3\)\)"),
        ("groups = [[0, -1]]", "malformed groups '0,-1': must be as in 0,1/2,3"),
        ('groups = ""', "malformed groups '': must be as in 0,1/2,3"),
        ('groups = "0,1/"', "malformed groups '0,1/': must be as in 0,1/2,3"),
        ('groups = "a"', "malformed groups 'a': must be as in 0,1/2,3"),
        ('groups = "0,-1"', "malformed groups '0,-1': must be as in 0,1/2,3"),
        ("outer = 1", "outer = 1: must be a string"),
        ("choose_from = 1", "choose_from = 1: must be a string"),
        ("choose_from = []", r"choose_from = \[\]: must be a string"),
        ("limit = 1", "limit = 1: must be true or false"),
        ('limit = "yes"', "limit = 'yes': must be true or false"),
        ("sizes = 8\nsizes = 9", "not TOML: "),
        ("sizes 8", "not TOML: "),
    ],
)
def test_what_is_wrong_in_a_plan_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'plan.toml'}: ")
    if " = " in message:
        assert re.search(message + "$", str(caught.value))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_bytes(b"sizes = '\xff'")
    with pytest.raises(ValueError, match=r"plan\.toml: "):
        read_plan(file)


def test_no_plan_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plan(tmp_path / "absent.toml")


# From one process to the next.


def again(settings: Settings) -> Settings:
    """Return the settings that a job understands from its command line."""
    arguments = make_parser().parse_args(["run", *settings.arguments()])
    return override(Settings(), **vars(arguments))


@pytest.mark.parametrize("settings", [Settings(), OTHER, replace(OTHER, segment=0, time_budget_s=1e-05)])
def test_a_job_measures_what_the_sweep_was_told(settings: Settings) -> None:
    assert again(settings) == settings


def test_no_field_is_lost_on_the_way_to_a_job() -> None:
    for field in fields(Settings):
        other = getattr(OTHER, field.name)
        assert other != getattr(Settings(), field.name), field.name
        alone = replace(
            Settings(), **{field.name: other, **({"max_samples": 8} if field.name == "max_samples" else {})}
        )
        assert again(alone) == alone, field.name


@pytest.mark.parametrize("settings", [Settings(), OTHER])
def test_a_run_is_gone_on_with_by_what_its_file_says(settings: Settings) -> None:
    stored = json.loads(json.dumps({**settings.to_json(), "ranks": [1, 4]}))
    assert plan_from(stored) == SweepPlan(settings=settings, ranks=(1, 4))


def test_a_run_of_a_version_with_fewer_settings_is_gone_on_with_too() -> None:
    stored = json.loads(json.dumps({**Settings().to_json(), "ranks": [2]}))
    for name in ("root", "chunks", "groups", "outer", "inner", "choose_from", "limit", "memory"):
        del stored[name]
    assert plan_from(stored) == SweepPlan(settings=Settings(), ranks=(2,))


def test_options_override_what_they_say_and_nothing_else() -> None:
    assert override(OTHER) == OTHER
    assert override(OTHER, seed=None, op=None, plan="x.toml", ranks=(3,), out=None) == OTHER
    changed: dict[str, Any] = {"seed": 0, "segment": 0, "sizes": (16,), "warmup": 0, "root": 0, "chunks": 1}
    assert override(OTHER, **changed) == replace(OTHER, **changed)
    with pytest.raises(ValueError, match="max samples 0: must be at least 1"):
        override(OTHER, max_samples=0)


def test_placements() -> None:
    found = {name: Settings(placement=name).placements for name in ("in", "out", "both")}
    assert found == {"in": (True,), "out": (False,), "both": (True, False)}


def test_names_stand_once_and_in_order() -> None:
    assert parse_names(" b , a,b", "names") == ("b", "a")
    with pytest.raises(ValueError, match="malformed names ''"):
        parse_names("", "names")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"root": -1}, "root -1: must be a rank"),
        ({"root": True}, "root True: must be a rank"),
        ({"chunks": 0}, "chunks 0: must be a number from 1 to 4096"),
        ({"groups": "0,1/x"}, "malformed groups '0,1/x': must be as in 0,1/2,3"),
    ],
)
def test_arguments_of_schedules_are_checked_before_any_job(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**changes)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to measure"):
        Settings(sizes=())


def test_launches_are_those_of_the_sweep(tmp_path: Path) -> None:
    assert read(tmp_path, "launches = 3") == SweepPlan(settings=Settings(), launches=3)
    for text, message in (
        ("launches = 0", "launches 0: must be 1 to 1000"),
        ("launches = '3'", "must be a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, text)


def test_a_plan_tells_whether_it_names_the_algorithms(tmp_path: Path) -> None:
    assert read(tmp_path, 'algorithms = ["ring", "mpi"]').names
    assert not read(tmp_path, 'collective = "bcast"').names

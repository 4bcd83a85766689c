from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ringbench.cli import main
from ringbench.ddp.cells import cells, levers, line
from ringbench.ddp.costs import GivenLinks
from ringbench.model.network import Link
from ringbench.records.ddp_row import DdpRow
from ringbench.records.ddp_settings import (
    DdpSettings,
    ddp_plan_from,
    override_ddp,
    read_ddp_plan,
    settings_from_json,
)
from ringbench.records.run import RUN_FILE, SCHEMA_VERSION, append, read_run
from ringbench.report.ddp import render_measured_levers, render_steps
from ringbench.report.ddp_trace import render_steps_trace
from ringbench.report.page.steps import steps_verdict

ROOT = Path(__file__).parents[1]
SPREAD = (1.0, 1.0, 1.001, 0.999, 1.0, 1.0, 1.0)


def row(step: float = 0.335, *, bucket: float = 0.015, number: int = 16, **changes: Any) -> DdpRow:
    """Return a row of 16 layers of 20 ms: as many buckets, each reduced in ``bucket`` seconds."""
    values: dict[str, Any] = {
        "workload": "sixteen",
        "parameters": 2**21,
        "layers": 16,
        "batch": 8,
        "dtype": "float32",
        "device": "cpu",
        "nranks": 4,
        "engine": "thread",
        "algorithm": "ring",
        "cap_nbytes": 2**23 // number,
        "first_nbytes": 2**19,
        "accumulate": 1,
        "compress": "none",
        "compute": "sleep",
        "nominal_s": 0.32,
        "samples_s": tuple(step * part for part in SPREAD),
        "compute_samples_s": (0.32,) * 7,
        "communication_samples_s": (number * bucket,) * 7,
        "backward_samples_s": (0.336,) * 7,
        "bucket_nbytes": (2**23 // number,) * number,
        "bucket_s": (bucket,) * number,
        "ready_s": tuple(0.32 * (at + 1) / number for at in range(number)),
        "finish_s": (0.015, 0.014, 0.015, 0.015),
        "wire_nbytes": 12_000_000,
        "wrong": 0,
        "library": "Open MPI",
    }
    return DdpRow(**{**values, **changes})


def test_a_step_as_the_timeline_has_it() -> None:
    (found,) = cells([row()])
    assert found["step_s"] == pytest.approx(0.335)
    assert found["exposed_s"] == pytest.approx(0.015)
    assert found["hidden_share"] == pytest.approx(15 / 16)
    assert found["possible_share"] == pytest.approx(1.0)
    assert found["timeline_s"] == pytest.approx(0.335)
    assert found["slowdown"] == pytest.approx(1.05)
    assert found["osu"] == pytest.approx(15 / 16)
    assert found["imb"] == pytest.approx(15 / 16)
    assert found["global_batch"] == 32
    assert found["samples_per_s"] == pytest.approx(32 / 0.335)
    assert (found["note"], found["speedup"], found["best"]) == (None, None, None)


def test_shares_that_cannot_be_are_notes_and_no_figures() -> None:
    less, more, wrong = cells([row(0.30), row(0.60), row(wrong=3)])
    assert less["hidden_share"] is None
    assert "impossible: the step (300ms) is shorter than its computing (320ms)" in less["note"]
    assert more["hidden_share"] == 0.0
    assert "nothing is hidden: 40ms longer" in more["note"]
    assert wrong["note"] == "wrong averages"
    text = render_steps([less, more, wrong], "text")
    assert "thread ring 512KiB: impossible" in text
    assert "FAIL: wrong result in 1 of 3 rows" in text


def test_speed_ups_are_over_the_fastest_of_the_fewest_ranks() -> None:
    alone = row(0.32, nranks=1, bucket=0.0, communication_samples_s=(), finish_s=(0.0,))
    slow = row(0.40, nranks=1, bucket=0.0, communication_samples_s=(), finish_s=(0.0,), engine="blocking")
    none = row(0.31, nranks=1, engine="none", algorithm="none", communication_samples_s=(), finish_s=(0.0,))
    found = cells([alone, slow, none, row(), row(0.655, accumulate=2, nominal_s=0.64, compute_samples_s=(0.64,) * 7)])
    assert [one["speedup"] for one in found[:3]] == [None] * 3
    assert found[3]["speedup"] == pytest.approx(4 * 0.32 / 0.335)
    assert found[3]["efficiency"] == pytest.approx(0.32 / 0.335)
    assert found[3]["speedup_from"] == 1
    assert found[4]["speedup"] == pytest.approx(4 * 0.64 / 0.655)
    other = cells([alone, row(dtype="float16")])
    assert other[1]["speedup"] is None


def test_the_model_recommends_a_bucket_size() -> None:
    # alpha 2 ms, beta 1.3 ms for 64 KiB: many small buckets cost more than they hide.
    sizes = {16: 0.0124, 4: 0.0436, 1: 0.1684}
    rows = [row(0.32 + bucket, bucket=bucket, number=number) for number, bucket in sizes.items()]
    assert line(rows)(2**23) == pytest.approx(0.1684)
    assert line(rows)(0) == pytest.approx(0.002)
    found = cells(rows)
    assert [one["best"] for one in found] == [True, False, False]
    assert {one["recommended_nbytes"] for one in found} == {2**19}
    text = render_steps(found, "text")
    assert "thread ring: the best bucket size is 512KiB; the model says 512KiB" in text
    flat = line([row(bucket=0.01), row(bucket=0.002, number=4)])  # larger is faster: no beta below 0
    assert flat(2**30) == flat(1) > 0


def test_a_step_that_cannot_be_is_never_the_best() -> None:
    """Nor is one with wrong averages; where no other is left there is no best."""
    impossible, wrong, right = row(0.30, number=16), row(0.33, number=8, wrong=2), row(0.35, number=4)
    found = cells([impossible, wrong, right])
    assert [one["best"] for one in found] == [False, False, True]
    verdict = steps_verdict(found)
    assert "buckets of 2MiB" in verdict
    assert [one["best"] for one in cells([impossible, wrong])] == [False, False]
    assert steps_verdict(cells([impossible, wrong])).startswith("No step with right averages")


def test_given_links_predict_the_step() -> None:
    costs = GivenLinks(inner=Link(alpha_s=0.0, beta_s_per_byte=0.015 / (1.5 * 2**19)))
    ring, library, packed = cells(
        [row(), row(engine="iallreduce", algorithm="mpi"), row(compress="fp16", wrong=None)], costs
    )
    assert ring["predicted_s"] == pytest.approx(0.335)
    assert library["predicted_s"] is packed["predicted_s"] is None


def test_who_waits_is_told_of_stragglers() -> None:
    late = row(0.345, straggler="rank=1,delay=10ms", late_s=(0.0, 0.01, 0.0, 0.0), warnings=("disturbed",))
    found = cells([row(), late])
    assert found[1]["best"] is None  # not pooled with the undisturbed one
    assert found[1]["hidden_share"] == pytest.approx(15 / 16)  # what the late rank computes is no communication
    joined = " ".join(render_steps(found, "text").split())
    assert "late on purpose: rank=1,delay=10ms" in joined
    assert "thread ring 512KiB: late by 0, 10, 0, 0; waits after backward 0: 15, 1: 14, 2: 15, 3: 15" in joined


@pytest.mark.parametrize("format", ["text", "markdown", "csv", "json"])
def test_tables_of_all_formats(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = {"kind": "provenance", "schema_version": SCHEMA_VERSION, "settings": DdpSettings(workload="w").to_json()}
    long = [row(engine="iallreduce_progress", algorithm="mpi", cap_nbytes=2**20 * 1023, warnings=("oversubscribed",))]
    long += [row(algorithm="double_binary_tree"), row(12.3456, engine="none", algorithm="none")]
    for record in (first, *(one.to_json() for one in long), {"kind": "end", "status": "complete", "failures": []}):
        append(tmp_path / RUN_FILE, record)
    assert read_run(tmp_path).steps == tuple(long)
    assert main(["table", str(tmp_path), "--format", format]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    if format == "text":
        assert max(map(len, out.splitlines())) <= 100
        assert "none" in out
    if format == "json":
        assert [one["engine"] for one in json.loads(out)] == ["iallreduce_progress", "thread", "none"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("engine", 3),
        ("workload", "\x1b[2J"),
        ("nranks", 0),
        ("nranks", True),
        ("batch", "8"),
        ("samples_s", []),
        ("samples_s", [-1.0]),
        ("bucket_s", ["x"]),
        ("bucket_s", [0.1]),
        ("bucket_nbytes", [0.5] * 16),
        ("nominal_s", None),
        ("wrong", -1),
        ("warnings", [3]),
    ],
)
def test_a_row_with_something_else_is_refused(field: str, value: object) -> None:
    assert DdpRow.from_json(json.loads(json.dumps(row().to_json()))) == row()
    with pytest.raises(ValueError, match=f"not a row of ringbench ddp: {field.replace('bucket_nbytes', 'bucket')}"):
        DdpRow.from_json({**row().to_json(), field: value})
    with pytest.raises(ValueError, match="missing 1 required"):
        DdpRow.from_json({name: value for name, value in row().to_json().items() if name != "samples_s"})


OTHER = DdpSettings(
    workload="gpt2",
    backward_s=0.125,
    batch=3,
    dtype="float16",
    device="cuda",
    staging="host",
    engines=("poll", "none"),
    bucket_sizes=(1, 4096),
    first_bucket=77,
    accumulate=(1, 3),
    algorithms=("rabenseifner", "mpi"),
    compress=("fp16", "topk:0.01"),
    compute="work",
    polls=4,
    clip=1.5,
    straggler="rank=1,delay=5ms",
    thread_level="serialized",
    steps=5,
    warmup=0,
    seed=9,
    alpha="2us",
    beta="50GB/s",
    gamma="100GB/s",
    inner="1us,300GB/s",
    outer="5us,25GB/s",
    ranks_per_node=8,
    shared_link=True,
    fit="results/x",
)


def test_no_setting_is_lost_on_the_way_to_a_job() -> None:
    from ringbench.arguments import make_parser

    for field in fields(DdpSettings):
        assert getattr(OTHER, field.name) != getattr(DdpSettings(), field.name), field.name
    arguments = make_parser().parse_args(["ddp", *OTHER.arguments()])
    assert override_ddp(ddp_plan_from({}), **vars(arguments)).settings == OTHER
    assert settings_from_json(json.loads(json.dumps(OTHER.to_json()))) == OTHER


def test_every_setting_can_stand_in_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    lines = ["ranks = [2, 1]", 'backward = "125ms"']
    for name, value in OTHER.to_json().items():
        if name != "backward_s":
            lines.append(f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}")
    file.write_text("\n".join(lines), encoding="utf-8")
    plan = read_ddp_plan(file)
    assert (plan.settings, plan.ranks) == (OTHER, (1, 2))
    assert override_ddp(plan, steps=7, ranks=None).settings == replace(OTHER, steps=7)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("engine = 'thread'", "unknown key 'engine'"),
        ("engines = 3", "malformed engines 3"),
        ("bucket_sizes = '1X'", "malformed size '1X'"),
        ("bucket_sizes = 0", "bucket size 0"),
        ("accumulate = [0]", "malformed rank count '0'"),
        ("steps = 0", "steps 0"),
        ("polls = '2'", "polls = '2'"),
        ("compute = 'play'", "unknown compute 'play'"),
        ("clip = -1", "clip -1.0"),
        ("straggler = 'rank=1'", "it lacks delay"),
        ("beta = '5'", "malformed bandwidth '5'"),
        ("inner = '1us'", "malformed bandwidth ''"),
        ("shared_link = 1", "shared_link = 1"),
        ("workload = 'gpt2'\n[[layer]]\nparameters = 4", "the file has layers of its own"),
    ],
)
def test_a_bad_plan_is_refused_by_file_and_value(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"plan\.toml: ") as found:
        read_ddp_plan(file)
    assert named in str(found.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "ddp needs a --workload"),
        (["--workload", "gpt3"], "unknown workload 'gpt3'"),
        (["--workload", "gpt2", "--engines", "fast"], "unknown engine 'fast'"),
        (["--workload", "gpt2", "--algorithm", "best"], "unknown algorithm 'best' for allreduce"),
        (["--workload", "gpt2", "--compress", "zip"], "unknown compression 'zip'"),
        (["--workload", "gpt2", "--compress", "fp16", "--dtype", "float16"], "compression 'fp16': not of float16"),
        (
            ["--workload", "gpt2", "--compress", "fp16,sign", "--algorithm", "ring,shared_memory"],
            "algorithm 'shared_memory': compressed gradients lie in memory of their own",
        ),
        (["--workload", "gpt2", "--dtype", "int8"], "dtype 'int8'"),
        (["--workload", "gpt2", "--straggler", "rank=2,delay=1ms", "--ranks", "2"], "straggler rank 2"),
        (["--workload", "gpt2", "--beta", "1GB/s", "--fit", "x"], "what links cost is said twice"),
        (["--workload", "gpt2", "--alpha", "1us"], "alpha goes with beta"),
        (["--workload", "gpt2", "--resume"], "--resume needs --out DIR"),
        (["--workload", "gpt2", "--polls", "0"], "0: at least 1"),
    ],
)
def test_what_cannot_be_measured_is_said_before_any_job(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ddp", *words]) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert found.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ddp_buckets.toml", "scaling_story.toml"])
def test_plans_that_come_with_it_are_plans(name: str) -> None:
    from ringbench.cli.ddp_measuring import check_settings

    plan = read_ddp_plan(ROOT / "benchmarks" / name)
    assert plan.ranks is not None
    assert check_settings(plan.settings, plan.ranks).parameters > 0


def test_a_trace_is_what_a_browser_takes() -> None:
    events = [
        ("block.0", "backward", 0.0, 0.02),
        ("bucket 0", "ready", 0.02, 0.02),
        ("bucket 0", "all-reduce", 0.02, 0.05),
    ]
    found = json.loads(render_steps_trace([("thread", [events, events])]))["traceEvents"]
    names = [one["args"]["name"] for one in found if one["ph"] == "M"]
    assert names == ["thread", "rank 0 computes", "rank 0 reduces", "rank 1 computes", "rank 1 reduces"]
    last = [one for one in found if one["ph"] != "M"][-3:]
    assert [(one["ph"], one["tid"], one["ts"], one.get("dur")) for one in last] == [
        ("X", 2, 0.0, 20000.0),
        ("i", 3, 20000.0, None),
        ("X", 3, 20000.0, 30000.0),
    ]


def test_levers_stand_side_by_side() -> None:
    settings = DdpSettings(
        workload="sixteen", bucket_sizes=(2**19, 2**21), accumulate=(1, 2), algorithms=("ring", "naive")
    )
    alone = row(0.32, nranks=1, bucket=0.0, communication_samples_s=(), finish_s=(0.0,))
    twice: dict[str, Any] = {"accumulate": 2, "nominal_s": 0.64, "compute_samples_s": (0.64,) * 7}
    ways = [
        row(0.64),
        row(0.40, cap_nbytes=2**21),
        row(0.96, **twice),
        row(0.48, algorithm="naive"),
        row(0.66, cap_nbytes=2**21, algorithm="naive", **twice),
    ]
    found = levers(cells([alone, *ways]), settings)
    assert [one["lever"] for one in found] == ["none", "bucket size", "accumulation", "algorithm", "all"]
    assert [round(one["speedup"], 2) for one in found] == [2.0, 3.2, 2.67, 2.67, 3.88]
    assert [round(one["gain"], 2) for one in found] == [1.0, 1.6, 1.33, 1.33, 1.94]
    assert found[0]["predicted_speedup"] == pytest.approx(4 * 0.32 / 0.335)
    text = render_measured_levers(found, "text")
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(r"^all +2MiB +2 naive +none +660 +3.88x", text, flags=re.MULTILINE)
    assert levers(cells([alone, row()]), settings) == []
    assert render_measured_levers([], "text") == ""

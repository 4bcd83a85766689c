from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ringbench.arguments import FORMATS, UsageError, make_parser
from ringbench.cli import COMMANDS
from ringbench.records.settings import Settings


def parsed(*words: str) -> argparse.Namespace:
    return make_parser().parse_args(words)


def value(*words: str, command: str = "run") -> Any:
    """Return what the last option comes to."""
    name = words[0].lstrip("-").replace("-", "_")
    return getattr(parsed(command, *words), {"time_budget": "time_budget_s"}.get(name, name))


def subparsers() -> dict[str, argparse.ArgumentParser]:
    actions = make_parser()._actions
    (commands,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


def test_every_command_can_be_carried_out_and_explained() -> None:
    assert set(subparsers()) == set(COMMANDS)
    for name, parser in subparsers().items():
        text = parser.format_help()
        assert parser.prog == f"ringbench {name}"
        assert f"example: ringbench {name}" in text or "example: mpirun" in text
        text.encode("ascii")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_asked_for_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(name, "--help")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: ringbench {name}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        make_parser(lambda: "ringbench 1.2.3\n").parse_args(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, "ringbench 1.2.3\n")


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_every_setting_has_an_option_that_is_not_set_unless_it_is_said(command: str) -> None:
    found = vars(parsed(command))
    for field in fields(Settings):
        assert field.name in found, field.name
        assert found[field.name] is None, field.name


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--sizes", "8,1KiB"), (8, 1024)),
        (("--sizes", "1MiB:4MiB:x2,1MB"), (10**6, 2**20, 2**21, 2**22)),
        (("--algorithms", "ring,mpi"), ("ring", "mpi")),
        (("--segment", "64K"), 65536),
        (("--segment", "0"), 0),
        (("--precision", "2%"), 0.02),
        (("--precision", "0.02"), 0.02),
        (("--time-budget", "90"), 90.0),
        (("--time-budget", "90s"), 90.0),
        (("--time-budget", "1.5m"), 90.0),
        (("--time-budget", "1.5min"), 90.0),
        (("--time-budget", "1e-3"), 0.001),
        (("--max-samples", "12"), 12),
        (("--seed", "0"), 0),
        (("--root", "3"), 3),
        (("--chunks", "16"), 16),
        (("--groups", "0,2/1,3"), "0,2/1,3"),
        (("--outer", "rabenseifner"), "rabenseifner"),
        (("--choose-from", "results/laptop"), "results/laptop"),
        (("--limit",), True),
    ],
)
def test_values(words: tuple[str, ...], wanted: object) -> None:
    found = value(*words)
    assert found == pytest.approx(wanted) if isinstance(wanted, float) else found == wanted


def test_what_is_drawn() -> None:
    found = parsed("draw", "bcast", "chain", "-n", "6", "--root", "2", "--chunks", "3", "--svg", "a.svg")
    assert (found.collective, found.algorithm, found.ranks, found.svg) == ("bcast", "chain", 6, Path("a.svg"))
    assert (found.root, found.chunks, found.groups, found.outer) == (2, 3, None, None)
    assert parsed("draw", "allreduce", "ring").ranks == 4
    assert parsed("draw", "allreduce", "hierarchical", "--groups", "0/1").groups == "0/1"


def test_every_command_that_takes_settings_takes_the_arguments_of_schedules() -> None:
    texts = {name: " ".join(parser.format_help().split()) for name, parser in subparsers().items()}
    for option in ("--root RANK", "--chunks C", "--groups 0,1/2,3"):
        assert {name for name, text in texts.items() if option in text} == {"run", "sweep", "draw", "simulate"}
    assert {name for name, text in texts.items() if "--outer A" in text} == {"ddp", "predict", "simulate"}
    assert {name for name, text in texts.items() if "--outer NAME" in text} == {"run", "sweep", "draw"}
    for option in ("--choose-from", "--limit"):
        assert {name for name, text in texts.items() if f"{option} " in text or f"{option}]" in text} == {
            "run",
            "sweep",
        }


def test_help_says_what_is_taken_where_nothing_is_said() -> None:
    texts = {name: " ".join(parser.format_help().split()) for name, parser in subparsers().items()}
    for name, chunks, nodes in (("run", "by size", "what MPI finds"), ("draw", "4", "one node")):
        assert f"pieces of a pipelined schedule (default {chunks})" in texts[name]
        assert f"ranks of each node (default {nodes})" in texts[name]


def test_lists_have_a_format_of_their_own() -> None:
    for name in ("text", "markdown", "json"):
        assert parsed("list", "--format", name).format == name
    with pytest.raises(UsageError, match="invalid choice: 'csv'"):
        parsed("list", "--format", "csv")


def test_options_of_a_sweep() -> None:
    found = parsed("sweep", "plan.toml", "--ranks", "4,1", "--out", "d", "--resume", "--mpirun-args=--mca a 'b c'")
    assert (found.plan, found.ranks, found.out, found.resume) == ("plan.toml", (1, 4), Path("d"), True)
    assert (found.mpirun, found.mpirun_args, found.job_limit, found.format) == (
        None,
        ["--mca", "a", "b c"],
        None,
        "text",
    )
    assert value("--job-limit", "2min", command="sweep") == 120


def test_what_a_sweep_tells_its_jobs_is_understood_but_not_shown() -> None:
    hidden = ("--append", "--cases-before", "--cases-total", "--budget-after")
    found = parsed("run", "--append=f", "--cases-before=2", "--cases-total=9", "--budget-after=1.5")
    assert (found.append, found.cases_before, found.cases_total, found.budget_after) == (Path("f"), 2, 9, 1.5)
    assert not [option for option in hidden if option in subparsers()["run"].format_help()]


@pytest.mark.parametrize("format", FORMATS)
def test_formats(format: str) -> None:
    for command in ("table", "compare", "fit"):
        assert parsed(command, "r", "--format", format).format == format
    assert parsed("predict", "r", "--ranks", "8", "--sizes", "8", "--format", format).format == format


def test_links_are_read_with_their_units() -> None:
    given = ("--alpha", "2us", "--beta", "50GB/s", "--gamma", "100GB/s", "--ranks", "8,16", "--sizes", "14GB")
    found = parsed("predict", *given)
    assert (found.alpha, found.beta, found.gamma) == pytest.approx((2e-6, 2e-11, 1e-11))
    assert (found.ranks, found.sizes, found.runs) == ((8, 16), (14 * 10**9,), [])
    pair = parsed("predict", "--inner", "1us,300GB/s", "--outer", "5us,25GB/s", "--ranks", "8", "--sizes", "8")
    assert pair.inner == pytest.approx((1e-6, 1 / 3e11))
    assert pair.outer == pytest.approx((5e-6, 1 / 2.5e10))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "COMMAND"),
        (("dance",), "invalid choice: 'dance'"),
        (("run", "--bogus"), "unrecognized arguments: --bogus"),
        (("predict", "--ranks", "8", "--sizes", "8", "--alpha", "2"), "argument --alpha: malformed latency '2'"),
        (
            ("predict", "--ranks", "8", "--sizes", "8", "--beta", "0GB/s"),
            "argument --beta: malformed bandwidth '0GB/s'",
        ),
        (("predict", "--ranks", "8", "--sizes", "8", "--inner", "1us"), "argument --inner: malformed bandwidth ''"),
        (("run", "--sizes", "8X"), "argument --sizes: malformed size '8X': a size is a number with"),
        (("run", "--sizes", ""), "argument --sizes: malformed size ''"),
        (("run", "--algorithms", "ring,"), "argument --algorithms: malformed algorithms 'ring,'"),
        (("run", "--placement", "inside"), "argument --placement: invalid choice: 'inside'"),
        (("run", "--precision", "much"), "argument --precision: malformed fraction 'much'"),
        (("run", "--precision=-5%"), "argument --precision: malformed fraction '-5%'"),
        (("run", "--time-budget", "soon"), "argument --time-budget: malformed time 'soon'"),
        (("run", "--time-budget", "inf"), "argument --time-budget: malformed time 'inf'"),
        (("run", "--time-budget", "nan"), "argument --time-budget: malformed time 'nan'"),
        (("run", "--time-budget=-1"), "argument --time-budget: malformed time '-1'"),
        (("run", "--time-budget", "5h"), "argument --time-budget: malformed time '5h'"),
        (
            ("run", "--max-samples", "1.5"),
            "argument --max-samples: malformed number '1.5': a whole number, not negative, is needed",
        ),
        (("run", "--warmup=-1"), "argument --warmup: malformed number '-1'"),
        (("run", "--seed", "²"), "argument --seed: malformed number"),
        (("sweep", "--ranks", "0"), "argument --ranks: malformed rank count '0'"),
        (("sweep", "--job-limit", "inf"), "argument --job-limit: malformed time 'inf'"),
        (
            ("run", "--root=-1"),
            "argument --root: malformed number '-1': a whole number, not negative, is needed",
        ),
        (("run", "--root", ""), "argument --root: malformed number ''"),
        (("run", "--chunks", "few"), "argument --chunks: malformed number 'few'"),
        (("run", "--groups", "0,1/a"), "argument --groups: malformed groups '0,1/a': must be as in 0,1/2,3"),
        (("sweep", "--groups", "0/-1"), "argument --groups: malformed groups '0/-1': must be as in 0,1/2,3"),
        (("run", "--limit=yes"), "argument --limit: ignored explicit argument 'yes'"),
        (("draw", "allreduce"), "ALGORITHM"),
        (("draw", "allreduce", "ring", "-n", "four"), "argument -n/--ranks: malformed number 'four'"),
        (("draw", "allreduce", "ring", "--groups", ""), "argument --groups: malformed groups ''"),
        (("table",), "RUN"),
        (("table", "r", "--format", "xml"), "invalid choice: 'xml'"),
        (("verify", "--max-ranks", "many"), "argument --max-ranks: malformed number 'many'"),
    ],
)
def test_what_is_malformed_is_one_line_that_names_it(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*words)
    text = str(caught.value)
    assert message in text
    assert "\n" not in text
    assert re.search(r" \(see ringbench( \w+)? --help\)$", text)
    assert capsys.readouterr() == ("", "")

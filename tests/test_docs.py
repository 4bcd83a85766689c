"""README and CONTRIBUTING tell the truth: their commands run, their code works, their figures are those in results/."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import ROOT, Mpi

from ringbench.arguments import make_parser
from ringbench.launch.process import run_job
from ringbench.schedule import registry
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import algorithm_named, algorithms
from ringbench.schedule.verify import verify

README = (ROOT / "README.md").read_text(encoding="utf-8")
ALGORITHMS = (ROOT / "ALGORITHMS.md").read_text(encoding="utf-8")
WARNINGS = (ROOT / "WARNINGS.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "FAULTS.md").read_text(encoding="utf-8")

#: Pages with what commands print, or draw.
PAGES = [ROOT / name for name in ("README.md", "ALGORITHMS.md", "WARNINGS.md")] + sorted((ROOT / "docs").glob("*.md"))

#: Commands that run elsewhere, and where: the test suite cannot start itself, and it has no Slurm.
ELSEWHERE = {
    "make bench": ".ci/run",
    "make test": ".ci/run",
    "make lint": ".ci/run",
    "make docs": "a test",
    "sbatch": "tests/cluster",
    "ringbench lab": "tests/cluster",
}

#: Commands whose exit status tells of the machine, and the ones they may have: this one may well be busy.
OF_MACHINE = {"ringbench doctor": (0, 1)}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    lines = [line.partition("  #")[0].strip() for block in blocks(text, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


def elsewhere(line: str) -> bool:
    return any(line.startswith(start) for start in ELSEWHERE)


def test_readme_has_the_two_commands_and_ci_runs_them() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for line in ("make bench", "make test"):
        assert line in commands(README)
        assert re.search(rf"^{line}\b", ci, flags=re.MULTILINE)


@pytest.mark.mpi
def test_commands_of_readme_run(mpi: Mpi, tmp_path: Path) -> None:
    for name in ("benchmarks", "results", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    lines = [
        line for line in commands(README) if not elsewhere(line) and not line.startswith(("python3 -m venv", ". "))
    ]
    assert len(lines) > 5
    path = f"{Path(mpi.python).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for number, line in enumerate(lines):
        with open(tmp_path / f"{number}.out", "w+b") as output:
            here = ["bash", "-euc", f"cd {shlex.quote(str(tmp_path))}; {line}"]
            result = run_job(here, env=env, time_limit_s=120, stdout=output.fileno(), stderr=subprocess.STDOUT)
            output.seek(0)
            said = output.read().decode()
            assert result.returncode in OF_MACHINE.get(line, (0,)), f"{line}\n{said}"
            assert (result.returncode == 1) == ("\nWARN " in f"\n{said}"), f"{line}\n{said}"


@pytest.mark.mpi
def test_python_of_readme_runs(mpi: Mpi, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(README, "python")):
        program = tmp_path / f"example{number}.py"
        program.write_text(block, encoding="utf-8")
        env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with open(tmp_path / "out", "w+b") as output:
            line = [mpi.mpirun, "-n", "2", mpi.python, str(program)]
            result = run_job(line, env=env, time_limit_s=60, stdout=output.fileno(), stderr=subprocess.STDOUT)
            output.seek(0)
            assert result.returncode == 0, output.read().decode()


#: A table stands under the command that prints it: ``<!-- ringbench ... -->`` and then its whole output; in a fence
#: where it is none of Markdown. A picture stands under the command that draws it.
PRINTED = re.compile(r"(<!-- (ringbench [^\n]*?) -->\n\n)(.*?)(\n<!-- end -->)", flags=re.DOTALL)


def printed(line: str, page: Path, folder: Path) -> str:
    """Run the command of a page; return what stands there: what it prints, or a picture, drawn into a folder."""
    words = shlex.split(line)
    options = [word for word in ("--svg", "--out") if word in words]
    if not options:
        text = ran(words)
        return text if "--format markdown" in line else f"```\n{text}```\n"
    at = words.index(options[0]) + 1
    picture = Path(words[at])
    words[at] = str(folder / picture.name)
    ran(words)
    there = os.path.relpath(ROOT / picture, page.parent)
    found = re.search(rf"!\[[^\]]+\]\({re.escape(there)}\)\n", page.read_text(encoding="utf-8"))
    assert found, f"{page.name} does not show {picture}"
    return found[0]


def ran(words: list[str]) -> str:
    done = [sys.executable, "-m", *words]
    return subprocess.run(done, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()


def words_in(picture: Path) -> list[str]:
    """Return what is written in a picture; how its curves are written may change with the library that draws them."""
    return [text for one in ElementTree.parse(picture).iter() if (text := (one.text or "").strip())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_of_pages_are_those_of_results(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = PRINTED.findall(text)
    assert text.count("<!-- end -->") == len(found)
    for _, line, table, _ in found:
        assert table.strip() == printed(line, page, tmp_path).strip(), f"{line}: `make docs` writes the tables anew"
    shown = re.findall(r"!\[[^\]]+\]\((.*?)\)", text)
    names = {Path(name).name: page.parent / name for name in shown}
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())  # no picture without its command
    for name, picture in names.items():
        assert words_in(picture) == words_in(tmp_path / name)


def test_what_is_said_of_predictions_is_what_the_run_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = [line for line in commands(README) if line.startswith("ringbench predict results/")]
    assert len(lines) == 2
    for line in lines:
        said = " ".join(ran(shlex.split(line)).split())
        found = re.search(r"(\d\.\d)% in the median.*choosing by it is (\d\.\d)% slower", said)
        beta = re.search(r"(0\.\d+) GB/s beyond", said)
        assert found
        assert beta
        for number in (f"{found[1]} %", f"{found[2]} %", f"{float(beta[1]) * 1e3:.1f}"):
            assert number in README, (line, number)
            assert number in RESULTS, (line, number)


def test_what_is_said_of_shared_memory_is_what_the_runs_say() -> None:
    said, told = " ".join(README.split()), {}
    for library in ("openmpi", "mpich"):
        run = f"results/2-core-vm-2026-11-30/shared_memory-{library}"
        for name in ("shared_memory", "shared_copy"):
            found = json.loads(ran(["ringbench", "compare", run, "--algorithm", name, "--format", "json"]))
            told[library, name] = {one["nbytes"]: one["ratio"] for one in found if one["nranks"] == 2}
    ours, theirs = (list(told[library, "shared_memory"].values())[1:] for library in ("openmpi", "mpich"))
    assert "{:.2f} at 64 KiB, {:.2f} at 1 MiB, {:.2f} at 8 MiB and {:.2f} from".format(*ours) in said
    assert f"{ours[3]:.2f}" == f"{ours[4]:.2f}"
    assert "{:.2f}, {:.2f}, {:.2f}, {:.2f} to {:.2f} under MPICH".format(*theirs) in said
    copied = [told[library, "shared_copy"][nbytes] for library in ("openmpi", "mpich") for nbytes in (2**25, 2**27)]
    assert f"copied in and out {min(copied):.2f} to {max(copied):.2f} from 32 MiB on" in said


def test_what_is_said_of_training_is_what_the_runs_say() -> None:
    folder = "results/emulated-cluster-2026-11-30"
    found = json.loads(ran(["ringbench", "table", f"{folder}/ddp_buckets-openmpi", "--format", "json"]))
    thread = [row for row in found if row["engine"] == "thread"]
    shares = [row["possible_share"] for row in thread if row["bucket_nbytes"] <= 4 << 20]
    assert f"hides {100 * min(shares):.1f} to {100 * max(shares):.0f} % of what can be hidden" in README
    above = [row["step_s"] / row["predicted_s"] - 1 for row in thread]
    assert f"the step is {100 * min(above):.0f} to {100 * max(above):.0f} % above prediction" in README
    library = [row for row in found if row["engine"] == "iallreduce"]
    assert all(row["step_s"] > row["compute_s"] + row["communication_s"] for row in library)
    said = ran(["ringbench", "table", f"{folder}/scaling_story-openmpi"])
    levers = re.findall(r"^(none|bucket size|accumulation|algorithm|all) .*? (\d\.\d\d)x +(\d\.\d\d)x ", said, re.M)
    assert len(levers) == 5
    (before, told), *rest = [(measured, predicted) for _, measured, predicted in levers]
    assert f"{before} times as fast" in README
    assert f"predicted were {', '.join([told, *(one for _, one in rest[:-1])])} and {rest[-1][1]}" in README
    for measured, _ in rest:
        assert f"{measured} times" in README


@pytest.mark.parametrize("page", [path for path in PAGES if path.parent.name == "docs"], ids=lambda page: page.name)
def test_links_of_pages_lead_to_files(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_options_named_to_those_who_come_from_elsewhere_are_options() -> None:
    text = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    named = [code for _, _, ours, *_ in lines for code in re.findall(r"`([^`]*--[^`]*)`", ours)]
    assert len(named) > 25
    parse = make_parser().parse_args
    for code in named:
        parse(shlex.split(code)[1:] if code.startswith("ringbench") else ["sweep", *shlex.split(code)])


def test_contributing_example_is_a_right_algorithm() -> None:
    (example,) = blocks(CONTRIBUTING, "python")
    registry._ALGORITHMS.pop(("allreduce", "relay"), None)  # whoever follows CONTRIBUTING has it already
    before = {(algorithm.collective, algorithm.name) for algorithm in algorithms()}
    exec(compile(example, "CONTRIBUTING.md", "exec"), {})
    ((collective, name),) = {(one.collective, one.name) for one in algorithms()} - before
    added = algorithm_named(collective, name)
    try:
        for nranks in range(1, 17):
            verify(added, nranks)
            counted = cost(added, nranks, 60)
            assert (counted.rounds, Fraction(counted.sent_max, 60)) == (added.rounds(nranks), added.sent(nranks))
    finally:
        del registry._ALGORITHMS[collective, name]


def test_contributing_commands_are_commands() -> None:
    for line in commands(CONTRIBUTING):
        word = shlex.split(line)
        if word[0] == "ringbench":
            shown = subprocess.run(
                [sys.executable, "-m", "ringbench", word[1], "--help"], stdout=subprocess.PIPE, check=True
            )
            for option in word[2:]:
                if option.startswith("--"):
                    assert option in shown.stdout.decode()


def test_jobs_are_shell() -> None:
    for script in (ROOT / "jobs").glob("*.sbatch"):
        subprocess.run(["bash", "-n", str(script)], check=True)
        text = script.read_text(encoding="utf-8")
        assert "cpus-per-task=" not in text
        assert re.search(r"^#SBATCH --ntasks", text, flags=re.MULTILINE)
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if checker is None:
        pytest.skip("no shellcheck here; `make lint` brings it and runs it")
    scripts = [
        str(path)
        for path in [*(ROOT / "jobs").glob("*.sbatch"), *(ROOT / "benchmarks").glob("*.sh"), ROOT / ".ci" / "run"]
    ]
    assert subprocess.run([checker, *scripts], check=False).returncode == 0


def existing_tests() -> set[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py")]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_fault_names_tests_that_there_are() -> None:
    assert "(FAULTS.md)" in README
    rows = [line.strip("|").split("|") for line in FAULTS.splitlines() if line.startswith("|")]
    assert rows[0] == [" fault ", " what happens ", " exit status ", " test "]
    assert {len(row) for row in rows} == {4}
    faults = [row for row in rows[2:] if row[1].strip()]  # the others are headings
    assert len(faults) > 20
    there = existing_tests()
    for fault, _, status, tests in faults:
        assert re.match(r" \d", status), fault
        names = re.findall(r"`(\w+)`", tests)
        assert names, fault
        assert set(names) <= there, fault


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as drawn:
        for path in PAGES:
            old = path.read_text(encoding="utf-8")
            new = PRINTED.sub(lambda found: f"{found[1]}{printed(found[2], path, Path(drawn))}{found[4]}", old)  # noqa: B023
            path.write_text(new, encoding="utf-8")
            for name in re.findall(r"!\[[^\]]+\]\((.*?)\)", new):
                shutil.move(Path(drawn, Path(name).name), path.parent / name)

"""README and CONTRIBUTING tell the truth: their commands run, their code works, their figures are those in results/."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import ROOT, Mpi

from ringbench.launch.process import run_job
from ringbench.schedule import registry
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import algorithm_named, algorithms
from ringbench.schedule.verify import verify

README = (ROOT / "README.md").read_text(encoding="utf-8")
ALGORITHMS = (ROOT / "ALGORITHMS.md").read_text(encoding="utf-8")
WARNINGS = (ROOT / "WARNINGS.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "FAULTS.md").read_text(encoding="utf-8")

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


#: A table stands under the command that prints it: ``<!-- ringbench ... -->`` and then its whole output.
PRINTED = re.compile(r"(<!-- (ringbench .*?) -->\n\n)(.*?)(\n<!-- end -->)", flags=re.DOTALL)


def printed(line: str) -> str:
    words = [sys.executable, "-m", *shlex.split(line)]
    return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()


def test_figures_of_readme_are_those_of_results() -> None:
    pages = (README, ALGORITHMS, WARNINGS)
    assert all(page.count("<!-- end -->") == len(PRINTED.findall(page)) > 0 for page in pages)
    found = [block for page in pages for block in PRINTED.findall(page)]
    for _, line, table, _ in found:
        assert table.strip() == printed(line).strip(), f"{line}: `make docs` writes the tables anew"


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
    for name in ("README.md", "ALGORITHMS.md", "WARNINGS.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        page = PRINTED.sub(lambda found: f"{found[1]}{printed(found[2])}{found[4]}", page)
        (ROOT / name).write_text(page, encoding="utf-8")

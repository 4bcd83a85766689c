"""Imports point one way, and heavy packages stay where they belong. Reads the source; runs none of it but the last."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "ringbench"
FILES = sorted(SOURCE.rglob("*.py"))

#: A room imports itself and rooms of a lower level, never another one of its own level.
LEVELS = {
    "schedule": 0,
    "collectives": 1,
    "records": 1,
    "runtime": 2,
    "model": 2,
    "launch": 2,
    "readers": 2,
    "report": 3,
    "ddp": 3,
    "arguments_ddp": 3,
    "arguments": 4,
    "cli": 5,
    "__main__": 6,
}

#: The packages of others that a room may import; rooms that are not named need the standard library alone.
STRANGERS = {
    "runtime": {"mpi4py", "numpy", "cupy", "ml_dtypes"},
    "model": {"numpy", "scipy"},
    "report": {"numpy", "tabulate", "matplotlib"},
    "ddp": {"numpy", "sklearn"},
    "cli": {"numpy"},
    "__init__": set(),
}

#: A module of the standard library that Python 3.10 lacks, and what stands in for it there.
BACKPORTS = {"tomllib", "tomli"}


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of all that a file imports, wherever in the file it does so."""
    package = ["ringbench", *file.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "importlib.import_module", "__import__"):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def room_faults(file: Path) -> list[str]:
    own = room_of(file)
    faults = []
    for line, name in imports(file):
        parts = name.split(".")
        if parts[0] != "ringbench" or own == "__init__" or len(parts) < 2 or parts[1] not in LEVELS:
            continue
        if parts[1] != own and LEVELS[parts[1]] >= LEVELS[own]:
            faults.append(f"{file.relative_to(SOURCE.parent)}:{line}: {own} imports {parts[1]}")
    return faults


def stranger_faults(file: Path) -> list[str]:
    own = room_of(file)
    faults = []
    for line, name in imports(file):
        package = name.split(".")[0]
        if package in sys.stdlib_module_names or package in BACKPORTS or package in ("ringbench", "__future__"):
            continue
        allowed = package in STRANGERS.get(own, set())
        if package in ("cupy", "ml_dtypes"):
            allowed = file.relative_to(SOURCE) == Path("runtime/arrays.py")
        if not allowed:
            faults.append(f"{file.relative_to(SOURCE.parent)}:{line}: {own} imports {package}")
    return faults


def speech_faults(file: Path) -> list[str]:
    if room_of(file) in ("cli", "__main__"):
        return []
    faults = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        what = None
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Call) and called(node) in ("print", "sys.exit", "exit", "quit", "os._exit"):
            what = called(node)
        elif isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in ast.unparse(node.exc):
            what = "raise SystemExit"
        elif isinstance(node, ast.ImportFrom) and node.module == "sys" and any(a.name == "exit" for a in node.names):
            what = "from sys import exit"
        if what:
            faults.append(f"{file.relative_to(SOURCE.parent)}:{line}: {what}")
    return faults


def test_there_is_something_to_read() -> None:
    assert {"schedule", "collectives", "records"} <= {room_of(file) for file in FILES}


def test_every_module_is_in_a_known_room() -> None:
    assert {room_of(file) for file in FILES} <= {*LEVELS, "__init__"}


def test_imports_point_one_way() -> None:
    assert [fault for file in FILES for fault in room_faults(file)] == []


def test_packages_of_others_stay_in_their_rooms() -> None:
    assert [fault for file in FILES for fault in stranger_faults(file)] == []


def test_only_the_command_line_prints_or_exits() -> None:
    assert [fault for file in FILES for fault in speech_faults(file)] == []


@pytest.mark.parametrize(
    ("path", "text", "faults"),
    [
        ("schedule/x.py", "from ringbench.collectives import ring", 1),
        ("schedule/x.py", "from ringbench.schedule.step import Step", 0),
        ("schedule/x.py", "from ..records import row", 1),
        ("records/x.py", "import ringbench.collectives.ring", 1),
        ("records/x.py", "def f():\n    from ringbench.runtime import plan", 1),
        ("model/x.py", "from ringbench import launch", 1),
        ("model/x.py", "from ringbench.records import row, run", 0),
        ("ddp/x.py", "from ringbench import report, runtime", 1),
        ("cli.py", "from ringbench import report, runtime", 0),
        ("runtime/deep/x.py", "from ...model import fit", 1),
        ("launch/x.py", "import importlib\nimportlib.import_module('ringbench.runtime.worker')", 1),
    ],
)
def test_an_import_the_wrong_way_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str, faults: int
) -> None:
    assert len(room_faults(planted(tmp_path, monkeypatch, path, text))) == faults


@pytest.mark.parametrize(
    ("path", "text", "faults"),
    [
        ("schedule/x.py", "import numpy as np", 1),
        ("launch/x.py", "from mpi4py import MPI", 1),
        ("launch/x.py", "import os, tomllib\nimport tomli", 0),
        ("records/x.py", "import numpy.typing", 1),
        ("runtime/arrays.py", "import cupy", 0),
        ("runtime/arrays.py", "import_module('ml_dtypes')", 0),
        ("runtime/data.py", "from ml_dtypes import bfloat16", 1),
        ("runtime/plan.py", "def f():\n    import cupy.cuda", 1),
        ("runtime/plan.py", "import numpy\nfrom mpi4py import MPI", 0),
        ("runtime/plan.py", "from scipy.optimize import nnls", 1),
        ("model/x.py", "from scipy.optimize import nnls", 0),
        ("cli.py", "import tabulate, matplotlib.pyplot", 2),
        ("report/x.py", "import tabulate, matplotlib.pyplot", 0),
        ("__init__.py", "import numpy", 1),
    ],
)
def test_a_stranger_in_the_wrong_room_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str, faults: int
) -> None:
    assert len(stranger_faults(planted(tmp_path, monkeypatch, path, text))) == faults


@pytest.mark.parametrize(
    ("path", "text", "faults"),
    [
        ("model/x.py", "print('x')", 1),
        ("model/x.py", "import sys\nsys.exit(1)", 1),
        ("model/x.py", "raise SystemExit(1)", 1),
        ("model/x.py", "from sys import exit", 1),
        ("model/x.py", "text = 'print(1)'\nsys.stderr.flush()", 0),
        ("cli.py", "print('x')", 0),
        ("__main__.py", "sys.exit(main())", 0),
    ],
)
def test_a_module_that_prints_or_exits_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str, faults: int
) -> None:
    assert len(speech_faults(planted(tmp_path, monkeypatch, path, text))) == faults


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str) -> Path:
    file = folder / "ringbench" / path
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(f"{__name__}.SOURCE", folder / "ringbench")
    return file


HEAVY = ("mpi4py", "cupy", "scipy", "matplotlib", "numpy")
LIGHT = (
    "import ringbench",
    "import ringbench.collectives, ringbench.schedule.verify, ringbench.schedule.cost, ringbench.records.run",
    "import ringbench.schedule.draw, ringbench.report.algorithms, ringbench.model.choose, ringbench.runtime.choices",
    "import ringbench; ringbench.ddp; import ringbench.ddp.buckets, ringbench.ddp.choices",
)


@pytest.mark.parametrize("statement", LIGHT)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    assert loaded(statement) == set()


@pytest.mark.skipif(importlib.util.find_spec("ringbench.cli") is None, reason="there is no command line yet")
def test_help_loads_nothing_heavy() -> None:
    run = (
        "import contextlib, io, runpy, sys; sys.argv = ['ringbench', '--help']\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    runpy.run_module('ringbench', run_name='__main__')"
    )
    assert loaded(run) == set()


def loaded(statements: str) -> set[str]:
    """Return the heavy packages that a fresh Python has loaded after some statements."""
    code = f"{statements}\nimport sys\nsys.stdout.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_what_is_loaded_is_seen() -> None:
    assert loaded("import sys; sys.modules['scipy'] = sys") == {"scipy"}

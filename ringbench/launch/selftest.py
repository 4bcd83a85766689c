"""The self-test of the checker: one MPI job of broken collectives for each rank count."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringbench.launch.mpirun import Mpirun
from ringbench.launch.sweep import SAFE_PATH, start_job

#: A job of some ranks on a core each takes seconds; of many ranks on a busy machine it may take minutes.
LIMIT_S = 600.0


def run_mutants(
    ranks: Sequence[int],
    *,
    collective: str | None,
    mpirun: Mpirun,
    python: str,
    environ: Mapping[str, str],
    extra: Sequence[str] = (),
    stderr: int | None = None,
    report: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Start one job for each rank count; return what became of every cell, and which jobs failed, in words.

    A job that leaves no cells has failed whatever its exit status.
    """
    cells: list[dict[str, Any]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ringbench-") as folder:
        for nranks in ranks:
            report(f"{nranks} ranks: broken collectives, and right ones beside them")
            file = Path(folder) / f"{nranks}.json"
            file.touch()
            program = [python, *SAFE_PATH, "-m", "ringbench", "verify", "--mutants", f"--append={file}"]
            program += [f"--collective={collective}"] if collective else []
            failure = start_job(nranks, program, mpirun, environ, extra, stderr, LIMIT_S)
            if failure is None and not file.stat().st_size:
                failure = f"{nranks} ranks: {mpirun.path} ended with status 0, but nothing was tried"
            if failure is None:
                cells += json.loads(file.read_bytes())["cells"]
            else:
                report(failure)
                failures.append(failure)
    return cells, failures

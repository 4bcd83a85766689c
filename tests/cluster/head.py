"""Runs a script on the head of a lab with Slurm, and sees that nothing of it is left."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import ROOT, Mpi
from harness import Finished, environment, run
from namespaces import mounts

#: Functions for the scripts. Client commands wait minutes for a controller that is not there.
PRELUDE = r"""
set -euo pipefail
await() { for _ in $(seq 1500); do if eval "$1"; then return; fi; sleep 0.1; done; cat "$OUT.log"; exit 90; }
rows() { cat "$OUT/run.jsonl" 2>/dev/null | grep -c '"kind":"row"' || true; }
until_rows() { await "[ \"\$(rows)\" -ge $1 ]"; }
until_gone() { await "[ -z \"\$(timeout 10 squeue -h -j $1)\" ]"; }
submit() { timeout 60 sbatch --parsable --output="$OUT.log" --time=5 "$@"; }
fact() { timeout 10 scontrol show job "$1" | grep -o " $2=[^ ]*"; }
"""


def slurm(mpi: Mpi, tmp_path: Path, script: str, *shape: str, **more: str) -> Finished:
    """Run a script on the head, by default of two nodes with two ranks each; ``$OUT`` is the folder of the run."""
    file = tmp_path / "script"
    file.write_text(PRELUDE + script)
    line = [mpi.python, "-m", "ringbench", "lab", *(shape or ("--nodes=2", "--ranks-per-node=2", "--rate=2gbit"))]
    env = environment(mpi, JOBS=str(ROOT / "jobs"), OUT=str(tmp_path / "run"), **more)
    before = mounts(), sorted(os.listdir("/run"))
    found = run([*line, "--slurm", "--", "bash", str(file)], env=env, status=None, limit_s=280)
    assert (mounts(), sorted(os.listdir("/run"))) == before
    log = tmp_path / "run.log"
    assert found.status == 0, f"{found}\n{log.read_text() if log.exists() else ''}"
    return found

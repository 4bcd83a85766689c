"""Tests of jobs/ under a real Slurm on a lab, however they end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Mpi
from harness import Finished, environment, run

from ringbench.records.run import RUN_FILE, read_run

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.usefixtures("room_for_slurm")]

#: Functions for the scripts below. Client commands wait minutes for a controller that is not there.
PRELUDE = r"""
set -euo pipefail
rows() { cat "$OUT/run.jsonl" 2>/dev/null | grep -c '"kind":"row"' || true; }
until_rows() { for _ in $(seq 900); do [ "$(rows)" -ge "$1" ] && return; sleep 0.1; done; cat "$OUT.log"; exit 90; }
until_gone() { for _ in $(seq 900); do [ -z "$(timeout 10 squeue -h -j "$1")" ] && return; sleep 0.1; done; exit 91; }
submit() { timeout 60 sbatch --parsable --output="$OUT.log" --time=5 "$@"; }
exit_code() { timeout 10 scontrol show job "$1" | grep -o ' ExitCode=.*'; }
"""

SMALL = {"SIZES": "8,4KiB", "ALGORITHMS": "ring,mpi", "TIME_BUDGET": "3s"}
LONG = {"SIZES": "1KiB:64KiB:x2", "ALGORITHMS": "ring,naive,mpi", "TIME_BUDGET": "60s"}


def slurm(mpi: Mpi, tmp_path: Path, script: str, **more: str) -> Finished:
    """Run a script on the head of two nodes with two ranks each; ``$OUT`` is the folder of the run."""
    file = tmp_path / "script"
    file.write_text(PRELUDE + script)
    line = [mpi.python, "-m", "ringbench", "lab", "--nodes=2", "--ranks-per-node=2", "--rate=2gbit", "--slurm", "--"]
    env = environment(mpi, JOBS=str(ROOT / "jobs"), OUT=str(tmp_path / "run"), **more)
    found = run([*line, "bash", str(file)], env=env, status=None, limit_s=280)
    log = tmp_path / "run.log"
    assert found.status == 0, f"{found}\n{log.read_text() if log.exists() else ''}"
    return found


def test_the_commands_of_slurm_work(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        sinfo --noheader --format='%P %l %D %T'
        srun --nodes=2 hostname | sort
        job=$(sbatch --parsable --output=/dev/null --nodes=2 --wrap='sleep 60')
        squeue --noheader --format='%i %T %D'
        scancel $job
        until_gone $job
        job=$(submit --time=1 --partition=short --wrap='echo $SLURM_JOB_PARTITION on $(hostname); exit 3')
        until_gone $job
        exit_code $job
        cat "$OUT.log"
    """
    said = slurm(mpi, tmp_path, script).stdout.splitlines()
    assert said[:2] == ["lab* 1:00:00 2 idle", "short 1:00 2 idle"]
    assert said[2:4] == ["node0", "node1"]
    assert re.fullmatch(r"\d+ (PENDING|RUNNING|CONFIGURING) 2", said[4])
    assert said[5:] == [" ExitCode=3:0", "short on node0"]


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_sweep_as_a_job(mpi: Mpi, tmp_path: Path, launcher: str) -> None:
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 "$JOBS/cpu_sweep.sbatch")
        until_gone $job
        exit_code $job
        cat "$OUT.log"
    """
    found = slurm(mpi, tmp_path, script, LAUNCHER=launcher, **SMALL)
    assert found.stdout.startswith(" ExitCode=0:0"), str(found)
    assert "4 ranks of one job (node0: 0-1, node1: 2-3)" in found.stdout, str(found)
    done = read_run(tmp_path / "run")
    assert done.status == "complete"
    assert [job["nranks"] for job in done.jobs] == [1, 2, 4], str(found)
    assert done.jobs[-1]["hosts"] == ["node0", "node0", "node1", "node1"]
    assert not any(row.wrong for row in done.rows)
    how = done.provenance["launcher"]
    assert how["flavour"] == ("slurm" if launcher == "srun" else mpi.flavour)
    assert any(word.startswith("--mpi=") for word in how["arguments"]) == (launcher == "srun")
    facts = done.provenance["slurm"]
    assert (facts["SLURM_JOB_NUM_NODES"], facts["SLURM_NTASKS"], facts["SLURM_JOB_NODELIST"]) == ("2", "4", "node[0-1]")


def test_doctor_says_in_an_allocation_whether_srun_will_do(mpi: Mpi, tmp_path: Path) -> None:
    found = slurm(mpi, tmp_path, "salloc --quiet --nodes=2 ringbench doctor || true")
    lines = [line for line in found.stdout.splitlines() if " srun " in f" {line} "]
    wanted = {"openmpi": "srun --mpi=pmix starts Open MPI", "mpich": "srun --mpi=pmi2 starts MPICH"}[mpi.flavour]
    assert any(wanted in line or "this Slurm has no pmix" in line for line in lines), str(found)


@pytest.mark.parametrize("words", [[], ["--mpirun", "srun"]])
def test_a_sweep_on_the_head_starts_its_ranks_through_slurm(mpi: Mpi, tmp_path: Path, words: list[str]) -> None:
    options = "--ranks 4 --sizes 8 --algorithms ring,mpi --time-budget 2s"
    script = f'ringbench sweep {" ".join(words)} {options} --out "$OUT"'
    found = slurm(mpi, tmp_path, script)
    done = read_run(tmp_path / "run")
    assert done.jobs[-1]["hosts"] == ["node0", "node0", "node1", "node1"], str(found)
    assert done.status == "complete"


def test_a_wrong_launcher_is_found_out_before_anything_is_measured(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 "$JOBS/cpu_sweep.sbatch")
        until_gone $job
        exit_code $job
        cat "$OUT.log"
    """
    found = slurm(mpi, tmp_path, script, LAUNCHER="srun", MPI_TYPE="none", **SMALL)
    assert found.stdout.startswith(" ExitCode=2:0"), str(found)
    assert "SLURM_STEP_NUM_TASKS=4" in found.stdout, str(found)
    assert "world of 1" in found.stdout, str(found)
    assert not (tmp_path / "run").exists()


def check_cut(folder: Path, found: Finished, status: str = "partial") -> Any:
    """Check that a run that was cut holds whole rows, some of them but not all."""
    assert (folder / RUN_FILE).read_bytes().endswith(b"\n")
    done = read_run(folder)
    assert (done.status, done.torn) == (status, False), str(found)
    assert not any(row.wrong for row in done.rows)
    return done


def test_scancel_leaves_whole_rows(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 "$JOBS/cpu_sweep.sbatch")
        until_rows 4
        scancel $job
        until_gone $job
        cat "$OUT.log"
    """
    found = slurm(mpi, tmp_path, script, **LONG)
    done = check_cut(tmp_path / "run", found)
    assert 4 <= len(done.rows) < 63
    assert done.provenance["ranks"] == [1, 2, 4]


def test_a_requeued_job_goes_on_where_it_stopped(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 "$JOBS/cpu_sweep.sbatch")
        until_rows 4
        scontrol requeue $job
        before=0
        for _ in $(seq 100); do [ "$(squeue -h -j $job -o %T)" = PENDING ] && break; sleep 0.1; done
        before=$(rows); cp "$OUT/run.jsonl" "$OUT.before"
        until_rows $((before + 2))
        scontrol show job $job | grep -o 'Restarts=.'
        scancel $job
        until_gone $job
        cat "$OUT.log"
    """
    found = slurm(mpi, tmp_path, script, **LONG)
    assert "Restarts=1" in found.stdout, str(found)
    done = check_cut(tmp_path / "run", found)
    before = (tmp_path / "run.before").read_bytes()
    assert (tmp_path / "run" / RUN_FILE).read_bytes().startswith(before), "what was measured before is not as it was"
    assert done.repeated == 0
    assert len({row.key for row in done.rows}) == len(done.rows)


def test_an_array_measures_on_each_number_of_nodes(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 --array=1,2 "$JOBS/rank_array.sbatch")
        until_gone $job
        cat "$OUT.log"
        ringbench table --format json "$OUT"/*
    """
    found = slurm(mpi, tmp_path, script, **SMALL)
    for nodes, hosts in ((1, ["node0"] * 2), (2, ["node0", "node0", "node1", "node1"])):
        done = read_run(tmp_path / "run" / str(nodes))
        assert done.status == "complete"
        assert [sorted(job["hosts"]) for job in done.jobs] == [hosts], str(found)
    assert found.stdout.count('"collective"') == 8, str(found)


@pytest.mark.parametrize("launcher", ["", "srun"])
def test_ranks_of_the_job_on_gpus_see_one_each(mpi: Mpi, tmp_path: Path, launcher: str) -> None:
    """Run all of the script but what it asks of Slurm, in host memory, with a sitecustomize that tells what it sees."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'run' in sys.orig_argv and '--check' in sys.orig_argv:\n"
        "    seen = os.environ.get('CUDA_VISIBLE_DEVICES', '?')\n"
        f"    with open({str(tmp_path / 'seen')!r}, 'a') as file:\n"
        "        file.write(f'{os.uname().nodename} {seen}\\n')\n"
    )
    script = f"""
        export PYTHONPATH={tmp_path}:$PYTHONPATH
        salloc --quiet --nodes=2 --ntasks-per-node=2 bash "$JOBS/gpu_sweep.sbatch"
    """
    more = {"LAUNCHER": launcher} if launcher else {}
    found = slurm(mpi, tmp_path, script, DEVICE="cpu", **SMALL, **more)
    assert read_run(tmp_path / "run").status == "complete", str(found)
    seen = (tmp_path / "seen").read_text().split("\n")
    assert sorted(filter(None, seen)) == ["node0 0", "node0 1", "node1 0", "node1 1"], str(found)


def test_a_plan_is_submitted(mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('sizes = [8]\nalgorithms = ["ring", "mpi"]\ntime_budget_s = 2\n')
    script = """
        cd "$(dirname "$OUT")"
        job=$(ringbench slurm plan.toml --nodes 1,2 --ntasks-per-node 2 --submit)
        until_gone $job
        exit_code $job
        ringbench table --format csv ringbench-$job | cut -d, -f1,2
    """
    found = slurm(mpi, tmp_path, script)
    assert found.stdout.splitlines() == [
        " ExitCode=0:0",
        "collective,algorithm",
        *["allreduce,ring", "allreduce,mpi"] * 2,
    ], str(found)

"""Tests of jobs/ under a real Slurm on a lab, to their end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Mpi
from head import slurm

from ringbench.records.run import read_run

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.usefixtures("room_for_slurm")]

SMALL = {"SIZES": "8,4KiB", "ALGORITHMS": "ring,mpi", "TIME_BUDGET": "3s"}


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
        fact $job ExitCode
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
        fact $job ExitCode
        cat "$OUT.log"
    """
    found = slurm(mpi, tmp_path, script, LAUNCHER=launcher, **SMALL)
    assert found.stdout.startswith(" ExitCode=0:0"), str(found)
    assert "4 ranks of one job (node0: 0-1, node1: 2-3)" in found.stdout, str(found)
    assert "4 ranks: ring: 2 edges between 2 nodes\n" in found.stdout, str(found)
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


def test_training_steps_as_a_job(mpi: Mpi, tmp_path: Path) -> None:
    workload = tmp_path / "small.toml"
    workload.write_text('[[layer]]\nparameters = 4096\nbackward = "2ms"\nrepeat = 4\n')
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 "$JOBS/ddp.sbatch")
        until_gone $job
        fact $job ExitCode
        cat "$OUT.log"
    """
    small = {"WORKLOAD": str(workload), "BACKWARD": "8ms", "ENGINES": "thread", "BUCKET_SIZES": "32KiB", "STEPS": "3"}
    found = slurm(mpi, tmp_path, script, **small)
    assert found.stdout.startswith(" ExitCode=0:0"), str(found)
    done = read_run(tmp_path / "run")
    assert done.status == "complete"
    assert {row.nranks for row in done.steps} == {1, 2, 4}, str(found)
    assert done.provenance["slurm"]["SLURM_NTASKS"] == "4"


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
        fact $job ExitCode
        cat "$OUT.log"
    """
    found = slurm(mpi, tmp_path, script, LAUNCHER="srun", MPI_TYPE="none", **SMALL)
    assert found.stdout.startswith(" ExitCode=2:0"), str(found)
    assert "SLURM_STEP_NUM_TASKS=4" in found.stdout, str(found)
    assert "world of 1" in found.stdout, str(found)
    assert not (tmp_path / "run").exists()


def test_what_a_job_is_told_about_its_ranks_and_its_memory(mpi: Mpi, tmp_path: Path) -> None:
    script = """
        job=$(submit --nodes=2 --ntasks-per-node=2 --distribution=cyclic "$JOBS/cpu_sweep.sbatch")
        until_gone $job
        fact $job ExitCode
        job=$(SIZES=1T OUT=$OUT.none submit --nodes=2 --ntasks-per-node=2 "$JOBS/cpu_sweep.sbatch")
        until_gone $job
        fact $job ExitCode
        cat "$OUT.log" "$OUT.none.log"
    """
    found = slurm(mpi, tmp_path, script, LAUNCHER="srun", **SMALL)
    assert found.stdout.startswith(" ExitCode=0:0\n ExitCode=2:0\n"), str(found)
    ring = "4 ranks: ring: 4 edges between 2 nodes; 2 are possible with ranks in order of nodes (--map-by slot)\n"
    assert ring in found.stdout, str(found)
    done = read_run(tmp_path / "run")
    assert done.jobs[-1]["hosts"] == ["node0", "node1", "node0", "node1"], str(found)
    assert "\nringbench: size 1TiB: 1 rank with ring,mpi needs 1024.00 GiB of memory, but " in found.stdout, str(found)
    assert not (tmp_path / "run.none").exists()


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
        fact $job ExitCode
        ringbench table --format csv ringbench-$job | cut -d, -f1,2
    """
    found = slurm(mpi, tmp_path, script)
    assert found.stdout.splitlines() == [
        " ExitCode=0:0",
        "collective,algorithm",
        *["allreduce,ring", "allreduce,mpi"] * 2,
    ], str(found)

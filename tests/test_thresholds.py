from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ringbench.model.causes import Facts, cause_of, facts_of
from ringbench.model.curve import Curve, Shape
from ringbench.runtime.thresholds import EAGER, cache_sizes


def test_the_library_in_use_tells_its_eager_limits_while_mpi_runs() -> None:
    """Asked before, it could not be started any more."""
    code = (
        "import json, mpi4py; mpi4py.rc(initialize=False); from mpi4py import MPI; "
        "from ringbench.runtime.thresholds import eager_limits; early = eager_limits(); "
        "MPI.Init_thread(MPI.THREAD_MULTIPLE); print(json.dumps([early, eager_limits(), eager_limits()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    early, found, again = json.loads(done.stdout)
    assert early == {}
    assert found == again
    assert found  # Open MPI 5 and MPICH 5 do
    assert set(found) <= set(EAGER)
    assert all(256 <= nbytes <= 2**24 for nbytes in found.values()), found


def test_caches_are_those_of_the_kernel(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "512K"), ("3", "Unified", "?")]
    ):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert cache_sizes(tmp_path) == {"L1": 32 * 1024, "L2": 512 * 1024}
    assert cache_sizes(tmp_path / "absent") == {}


def curve(alphas: tuple[float, float], betas: tuple[float, float]) -> Curve:
    return Curve(shape=Shape(breaks=(6000.0,), jumps=(True,)), alphas=alphas, betas=betas)


def test_what_a_break_probably_is() -> None:
    lengths = [8.0, 64.0, 4096.0, 8192.0, 65536.0]
    known = Facts(eager_nbytes={"btl_sm_eager_limit": 4096}, cache_nbytes={"L1": 32768})
    dearer, slower = curve((1e-6, 5e-6), (1e-9, 1e-9)), curve((1e-6, 0.5e-6), (1e-9, 2e-9))
    assert cause_of(dearer, 1, lengths, known) == "the eager limit (btl_sm_eager_limit is 4KiB)"
    assert cause_of(dearer, 1, lengths, Facts()) == "another protocol of the library, as from eager to rendezvous"
    assert cause_of(slower, 1, lengths, Facts(cache_nbytes={"L1": 32768})) == "a full cache (L1 is 32KiB)"
    assert "token bucket" in cause_of(slower, 1, lengths, Facts(nodes=2))
    assert "token bucket" not in cause_of(slower, 1, lengths, Facts())


def test_facts_come_from_the_jobs_of_a_run() -> None:
    jobs: list[dict[str, Any]] = [
        {"hosts": ["a", "b", "a"], "eager_nbytes": {"x": 4096, "y": "z"}, "cache_nbytes": {"L2": 2**19}},
        {"hosts": ["a"]},
    ]
    assert facts_of(jobs) == Facts(eager_nbytes={"x": 4096}, cache_nbytes={"L2": 2**19}, nodes=2)
    assert facts_of([{}]) == Facts()

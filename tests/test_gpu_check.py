"""The script that checks GPUs runs to its end whatever its stages do; the Python that it is given here is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = ROOT / "benchmarks" / "gpu_check.sh"

#: Stands for a Python with CuPy: answers what is asked of devices, and carries out each stage as told.
PLAYED = """#!/bin/bash
case "$*" in
    *getDeviceCount*) echo {devices} ;;
    *--version*) echo Python 3 ;;
    *libucx*) exit 1 ;;
    *doctor*) echo doctor was here; exit 1 ;;
    *device_bandwidth*) echo as fast as it is; exit {slow} ;;
    *pytest*) sleep {sleep}; echo tests were here ;;
    *" --ranks 2,4 --algorithms ring "*) echo 'ringbench: refused'; exit 2 ;;
    *sweep*) for word; do [ "$last" != --out ] || mkdir -p "$word" && last=$word; done; echo swept ;;
esac
"""


def check(
    tmp_path: Path, *arguments: str, devices: int | str = 1, sleep: int = 0, slow: int = 0, relative: bool = False
) -> tuple[int, list[str]]:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    smi = "#!/bin/bash\necho 0, a GPU\n"
    for file, text in (
        (python, PLAYED.format(devices=devices, sleep=sleep, slow=slow)),
        (python.with_name("nvidia-smi"), smi),
    ):
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    given = str(python.relative_to(tmp_path) if relative else python)
    line = ["bash", str(SCRIPT), "--python", given, "--out", str(tmp_path / "out"), *arguments]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()


def test_without_a_gpu_there_is_one_line(tmp_path: Path) -> None:
    line = ["bash", str(SCRIPT), "--python", sys.executable]
    env = {**os.environ, "OUT": str(tmp_path / "out"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 2
    (said,) = done.stdout.splitlines()
    assert said.startswith("gpu_check.sh: no GPU to check: ")
    assert (tmp_path / "out" / "summary.txt").read_text() == f"{said}\n"


@pytest.mark.parametrize("devices", [0, "none"])
def test_no_device_is_no_gpu(tmp_path: Path, devices: int | str) -> None:
    status, said = check(tmp_path, devices=devices)
    assert (status, len(said)) == (2, 1)


def test_a_stage_that_fails_ends_no_other(tmp_path: Path) -> None:
    status, said = check(tmp_path, slow=1)
    assert status == 1
    found = {line.split()[1].rstrip(":"): line for line in said if line.startswith(("ok", "FAILED"))}
    assert list(found) == ["devices", "doctor", "bandwidth", "tests", "staged"]
    assert found["doctor"].endswith("doctor was here")  # its status tells of the machine
    assert found["bandwidth"].startswith("FAILED    bandwidth (status 1): as fast as it is")
    assert [line for line in said if line.startswith("FAILED")] == [found["bandwidth"]]
    assert "left out  aware-by-libucx: no wheel of libucx" in said
    assert "left out  nccl: it wants two devices" in said
    assert said[-1].startswith("done in ")
    assert (tmp_path / "out" / "summary.txt").read_text().splitlines() == said


@pytest.mark.parametrize("relative", [False, True])
def test_a_library_that_takes_no_arrays_of_a_device_is_no_failure(tmp_path: Path, relative: bool) -> None:
    status, said = check(tmp_path, relative=relative)
    assert status == 0, said
    assert "left out  aware: ringbench: refused" in said
    assert not any(line.startswith("FAILED") for line in said)


def test_a_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    line = ["bash", str(SCRIPT), "--python", "nowhere/python", "--out", str(tmp_path / "out")]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (2, "gpu_check.sh: there is no nowhere/python\n")


def test_two_devices_try_nccl_in_both_ways(tmp_path: Path) -> None:
    _, said = check(tmp_path, devices=2)
    assert [line.split()[1] for line in said if " nccl" in line] == ["nccl", "nccl-barrier"]


def test_when_time_is_over_what_is_left_is_named(tmp_path: Path) -> None:
    status, said = check(tmp_path, "--seconds", "12", sleep=40)
    assert status == 1
    assert any(line.startswith("FAILED    tests: no end in ") for line in said)
    assert "left out  staged: the 12 s are over" in said


@pytest.mark.parametrize("arguments", [("--wheels",), ("--nothing", "x")])
def test_wrong_usage_is_said(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex128", "bool"])
def test_the_bandwidth_of_any_dtype_can_be_taken(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    words = ["--device", "cpu", "--sizes", "4KiB", "--dtype", dtype]
    line = [sys.executable, str(ROOT / "benchmarks" / "device_bandwidth.py"), *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("    4KiB  copy ")

"""Tests of how much memory there is, on file systems made for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ringbench.launch.memory import available_bytes, check_memory

MIB = 2**20


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def machine(root: Path, groups: str, files: dict[str, str] | None = None) -> int:
    meminfo = f"MemTotal:       {200 * 1024} kB\nMemAvailable:   {100 * 1024} kB\nHugePages_Total:       0\n"
    write(root, **{"proc/meminfo": meminfo, "proc/self/cgroup": groups}, **(files or {}))
    return available_bytes(root)


def group(folder: str, limit: str, usage: int, cache: int = 0) -> dict[str, str]:
    prefix = f"sys/fs/cgroup/{folder}"
    return {
        f"{prefix}/memory.max": f"{limit}\n",
        f"{prefix}/memory.current": f"{usage}\n",
        f"{prefix}/memory.stat": f"anon 0\ninactive_file {cache}\n",
    }


def old_group(folder: str, limit: int, usage: int, cache: int = 0) -> dict[str, str]:
    prefix = f"sys/fs/cgroup/memory/{folder}"
    return {
        f"{prefix}/memory.limit_in_bytes": f"{limit}\n",
        f"{prefix}/memory.usage_in_bytes": f"{usage}\n",
        f"{prefix}/memory.stat": f"inactive_file 0\ntotal_inactive_file {cache}\n",
    }


def test_without_limit_the_kernels_estimate_counts(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/a\n", group("a", "max", MIB)) == 100 * MIB


def test_limit_less_usage(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/a/b\n", group("a/b", str(60 * MIB), 20 * MIB)) == 40 * MIB


def test_droppable_files_count_as_free(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/a\n", group("a", str(60 * MIB), 20 * MIB, cache=5 * MIB)) == 45 * MIB


def test_a_group_above_may_be_narrower(tmp_path: Path) -> None:
    files = group("a", str(30 * MIB), 20 * MIB) | group("a/b", str(60 * MIB), 20 * MIB)
    assert machine(tmp_path, "0::/a/b\n", files) == 10 * MIB


def test_path_of_the_host_inside_a_container(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/../docker/x\n", group(".", str(9 * MIB), MIB)) == 8 * MIB


def test_version_1(tmp_path: Path) -> None:
    files = old_group("job_7", 50 * MIB, 10 * MIB, cache=MIB) | old_group("", 2**63 - 4096, 70 * MIB)
    assert machine(tmp_path, "5:cpu,cpuacct:/x\n4:memory:/job_7\n1:name=systemd:/\n0::/\n", files) == 41 * MIB


def test_a_full_group_has_nothing_left(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/a\n", group("a", str(5 * MIB), 6 * MIB)) == 0


def test_unreadable_parts_are_skipped(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == sys.maxsize
    assert machine(tmp_path, "nonsense\n0::/a\n", {"sys/fs/cgroup/a/memory.max": "7\n"}) == 100 * MIB


def test_this_machine_has_some() -> None:
    assert MIB < available_bytes() < 2**50


def test_check_names_both_figures() -> None:
    check_memory(MIB, MIB, "ring")
    with pytest.raises(ValueError, match=r"^naive of 1 TiB needs 4096\.00 GiB of memory, but 1\.50 GiB are available$"):
        check_memory(2**42, 3 * 2**29, "naive of 1 TiB")

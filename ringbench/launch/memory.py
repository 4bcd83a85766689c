"""How much memory a job may still take on this machine, the limits of its control groups included."""

from __future__ import annotations

import sys
from pathlib import Path

from ringbench.records.kernel import control_groups, lines, number, whole

_GIB = 2**30

#: For each version of control groups: the files of the limit and of the usage, the name of the droppable part.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def available_bytes(root: str | Path = "/") -> int:
    """Return the bytes that may still be allocated: the kernel's estimate or what a control group leaves, if less.

    Reads ``MemAvailable`` and, for the group of this process and all above it, limit less usage; files kept in memory
    that the kernel can drop count as free. Versions 1 and 2 (kernel documentation, cgroup-v1/memory.rst and
    cgroup-v2.rst). What cannot be read is skipped; where nothing can, ``sys.maxsize``. ``root`` holds proc and sys.
    """
    root = Path(root)
    figures = [sys.maxsize]
    kibibytes = _fields(root / "proc/meminfo").get("MemAvailable:")
    if kibibytes is not None:
        figures.append(kibibytes * 1024)
    for version, folder in control_groups(root, "memory"):
        limit_name, usage_name, cache_name = _FILES[version]
        limit, usage = number(folder / limit_name), number(folder / usage_name)
        if limit is not None and usage is not None:
            cache = _fields(folder / "memory.stat").get(cache_name, 0)
            figures.append(max(0, limit - max(0, usage - cache)))
    return min(figures)


def check_memory(needed_bytes: int, available: int, what: str) -> None:
    """Raise ValueError naming ``what`` and both figures where it needs more bytes than are available."""
    if needed_bytes > available:
        raise ValueError(
            f"{what} needs {needed_bytes / _GIB:.2f} GiB of memory, but {available / _GIB:.2f} GiB are available"
        )


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of names and numbers."""
    words = (line.split() for line in lines(path))
    return {pair[0]: count for pair in words if len(pair) >= 2 and (count := whole(pair[1])) is not None}

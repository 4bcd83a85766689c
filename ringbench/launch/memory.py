"""How much memory a job may still take on this machine, the limits of its control groups included."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

_GIB = 2**30


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
    for folder, limit_name, usage_name, cache_name in _groups(root):
        limit, usage = _number(folder / limit_name), _number(folder / usage_name)
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


def _groups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield folder, file of the limit, file of the usage and name of the droppable part for each group, upwards."""
    mount = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            top, names = mount, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            top = mount / "memory"
        else:
            continue
        # In a container the path may be the host's and absent here; the walk ends at the mount, which is there.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:depth]), *names


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _number(path: Path) -> int | None:
    """Return the number a file holds; None where it holds none, as for the limit ``max``."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of names and numbers."""
    words = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in words if len(pair) >= 2 and pair[1].isdecimal()}

"""Small files in which the kernel tells of itself, read so that nothing is raised; ``root`` holds proc and sys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: More no counter of the kernel has.
_DIGITS = 20


def lines(path: Path) -> list[str]:
    """Return the lines of a file, none where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):  # names that are none
        return []


def whole(word: str) -> int | None:
    """Return the whole number, not negative, that a word is; None where it is none that a machine counts to."""
    word = word.strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= _DIGITS else None


def number(path: Path) -> int | None:
    """Return the number a file holds; None where it holds none, as for the limit ``max``."""
    found = lines(path)
    return whole(found[0]) if found else None


def control_groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield version (1 or 2) and folder of the groups of this process that a controller rules, and all above them.

    Kernel documentation, cgroup-v1/cgroups.rst and cgroup-v2.rst.
    """
    mount = root / "sys/fs/cgroup"
    for line in lines(root / "proc/self/cgroup"):
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            version, top = 2, mount
        elif controller in controllers.split(","):
            version, top = 1, mount / controller
        else:
            continue
        # In a container the path may be the host's and absent here; the walk ends at the mount, which is there.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield version, top.joinpath(*parts[:depth])

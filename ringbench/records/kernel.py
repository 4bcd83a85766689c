"""Small files in which the kernel tells of itself, read so that nothing is raised; ``root`` holds proc and sys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def lines(path: Path) -> list[str]:
    """Return the lines of a file, none where it cannot be read."""
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):  # bytes that are no text, and names that are none
        return []


def number(path: Path) -> int | None:
    """Return the number a file holds; None where it holds none, as for the limit ``max``."""
    found = lines(path)
    return int(found[0]) if found and found[0].strip().isdecimal() else None


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

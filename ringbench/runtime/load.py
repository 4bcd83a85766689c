"""How much of some cores' time others use. Needs no MPI, and never raises."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from ringbench.records.kernel import lines, whole

#: How long the load of others is watched, in seconds: 20 ticks of the kernel's accounting.
WATCHED_S = 0.2

#: Columns of /proc/stat, of user, nice, system, idle, iowait, irq, softirq and steal, in which a core does not work.
_IDLE, _WAITING = 3, 4


def worked_s(root: str | Path, cores: Collection[int]) -> float | None:
    """Return for how many seconds these cores have worked since the machine started, None where that is not told.

    What a hypervisor gave to other guests (steal) counts; waiting for disks does not. proc_stat(5).
    """
    wanted = {f"cpu{core}" for core in cores}
    ticks, seen = 0, set()
    for line in lines(Path(root) / "proc/stat"):
        name, *words = line.split() or [""]
        counts = [whole(word) for word in words[:8]] if name in wanted else []
        if len(counts) == 8 and None not in counts:
            ticks += sum(count or 0 for at, count in enumerate(counts) if at not in (_IDLE, _WAITING))
            seen.add(name)
    return ticks / os.sysconf("SC_CLK_TCK") if wanted and seen == wanted else None


def others_cpus(before_s: float | None, after_s: float | None, own_s: float, passed_s: float) -> float | None:
    """Return how many cores' worth of time others used while ``own_s`` was this job's share, None where not known."""
    if before_s is None or after_s is None or passed_s <= 0:
        return None
    return round(max(0.0, after_s - before_s - own_s) / passed_s, 3)


def watch_others(root: str | Path, cores: Collection[int], seconds: float = WATCHED_S) -> float | None:
    """Sleep, and return how many cores' worth of time all but this process used of these cores meanwhile."""
    own, start, before = time.process_time(), time.monotonic(), worked_s(root, cores)
    time.sleep(seconds)
    after, passed = worked_s(root, cores), time.monotonic() - start
    return others_cpus(before, after, time.process_time() - own, passed)

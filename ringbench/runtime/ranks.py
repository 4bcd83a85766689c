"""Who takes part: what each rank says of itself, and what that means for the numbers."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

from ringbench.records.guards import GUARDS
from ringbench.runtime.world import first_line

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

#: What must be the same on all ranks.
COMMON = ("ringbench", "mpi_library", "mpi4py", "numpy", "python")


def describe_rank(version: str) -> dict[str, Any]:
    """Return what this rank knows of itself: versions, host, process, the cores it may run on."""
    return {
        "ringbench": version,
        "mpi_library": first_line(MPI.Get_library_version()),
        "mpi_standard": ".".join(map(str, MPI.Get_version())),
        "mpi4py": mpi4py.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "host_cpus": os.cpu_count(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
    }


def gather_ranks(comm: Any, version: str) -> list[dict[str, Any]]:
    """Return every rank's description on every rank; raise ValueError on all where they disagree on a version."""
    ranks: list[dict[str, Any]] = comm.allgather(describe_rank(version))
    for name in COMMON:
        for rank, other in enumerate(ranks):
            if other[name] != ranks[0][name]:
                raise ValueError(f"ranks disagree on {name}: {ranks[0][name]} on rank 0, {other[name]} on rank {rank}")
    return ranks


def placement_warnings(ranks: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[str]]:
    """Return the warnings that rows must carry, and one line with advice for each host that says why.

    ``oversubscribed``: some set of ranks has fewer cores than members, so that not each can have one of its own;
    ``shared core``: it has a single core, and the machine has enough for all ranks there; ``unpinned``: a rank may move
    between cores.
    """
    hosts: dict[str, list[frozenset[int]]] = {}
    machine: dict[str, int] = {}
    for rank in ranks:
        hosts.setdefault(rank["host"], []).append(frozenset(rank["cpus"]))
        machine[rank["host"]] = rank["host_cpus"] or 0
    names, lines = set(), []
    for host, masks in hosts.items():
        crowded = _crowded(masks)
        if crowded is not None:
            count, cores = crowded
            name = "shared core" if len(cores) == 1 and len(masks) <= machine[host] else "oversubscribed"
            cores_text = f"core{'' if len(cores) == 1 else 's'} {_ranges(cores)}"
            text = f"{count} ranks share {cores_text}; their times are not those of the network"
        elif any(len(mask) > 1 for mask in masks):
            name, text = "unpinned", "ranks are not bound to one core each, and may move between them"
        else:
            continue
        names.add(name)
        lines.append(f"{host}: {text}; {GUARDS[name].advice}")
    return tuple(sorted(names)), lines


def _crowded(masks: Sequence[frozenset[int]]) -> tuple[int, list[int]] | None:
    """Give each rank a core of its own from its mask; return how many share which cores where that cannot be.

    Bipartite matching by augmenting paths; the cores that a rank without one can reach are Hall's counterexample.
    """
    owner: dict[int, int] = {}
    own: dict[int, int] = {}
    for rank in range(len(masks)):
        seeker: dict[int, int] = {}  # who would take each core that was reached
        queue, free = [rank], None
        for reached in queue:  # grows while it is read
            for core in masks[reached].difference(seeker):
                seeker[core] = reached
                if core in owner:
                    queue.append(owner[core])
                else:
                    free = core
            if free is not None:
                break
        if free is None:
            return sum(mask <= seeker.keys() for mask in masks), sorted(seeker)
        while free is not None:  # everybody on the path moves on by one core
            taker = seeker[free]
            owner[free], own[taker], free = taker, free, own.get(taker)
    return None


def other_hosts(jobs: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> str | None:
    """Return a line where earlier jobs of a run had as many ranks on other hosts, whose rows stand beside these."""
    others = {tuple(job.get("hosts", ())) for job in jobs} - {tuple(hosts)}
    there = sorted({",".join(dict.fromkeys(names)) for names in others if len(names) == len(hosts)})
    if not there:
        return None
    return f"measured on {','.join(dict.fromkeys(hosts))}, but earlier rows of this run on {' and '.join(there)}"


def ring_edges_line(ranks: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a line that counts the ring's edges between nodes, with advice where another mapping has fewer."""
    hosts = [rank["host"] for rank in ranks]
    nnodes = len(set(hosts))
    if nnodes < 2:
        return None
    edges = sum(host != hosts[(rank + 1) % len(hosts)] for rank, host in enumerate(hosts))
    line = f"ring: {edges} edges between {nnodes} nodes"
    return line if edges == nnodes else f"{line}; {nnodes} are possible with ranks in order of nodes (--map-by slot)"


#: By these words of ``hosts_line`` a job is known to have started.
OF_ONE_JOB = "of one job"


def hosts_line(ranks: Sequence[Mapping[str, Any]]) -> str:
    """Return a line that says which ranks run on which hosts, and with which library."""
    hosts: dict[str, list[int]] = {}
    for number, rank in enumerate(ranks):
        hosts.setdefault(rank["host"], []).append(number)
    where = ", ".join(f"{host}: {_ranges(numbers)}" for host, numbers in hosts.items())
    library = ranks[0]["mpi_library"].partition(",")[0]
    return f"{len(ranks)} rank{'s'[: len(ranks) > 1]} {OF_ONE_JOB} ({where}), {library}"


def _ranges(numbers: Sequence[int]) -> str:
    words: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            words.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ",".join(words)

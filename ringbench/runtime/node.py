"""Have one rank of each node read what its machine does to the numbers, while the others keep still."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringbench.runtime.load import WATCHED_S, others_cpus, worked_s
from ringbench.runtime.machine import Machine, judge, machine_warnings, read_machine
from ringbench.runtime.peek import read_memory

#: Ranks sleep so much longer than the one that watches, so that none of them wakes up before it has looked.
_LONGER_S = 0.03


def gather_machines(
    comm: Any, ranks: Sequence[Mapping[str, Any]], environ: Mapping[str, str], root: str | Path = "/"
) -> list[Machine]:
    """Return the facts of each node, in the order of its first rank, on every rank; takes a quarter of a second."""
    rank, hosts = comm.Get_rank(), [other["host"] for other in ranks]
    here = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    first = here[0] == rank
    cores = sorted({core for other in here for core in ranks[other]["cpus"]})
    secret = ctypes.create_string_buffer(os.urandom(16))
    secrets = comm.allgather((os.getpid(), ctypes.addressof(secret), secret.raw))

    comm.Barrier()
    own = time.process_time()
    comm.Barrier()  # who spins in this one is known to be of this job
    start, before = time.monotonic(), worked_s(root, cores) if first else None
    time.sleep(WATCHED_S if first else WATCHED_S + _LONGER_S)
    after, passed = worked_s(root, cores) if first else None, time.monotonic() - start
    used = comm.allgather(time.process_time() - own)
    machine = None
    if first:
        machine = read_machine(
            host=hosts[rank],
            cores=cores,
            others_cpus=others_cpus(before, after, sum(used[other] for other in here), passed),
            cma=_try_cma(secrets[here[1]]) if len(here) > 1 else None,
            environ=environ,
            root=root,
        )
    found = comm.allgather(machine)  # the secrets stay until all have tried
    return [other for other in found if other is not None]


def judge_machines(
    machines: Sequence[Machine], ranks: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the warnings that rows must carry, and one line with advice for each."""
    hosts, library = [rank["host"] for rank in ranks], ranks[0]["mpi_library"]
    judged = [
        (machine.host, judge(machine, nranks=hosts.count(machine.host), nnodes=len(machines), library=library))
        for machine in machines
    ]
    return machine_warnings(judged)


def _try_cma(secret: tuple[int, int, bytes]) -> str:
    """Read another rank's memory as the MPI library would; return ``ok``, or why it could not be."""
    pid, address, content = secret
    try:
        return "ok" if read_memory(pid, address, len(content)) == content else "what was read is not what is there"
    except OSError as error:
        return str(error.strerror or error)

"""Gather the facts of nodes over ranks that call their hosts as they like: ``nodes.py a b a b``; rank 0 prints them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from ringbench.records.provenance import package_version
from ringbench.runtime.node import gather_machines
from ringbench.runtime.world import library_version, start

if __name__ == "__main__":
    library_version()
    comm = start()
    from ringbench.runtime.ranks import gather_ranks

    ranks = [
        {**rank, "host": host} for rank, host in zip(gather_ranks(comm, package_version()), sys.argv[1:], strict=True)
    ]
    machines = gather_machines(comm, ranks, os.environ)
    every = comm.allgather(machines)
    assert all(other == machines for other in every)
    if comm.Get_rank() == 0:
        print(json.dumps([asdict(machine) for machine in machines]))

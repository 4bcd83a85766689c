"""Fail on one rank where the others wait, with memory shared: ``python -m mpi4py`` must end the job."""

from __future__ import annotations

from mpi4py import MPI

import ringbench

comm = MPI.COMM_WORLD
vector = ringbench.empty_shared(comm, 1000)
ringbench.plan("allreduce", "shared_memory", comm, MPI.IN_PLACE, vector)()
if comm.Get_rank() == 1:
    raise RuntimeError("alone")
comm.Barrier()

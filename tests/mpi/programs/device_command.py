"""The command line with a device made of host memory for ``cuda``, and a stand-in for NCCL; its arguments follow.

Behind a first argument ``broken`` arrays of rank 1 cannot be made, as where CuPy finds no memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mpi4py import MPI

from ringbench.runtime import arrays

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fakecuda import FakeCudaBackend
from fakenccl import FakeNccl

from ringbench.cli import main


class Broken(FakeCudaBackend):
    def from_host(self, array: Any) -> Any:
        if MPI.COMM_WORLD.Get_rank() == 1:
            raise RuntimeError("out of memory")
        return super().from_host(array)


if __name__ == "__main__":
    words = sys.argv[1:]
    broken = words[0] == "broken"
    fake = Broken() if broken else FakeCudaBackend()
    fake.device = "cuda"
    fake.nccl_module = FakeNccl(fake)
    arrays.BACKENDS[:] = [fake, arrays.NumpyBackend()]
    sys.exit(main(words[broken:]))

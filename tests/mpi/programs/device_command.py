"""The command line with a device made of host memory for ``cuda``, and a stand-in for NCCL; its arguments follow."""

from __future__ import annotations

import sys
from pathlib import Path

from ringbench.runtime import arrays

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fakecuda import FakeCudaBackend
from fakenccl import FakeNccl

from ringbench.cli import main

if __name__ == "__main__":
    fake = FakeCudaBackend()
    fake.device = "cuda"
    fake.nccl_module = FakeNccl(fake)
    arrays.BACKENDS[:] = [fake, arrays.NumpyBackend()]
    sys.exit(main(sys.argv[1:]))

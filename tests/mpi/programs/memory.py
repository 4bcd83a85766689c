"""What a measurement takes beside its buffers: little, also where one size or placement follows another."""

from __future__ import annotations

from pathlib import Path

from battery import Battery, battery

from ringbench.records.settings import Settings
from ringbench.runtime import worker
from ringbench.runtime.demands import memory_needed

MIB = 2**20
S = 96 * MIB


def most_bytes() -> int:
    """Return the most memory that this process ever had resident."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say")


def a_ring_needs_little(tests: Battery) -> None:
    bare = most_bytes()  # Python, MPI and NumPy
    settings = Settings(algorithms=("ring",), sizes=(MIB, S // 2, S), placement="both", max_samples=8, warmup=1)
    for row in worker.measure(tests.comm, settings):
        tests.check(row.wrong == 0, str(row))
    needed, _ = memory_needed(settings, tests.nranks)
    tests.check(needed <= 3 * S, f"{needed} bytes are planned")
    most = most_bytes()
    tests.check(most <= 3 * S + 64 * MIB, f"{most / MIB:.0f} MiB where {(3 * S) // MIB + 64} are allowed")
    more = most - bare
    tests.check(more <= needed + 16 * MIB, f"{more / MIB:.0f} MiB more where {needed / MIB:.0f} were planned")


if __name__ == "__main__":
    with battery() as tests:
        a_ring_needs_little(tests)

"""How fast does a device copy and add its own memory? An addition should reach 80 % of the copy's bandwidth.

Run it as ``python benchmarks/device_bandwidth.py [--device cpu]``. Times are those of the device, between two events on
its stream; a copy moves each byte twice, an addition in place three times.
"""

from __future__ import annotations

import argparse
import sys

from ringbench.records.units import format_size, parse_sizes
from ringbench.runtime.arrays import backend_for
from ringbench.runtime.demands import ITEMSIZE

#: Of the copy's bandwidth, at the largest size.
ENOUGH = 0.8


def main() -> int:
    """Print a line for each size; return 1 where the additions of the largest are too slow, 2 without a device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="1MiB:256MiB:x4")
    parser.add_argument("--dtype", default="float32", choices=ITEMSIZE)
    arguments = parser.parse_args()
    share = 0.0
    try:
        backend = backend_for(arguments.device)
        if backend.devices():
            print(f"{backend.use(0)['name']}, {arguments.dtype}; GB/s = 10^9 B/s")
        for nbytes in parse_sizes(arguments.sizes):
            count = nbytes // ITEMSIZE[arguments.dtype]
            one, other = (backend.empty(count, arguments.dtype) for _ in range(2))
            one[...] = other[...] = 0
            add, repeats = backend.kernel("sum"), max(3, min(200, 2**32 // nbytes))
            rates = {}
            for name, call, moved in (
                ("copy", lambda one=one, other=other: backend.copy(one, other), 2),
                ("add", lambda one=one, other=other, add=add: add(one, other, one), 3),
            ):
                backend.seconds(call, 3)
                rates[name] = moved * nbytes / backend.seconds(call, repeats) / 1e9
            share = rates["add"] / rates["copy"]
            print(f"{format_size(nbytes):>8}  copy {rates['copy']:8.1f}  add {rates['add']:8.1f}  share {share:.2f}")
    except ValueError as error:
        print(f"device_bandwidth.py: {error}", file=sys.stderr)
        return 2
    print(f"additions reach {share:.0%} of the copy's bandwidth; {ENOUGH:.0%} are wanted")
    return 0 if share >= ENOUGH or arguments.device == "cpu" else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Reduce one bucket with each compression beside an uncompressed ring, and print what it costs, saves and loses.

Start with ``mpirun -n 4 python benchmarks/compression_cost.py``, or in a lab, whose links are slow enough to be spared.
The bucket is one matrix of normal numbers, float32, others on each rank. Prints, for each compression: what the busiest
rank sends, milliseconds of encoding, messages and decoding, one after the other, what is gained beside the ring alone
(below 0: lost), the error of the first step (the length of what is lost / that of the average), and from how many ranks
on it sends more than a ring would.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # ranks share what cores there are

import numpy as np
from mpi4py import MPI
from tabulate import tabulate

import ringbench
from ringbench.ddp.compress import hook_named, measure
from ringbench.ddp.compress_study import pieces_of

NAMES = ("fp16", "bf16", "powersgd:1", "powersgd:4", "sign", "topk:0.1", "topk:0.01")
MOST = 4096
HEADS = ("compress", "sent", "encode", "messages", "decode", "ring alone", "gained", "error", "sends more from")


def turns(hook: Any, pieces: Any, nbytes: int) -> str:
    """Say from how many ranks on a compression sends at least what a ring sends."""
    for nranks in range(2, MOST + 1):
        if hook.wire_bytes(pieces, 4, nranks) >= 2 * (nranks - 1) * nbytes // nranks:
            return f"N = {nranks}"
    return "never"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024, help="of the square matrix (default 1024: 4 MiB)")
    parser.add_argument("--compress", default=",".join(NAMES))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    pieces = pieces_of([(arguments.rows, arguments.rows)])
    random = np.random.default_rng(comm.Get_rank())
    gradients = random.standard_normal(arguments.rows**2).astype(np.float32)

    def make_plan(collective: str, sendbuf: Any, recvbuf: Any, op: str = "sum") -> ringbench.Plan:
        return ringbench.plan(collective, "ring", comm, sendbuf, recvbuf, op)

    rows = []
    for name in arguments.compress.split(","):
        hook = hook_named(name)
        if hook is None:
            parser.error(f"--compress {name}: is none")
        found = measure(comm, hook, gradients, pieces, make_plan, arguments.repeats)
        times = (found.encode_s, found.wire_s, found.decode_s, found.plain_s, found.net_s)
        sent = (
            "-" if not found.plain_bytes or found.wire_bytes is None else f"{found.wire_bytes / found.plain_bytes:.1%}"
        )
        rows.append(
            [
                name,
                sent,
                *(f"{1e3 * time:.3g}" for time in times),
                f"{found.error:.2g}",
                turns(hook, pieces, gradients.nbytes),
            ]
        )
    if comm.Get_rank() == 0:
        print(f"### {gradients.nbytes / 2**20:g} MiB of float32, N = {comm.Get_size()}; ms\n", flush=True)
        print(tabulate(rows, headers=HEADS, tablefmt="pipe", disable_numparse=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

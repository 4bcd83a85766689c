#!/usr/bin/env python3
"""Train on scikit-learn's digits with each compression of gradients, and print the losses beside each other.

Start with ``mpirun -n 4 python benchmarks/compression_loss.py``. The same network, batches and rate each time; what
differs is how gradients are packed before they are averaged. Prints the loss, over the batch of all ranks, every 20
steps, as the mean of the steps since; and what a rank sends in a step beside what it would send uncompressed.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # ranks share what cores there are

import numpy as np
from mpi4py import MPI
from tabulate import tabulate

from ringbench.ddp import DataParallel
from ringbench.ddp.compress import hook_named
from ringbench.ddp.mlp import initial_parameters, load_digits, train

NAMES = ("none", "fp16", "bf16", "powersgd:1", "powersgd:4", "sign", "topk:0.1", "topk:0.01")
EVERY = 20


def sent(name: str) -> int:
    """Return the bytes that a rank sends in a step, at least."""
    with DataParallel(MPI.COMM_WORLD, initial_parameters(dtype="float32"), hook=hook_named(name)) as averaged:
        return averaged.wire_bytes


def main() -> int:
    """Train and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compress", default=",".join(NAMES))
    arguments = parser.parse_args()
    if arguments.steps < EVERY:
        parser.error(f"--steps {arguments.steps}: must be at least {EVERY}")
    comm, digits = MPI.COMM_WORLD, load_digits("float32")
    rows, plain = [], sent("none")
    for name in arguments.compress.split(","):
        found = train(comm, digits, steps=arguments.steps, hook=hook_named(name)).losses
        means = np.mean(np.reshape(found[: arguments.steps // EVERY * EVERY], (-1, EVERY)), axis=1)
        rows.append([name, f"{sent(name) / plain:.1%}" if plain else "-", *(f"{loss:.4f}" for loss in means)])
    if comm.Get_rank() == 0:
        heads = ["compress", "sent", *(f"to {EVERY * at}" for at in range(1, arguments.steps // EVERY + 1))]
        print(tabulate(rows, headers=heads, tablefmt="pipe", disable_numparse=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

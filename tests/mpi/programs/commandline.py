"""Run ringbench with something broken: ``commandline.py HOW [--call] RINGBENCH'S ARGUMENTS...``.

HOW is ``flip:ALGORITHM:BYTES`` (one bit of the result of that algorithm at that size), ``schedule`` (registers broken
schedules by name), ``weaken:WHAT`` (the check itself) or one of the ends of broken.py with a rank, as ``fail:1``, which
comes in the middle of the ring, at the first size or, as ``fail:1:4096``, at another.
It is started as ``python -m ringbench`` would be, or with ``--call`` as a caller of ``ringbench.cli.main``.
"""

from __future__ import annotations

import runpy
import sys

import broken

import ringbench.collectives  # noqa: F401  (fills the registry)

#: After the two checks and the five warm-ups: while samples are taken.
MIDDLE = 10


def break_it(how: str) -> None:
    kind, _, rest = how.partition(":")
    if kind == "schedule":
        broken.register_schedules()
    elif kind == "weaken":
        broken.weaken(rest)
    elif kind == "flip":
        algorithm, _, nbytes = rest.partition(":")
        broken.spoil_plans(
            lambda name, rank, size: (
                broken.flip_first_block if (name, size, rank) == (algorithm, int(nbytes), 0) else None
            )
        )
    else:
        end = broken.at_call(MIDDLE, broken.ENDS[kind])
        at, _, nbytes = rest.partition(":")
        broken.spoil_plans(
            lambda name, rank, size: (
                end if (name, rank) == ("ring", int(at)) and (not nbytes or size == int(nbytes)) else None
            )
        )


if __name__ == "__main__":
    # Before ringbench.runtime.world has its say broken.py loaded mpi4py, which must leave starting MPI to it.
    how, *arguments = sys.argv[1:]
    break_it(how)
    if arguments[0] == "--call":
        from ringbench.cli import main

        sys.exit(main(arguments[1:]))
    sys.argv = ["ringbench", *arguments]
    runpy.run_module("ringbench", run_name="__main__", alter_sys=True)

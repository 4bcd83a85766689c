"""Fail on one rank, by a check or by an exception: this is how the other programs would."""

from __future__ import annotations

import sys

from battery import battery

with battery() as tests:
    tests.check(True, "never said")
    if tests.rank == 1:
        if sys.argv[1] == "raise":
            raise KeyError("on purpose")
        tests.check(False, "one is not two")
    tests.comm.Barrier()

"""Stand for an mpirun, and break what ``ringbench sweep`` starts with it.

Started as ``PYTHON breaking_mpirun.py MPIRUN NRANKS=HOW,NRANKS=HOW ARGUMENTS...``: a job of NRANKS ranks runs
commandline.py with HOW, every other one, and the question for the version, goes to MPIRUN as it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

mpirun, broken, *arguments = sys.argv[1:]
hows = dict(one.split("=") for one in broken.split(","))
how = hows.get(arguments[arguments.index("-n") + 1]) if "-m" in arguments else None
if how is not None:
    at = arguments.index("-m")
    start = at - 1 if arguments[at - 1] == "-P" else at  # which would hide the modules beside the program
    arguments[start : at + 2] = [str(Path(__file__).with_name("commandline.py")), how]
os.execv(mpirun, [mpirun, *arguments])

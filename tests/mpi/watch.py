"""Run a command, then see that nothing of it is left: ``python watch.py COMMAND...``.

Ends with the command's exit status (128 + N where signal N ended it), or with 98 where some process of it still runs
five seconds after its end. A SIGTERM is handed on to the command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ringbench.launch.process import MARKER, job_processes

PATIENCE_S = 5.0


def left_behind() -> list[int]:
    name = os.environ[MARKER].rpartition(":")[2]
    return sorted(job_processes({os.getsid(0)}, name))


def watch(line: list[str]) -> int:
    process = subprocess.Popen(line)
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    status = process.wait()
    end = time.monotonic() + PATIENCE_S
    while left := left_behind():
        if time.monotonic() > end:
            for pid in left:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                print(f"left behind: {pid} {words}", file=sys.stderr)
            return 98
        time.sleep(0.1)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(watch(sys.argv[1:]))

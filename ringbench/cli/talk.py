"""How commands speak: lines on stderr, once for a whole MPI job, and what stops them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ringbench.arguments import UsageError


def say(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


#: Go to the start of the terminal's line, and empty it.
ERASE = "\r\x1b[K"


class LiveLine:
    """Keep one line of a terminal up to date; ``width`` is that of the terminal, None where nothing is to be shown."""

    def __init__(self, width: int | None):
        self.width = width

    def show(self, text: str) -> None:
        """Put a text in the place of the line that is there; an empty one takes it away."""
        if self.width is not None:
            sys.stderr.write(ERASE + text[: self.width - 1])
            sys.stderr.flush()


def live_width() -> int | None:
    """Return how many columns stderr has where it is a terminal that can take back a line, else None."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return None
    return os.get_terminal_size(sys.stderr.fileno()).columns or 80


def say_once(text: str) -> None:
    """Say a line once for a whole MPI job: on rank 0, or where there is no common world, by the first on its node."""
    from ringbench.launch.environment import launched

    job = launched(os.environ)
    if job is None or job.size == 1:
        say(text)
        return
    with contextlib.suppress(Exception):
        comm = world()
        if comm.Get_size() > 1:
            if comm.Get_rank() == 0:
                say(text)
            comm.Barrier()  # or a launcher might end rank 0, at the first exit, before it has spoken
            return
    marker = Path(tempfile.gettempdir()) / f"ringbench-{os.getuid()}-{os.getppid()}"
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    except OSError:
        say(text)
        return
    try:
        say(text)
        time.sleep(1.0)
    finally:
        marker.unlink(missing_ok=True)


def world(thread_level: str = "multiple") -> Any:
    """Return COMM_WORLD; raise UsageError where MPI cannot be loaded or is not that of the launcher."""
    from ringbench.launch.environment import check_library, check_world
    from ringbench.runtime.world import library_version, start

    try:
        problem = check_library(os.environ, library_version())
    except ValueError as error:
        raise UsageError(str(error)) from None
    if problem is None:
        comm = start(thread_level)
        problem = check_world(os.environ, comm.Get_size())
    if problem is not None:
        raise UsageError(problem)
    return comm


def words_of(error: Exception) -> str:
    """Return what an error says, for a file its name first."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class WrongDataError(Exception):
    """Report a file that is not what it should be: one line, exit status 1."""


class Terminated(BaseException):
    """Report SIGTERM, as Slurm sends it before it ends a job, or SIGHUP, as a terminal does that is closed."""


def ending(reason: BaseException) -> str:
    """Return the word for what stopped a command."""
    return "interrupted" if isinstance(reason, KeyboardInterrupt) else "terminated"


def heed_signals() -> None:
    """Have SIGTERM and SIGHUP raise Terminated, unless they are ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, raise_terminated)


def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by raising Terminated."""
    raise Terminated

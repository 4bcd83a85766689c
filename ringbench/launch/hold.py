"""Who may write a run's file: one sweep at a time, and one job of it at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringbench.records.run import append, repair

#: How long a job that outlives a killed sweep is waited for: mpirun has it ended in a second or two.
PATIENCE_S = 10.0

#: The byte that a sweep locks, and the one that rank 0 of a job locks. The bytes need not exist.
_SWEEP, _JOB = 0, 1

# fcntl(2): locks of an open file description, which end with their process, however it ends, and not at the close of
# just any descriptor of the file, as those of lockf do. Old headers lack the name.
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", 37)

#: Some file systems of clusters have no locks at all; a sweep there is better than none.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def sole_writer(file: Path, note: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Hold a run's file for one sweep; raise ValueError where another sweep, or a job that one left, holds it.

    A torn last line is cut off and ``note`` appended while no job can be at work: by the length of the file a job whose
    sweep was killed before it could begin (``hold_for_job``) learns that it comes too late.
    """
    held = _hold(file, _SWEEP, 0.0, "another sweep is at work on it")
    try:
        alone = _hold(file, _JOB, PATIENCE_S, "a job of an earlier sweep is still at work on it")
        try:
            repair(file)
            if note is not None:
                append(file, note)
        finally:
            os.close(alone)
        yield
    finally:
        os.close(held)


def hold_for_job(file: Path, nbytes: int | None = None) -> int:
    """Hold a run's file for rank 0 of a job, which alone writes while it lives; return the descriptor that holds it.

    Raises ValueError where another job holds it, or where it has not the ``nbytes`` that it had when the job's sweep
    started the job: then another sweep has gone on with the run.
    """
    held = _hold(file, _JOB, PATIENCE_S, "another job is at work on it")
    found = os.fstat(held).st_size
    if nbytes is not None and found != nbytes:
        os.close(held)
        raise ValueError(f"{file}: has {found} bytes, not {nbytes} as when this job was started: its sweep is gone")
    return held


def _hold(file: Path, byte: int, patience_s: float, problem: str) -> int:
    descriptor = os.open(file, os.O_RDWR)
    end = time.monotonic() + patience_s
    try:
        while not _lock(descriptor, byte):
            if time.monotonic() >= end:
                raise ValueError(f"{file}: {problem}")
            time.sleep(0.05)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, byte: int) -> bool:
    """Try to lock one byte; say whether nobody else has it."""
    wanted = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, wanted)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True

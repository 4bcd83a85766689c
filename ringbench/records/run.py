"""The file of a run: ``run.jsonl``, one object a line, written by one process at a time, each line whole."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringbench.records.ddp_row import DdpRow
from ringbench.records.row import Row
from ringbench.records.settings import Settings

SCHEMA_VERSION = 1
RUN_FILE = "run.jsonl"

#: What a number beyond those of 64 bits cannot be written without: an exponent of three digits, or very many digits.
_LARGE = (b"e000", b"E000", b"e+000", b"E+000", b"0" * 200)
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Hold what a run's file says: ``provenance`` (its first line), one entry in ``jobs`` for each MPI job, the rows.

    ``steps`` are the rows of ``ringbench ddp``.

    ``status`` is ``complete`` or ``partial``; ``torn`` says that the last line was cut off and left out, ``repeated``
    how many rows of a case that an earlier line holds were left out. A row without a round in which all ranks were on
    time is forgotten where a later one has the case. ``plan`` is the line that says what was asked for last: the first,
    or that of the last ``--resume``.
    """

    path: Path
    provenance: Mapping[str, Any]
    plan: Mapping[str, Any] = field(default_factory=dict)
    jobs: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Row, ...] = ()
    steps: tuple[DdpRow, ...] = ()
    status: str = "partial"
    torn: bool = False
    repeated: int = 0


def run_file(path: str | Path) -> Path:
    """Return the file of a run named by itself or by its folder."""
    path = Path(path)
    return path / RUN_FILE if path.is_dir() else path


def encode(record: Mapping[str, Any]) -> bytes:
    """Return one line of a run's file; raise ValueError for NaN or Infinity, which JSON does not have."""
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record to a run's file as one whole line, and have the disk take it.

    One ``write`` to a file opened for appending: a killed writer leaves the line or nothing. A first line makes the
    file; any other has to find it, or a file removed in the middle would come back without its first line. Raises
    OSError naming the file where it cannot be written.
    """
    line = encode(record)
    create = os.O_CREAT if record.get("kind") == "provenance" else 0
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | create, 0o644)
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            problem = f"only {written} of {len(line)} bytes written; is the disk full?"
            raise OSError(errno.ENOSPC, problem, str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rows_of(rows: Iterable[Row], settings: Settings, nranks: int) -> list[Row]:
    """Return the rows of so many ranks that measured what the settings mean, at whatever size, algorithm and launch."""
    asked = (nranks, settings.collective, settings.dtype, settings.device)
    return [
        row
        for row in rows
        if (row.nranks, row.collective, row.dtype, row.device) == asked and row.op in (settings.op, "none")
    ]


def repair(path: Path) -> bool:
    """Cut off a torn last line, so that the next one starts a line of its own; return whether there was one.

    Raises ValueError where not even the first line is whole: that is no run.
    """
    with open(path, "rb+") as stream:
        content = stream.read()
        whole = content.rfind(b"\n") + 1
        if whole == 0:
            raise ValueError(f"{path}: not the file of a run: it has no whole line")
        if whole == len(content):
            return False
        stream.truncate(whole)
    return True


def read_run(path: str | Path) -> Run:
    """Read a run from its file or folder.

    A torn last line is left out and reported in ``torn``. Raises ValueError naming the file and line where something
    else is wrong, FileNotFoundError where there is no file.
    """
    file = run_file(path)
    lines = file.read_bytes().split(b"\n")
    torn = bool(lines.pop())
    records = [_decode(file, number, line) for number, line in enumerate(lines, 1)]
    if not records or records[0].get("kind") != "provenance":
        raise ValueError(f"{file}: not the file of a run: its first line is no provenance")
    version = records[0].get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ValueError(f"{file}: schema_version {version!r} is not the {SCHEMA_VERSION} that this ringbench reads")
    rows: dict[tuple[Any, ...], Row] = {}
    steps: dict[tuple[Any, ...], DdpRow] = {}
    repeated, jobs, status, plan = 0, 0, "partial", records[0]
    for number, record in enumerate(records, 1):
        if record.get("kind") == "row":
            try:
                row = Row.from_json(record, job=jobs)
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: {error}") from None
            key = row.key
            if key in rows and not rows[key].missed:  # two sweeps at once, say: no case counts twice
                repeated += 1
                continue
            rows.pop(key, None)
            rows[key] = row
        elif record.get("kind") == "ddp":
            try:
                step = DdpRow.from_json(record)
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: {error}") from None
            repeated += step.key in steps
            steps.setdefault(step.key, step)
        elif record.get("kind") == "end":
            status = "complete" if record.get("status") == "complete" else "partial"
        elif record.get("kind") == "resume":
            status, plan = "partial", record
        elif record.get("kind") == "job":  # the run goes on: what an earlier end said is over
            status = "partial"
            jobs += 1
            _check_job(file, number, record)
    return Run(
        path=file,
        provenance=records[0],
        plan=plan,
        jobs=tuple(record for record in records if record.get("kind") == "job"),
        rows=tuple(rows.values()),
        steps=tuple(steps.values()),
        status=status,
        torn=torn,
        repeated=repeated,
    )


def _check_job(file: Path, number: int, job: Mapping[str, Any]) -> None:
    hosts = job.get("hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(host, str) and host.isprintable() for host in hosts):
        raise ValueError(f"{file}, line {number}: the hosts of a job are no list of names")
    for name, said in (("mpi_library", "MPI library"), ("thread_level", "thread level")):
        text = job.get(name) or ""
        if not isinstance(text, str) or not text.isprintable():
            raise ValueError(f"{file}, line {number}: the {said} of a job is no name")


def _decode(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        # Looking at each number takes as long as all the rest, and hardly a line has one that might be too large.
        record = json.loads(line, parse_constant=_refuse, parse_float=_finite if _has_large(line) else None)
    except RecursionError:
        raise ValueError(f"{file}, line {number}: nested too deep") from None
    except ValueError as error:
        raise ValueError(f"{file}, line {number}: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"{file}, line {number}: not an object")
    return record


def _has_large(line: bytes) -> bool:
    alike = line.translate(_DIGITS_ALIKE)
    return any(part in alike for part in _LARGE)


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")

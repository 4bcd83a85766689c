"""Read files of other benchmarks, and say what came out of each."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ringbench.records.importers import nccl_json
from ringbench.records.importers.found import Asked, Found, Table, Tool
from ringbench.records.importers.imb import Imb
from ringbench.records.importers.lines import TELLING, NotSaidError, Source
from ringbench.records.importers.nccl import Nccl
from ringbench.records.importers.osu import Osu
from ringbench.records.importers.own import Own
from ringbench.records.importers.plain import Plain
from ringbench.records.provenance import now, package_version
from ringbench.records.row import Row
from ringbench.records.run import SCHEMA_VERSION
from ringbench.schedule.semantics import collective_named

MOST_ROWS = 30_000

#: Of lines that nobody understood, so many are shown; the numbers of the others are named.
SHOWN = 10

_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*(?:\{|\]|$))")


@dataclass(kw_only=True)
class Report:
    """Hold what came out of one file: rows by tool and version, and every line that was left aside."""

    path: str
    nbytes: int = 0
    sha256: str = ""
    tools: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    strange: list[int] = field(default_factory=list)
    shown: list[tuple[int, str]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return what there is to say of the file, in ASCII."""
        tools = (f"{_number(n, 'row')} of {tool} {version or ''}".strip() for (tool, version), n in self.tools.items())
        left_out = (f"{_number(n, 'line')} left out: {why}" for why, n in self.left_out.items())
        said = [", ".join(tools), *self.notes, *left_out]
        if self.strange:
            said.append(f"{_number(len(self.strange), 'line')} not understood: {_ranges(self.strange)}")
            said += [f"line {number}: {text!a}" for number, text in self.shown]
        return [f"{self.path}: {text}" for text in said]

    def to_json(self) -> dict[str, Any]:
        """Return what provenance keeps of the file."""
        return {
            "file": self.path,
            "nbytes": self.nbytes,
            "sha256": self.sha256,
            "tools": [{"tool": tool, "version": version, "rows": n} for (tool, version), n in self.tools.items()],
            "lines_not_understood": len(self.strange),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Hold the lines of a run's file after its first, and what came out of each of the files read."""

    rows: tuple[Row, ...]
    further: tuple[Mapping[str, Any], ...]
    hosts: Mapping[tuple[int, int], tuple[str, ...]]
    reports: tuple[Report, ...]

    def provenance(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the run's first line. Its settings are what is known of how any such tool measures."""
        return {
            "kind": "provenance",
            "schema_version": SCHEMA_VERSION,
            "ringbench": package_version(),
            "time": now(),
            "command": ["ringbench", *arguments],
            "imported": [report.to_json() for report in self.reports],
            "settings": {"order": "blocked", "sync": "as the tool does"},
            "ranks": sorted({row.nranks for row in self.rows}),
            "launches": max(row.launch for row in self.rows) + 1,
        }

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the other lines: before the rows of a rank count, a launch and an algorithm their job, then the end.

        Nobody knows whether two algorithms were measured in one job, so none are.
        """
        before: tuple[int, int, str] | None = None
        for row, further in zip(self.rows, self.further, strict=True):
            if (job := (row.launch, row.nranks, row.algorithm)) != before:
                hosts = self.hosts.get((row.launch, row.nranks), ())
                yield {
                    "kind": "job",
                    "launch": row.launch,
                    "nranks": row.nranks,
                    "imported": True,
                    "hosts": list(hosts),
                }
                before = job
            yield {**row.to_json(), "reported": dict(further)}
        yield {"kind": "end", "status": "complete", "failures": []}


def read_files(paths: Sequence[str], *, nranks: int | None = None, collective: str | None = None) -> Imported:
    """Read the rows of some files; ``nranks`` and ``collective`` stand in where a file does not say.

    What occurs again, in a file or among them, is another launch of the same cell. Raises ValueError naming file and
    line for what is no log, NotSaidError for what must be said, OSError where a file cannot be read.
    """
    if collective is not None:
        collective_named(collective)
    asked = Asked(nranks=nranks, collective=collective)
    rows: list[Row] = []
    further: list[Mapping[str, Any]] = []
    hosts: dict[tuple[int, int], tuple[str, ...]] = {}
    reports: list[Report] = []
    seen: Counter[tuple[Any, ...]] = Counter()
    for path in paths:
        report = Report(path=path)
        with _naming(path):
            with open(path, "rb") as stream:
                for number, found in _read(stream, asked, report):
                    with _naming(f"line {number}" if number else None):
                        row = found.row()
                        launch = seen[row.key]
                        seen[row.key] += 1
                        rows.append(replace(row, launch=launch))
                        further.append(found.reported)
                        hosts.setdefault((launch, row.nranks), found.hosts)
                    report.tools[found.tool, found.version] += 1
                    if len(rows) > MOST_ROWS:
                        raise ValueError(f"more than {MOST_ROWS} rows")
            if not report.tools:
                raise ValueError("; ".join(["no row of a known benchmark", *_reasons(report)]))
            if twin := next((other.path for other in reports if other.sha256 == report.sha256), None):
                raise ValueError(f"the same as {twin}, byte for byte")
        reports.append(report)
    if repeated := sum(number - 1 for number in seen.values()):
        reports[-1].notes.append(f"{repeated} rows repeat a cell: taken for further launches of it")
    return Imported(rows=tuple(rows), further=tuple(further), hosts=hosts, reports=tuple(reports))


def _reasons(report: Report) -> list[str]:
    return [f"left out: {why}" for why in list(report.left_out)[:3]]


@contextmanager
def _naming(where: str | None) -> Iterator[None]:
    """Put the place before what an error says."""
    try:
        yield
    except ValueError as error:
        text = f"{where}: {error}" if where else str(error)
        raise (NotSaidError if isinstance(error, NotSaidError) else ValueError)(text) from None


def _read(stream: io.BufferedReader, asked: Asked, report: Report) -> Iterator[tuple[int, Found]]:
    source = Source(stream)
    results = _read_json if _JSON.match(stream.peek(512)) else _read_lines
    yield from results(source, asked, report)
    report.nbytes, report.sha256 = source.nbytes, source.sha256


def _read_json(source: Source, asked: Asked, report: Report) -> Iterator[tuple[int, Found]]:
    for found in nccl_json.read_json(source.everything(nccl_json.LIMIT), asked):
        if isinstance(found, str):
            report.left_out[found] += 1
        else:
            yield from ((0, one) for one in found)


def _read_lines(source: Source, asked: Asked, report: Report) -> Iterator[tuple[int, Found]]:
    """Yield what the rows say, each with the number of its line; whoever opened a table reads the lines below it."""
    own = Own(asked)
    tools: list[Tool] = [own, Osu(asked, own), Imb(asked, own), Nccl(asked, own), Plain(asked)]
    table: Table | None = None
    for line in source.lines():
        understood = line.comment
        if len(line.text) <= TELLING and line.text:
            with _naming(f"line {line.number}"):
                for tool in tools:
                    heeded = tool.heed(line)
                    if isinstance(heeded, Table):
                        table = heeded
                        for other in tools:
                            if other is not tool:
                                other.forget()
                    if heeded:
                        understood = True
                        break
                else:
                    found = table.read(line) if table is not None else None
                    if isinstance(found, str):
                        report.left_out[found] += 1
                    elif found:
                        yield from ((line.number, one) for one in found)
                    understood |= found is not None
        if not understood:
            report.strange.append(line.number)
            if len(report.shown) < SHOWN:
                report.shown.append((line.number, line.text[:60]))
    report.notes += [note for tool in tools for note in tool.notes]


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers with those next to each other as a range."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)

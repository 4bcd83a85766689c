"""nccl-tests and rccl-tests: their tables of three generations, with and without ``-I``.

A sample is the column ``time``, the mean over iterations, once out of place and once in place. ``size`` is that of the
whole vector for every collective: the larger of what a rank sends and receives (common.cu). The ranks are counted from
the list of devices, those of the first group. The first generation has a column ``error``, no count of wrong elements;
then nothing is known of correctness.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ringbench.records.importers.found import Asked, Found, Table, Tool, reported
from ringbench.records.importers.lines import Line, count, number, seconds
from ringbench.records.importers.own import Own, Said

NCCL, RCCL = "nccl-tests", "rccl-tests"

_VERSION = re.compile(r"(nccl|rccl)-tests(?: version|: Version) (\S+).*")
_PROGRAM = re.compile(r"\b([a-z_]{4,20})_perf\b")
_RANK = re.compile(r"Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+(\S+) device .*")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values : (\d+) (\w+)")
_SAYS_NOTHING = re.compile(
    r"(?:Using devices|\(B\) \(elements\) .*|\(B\)\s+\(elements\).*|out-of-place\b.*|Avg bus bandwidth\s+:.*"
    r"|(?:RCCL|NCCL|HIP|ROCm) version\s*:.*|Hostname\s+:.*|Librccl path\s+:.*)"
)
PROGRAMS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "bcast",
    "reduce": "reduce",
    "alltoall": "alltoall",
}
DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "fp8_e4m3": "float8_e4m3",
    "f8e4m3": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
    "f8e5m2": "float8_e5m2",
    "char": "int8",
    "int": "int32",
    **{name: name for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64")},
    # Not of the tool, but of ringbench's tables in its columns.
    **{name: name for name in ("int16", "uint16", "bool", "complex64", "complex128", "unknown")},
}
OPS = {"avg": "average"}
_WORD = re.compile(r"\w{1,30}", re.ASCII)


class Nccl(Tool):
    """Follow the output of all_reduce_perf and its like, one table for each run of a program."""

    def __init__(self, asked: Asked, own: Own):
        super().__init__(asked)
        self.own = own

    def forget(self) -> None:
        """Forget tool, program and devices."""
        self.tool, self.version = NCCL, ""
        self.program: str | None = None
        self.hosts: dict[int, str] = {}

    def heed(self, line: Line) -> Table | bool | None:
        """Take in tool, program and the list of devices; open a table at ``size count type ...``."""
        bare = line.bare
        if version := _VERSION.fullmatch(bare):
            self.tool, self.version = f"{version[1]}-tests", version[2]
            return True
        if rank := _RANK.fullmatch(bare):
            if count(rank[2] or "0") == 0:
                self.hosts[count(rank[1]) or 0] = rank[3]
            return True
        if bare.startswith("nThread "):
            self.hosts = {}
            return True
        if bounds := _OUT_OF_BOUNDS.fullmatch(bare):
            if bounds[2] == "FAILED":
                self.notes.append(f"line {line.number}: {bounds[1]} results out of bounds: the tool calls some wrong")
            return True
        columns = bare.split()
        if columns[:3] == ["size", "count", "type"] and {"time", "cputime"} & set(columns):
            table = _NcclTable(columns, self, self.own.take())
            self.forget()
            return table
        programs = set(_PROGRAM.findall(bare))
        if programs and not bare.startswith("Collective test concluded"):
            self.program = programs.pop() if len(programs) == 1 else None
            return True
        return True if programs or _SAYS_NOTHING.fullmatch(bare) else None


class _NcclTable(Table):
    def __init__(self, columns: list[str], tool: Nccl, said: Said):
        places = [at for at, name in enumerate(columns) if name in ("time", "cputime")]
        self.places = [(at, end) for at, end in zip(places, [*places[1:], len(columns)], strict=True)][:2]
        if columns[-1] == "timestamp":  # a day and a time
            columns = [*columns, "clock"]
        super().__init__(columns)
        self.asked, self.tool, self.version, self.program = tool.asked, tool.tool, tool.version, tool.program
        self.hosts = tuple(host for _, host in sorted(tool.hosts.items()))
        self.said = said

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        size = count(ordered[0])
        values = []
        for place, (start, end) in enumerate(self.places):
            one = dict(zip(self.columns[start:end], ordered[start:end], strict=True))
            time = next(iter(one))
            if one[time] == "N/A" and self.said.version is not None:  # measured in the other placement alone
                continue
            wrong = wrong_elements(one.get("#wrong", "N/A"))
            took = seconds(one[time], 6)
            if size is None or took is None or (wrong is None and one.get("#wrong", "N/A") != "N/A"):
                return None
            values.append((place == 1, (took,), estimand_of(self.tool, time), wrong, reported(one)))
        found = results(
            self.asked,
            values,
            tool=self.tool,
            version=self.version,
            program=self.program,
            dtype=cells["type"],
            op=cells.get("redop", "none"),
            nranks=len(self.hosts) or self.said.nranks,
            size=size,
            hosts=self.hosts,
        )
        return [self.said.over(one) for one in found] if isinstance(found, list) else found


def estimand_of(tool: str, column: str) -> str:
    """Return what a sample is that stands in a column of times."""
    return f"mean over iterations that {tool} reports ({column})"


def wrong_elements(text: str) -> int | None:
    """Return how many elements were wrong, None where it is not told."""
    value = number(text)
    return int(value) if value is not None and 0 <= value < 2**63 else None


def results(
    asked: Asked,
    values: Sequence[tuple[bool, tuple[float, ...], str, int | None, dict[str, Any]]],
    *,
    tool: str,
    version: str,
    program: str | None,
    dtype: str,
    op: str,
    nranks: int | None,
    size: int | None,
    hosts: tuple[str, ...] = (),
) -> list[Found] | str | None:
    """Return what both placements of one size say, or why they are left out."""
    if program is not None and program not in PROGRAMS:
        return f"{ascii(program[:40])[1:-1]}_perf: no collective that ringbench knows"
    if dtype not in DTYPES:
        return f"type {ascii(dtype[:40])[1:-1]}: not known"
    if size is None or not _WORD.fullmatch(op) or not all(host.isprintable() for host in hosts):
        return None
    return [
        Found(
            tool=tool,
            version=version or None,
            collective=asked.collective_or(PROGRAMS[program] if program else None),
            algorithm=tool.removesuffix("-tests"),
            op=OPS.get(op, op),
            dtype=DTYPES[dtype],
            device="rocm" if tool == RCCL else "cuda",
            nranks=asked.nranks_or(nranks),
            size=size,
            samples_s=samples,
            estimand=estimand,
            in_place=in_place,
            wrong=wrong,
            wrong_detail=f"{tool} counted {wrong} wrong elements" if wrong else None,
            hosts=hosts,
            reported=further,
        )
        for in_place, samples, estimand, wrong, further in values
    ]

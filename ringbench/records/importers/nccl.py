"""nccl-tests and rccl-tests: their tables of three generations, with and without ``-I``, and their JSON.

A sample is the column ``time``, the mean over iterations, once out of place and once in place; where JSON holds the
time of every iteration, these are the samples. ``size`` is that of the whole vector for every collective: the larger of
what a rank sends and receives (common.cu). The ranks are counted from the list of devices, those of the first group.
The first generation has a column ``error``, no count of wrong elements; then nothing is known of correctness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ringbench.records.importers.found import Asked, Found, Table, Tool, reported
from ringbench.records.importers.lines import Line, count, number, seconds

NCCL, RCCL = "nccl-tests", "rccl-tests"
JSON_LIMIT = 16 * 1024**2

_VERSION = re.compile(r"(nccl|rccl)-tests(?: version|: Version) (\S+).*")
_PROGRAM = re.compile(r"\b([a-z_]{4,20})_perf\b")
_RANK = re.compile(r"Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+(\S+) device .*")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values : (\d+) (\w+)")
_SAYS_NOTHING = re.compile(
    r"(?:Using devices|\(B\) \(elements\) .*|\(B\)\s+\(elements\).*|out-of-place\b.*|Avg bus bandwidth\s+:.*"
    r"|(?:RCCL|NCCL|HIP|ROCm) version\s*:.*|Hostname\s+:.*|Librccl path\s+:.*)"
)
_PROGRAMS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "bcast",
    "reduce": "reduce",
    "alltoall": "alltoall",
}
_NAMES = {"".join(part.title() for part in name.split("_")): name for name in _PROGRAMS} | {"AlltoAll": "alltoall"}
_DTYPES = {
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
}
_OPS = {"avg": "average"}
_WORD = re.compile(r"\w{1,30}", re.ASCII)


class Nccl(Tool):
    """Follow the output of all_reduce_perf and its like, one table for each run of a program."""

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
            table = _NcclTable(columns, self)
            self.forget()
            return table
        programs = set(_PROGRAM.findall(bare))
        if programs and not bare.startswith("Collective test concluded"):
            self.program = programs.pop() if len(programs) == 1 else None
            return True
        return True if programs or _SAYS_NOTHING.fullmatch(bare) else None


class _NcclTable(Table):
    def __init__(self, columns: list[str], tool: Nccl):
        places = [at for at, name in enumerate(columns) if name in ("time", "cputime")]
        self.places = [(at, end) for at, end in zip(places, [*places[1:], len(columns)], strict=True)][:2]
        if columns[-1] == "timestamp":  # a day and a time
            columns = [*columns, "clock"]
        super().__init__(columns)
        self.asked, self.tool, self.version, self.program = tool.asked, tool.tool, tool.version, tool.program
        self.hosts = tuple(host for _, host in sorted(tool.hosts.items()))

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        size = count(ordered[0])
        values = []
        for place, (start, end) in enumerate(self.places):
            one = dict(zip(self.columns[start:end], ordered[start:end], strict=True))
            time = next(iter(one))
            wrong = _wrong(one.get("#wrong", "N/A"))
            took = seconds(one[time], 6)
            if size is None or took is None or (wrong is None and one.get("#wrong", "N/A") != "N/A"):
                return None
            values.append((place == 1, (took,), _estimand(self.tool, time), wrong, reported(one)))
        return _found(
            self.asked,
            values,
            tool=self.tool,
            version=self.version,
            program=self.program,
            dtype=cells["type"],
            op=cells.get("redop", "none"),
            nranks=len(self.hosts) or None,
            size=size,
            hosts=self.hosts,
        )


def _estimand(tool: str, column: str) -> str:
    return f"mean over iterations that {tool} reports ({column})"


def _wrong(text: str) -> int | None:
    value = number(text)
    return int(value) if value is not None and 0 <= value < 2**63 else None


def _found(
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
    if program is not None and program not in _PROGRAMS:
        return f"{program}_perf: no collective that ringbench knows"
    if dtype not in _DTYPES:
        return f"type {dtype[:40]}: not known"
    if size is None or not _WORD.fullmatch(op):
        return None
    return [
        Found(
            tool=tool,
            version=version or None,
            collective=asked.collective_or(_PROGRAMS[program] if program else None),
            algorithm=tool.removesuffix("-tests"),
            op=_OPS.get(op, op),
            dtype=_DTYPES[dtype],
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


# JSON.


def read_json(text: str, asked: Asked) -> Iterator[list[Found] | str]:
    """Yield what each whole result in a JSON report says, or why it is left out; a cut-off end is a reason too.

    nccl-tests writes one object with ``config`` and ``results``; rccl-tests a list of objects, one for each placement.
    Raises ValueError for what is no such report.
    """
    start = text.find('"results":')  # within a string the quotes would be escaped
    head: Any = {}
    if start >= 0:
        head = _decode(f'{text[:start]}"results":null}}')
        begin = text.find("[", start)
        results = _objects(text, begin + 1 if begin >= 0 else len(text))
    else:
        begin = len(text) - len(text.lstrip())
        results = _objects(text, begin + (text[begin : begin + 1] == "["))
    any_found = False
    for record in results:
        if isinstance(record, str):
            yield record
            continue
        any_found = True
        try:
            found = _of_nccl(head, record, asked) if start >= 0 else _of_rccl(record, asked)
        except (KeyError, TypeError, AttributeError):
            raise ValueError("JSON, but no report of nccl-tests or rccl-tests") from None
        yield found or "a result without size or time"
    if not any_found:
        raise ValueError("JSON, but no whole result of nccl-tests or rccl-tests")


def _objects(text: str, at: int) -> Iterator[dict[str, Any] | str]:
    """Yield objects one after the other, up to the end of their list or to where the text is cut off."""
    while True:
        while text[at : at + 1] in (" ", "\n", "\r", "\t", ","):
            at += 1
        if text[at : at + 1] in ("]", ""):
            if at >= len(text) and not text.rstrip().endswith("}"):
                yield "cut off"
            return
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            yield "cut off, or no JSON"
            return
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not isinstance(value, dict):
            raise ValueError("JSON, but no report of nccl-tests or rccl-tests")
        yield value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no time that can be measured")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _decode(text: str) -> Any:
    try:
        return _DECODER.decode(text.strip())
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _of_nccl(head: Any, record: Mapping[str, Any], asked: Asked) -> list[Found] | str | None:
    devices = [device for device in head.get("config", {}).get("devices", []) if device.get("group", 0) == 0]
    program = PurePosixPath(str(head.get("args", [""])[0])).name.removesuffix("_perf") or None
    values = []
    for name in ("out_of_place", "in_place"):
        one = record.get(name)
        if one is None:
            continue
        column = "time" if "time" in one else "cpu_time"
        times, estimand = [one[column]], _estimand(NCCL, column)
        if each := record.get(f"{name}_per_iter", {}).get("times_us"):
            times, estimand = each, f"longest over processes of one iteration on the device ({NCCL} times_us)"
        samples = tuple(time for text in times if (time := seconds(str(text), 6)) is not None)
        if len(samples) < len(times):
            return None
        wrong = None if one.get("nwrong") is None else _wrong(str(one["nwrong"]))
        values.append((name == "in_place", samples, estimand, wrong, _scalars(one)))
    return _found(
        asked,
        values,
        tool=NCCL,
        version="",
        program=program,
        dtype=str(record["type"]),
        op=str(record["redop"]),
        nranks=len(devices) or None,
        size=count(str(record["size"])),
        hosts=tuple(str(device.get("hostname", "")) for device in devices),
    )


def _of_rccl(record: Mapping[str, Any], asked: Asked) -> list[Found] | str | None:
    time, placed = seconds(str(record["time"]), 6), record["inPlace"]
    if time is None or placed not in (0, 1):
        return None
    return _found(
        asked,
        [(placed == 1, (time,), _estimand(RCCL, "time"), _wrong(str(record.get("wrong", "N/A"))), _scalars(record))],
        tool=RCCL,
        version="",
        program=_NAMES.get(str(record["name"]), str(record["name"])[:40]),
        dtype=str(record["type"]),
        op=str(record["redop"]),
        nranks=count(str(record["ranks"])),
        size=count(str(record["size"])),
    )


def _scalars(record: Mapping[str, Any]) -> dict[str, Any]:
    return reported({name: str(value) for name, value in record.items() if isinstance(value, (int, float, str))})


def make(asked: Asked) -> Nccl:
    """Return a follower of a new file."""
    return Nccl(asked)

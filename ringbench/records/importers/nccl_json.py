"""JSON reports of nccl-tests and rccl-tests.

As in their tables; where nccl-tests holds the time of every iteration, these are the samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ringbench.records.importers.found import Asked, Found, reported
from ringbench.records.importers.lines import count, seconds
from ringbench.records.importers.nccl import NCCL, PROGRAMS, RCCL, estimand_of, results, wrong_elements

LIMIT = 16 * 1024**2

_NAMES = {"".join(part.title() for part in name.split("_")): name for name in PROGRAMS} | {"AlltoAll": "alltoall"}


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
        objects = _objects(text, begin + 1 if begin >= 0 else len(text))
    else:
        begin = len(text) - len(text.lstrip())
        objects = _objects(text, begin + (text[begin : begin + 1] == "["))
    any_found = False
    for record in objects:
        if isinstance(record, str):
            yield record
            continue
        any_found = True
        try:
            found = _of_nccl(head, record, asked) if start >= 0 else _of_rccl(record, asked)
        except (LookupError, TypeError, AttributeError):
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
        times, estimand = [one[column]], estimand_of(NCCL, column)
        if each := record.get(f"{name}_per_iter", {}).get("times_us"):
            times, estimand = each, f"longest over processes of one iteration on the device ({NCCL} times_us)"
        samples = tuple(time for text in times if (time := seconds(str(text), 6)) is not None)
        if len(samples) < len(times):
            return None
        wrong = None if one.get("nwrong") is None else wrong_elements(str(one["nwrong"]))
        values.append((name == "in_place", samples, estimand, wrong, _scalars(one)))
    return results(
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
    return results(
        asked,
        [
            (
                placed == 1,
                (time,),
                estimand_of(RCCL, "time"),
                wrong_elements(str(record.get("wrong", "N/A"))),
                _scalars(record),
            )
        ],
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

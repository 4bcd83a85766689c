"""Training steps as a picture: the trace format of Chrome, two lines for each rank."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

#: What happened on a rank: name, category, start and end in seconds.
Event = tuple[str, str, float, float]


def render_steps_trace(steps: Sequence[tuple[str, Sequence[Sequence[Event]]]]) -> str:
    """Return steps, each a title and every rank's events, as JSON; times in microseconds after the step's start.

    What a rank computes is on one line, its reductions are on another, and that a bucket is ready is a mark.
    """
    lines: list[dict[str, Any]] = []
    for number, (title, ranks) in enumerate(steps):
        lines.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": title}})
        for rank, events in enumerate(ranks):
            for thread, what in enumerate(("computes", "reduces")):
                named = {"name": f"rank {rank} {what}"}
                lines.append({"name": "thread_name", "ph": "M", "pid": number, "tid": 2 * rank + thread, "args": named})
            for name, category, start, end in events:
                line: dict[str, Any] = {
                    "name": name,
                    "cat": category,
                    "ph": "X",
                    "pid": number,
                    "tid": 2 * rank + (category in ("all-reduce", "ready")),
                    "ts": round(start * 1e6, 3),
                }
                if category == "ready":
                    lines.append({**line, "ph": "i", "s": "t"})
                else:
                    lines.append({**line, "dur": round((end - start) * 1e6, 3)})
    return '{"displayTimeUnit": "ms", "traceEvents": [\n' + ",\n".join(map(json.dumps, lines)) + "\n]}\n"

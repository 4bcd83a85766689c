"""A simulation as a picture: the trace format of Chrome, one row for each rank."""

from __future__ import annotations

import json
from typing import Any

from ringbench.model.simulate import Event

#: More than a browser draws with ease.
MAX_EVENTS = 200_000


class Timeline:
    """Collect what ranks did, for chrome://tracing or Perfetto."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        """Take one event; raise ValueError where there are too many to be looked at."""
        if len(self.events) == MAX_EVENTS:
            raise ValueError(f"{self.title}: a trace of more than {MAX_EVENTS} events; take fewer ranks")
        self.events.append(event)

    def render(self) -> str:
        """Return the trace as JSON, times in microseconds."""
        ranks = sorted({event.rank for event in self.events})
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}}
            for rank in ranks
        ]
        title: dict[str, Any] = {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": self.title}}
        lines = [json.dumps(line) for line in [title, *names, *map(_line, self.events)]]
        return '{"displayTimeUnit": "ns", "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"


def _line(event: Event) -> dict[str, Any]:
    to = [f"to {event.dest}"] if event.dest is not None else []
    come = [f"from {event.source}"] if event.source is not None else []
    return {
        "name": " ".join([*to, *come]) or "reduce",
        "cat": "message" if to or come else "reduce",
        "ph": "X",
        "pid": 0,
        "tid": event.rank,
        "ts": event.start_s * 1e6,
        "dur": (event.end_s - event.start_s) * 1e6,
        "args": {"reduced_bytes" if not (to or come) else "sent_bytes": event.nbytes},
    }

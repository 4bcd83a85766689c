"""What a bare Sendrecv gets through the links of a lab, as text."""

from __future__ import annotations

from collections.abc import Iterable

from ringbench.records.units import format_size

#: A link of whose rate less gets through was not what messages waited for.
SLOW = 0.8


def render_link(times: Iterable[tuple[int, float]], rate: float) -> str:
    """Return a table of bytes and seconds of a message on a link of ``rate`` bytes per second, and how even it is."""
    rows = list(times)
    lines = [f"{'size':>8} {'time_us':>10} {'MB/s':>8} {'of rate':>8}"]
    for nbytes, seconds in rows:
        speed = nbytes / seconds
        lines.append(f"{format_size(nbytes):>8} {seconds * 1e6:>10.0f} {speed / 1e6:>8.2f} {speed / rate:>8.1%}")
    speeds = [nbytes / seconds for nbytes, seconds in rows]
    spread = max(speeds) / min(speeds) - 1
    lines.append(f"a bare Sendrecv between nodes: fastest and slowest size differ by {spread:.1%}")
    if min(speeds) < SLOW * rate:
        lines.append(f"below {SLOW:.0%} of the rate: what was measured are the cores of this machine, not the links")
    return "\n".join(lines) + "\n"

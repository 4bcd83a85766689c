"""The table of late ranks: what a delay makes of a collective, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from ringbench.records.straggler import NOBODY
from ringbench.records.units import format_size
from ringbench.report.tables import Flat, Kind, render


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.4g}"


def _late(row: Flat) -> str:
    rank = max(range(len(row["late_s"])), key=lambda rank: row["late_s"][rank])
    alike = max(row["late_s"]) - min(row["late_s"]) < 0.1 * max(row["late_s"])
    return f"{_us(max(row['late_s']))} ({'all' if alike else rank})"


def _passed_on(row: Flat) -> str:
    late = sum(row["late_s"]) if row["straggler"].startswith("rank=rotate") else max(row["late_s"])
    return f"{(row['median_s'] - row['calm_s']) / late:.0%}" if late else "-"


def _waits(row: Flat) -> str:
    """Name the ranks that wait least and most."""
    waits = row["waits_s"]
    ranks = range(len(waits))
    low, high = min(ranks, key=waits.__getitem__), max(ranks, key=waits.__getitem__)
    return f"{_us(waits[low])} ({low}) to {_us(waits[high])} ({high})"


_STRAGGLER = Kind(
    keys=("collective", "op", "dtype", "device", "nranks", "in_place", "straggler"),
    heading=lambda rows: (
        "{collective} {op} {dtype} on {device}, {nranks} ranks; late on purpose: {straggler}; times in us".format(
            **rows[0]
        )
    ),
    order=("nbytes", "algorithm"),
    columns={
        "size": lambda row: format_size(row["nbytes"]),
        "algorithm": lambda row: str(row["algorithm"]),
        "calm": lambda row: _us(row["calm_s"]),
        "disturbed": lambda row: _us(row["median_s"]),
        "late (rank)": _late,
        "passed on": _passed_on,
        "waits (rank)": _waits,
    },
    closing=lambda rows: [],
    notes=(
        "calm, disturbed: median of the slowest rank without and with the delay, in turns; passed on: their difference "
        "/ the delay; waits: by how much a rank's own call takes longer than without, least to most, on the mean",
    ),
)


def render_straggler(cells: Sequence[Flat], format: str) -> str:
    """Return the table of what was measured with late ranks, in text or Markdown; nothing where none were."""
    found = [
        {name: value for name, value in cell.items() if name != "warnings"}
        for cell in cells
        if cell["straggler"] != NOBODY and cell["calm_s"] is not None
    ]
    return render(found, _STRAGGLER, format) if found else ""

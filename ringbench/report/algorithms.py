"""The list of algorithms: what each costs, and where it comes from."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from ringbench.schedule.registry import Algorithm

WIDTH = 100

#: What the formulas of the Markdown table stand for.
SYMBOLS = (
    "N ranks, of which k nodes have g each; S bytes of the whole vector; f = floor(lg N), p = 2^f, L = ceil(lg N); "
    "c chunks. Rounds are those on the critical path; folded: where N is no power of two."
)


def render_algorithms(found: Sequence[Algorithm], format: str) -> str:
    """Return the registered algorithms, the library's own beside each collective's, as text, markdown or json."""
    collectives = list(dict.fromkeys(algorithm.collective for algorithm in found))
    groups = {name: [algorithm for algorithm in found if algorithm.collective == name] for name in sorted(collectives)}
    if format == "json":
        rows = [_flat(algorithm) for members in groups.values() for algorithm in members]
        rows += [{"collective": name, "algorithm": "mpi", "summary": "The MPI library's own."} for name in groups]
        return json.dumps(rows, indent=1) + "\n"
    if format == "markdown":
        lines = [
            SYMBOLS,
            "",
            "| collective | algorithm | rounds | bytes sent by the busiest rank, in S | bits | what |",
        ]
        lines.append("|---|---|---|---|---|---|")
        for name, members in groups.items():
            for algorithm in members:
                rounds, sent = algorithm.formulas
                bits = "identical" if algorithm.identical_bits else "may differ"
                shown = (name, algorithm.name, rounds, sent, bits, algorithm.summary)
                lines.append(f"| {' | '.join(shown)} |")
        return "\n".join(lines) + "\n"
    width = max(len(algorithm.name) for algorithm in found)
    lines = []
    for name, members in groups.items():
        lines.append(name)
        listed = [(algorithm.name, algorithm.summary) for algorithm in members]
        for own, summary in [*listed, ("mpi", "The MPI library's own."), ("auto", "The best by a rule, or by a run.")]:
            indent = " " * (width + 4)
            lines.append(textwrap.fill(f"  {own:{width}}  {summary}", WIDTH, subsequent_indent=indent))
    return "\n".join(lines) + "\n"


def _flat(algorithm: Algorithm) -> dict[str, object]:
    rounds, sent = algorithm.formulas
    return {
        "collective": algorithm.collective,
        "algorithm": algorithm.name,
        "summary": algorithm.summary,
        "rounds": rounds,
        "sent": sent,
        "identical_bits": algorithm.identical_bits,
        "arguments": [name for name, _ in algorithm.arguments],
    }

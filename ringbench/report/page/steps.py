"""The answer of measured steps of training in two sentences."""

from __future__ import annotations

from collections.abc import Sequence

from ringbench.records.units import rough_size
from ringbench.report.ddp import milliseconds, share
from ringbench.report.kind import Flat
from ringbench.report.writing import number


def steps_verdict(cells: Sequence[Flat]) -> str:
    """Say in two sentences which way of training is the fastest, and whether its averages are right."""
    return f"{_fastest(cells)} {_trust(cells)}"


def _fastest(cells: Sequence[Flat]) -> str:
    # Engine none reduces nothing: it is the bound, and no way to train.
    trained = [
        row
        for row in cells
        if row["engine"] != "none" and (row["hidden_share"] is not None or not row["communication_s"])
    ]
    right = [row for row in trained if row["samples_per_s"] and not row["wrong"]]
    if not right:
        return "No step with right averages was measured."
    most = max(row["nranks"] for row in right)
    best = max((row for row in right if row["nranks"] == most), key=lambda row: float(row["samples_per_s"]))
    hidden = best["hidden_share"]
    behind = f", and {share(hidden)} of its communication is hidden behind backward" if hidden is not None else ""
    return (
        f"On {number(most, 'rank')} most samples per second come from {best['engine']} with {best['algorithm']} and "
        f"buckets of {rough_size(best['bucket_nbytes'])}: a step takes {milliseconds(best['step_s'])} ms{behind}."
    )


def _trust(cells: Sequence[Flat]) -> str:
    checked = [row for row in cells if row["wrong"] is not None]
    wrong = sum(bool(row["wrong"]) for row in checked)
    said = f"Averages are wrong in {wrong} of {number(len(checked), 'row')}"
    if not wrong:
        said = (
            f"The averages of all {number(len(checked), 'checked row')} are right" if checked else "None were checked"
        )
    warned = sum(bool(row["warnings"]) for row in cells)
    return f"{said}, and {warned} of {number(len(cells), 'row')} carry a warning."

"""Where a run comes from, as a page tells it: machine, versions, the command that was given and one that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ringbench.launch.lab import read_words
from ringbench.records.ddp_settings import settings_from_json
from ringbench.records.provenance import MPI_VARIABLES
from ringbench.records.run import Run
from ringbench.records.settings import plan_from
from ringbench.report.change import facts_of_run, head_of_run
from ringbench.report.page.html import element, facts, folded, text


def origin(run: Run, title: str) -> str:
    """Return a section on where a run comes from and how to have it again."""
    found = facts_of_run(run)
    typed = run.provenance.get("command")
    parts = [element("h3", text(title)), facts({**head_of_run(run, found), "status": run.status})]
    if isinstance(typed, list):
        parts.append(element("p", "Typed:") + element("pre", text(shlex.join(map(str, typed)))))
    again = repeat(run)
    if again:
        parts.append(element("p", "The same with all that a plan or a default added, to repeat it:"))
        lines = "".join(f" \\\n    {word}" if word.startswith("--") else f" {word}" for word in again).strip()
        parts.append(element("pre", text(lines)))
    parts.append(folded("everything recorded", facts(found)))
    return element("section", "".join(parts))


def repeat(run: Run) -> list[str]:
    """Return the words for a shell that measure the same again; none where the file does not say what was measured.

    Variables that set the MPI library stand before the command, and a lab around it.
    """
    first, stored = run.provenance, run.plan.get("settings")
    if "imported" in first or not isinstance(stored, dict):
        return []
    try:
        words = [*_lab(first.get("lab")), *_words(run, stored)]
    except (ValueError, TypeError):  # settings of another version, or of no version at all
        return []
    variables = _mapping(first.get("variables"))
    assigned = [
        f"{name}={shlex.quote(str(value))}"
        for name, value in variables.items()
        if name.isidentifier() and name.startswith(MPI_VARIABLES)
    ]
    return [*assigned, *map(shlex.quote, words)]


def _words(run: Run, stored: dict[str, Any]) -> list[str]:
    ranks = run.plan.get("ranks") or run.provenance.get("ranks") or []
    counts = ",".join(str(int(count)) for count in ranks)
    if run.steps:
        ddp = settings_from_json(stored).arguments()
        return ["ringbench", "ddp", *([f"--ranks={counts}"] if counts else []), *ddp, "--out=again"]
    plan = plan_from({**stored, "launches": run.plan.get("launches", 1)})
    typed = run.provenance.get("command")
    if isinstance(typed, list) and typed[1:2] == ["run"]:
        return ["mpirun", "-n", counts, "ringbench", "run", *plan.settings.arguments(), "--out=again"]
    launcher = _mapping(run.provenance.get("launcher")).get("arguments")
    extra = [f"--mpirun-args={shlex.join(map(str, launcher))}"] if isinstance(launcher, list) and launcher else []
    settings = plan.settings.arguments()
    return ["ringbench", "sweep", f"--ranks={counts}", f"--launches={plan.launches}", *settings, *extra, "--out=again"]


def _lab(lab: object) -> list[str]:
    return ["ringbench", "lab", *read_words(lab).arguments(), "--"] if isinstance(lab, str) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

"""The page: what was run and where, the answer, what speaks against it, tables, figures, the model, the origin."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from ringbench.model.causes import facts_of
from ringbench.model.compare import compare_rows
from ringbench.model.explain import explain
from ringbench.model.fit import fit_rows
from ringbench.model.pool import table_cells
from ringbench.records.run import Run
from ringbench.report.bandwidth import TABLE
from ringbench.report.ddp import BESIDE, MEASURED_LEVERS, STEPS
from ringbench.report.figures.plan import Drawing, drawings
from ringbench.report.figures.style import check_matplotlib
from ringbench.report.figures.views import Pool, pools, rows_to_fit
from ringbench.report.kind import Flat
from ringbench.report.kinds import COMPARE, FIT
from ringbench.report.page.html import bullets, element, facts, text
from ringbench.report.page.origin import origin
from ringbench.report.page.plots import KINDS, Styles, plots
from ringbench.report.page.steps import steps_verdict
from ringbench.report.page.tables import html_table
from ringbench.report.page.verdict import verdict, warnings_table
from ringbench.report.straggler import render_straggler
from ringbench.report.summary import summary
from ringbench.report.writing import number

#: A page is below this, whatever the runs; figures give way before rows.
LARGEST = 2_000_000

#: What is kept free for all that stands around tables and figures.
_ROOM = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Hold a run of ``ringbench ddp``, what its steps come to, and its levers."""

    run: Run
    cells: Sequence[Flat]
    levers: Sequence[Flat]


def make_page(runs: Sequence[Run], steps: Sequence[Steps], version: str) -> str:
    """Return one page of HTML on some runs of ``sweep`` or ``run``, and on ``steps`` of ``ddp``.

    It loads nothing, and is smaller than ``LARGEST`` as far as ``MOST`` rows of each table allow. Rows of one place
    stand together as further launches. Without Matplotlib it has no figures, and says so. Raises ValueError where there
    is no row.
    """
    measured = [run for run in runs if run.rows]
    if not measured and not any(one.cells for one in steps):
        raise ValueError("no rows to report on")
    groups = pools(measured) if measured else []
    origins = "".join(origin(run, str(run.path)) for run in (*measured, *(one.run for one in steps)))
    styles = Styles()
    try:
        check_matplotlib()
        undrawn = ""
    except ValueError as error:
        undrawn = str(error)
    texts = [_Texts.of(pool, f"p{at}") for at, pool in enumerate(groups, 1)]
    trained = [_trained(one, f"d{at}") for at, one in enumerate(steps, 1)]
    used = len(origins) + sum(map(len, trained)) + sum(len(one.before) + len(one.after) for one in texts)
    room = (LARGEST - _ROOM - used) // (len(texts) + len(steps))
    sections, counted = [], 0

    def figures(found: Sequence[Drawing], *lines: str) -> str:
        nonlocal counted
        drawn, missing = ("", [f"no figures: {undrawn}"]) if undrawn else plots(found, room, counted, styles)
        counted += 1000
        return element("h3", "Figures") + drawn + bullets([*missing, *lines])

    for pool, one in zip(groups, texts, strict=True):
        drawn = figures(drawings([pool], KINDS), "every sample in order: ringbench plot --kind samples")
        sections.append(element("section", one.before + drawn + one.after))
    for words, those in zip(trained, steps, strict=True):
        sections.append(element("section", words + figures(drawings([], KINDS, those.cells))))
    origins = element("section", element("h2", "Where it comes from") + origins)
    names = [str(run.path) for run in (*measured, *(one.run for one in steps))]
    about = f"ringbench {version}; times are medians of the slowest rank, GB/s = 10^9 B/s, sizes of the whole vector"
    head = element("h1", "ringbench: " + text(", ".join(names))) + element("p", text(about), {"class": "about"})
    return _document(names[0], f"<header>{head}</header><main>{''.join(sections)}{origins}</main>", styles)


def _document(title: str, body: str, styles: Styles) -> str:
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    # The hash lets this one script run, and no other, whatever a run might have smuggled in.
    known = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{known}'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{text(title)}</title>'
        f"<style>{style}{styles.sheet()}</style></head>\n<body>{body}<script>{script}</script></body></html>\n"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """Hold what stands before and after the figures of a pool."""

    before: str
    after: str

    @classmethod
    def of(cls, pool: Pool, name: str) -> _Texts:
        """Write all but the figures."""
        cells = table_cells(pool.rows)
        before = [
            element("h2", text(pool.title(row.nranks for row in pool.rows))),
            element("p", text(verdict(cells)), {"class": "verdict"}),
            bullets(summary(cells).splitlines()),
            facts(_measured(pool)),
            element("h3", "What speaks against it") + warnings_table(cells),
            html_table(cells, TABLE, f"{name}-table", "Bandwidth"),
            _late(cells),
            _comparison(pool, f"{name}-compare"),
        ]
        return cls(before="".join(before), after=_model(pool, f"{name}-fit"))


def _measured(pool: Pool) -> dict[str, object]:
    rows = pool.rows
    named = {
        "collective": "collective",
        "algorithm": "algorithms",
        "op": "operation",
        "dtype": "type",
        "nranks": "ranks",
    }
    found: dict[str, object] = {
        word: ", ".join(map(str, sorted({getattr(row, name) for row in rows}))) for name, word in named.items()
    }
    hosts = list(dict.fromkeys(str(host) for job in pool.jobs for host in job.get("hosts") or ()))
    if hosts:
        found["hosts"] = ", ".join(hosts[:16]) + (f" and {len(hosts) - 16} more" if len(hosts) > 16 else "")
    samples = sum(len(row.samples_s) for row in rows)
    return {**found, "measured": f"{number(len(rows), 'row')}, {number(samples, 'sample')}"}


def _late(cells: Sequence[Flat]) -> str:
    late = render_straggler(cells, "text")
    return element("h3", "Who waits for a late rank") + element("pre", text(late)) if late else ""


def _comparison(pool: Pool, name: str) -> str:
    names = dict.fromkeys(row.algorithm for row in pool.rows)
    ours = "ring" if "ring" in names else next((one for one in names if one != "mpi"), "ring")
    try:
        compared = compare_rows(pool.rows, ours, interleaved=pool.interleaved)
    except ValueError as error:
        return element("p", text(f"no comparison: {error}"), {"class": "about"})
    return html_table([one.to_json() for one in compared], COMPARE, name, f"{ours} beside mpi")


def _model(pool: Pool, name: str) -> str:
    """Return what the fit says, with how far it was off where it was not shown the answer."""
    title = element("h3", "The model")
    lines, fitted = [], []
    for rows in rows_to_fit(pool):
        try:
            result = fit_rows(rows, facts=facts_of(pool.jobs))
        except ValueError as error:
            lines.append(f"no fit: {error}")
            continue
        lines += [*explain(result), *result.notes]
        fitted += [fit.to_json() for fit in result.segments]
    return title + bullets(lines) + (html_table(fitted, FIT, name, "Fitted") if fitted else "")


def _trained(steps: Steps, name: str) -> str:
    placed: list[Mapping[str, object]] = [{**row, "place": place} for place, row in enumerate(steps.cells)]
    bare = [{key: value for key, value in row.items() if key not in ("warnings", "wrong")} for row in placed]
    first = steps.cells[0]
    title = f"{first['workload']} on {', '.join(str(n) for n in sorted({row['nranks'] for row in steps.cells}))} ranks"
    parts = [
        element("h2", text(title)),
        element("p", text(steps_verdict(steps.cells)), {"class": "verdict"}),
        element("h3", "What speaks against it") + warnings_table(steps.cells),
        html_table(placed, STEPS, f"{name}-steps", "Steps"),
        html_table(bare, BESIDE, f"{name}-beside", "Beside"),
        html_table(steps.levers, MEASURED_LEVERS, f"{name}-levers", "Levers") if steps.levers else "",
    ]
    return "".join(parts)

"""The page in a real Chromium, without a window: no complaint, sorting and filtering, values to point at, print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, find_browser
from test_figures import modelled, row
from test_page import page, run

ROWS = [
    *modelled(["ring", "recursive_doubling"], (2, 4)),
    *(row("mpi", nbytes, 1e-5 + nbytes * 1e-10, nranks=2) for nbytes in (8, 2048, 2**20)),
    row("naive", 8, nranks=2, wrong=2),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium here: on Debian, apt-get install chromium")
    with Browser(program) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("page") / "report.html"
    found.write_text(page(run(ROWS)), encoding="utf-8")
    return found


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 400])
def test_no_complaint_no_request_and_nothing_beyond_the_edge(
    browser: Browser, file: Path, width: int, dark: bool
) -> None:
    browser.complaints.clear()
    browser.open(file, width=width, dark=dark)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.requests() == [file.resolve().as_uri()]
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(21, 25, 30)" if dark else "rgb(255, 255, 255)")
    assert browser.complaints == []


def test_a_complaint_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text("<script>absent()</script><img src='absent.png'>", encoding="utf-8")
    browser.complaints.clear()
    browser.open(broken)
    assert any("absent is not defined" in text for text in browser.complaints)
    assert len(browser.requests()) == 2
    browser.complaints.clear()


def column(browser: Browser, name: str) -> list[str]:
    """Return what the rows that are to be seen have in a column of the bandwidth table."""
    found: list[str] = browser.value(
        f"""(() => {{
            const table = document.querySelector("#p1-table");
            const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === {name!r});
            return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[at].textContent);
        }})()"""
    )
    return found


def click(browser: Browser, name: str) -> str:
    """Click on a heading of the bandwidth table; return how it is said to be sorted."""
    return str(
        browser.value(
            f"""(() => {{
                const heads = [...document.querySelectorAll("#p1-table th")];
                const head = heads.find((cell) => cell.textContent === {name!r});
                head.querySelector("button").click();
                return head.getAttribute("aria-sort");
            }})()"""
        )
    )


def choose(browser: Browser, name: str, value: str) -> Any:
    """Choose from the list above the bandwidth table; return what stands beside the lists."""
    return browser.value(
        f"""(() => {{
            const bar = document.querySelector("#p1-table").parentNode.previousElementSibling;
            const list = bar.querySelector(`select[name={name}]`);
            list.value = {value!r};
            list.dispatchEvent(new Event("change"));
            return bar.querySelector("output").textContent;
        }})()"""
    )


def test_a_heading_sorts_by_numbers_and_what_has_none_is_last(browser: Browser, file: Path) -> None:
    browser.open(file)
    sizes = column(browser, "size")
    assert click(browser, "size") == "ascending"
    assert column(browser, "size")[0] == "8B"
    assert column(browser, "size")[-1] == "32MiB"
    assert click(browser, "size") == "descending"
    assert column(browser, "size")[0] == "32MiB"
    assert sorted(column(browser, "size")) == sorted(sizes)
    for turn in ("ascending", "descending"):
        assert click(browser, "busbw") == turn
        shown = column(browser, "busbw")
        assert shown[-1] == "-"  # of the wrong result
        numbers = list(map(float, shown[:-1]))
        assert numbers == sorted(numbers, reverse=turn == "descending")
    click(browser, "algorithm")
    assert column(browser, "algorithm") == sorted(column(browser, "algorithm"))


def test_lists_choose_by_rank_count_and_algorithm(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert choose(browser, "N", "4") == f"{sum(one.nranks == 4 for one in ROWS)} of {len(ROWS)} rows"
    assert set(column(browser, "N")) == {"4"}
    both = sum((one.nranks, one.algorithm) == (4, "ring") for one in ROWS)
    assert choose(browser, "algorithm", "ring") == f"{both} of {len(ROWS)} rows"
    assert set(column(browser, "algorithm")) == {"ring"}
    click(browser, "time(us)")
    assert len(column(browser, "N")) == both  # sorting keeps the choice
    choose(browser, "N", "")
    assert choose(browser, "algorithm", "") == f"{len(ROWS)} of {len(ROWS)} rows"


def test_a_value_shows_where_one_points_at_it(browser: Browser, file: Path) -> None:
    browser.open(file)
    place = browser.value(
        """(() => {
            const spot = document.querySelector("circle.h");
            spot.scrollIntoView({block: "center"});
            const box = spot.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2, spot.querySelector("title").textContent];
        })()"""
    )
    assert browser.value("document.querySelector('#tip').hidden") is True
    browser.point_at(*place[:2])
    assert browser.value("document.querySelector('#tip').hidden") is False
    shown = browser.value("document.querySelector('#tip').textContent")
    assert "GB/s" in shown
    browser.point_at(2, 2)
    assert browser.value("document.querySelector('#tip').hidden") is True


def test_print_has_all_rows_and_what_was_folded(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert browser.value("document.querySelectorAll('details[open]').length") == 0
    assert browser.printed().startswith(b"%PDF-")
    folded = browser.value("[...document.querySelectorAll('details')].filter((one) => !one.open).length")
    assert folded == 0

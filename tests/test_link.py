"""Tests of what is said of a link: too fast or not, and the table."""

from __future__ import annotations

import pytest

from ringbench.report.link import render_link
from ringbench.runtime.link import Passed

RATE, BURST = 50e6, 16384


@pytest.mark.parametrize(
    ("seconds", "fast"),
    [
        (0.0220, False),
        (0.0205, False),  # what the bucket held at once, the rest at the rate
        (0.0203, True),
        (0.0004, True),  # memory, no wire
    ],
)
def test_what_no_link_lets_through_is_too_fast(seconds: float, fast: bool) -> None:
    assert Passed(nbytes=2**20, seconds=seconds).too_fast(RATE, BURST) is fast


TABLE = """\
    size    time_us     MB/s  of rate
   64KiB       1400    46.81    93.6%
    1MiB      22000    47.66    95.3%
a bare Sendrecv between nodes: fastest and slowest size differ by 1.8%
"""


def test_table_of_a_link() -> None:
    assert render_link([(65536, 0.0014), (2**20, 0.022)], RATE) == TABLE
    said = render_link([(65536, 0.0014), (2**20, 0.044)], RATE).splitlines()
    assert said[-1] == "below 80% of the rate: what was measured are the cores of this machine, not the links"

"""Tests of the studies in benchmarks/ that are no plans: they run, on ranks, and print what they say they do."""

from __future__ import annotations

import pytest
from conftest import ROOT, Mpi
from harness import start

pytestmark = pytest.mark.mpi


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_bits_of_gradients_are_compared_by_algorithm(mpi: Mpi) -> None:
    words = [str(ROOT / "benchmarks" / "gradient_bits.py"), "--elements", "500", "--algorithms", "ring,mpi"]
    said = start(mpi, 3, words).stdout
    assert [line[:11] for line in said.splitlines() if line.startswith("#")] == ["### float32", "### float64"]
    rows = [row for row in table(said) if row[0].isdigit()]
    assert [row[:3] for row in rows[:6]] == [
        [nranks, name, engines] for nranks in "123" for name, engines in (("ring", "3"), ("mpi", "5"))
    ]
    for row in rows:
        if row[1] == "ring":
            assert row[3:6] == ["yes"] * 3, row
        assert int(row[7]) <= 6, row


def test_losses_of_compressions_stand_beside_each_other(mpi: Mpi) -> None:
    words = [str(ROOT / "benchmarks" / "compression_loss.py"), "--steps", "40", "--compress", "none,fp16,topk:0.01"]
    heads, _, *rows = table(start(mpi, 2, words).stdout)
    assert heads == ["compress", "sent", "to 20", "to 40"]
    assert [row[0] for row in rows] == ["none", "fp16", "topk:0.01"]
    assert [row[1] for row in rows[:2]] == ["100.0%", "50.0%"]
    plain, half, few = ([float(loss) for loss in row[2:]] for row in rows)
    assert plain == sorted(plain, reverse=True)
    assert half == pytest.approx(plain, rel=0.01)
    assert few[0] > plain[0]


def test_costs_of_compressions_stand_beside_a_ring(mpi: Mpi) -> None:
    words = [str(ROOT / "benchmarks" / "compression_cost.py"), "--rows", "64", "--compress", "fp16,sign,topk:0.01"]
    heads, _, *rows = table(start(mpi, 3, words).stdout)
    assert heads[-3:] == ["gained", "error", "sends more from"]
    assert [row[0] for row in rows] == ["fp16", "sign", "topk:0.01"]
    half, sign, few = rows
    assert half[1] == "50.0%"
    assert float(half[-2]) < 0.01 < float(sign[-2]) < 1
    assert half[-1] == "never"
    assert sign[-1].startswith("N = 6")  # gathers 1/32 of the vector from each
    assert 0.5 < float(few[-2]) <= 1.1

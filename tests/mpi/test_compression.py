"""Compression over MPI, with each library."""

from __future__ import annotations

import pytest
from conftest import Mpi
from harness import start

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
def test_every_compression_averages_as_simulated_ranks_do(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["compression.py"], limit_s=180)

"""Runs the batteries of tests/mpi/programs on several numbers of ranks with each MPI library."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
from conftest import Mpi
from harness import environment, start

import ringbench.ddp

pytestmark = pytest.mark.mpi

#: Every message longer than a few bytes waits for its receiver: a schedule that relies on buffering hangs.
TINY_EAGER = {
    "openmpi": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm", "OMPI_MCA_btl_sm_eager_limit": "128"},
    "mpich": {"UCX_RNDV_THRESH": "0", "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD": "1"},
}


@pytest.mark.parametrize("nranks", [1, 2, 3, 4, 5, 7, 8])
def test_every_algorithm_gives_the_right_answer(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["kernels.py"], limit_s=240)  # 8 ranks share what cores there are


@pytest.mark.parametrize("nranks", [2, 3, 4, 5])
def test_no_algorithm_relies_on_buffering(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["rendezvous.py"], env=environment(mpi, **TINY_EAGER[mpi.flavour]))


@pytest.mark.parametrize("nranks", range(1, 9))
def test_what_ranks_of_a_node_share_is_right_under_load_and_freed_by_all(mpi: Mpi, nranks: int) -> None:
    iterations = {"RINGBENCH_TEST_ITERATIONS": "300" if nranks < 4 else "60"}  # more ranks than cores take long
    start(mpi, nranks, ["shared.py"], env={**environment(mpi), **iterations}, limit_s=240)


@pytest.mark.parametrize("nranks", [2, 3])
def test_what_cannot_be_planned_is_refused_in_the_same_words_on_all_ranks(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["refusals.py"])


@pytest.mark.parametrize("nranks", [2, 3])
def test_wrong_results_are_told_from_right_ones(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["checker.py"])


@pytest.mark.parametrize("nranks", [2, 3, 4])
def test_arrays_of_a_device_are_waited_for_before_every_message(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["device_arrays.py"])


@pytest.mark.parametrize("nranks", [1, 2, 3, 4, 5])
def test_samples_are_the_same_on_clocks_that_are_shifted_and_drift(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["clocks.py"])


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_a_ring_needs_little_memory_beside_its_buffers(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["memory.py"])


def test_a_battery_fails_where_a_check_fails_on_one_rank(mpi: Mpi) -> None:
    found = start(mpi, 2, ["failing.py", "check"], status=1)
    assert "rank 1: one is not two" in found.stdout
    assert "1 failed" in found.stdout


def test_a_battery_ends_where_one_rank_raises(mpi: Mpi) -> None:
    found = start(mpi, 2, ["failing.py", "raise"], status=None, limit_s=30)
    assert found.status != 0
    assert "KeyError" in found.stderr


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
def test_plans_that_are_started_do_what_called_ones_do(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["nonblocking.py"])


def test_plans_in_flight_do_not_rely_on_buffering(mpi: Mpi) -> None:
    start(mpi, 3, ["nonblocking.py"], env=environment(mpi, **TINY_EAGER[mpi.flavour]))


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
def test_gradients_are_averaged_in_every_engine(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["gradients.py"])


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
def test_ranks_with_shards_learn_what_one_process_learns(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["training.py"])


@pytest.mark.parametrize("nranks", [1, 4])
def test_bits_are_the_same_run_to_run_and_across_engines(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["bits.py"])


def test_a_thread_that_may_not_call_mpi_is_refused(mpi: Mpi) -> None:
    start(mpi, 2, ["gradients.py", "funneled"])


def test_a_thread_may_be_the_only_one_that_calls_mpi(mpi: Mpi) -> None:
    start(mpi, 2, ["gradients.py", "serialized"])


def test_a_job_ends_when_a_rank_meets_the_failure_of_its_thread(mpi: Mpi) -> None:
    found = start(mpi, 2, ["gradients.py", "raise"], status=None, limit_s=30)
    assert found.status != 0
    assert "KeyError: 'broken'" in found.stderr


def test_the_example_of_gradient_synchronisation_runs(mpi: Mpi, tmp_path: Path) -> None:
    text = inspect.getdoc(ringbench.ddp) or ""
    example = tmp_path / "example.py"
    example.write_text(textwrap.dedent(text.partition("runs this::")[2]), encoding="utf-8")
    start(mpi, 2, ["-m", "mpi4py", str(example)])

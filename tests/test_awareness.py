from __future__ import annotations

import mpi4py
import pytest

mpi4py.rc(initialize=False)  # its constants are enough

from ringbench.runtime.awareness import Said, Trial, how_to_enable, ompi_info, refusal, said_by  # noqa: E402

OPENMPI, MPICH = "Open MPI v5.0.11, package: x", "MPICH Version:      5.0.2\nMPICH Device: ch4:ucx"
CRAY = "MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)"
BOTH = (
    "1 rank of one job (a: 0)\nSendrecv works with arrays of device cuda\nAllreduce works with arrays of device cuda\n"
)


@pytest.mark.parametrize(
    ("answer", "kinds", "built", "supported"),
    [
        (1, None, None, True),
        (0, None, None, False),
        (None, "mpi,system", None, False),
        (None, "system,mpi,cuda:device", None, True),
        (0, "mpi,system,cuda", None, True),
        (None, None, "false", False),
        (None, None, "true", True),
        (None, None, None, None),
    ],
)
def test_a_yes_of_any_answer_is_a_yes(
    answer: int | None, kinds: str | None, built: str | None, supported: bool | None
) -> None:
    assert said_by(OPENMPI, answer, kinds, built, {}).supported is supported


def test_variables_that_switch_it_are_told() -> None:
    names = ("MPIR_CVAR_ENABLE_GPU", "UCX_TLS", "MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "OMPI_MCA_pml")
    environ = {**dict.fromkeys(names, "1"), "UCX_NET_DEVICES": "a", "HOME": "/", "OMPI_MCA_coll": "x"}
    assert said_by(MPICH, None, None, None, environ).answers == tuple(f"{name}=1" for name in sorted(names))


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (OPENMPI, "--with-cuda"),
        (MPICH, "MPIR_CVAR_ENABLE_GPU=1"),
        (CRAY, "MPICH_GPU_SUPPORT_ENABLED=1"),
        ("MVAPICH Version: 3.0", "MV2_USE_CUDA=1"),
        ("Intel(R) MPI Library 2021.11", "I_MPI_OFFLOAD=1"),
    ],
)
def test_each_library_is_enabled_in_its_own_way(library: str, words: str) -> None:
    assert words in how_to_enable(library)


def said(library: str = MPICH) -> Said:
    return said_by(library, 0, "mpi,system", None, {"UCX_TLS": "tcp"})


def test_what_works_is_not_refused() -> None:
    assert refusal(said(), Trial(text=BOTH, status=0), ("ring", "mpi")) is None


def test_a_library_that_only_sends_is_refused_for_its_reductions_alone() -> None:
    half = Trial(text=BOTH.rpartition("Allreduce")[0], status=-11)
    assert refusal(said(), half, ("ring",)) is None
    text = refusal(said(), half, ("ring", "mpi"))
    assert text is not None
    assert text.startswith("device 'cuda': Allreduce of MPICH Version: 5.0.2 does not take")
    assert "without mpi among the --algorithms" in text


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Trial(text="", status=-11), "ended with signal 11 (SIGSEGV)"),
        (Trial(text="", status=139), "ended with signal 11 (SIGSEGV)"),
        (Trial(text="=   EXIT CODE: 11\n", status=11), "ended with signal 11 (SIGSEGV)"),
        (Trial(text="exited on signal 7 (Bus error)", status=135), "ended with signal 7 (SIGBUS)"),
        (Trial(text="APPLICATION TERMINATED\nkilled by signal: 9", status=1), "ended with signal 9 (SIGKILL)"),
        (Trial(text="", status=None), "came to no end"),
        (Trial(text="x\nringbench: Sendrecv: 3 of 4 elements are wrong\n", status=2), "3 of 4 elements are wrong"),
        (Trial(text="", status=3), "ended with status 3"),
    ],
)
def test_a_crash_becomes_one_line_with_the_ways_out(trial: Trial, words: str) -> None:
    text = refusal(said(), trial, ("ring",))
    assert text is not None
    assert "\n" not in text
    for word in (words, "Sendrecv", "MPIX_Query_cuda_support 0", "mpi_memory_alloc_kinds mpi,system", "UCX_TLS=tcp"):
        assert word in text
    assert text.endswith("--staging host copies through the host instead")


def test_what_the_library_said_in_the_trial_is_told() -> None:
    text = refusal(said(), Trial(text="the MPI library says: MPIX_Query_cuda_support 1\n", status=-11), ("ring",))
    assert "(MPIX_Query_cuda_support 1; a trial ended with signal 11 (SIGSEGV))" in (text or "")


def test_a_program_that_is_not_there_says_nothing() -> None:
    assert ompi_info("/nowhere/ompi_info", {}) is None
    assert ompi_info("/bin/true", {}) is None

"""The doctor's checks and its command: one line each, exit status 1 where something warns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from ringbench.cli import main
from ringbench.launch.mpirun import Mpirun
from ringbench.launch.process import LaunchError
from ringbench.records.guards import GUARDS
from ringbench.report.doctor import (
    Check,
    launcher_check,
    library_check,
    machine_checks,
    placement_check,
    render_checks,
    render_warnings,
    srun_check,
)
from ringbench.runtime.machine import OK, UNKNOWN, WARN, Finding, Machine

OPENMPI = Mpirun(path="/x/mpirun", flavour="openmpi", version=(5, 0, 11))
LIBRARY = "Open MPI v5.0.11, package: Open MPI x, ident: 5.0.11\0"


def test_srun_is_judged_by_what_slurm_and_the_library_have_in_common() -> None:
    types = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
    assert srun_check(types, LIBRARY).finding.startswith("srun --mpi=pmix starts Open MPI")
    assert srun_check(types, "MPICH Version:\t5.0.2").finding.startswith("srun --mpi=pmi2 starts MPICH")
    lacking = srun_check("MPI plugin types are...\n\tnone\n", LIBRARY)
    assert (lacking.state, "this Slurm has no pmix" in lacking.finding) == (WARN, True)
    assert srun_check(LaunchError("no program 'srun'"), LIBRARY).state == WARN
    assert srun_check(types, None).state == UNKNOWN


def test_library() -> None:
    assert library_check(LIBRARY) == Check(check="mpi library", state=OK, finding="Open MPI v5.0.11")
    missing = library_check(ValueError("MPI cannot be used: no libmpi.so"))
    assert (missing.state, missing.finding) == (WARN, "MPI cannot be used: no libmpi.so")
    assert "pip install" in str(missing.advice)


def test_launcher() -> None:
    assert launcher_check(OPENMPI, LIBRARY).state == OK
    assert launcher_check(OPENMPI, None).finding == "/x/mpirun: openmpi 5.0.11"
    assert launcher_check(OPENMPI, "IBM Spectrum MPI v10").state == OK
    other = launcher_check(OPENMPI, "MPICH Version:\t5.0.2\nMPICH ABI: 18")
    assert (other.state, "MPICH Version: 5.0.2: each rank" in other.finding) == (WARN, True)
    assert launcher_check(Mpirun(path="m", flavour="mpich"), LIBRARY).state == WARN
    assert launcher_check(LaunchError("no mpirun"), None).state == WARN


@pytest.mark.parametrize(
    ("nranks", "nnodes", "cpus", "whole", "state", "word"),
    [
        (2, 1, 2, True, OK, "each bound"),
        (3, 1, 2, True, WARN, "oversubscribed: 3 ranks on 2 cores"),
        (2, 1, 1, False, WARN, "oversubscribed: 2 ranks on 1 core, all that this process may use"),
        (2, 1, 2, False, WARN, "unpinned"),
        (8, 2, 2, True, UNKNOWN, "8 ranks on 2 nodes"),
    ],
)
def test_placement(nranks: int, nnodes: int, cpus: int, whole: bool, state: str, word: str) -> None:
    check = placement_check(nranks, nnodes, cpus, whole)
    assert check.state == state
    assert word in check.finding
    assert (check.advice is None) == (state != WARN)


def test_advice_is_given_where_it_is_needed() -> None:
    warned, calm = machine_checks(
        [Finding(guard="busy", state=WARN, text="x"), Finding(guard="governor", state=OK, text="y")]
    )
    assert warned == Check(check="busy", state=WARN, finding="x", advice=GUARDS["busy"].advice)
    assert calm.advice is None


def test_a_check_is_a_line_or_a_flat_object() -> None:
    checks = [Check(check="a", state=OK, finding="fine"), Check(check="bc", state=WARN, finding="\xb5", advice="do")]
    assert render_checks(checks, "text") == "ok       a   fine\nWARN     bc  \\xb5; do\n"
    assert json.loads(render_checks(checks, "json"))[1] == {
        "check": "bc",
        "state": WARN,
        "finding": "\xb5",
        "advice": "do",
    }


def test_all_warnings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for shape in ("text", "markdown", "json"):
        assert main(["list", "--warnings", "--format", shape]) == 0
        out = capsys.readouterr().out
        assert out == render_warnings(shape)
        assert out.isascii()
        assert all(name in out for name in GUARDS)
    assert [guard["name"] for guard in json.loads(render_warnings("json"))] == list(GUARDS)
    assert max(map(len, render_warnings("text").splitlines())) <= 100


# The command.


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Play a machine on which nothing is wrong, but for the facts given."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_", "PMI", "MPI"))]:
        monkeypatch.delenv(name)

    def play(**facts: Any) -> None:
        well: dict[str, Any] = {
            "governors": {"performance": 2},
            "shm_free_nbytes": 2**30,
            "cma": "ok",
            "others_cpus": 0.0,
        }
        machine = Machine(host="a", cores=(0, 1), **well | facts)
        monkeypatch.setattr("ringbench.runtime.machine.read_machine", lambda **given: machine)
        monkeypatch.setattr("ringbench.runtime.load.watch_others", lambda *given: 0.0)
        monkeypatch.setattr("ringbench.runtime.world.library_version", lambda: LIBRARY)
        monkeypatch.setattr("ringbench.launch.mpirun.find_mpirun", lambda environ: OPENMPI)
        monkeypatch.setattr("ringbench.launch.mpirun.usable_cpus", lambda: (2, True))

    return play


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    status = main(["doctor", "--format", "json", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return status, {check["check"]: check["state"] for check in json.loads(out)}


def test_nothing_wrong_is_status_0(calm: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    calm()
    status, states = doctor(capsys, "--ranks", "2")
    assert status == 0
    assert set(states.values()) == {OK}
    assert main(["doctor", "--ranks", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(states)
    assert all(line.startswith("ok  ") for line in lines)


def test_what_is_not_known_is_no_warning(calm: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    calm(unknown={"governor": "no cpufreq"})
    status, states = doctor(capsys, "--ranks", "2")
    assert (status, states["governor"]) == (0, UNKNOWN)


@pytest.mark.parametrize(
    ("guard", "facts"),
    [
        ("cpu quota", {"quota_cpus": 1.5}),
        ("busy", {"others_cpus": 0.7}),
        ("governor", {"governors": {"powersave": 2}}),
        ("library tuned", {"tuned": ("OMPI_MCA_coll=^tuned",)}),
        ("small shm", {"shm_free_nbytes": 2**20}),
        ("no cma", {"cma": "Operation not permitted"}),
    ],
)
def test_one_warning_is_status_1(
    calm: Callable[..., None], capsys: pytest.CaptureFixture[str], guard: str, facts: dict[str, Any]
) -> None:
    calm(**facts)
    status, states = doctor(capsys, "--ranks", "2")
    assert status == 1
    assert [name for name, state in states.items() if state == WARN] == [guard]
    main(["doctor", "--ranks", "2"])
    assert GUARDS[guard].advice in capsys.readouterr().out


def test_several_interfaces_in_an_allocation_of_several_nodes(
    calm: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calm(interfaces=("eth0", "eth1"))
    assert doctor(capsys, "--ranks", "2")[1]["interfaces"] == OK
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    status, states = doctor(capsys, "--ranks", "4")
    assert (status, states["interfaces"], states["placement"]) == (1, WARN, UNKNOWN)


def test_ranks_are_those_of_the_machine_unless_said(
    calm: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calm()
    monkeypatch.setenv("SLURM_NTASKS", "3")
    status, states = doctor(capsys)
    assert (status, states["placement"]) == (1, WARN)
    assert doctor(capsys, "--ranks", "2")[0] == 0


@pytest.mark.parametrize("arguments", [["--ranks", "0"], ["--ranks", "two"], ["--format", "csv"], ["x"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_inside_a_job_it_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("PMI_SIZE", "1")
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("MPI_LOCALNRANKS", "1")
    assert main(["doctor"]) == 2
    assert "PMI_SIZE=1" in capsys.readouterr().err

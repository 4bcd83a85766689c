"""Each guard of the machine, provoked and silent, on machines made for it; and this machine, of which all is read."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT

from ringbench.records.guards import GUARDS
from ringbench.records.kernel import lines, number
from ringbench.records.libraries import tuning
from ringbench.runtime.load import others_cpus, watch_others, worked_s
from ringbench.runtime.machine import (
    OK,
    SHM_NBYTES,
    UNKNOWN,
    WARN,
    Finding,
    Machine,
    judge,
    machine_warnings,
    read_machine,
)
from ringbench.runtime.peek import read_memory, try_by_child

OPENMPI, MPICH = "Open MPI v5.0.11, package: x", "MPICH Version:\t5.0.2"


def plant(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def space(nbytes: int) -> Any:
    return lambda path: SimpleNamespace(f_bavail=nbytes // 4096, f_frsize=4096)


def found(
    root: Path,
    *,
    cores: int = 4,
    nranks: int = 4,
    nnodes: int = 1,
    library: str | None = None,
    others: float | None = 0.0,
    cma: str | None = "ok",
    environ: Mapping[str, str] | None = None,
    statvfs: Any = space(2**30),  # noqa: B008
    files: Mapping[str, str] | None = None,
) -> dict[str, Finding]:
    plant(root, files or {})
    machine = read_machine(
        host="a",
        cores=range(cores),
        others_cpus=others,
        cma=cma,
        environ=environ or {},
        root=root,
        statvfs=statvfs,
    )
    findings = judge(machine, nranks=nranks, nnodes=nnodes, library=library)
    return {finding.guard: finding for finding in findings}


def calm_machine() -> dict[str, str]:
    return {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/job/cpu.max": "max 100000\n",
        "proc/net/route": "Iface Destination Gateway Flags\neth0 00000000 0102 0003\n",
        **{f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor": "performance\n" for core in range(4)},
    }


def test_a_calm_machine_is_well_in_every_respect(tmp_path: Path) -> None:
    checks = found(tmp_path, files=calm_machine())
    assert set(checks) == {name for name, guard in GUARDS.items() if guard.about == "machine"}
    assert {finding.state for finding in checks.values()} == {OK}
    assert machine_warnings([("a", list(checks.values()))]) == ((), [])


def test_a_machine_that_tells_nothing_is_unknown_and_warns_of_nothing(tmp_path: Path) -> None:
    def denied(path: str) -> Any:
        raise PermissionError(13, "Permission denied")

    checks = found(tmp_path, others=None, cma=None, statvfs=denied)
    unknown = {name for name, finding in checks.items() if finding.state == UNKNOWN}
    assert unknown == set(checks) - {"library tuned"}
    assert checks["library tuned"].state == OK
    assert all(finding.text for finding in checks.values())


def test_files_of_nonsense_raise_nothing(tmp_path: Path) -> None:
    names = [*calm_machine(), "proc/stat", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "sys/devices/system/cpu/cpufreq/boost"]
    for text in (
        "",
        "\n",
        "max",
        "cpu0 x y\n\n\xff",
        "a b c d e\n-1 :: \n::\n",
        "9" * 50 + "\n",
        "cpu0 " + "9" * 5000 + " 1" * 9,
    ):
        plant(tmp_path, dict.fromkeys(names, text))
        plant(tmp_path, {"proc/self/cgroup": f"{text}\n0::/job\n3:cpu:/../x\n"})
        assert len(found(tmp_path)) == 7
        assert worked_s(tmp_path, [0]) is None
    (tmp_path / "proc/net/route").write_bytes(b"\xff\xfe\n\xff")
    assert found(tmp_path)["interfaces"].state == OK  # no line in it is a route
    assert lines(tmp_path) == []  # a folder
    assert number(tmp_path / "absent") is None


# CPU quota.


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5),
        # Of several the least counts; in a container the path may be the host's, and the mount holds the limit.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/cpu.max": "200000 100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "7:memory:/m\n4:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
    ],
)
def test_a_quota_below_the_ranks_is_told_in_both_versions(tmp_path: Path, files: dict[str, str], cpus: float) -> None:
    finding = found(tmp_path, files=files)["cpu quota"]
    assert finding == Finding(guard="cpu quota", state=WARN, text=f"a control group allows {cpus:g} CPUs to 4 ranks")
    assert found(tmp_path, nranks=max(1, int(cpus)))["cpu quota"].state == (OK if cpus >= 1 else WARN)


def test_no_quota_is_none(tmp_path: Path) -> None:
    for files in (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.procs": "1\n"},
        {
            "proc/self/cgroup": "4:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    ):
        assert found(tmp_path, files=files)["cpu quota"].state == OK


# Others.

STAT = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 10 20 5000 70 1 2 3 0 0\ncpu1 200 0 0 0 0 0 0 0 0 0\nintr 5 6\n"


def test_a_core_works_where_it_neither_idles_nor_waits(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/stat": STAT})
    hertz = os.sysconf("SC_CLK_TCK")
    assert worked_s(tmp_path, [0]) == 136 / hertz
    assert worked_s(tmp_path, [0, 1]) == 336 / hertz
    assert worked_s(tmp_path, [0, 7]) is None  # a core that is not told of
    assert worked_s(tmp_path, []) is None


def test_what_is_our_own_is_no_others() -> None:
    assert others_cpus(10.0, 10.5, 0.1, 0.2) == 2.0
    assert others_cpus(10.0, 10.1, 0.3, 0.2) == 0.0
    assert others_cpus(None, 10.1, 0.3, 0.2) is None
    assert others_cpus(10.0, None, 0.3, 0.2) is None
    assert others_cpus(10.0, 10.1, 0.3, 0.0) is None


@pytest.mark.parametrize(
    ("others", "cores", "nranks", "state"),
    [
        (0.1, 4, 4, OK),
        (0.5, 4, 4, WARN),
        (1.1, 4, 3, OK),  # the core that is left over takes it
        (1.5, 4, 3, WARN),
        (0.9, 64, 64, WARN),
        (0.5, 64, 64, OK),  # a little on each of many cores
        (0.5, 2, 8, WARN),
    ],
)
def test_others_at_work_are_told(tmp_path: Path, others: float, cores: int, nranks: int, state: str) -> None:
    finding = found(tmp_path, others=others, cores=cores, nranks=nranks)["busy"]
    assert finding.state == state
    assert f"others used {others:.2f} of the {cores} cores" in finding.text


def test_more_than_the_cores_is_never_used(tmp_path: Path) -> None:
    assert "used 2.00 of the 2 cores" in found(tmp_path, others=2.3, cores=2)["busy"].text


def test_a_process_that_spins_is_seen() -> None:
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nprint('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"on\n"
            used = watch_others("/", [core], 0.5)
        finally:
            process.kill()
    # Whatever else runs here, that core does not rest.
    assert used is not None
    assert used > 0.5


# Frequencies.


@pytest.mark.parametrize("governor", ["powersave", "schedutil", "ondemand"])
def test_a_governor_that_follows_the_load_is_told(tmp_path: Path, governor: str) -> None:
    files = calm_machine()
    files["sys/devices/system/cpu/cpu3/cpufreq/scaling_governor"] = f"{governor}\n"
    finding = found(tmp_path, files=files)["governor"]
    assert finding.state == WARN
    assert finding.text == f"frequency governor performance on 3 cores, {governor} on 1 core"
    assert found(tmp_path, cores=3)["governor"].state == OK  # where no rank runs it does not matter


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("intel_pstate/no_turbo", "0", "turbo is on"),
        ("intel_pstate/no_turbo", "1", "turbo is off"),
        ("cpufreq/boost", "1", "turbo is on"),
        ("cpufreq/boost", "0", "turbo is off"),
    ],
)
def test_turbo_is_told_and_no_warning(tmp_path: Path, file: str, text: str, says: str) -> None:
    files = {**calm_machine(), f"sys/devices/system/cpu/{file}": f"{text}\n"}
    finding = found(tmp_path, files=files)["governor"]
    assert (finding.state, finding.text) == (OK, f"frequency governor performance on 4 cores; {says}")


# What is set for the library.


@pytest.mark.parametrize(
    ("name", "value", "library"),
    [
        ("OMPI_MCA_coll_tuned_allreduce_algorithm", "3", OPENMPI),
        ("OMPI_MCA_coll", "^tuned", OPENMPI),
        ("OMPI_MCA_coll_hcoll_enable", "0", OPENMPI),
        ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "ring", MPICH),
        ("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE", "/x.json", MPICH),
        ("MPICH_ALLREDUCE_NO_SMP", "1", MPICH),
        ("MV2_ALLREDUCE_TUNING", "x", "MVAPICH2 Version: 2.3.7"),
        ("MV2_USE_SHMEM_ALLREDUCE", "0", "MVAPICH2 Version: 2.3.7"),
        ("I_MPI_ADJUST_ALLREDUCE", "2", "Intel(R) MPI Library 2021.1"),
    ],
)
def test_variables_that_choose_an_algorithm_are_named(tmp_path: Path, name: str, value: str, library: str) -> None:
    finding = found(tmp_path, environ={name: value}, library=library)["library tuned"]
    assert finding == Finding(guard="library tuned", state=WARN, text=f"set for collectives: {name}={value}")
    assert found(tmp_path, environ={name: value})["library tuned"].state == WARN  # whoever it is for
    other = MPICH if library == OPENMPI else OPENMPI
    assert found(tmp_path, environ={name: value}, library=other)["library tuned"].state == OK


@pytest.mark.parametrize(
    "variable",
    [
        "OMPI_MCA_coll_base_verbose=10",
        "OMPI_MCA_coll_tuned_allreduce_algorithm=0",
        "OMPI_MCA_PREFIXES=mca,coll",
        "OMPI_MCA_btl=tcp,self",
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=auto",
        "MPIR_CVAR_CH4_OFI_ENABLE_RMA=1",
        "MPICH_GPU_SUPPORT_ENABLED=1",
        "MPICH_DIR=/opt/cray",
        "MV2_ENABLE_AFFINITY=0",
        "I_MPI_PIN=1",
        "PATH=/coll/ALGORITHM",
    ],
)
def test_other_variables_are_not(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert tuning({name: value}) == ()


def test_the_users_file_counts_too(tmp_path: Path) -> None:
    text = "# coll = ^han\nbtl_tcp_if_include = eth0\n\ncoll_tuned_use_dynamic_rules = 1  # on\nnonsense\n"
    plant(tmp_path, {"home/.openmpi/mca-params.conf": text})
    finding = found(tmp_path, environ={"HOME": str(tmp_path / "home")}, library=OPENMPI)["library tuned"]
    named = "OMPI_MCA_coll_tuned_use_dynamic_rules=1 (~/.openmpi/mca-params.conf)"
    assert finding.text == f"set for collectives: {named}"
    assert found(tmp_path, environ={"HOME": str(tmp_path / "home")}, library=MPICH)["library tuned"].state == OK


# Memory that ranks share.


def test_shared_memory_too_small_for_the_ranks_is_told(tmp_path: Path) -> None:
    finding = found(tmp_path, statvfs=space(4 * SHM_NBYTES - 4096))["small shm"]
    assert (finding.state, finding.text) == (WARN, "/dev/shm has 63 MiB free; 4 ranks may map 64 MiB")
    assert found(tmp_path, statvfs=space(4 * SHM_NBYTES))["small shm"].state == OK
    assert found(tmp_path, statvfs=space(0), nranks=1)["small shm"].state == OK


def test_memory_that_may_not_be_read_is_told_where_it_matters(tmp_path: Path) -> None:
    finding = found(tmp_path, cma="Operation not permitted")["no cma"]
    assert finding.state == WARN
    assert "Operation not permitted" in finding.text
    assert found(tmp_path, cma="Operation not permitted", nranks=1)["no cma"].state == OK


def test_memory_of_another_process_is_read_or_denied() -> None:
    assert str(try_by_child()).endswith(("ok", "Operation not permitted", "Function not implemented"))
    secret = ctypes.create_string_buffer(b"in this process")
    assert read_memory(os.getpid(), ctypes.addressof(secret), len(secret)) == secret.raw
    with pytest.raises(OSError, match=r"No such process|Operation not permitted"):
        read_memory(2**22 + 1, 4096, 16)  # above every pid
    with pytest.raises(OSError, match=r"Bad address|Operation not permitted"):
        read_memory(os.getpid(), 8, 16)


def test_another_user_may_not_read_it() -> None:
    if os.getuid() != 0:
        pytest.skip("only root may start a process of another user")
    secret = ctypes.create_string_buffer(16)
    code = "import os, sys\nfrom ringbench.runtime.peek import read_memory\nos.setuid(65534)\n"
    code += "read_memory(*map(int, sys.argv[1:]))"
    words = [sys.executable, "-c", code, str(os.getpid()), str(ctypes.addressof(secret)), "16"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "PermissionError: [Errno 1] Operation not permitted"


def test_a_child_that_may_not_read_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    denied = tmp_path / "denied.py"
    denied.write_text("raise PermissionError(1, 'Operation not permitted')\n")
    monkeypatch.setattr("ringbench.runtime.peek.__file__", str(denied))
    assert str(try_by_child()).endswith("Operation not permitted")
    denied.write_text("print('x' * 16)\n")
    assert try_by_child() == "what was read is not what is there"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    assert try_by_child() is None


# Networks.

ROUTES = "Iface Destination Gateway Flags\n" + "".join(
    f"{name} 00000000 00000000 {flags}\n"
    for name, flags in (("eth0", "0003"), ("docker0", "0001"), ("eth0", "0001"), ("lo", "0001"), ("off", "0002"))
)


def test_several_interfaces_count_between_nodes(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/net/route": ROUTES})
    finding = found(tmp_path, nnodes=2)["interfaces"]
    assert finding.state == WARN
    assert finding.text.endswith(": docker0, eth0")
    assert found(tmp_path, nnodes=1)["interfaces"].state == OK
    plant(tmp_path, {"proc/net/route": ROUTES.replace("docker0", "eth0")})
    assert found(tmp_path, nnodes=2)["interfaces"].state == OK


@pytest.mark.parametrize("name", ["OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES", "FI_TCP_IFACE"])
def test_an_interface_that_is_named_is_enough(tmp_path: Path, name: str) -> None:
    plant(tmp_path, {"proc/net/route": ROUTES})
    finding = found(tmp_path, nnodes=2, environ={name: "eth0"})["interfaces"]
    assert (finding.state, finding.text) == (OK, f"docker0, eth0; chosen by {name}")


def test_a_fast_network_is_taken_before_tcp(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/net/route": ROUTES, "sys/class/infiniband/mlx5_0/x": ""})
    finding = found(tmp_path, nnodes=2)["interfaces"]
    assert (finding.state, finding.text) == (OK, "docker0, eth0; chosen by mlx5_0")


# All nodes together.


def test_nodes_with_the_same_trouble_share_a_line() -> None:
    well = Finding(guard="busy", state=OK, text="calm")
    busy = Finding(guard="busy", state=WARN, text="others used 2")
    slow = Finding(guard="governor", state=WARN, text="powersave")
    names, told = machine_warnings([("a", [slow, well]), ("b", [busy]), ("c", [slow, busy])])
    assert names == ("busy", "governor")
    assert told == [
        f"a and 1 more: powersave; {GUARDS['governor'].advice}",
        f"b and 1 more: others used 2; {GUARDS['busy'].advice}",
    ]


def test_this_machine_is_read_whole() -> None:
    machine = read_machine(host="here", cores=os.sched_getaffinity(0), others_cpus=0.0, cma="ok", environ=os.environ)
    assert isinstance(machine, Machine)
    assert machine.shm_free_nbytes is None or machine.shm_free_nbytes >= 0
    assert {finding.state for finding in judge(machine, nranks=2, nnodes=1, library=None)} <= {OK, WARN, UNKNOWN}

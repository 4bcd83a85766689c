"""Tests of what makes an emulated cluster: exact texts and commands. None of them is run here; tests/cluster does."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ringbench.launch.lab import (
    Lab,
    agent_script,
    enter_command,
    environment,
    head_script,
    hold_command,
    hosts_file,
    hydra_hosts,
    in_lab,
    lab_around,
    network_batch,
    node_script,
    openmpi_hosts,
    read_words,
    slurm_conf,
    unshare_command,
)
from ringbench.launch.lab_needs import failed_node, missing_ids, missing_programs, refused_namespaces

TWO = Lab(nodes=2, ranks_per_node=3)

HEAD = """\
mount -t tmpfs tmpfs /run
mkdir /run/tmp /run/boot_id
mount -t tmpfs tmpfs /dev/shm
printf %s '127.0.0.1 localhost
10.0.0.254 head
10.0.0.1 node0
10.0.0.2 node1
' > /run/hosts
mount --bind /run/hosts /etc/hosts
hostname head
"""

LINKS = """\
link set lo up
link add br0 type bridge
addr add 10.0.0.254/24 dev br0
link set br0 up
link add node0 type veth peer name eth0 netns 17
link set node0 master br0 up
link add node1 type veth peer name eth0 netns 23
link set node1 master br0 up
"""

NODE = """\
echo here
read -r linked
mount -t tmpfs tmpfs /run/tmp
mount -t tmpfs tmpfs /dev/shm
echo 00000001-0000-4000-8000-000000000000 > /run/boot_id/node1
mount --bind /run/boot_id/node1 /proc/sys/kernel/random/boot_id
hostname node1
ip link set lo up
ip addr add 10.0.0.2/24 dev eth0
ip link set eth0 gso_max_size 8192 up
echo 0 > /proc/sys/net/ipv4/tcp_slow_start_after_idle
echo reno > /proc/sys/net/ipv4/tcp_congestion_control
echo 65536 > /proc/sys/net/ipv4/tcp_limit_output_bytes
echo 33000 33000 33000 > /proc/sys/net/ipv4/tcp_wmem
tc qdisc add dev eth0 root handle 1: tbf rate 400mbit burst 16500 latency 100ms
echo up
exec sleep infinity
"""

AGENT = """\
#!/bin/sh
[ "$1" = -x ] && shift
case "$1" in
node0 | 10.0.0.1) pid=17 ;;
node1 | 10.0.0.2) pid=23 ;;
*) echo "the lab has no node $1" >&2; exit 255 ;;
esac
shift
exec nsenter --target=$pid --net --mount --uts --ipc -- sh -c 'cd "$1" && shift && eval "$*"' sh "$PWD" "$@"
"""


def test_texts_of_a_lab() -> None:
    assert head_script(TWO) == HEAD
    assert network_batch([17, 23]) == LINKS
    assert node_script(TWO, 1) == NODE
    assert agent_script([17, 23]) == AGENT
    assert hosts_file(Lab(nodes=1)) == "127.0.0.1 localhost\n10.0.0.254 head\n10.0.0.1 node0\n"
    assert openmpi_hosts(TWO) == "node0 slots=3\nnode1 slots=3\n"
    assert hydra_hosts(TWO) == "node0:3\nnode1:3\n"


def test_a_delay_stands_before_the_rate() -> None:
    lines = node_script(replace(TWO, delay="1.5ms"), 0).splitlines()
    assert [line for line in lines if line.startswith("tc ")] == [
        "tc qdisc add dev eth0 root handle 1: netem delay 1.5ms limit 100000",
        "tc qdisc add dev eth0 parent 1:1 handle 2: tbf rate 400mbit burst 16500 latency 100ms",
    ]


def test_commands_of_a_lab() -> None:
    new = "--net --mount --uts --ipc --pid --fork --kill-child --mount-proc --"
    assert " ".join(unshare_command(user=False)) == f"unshare {new}"
    assert " ".join(unshare_command(user=True)) == f"unshare --user --map-root-user {new}"
    assert " ".join(unshare_command(user=True, ids=True)) == f"unshare --user --map-root-user --map-auto {new}"
    assert hold_command("x") == ["unshare", "--net", "--mount", "--uts", "--ipc", "--", "sh", "-ec", "x"]
    assert enter_command(7) == ["nsenter", "--target=7", "--net", "--mount", "--uts", "--ipc", "--"]


@pytest.mark.parametrize(
    ("words", "heard"),
    [
        (["node1", "echo", "'a", "b'"], "23 a b"),
        (["-x", "10.0.0.1", "A=1;", "export", "A;", "echo", "$A"], "17 1"),
    ],
)
def test_the_agent_runs_what_ssh_would(tmp_path: Path, words: list[str], heard: str) -> None:
    agent, nsenter = tmp_path / "agent", tmp_path / "nsenter"
    agent.write_text(agent_script([17, 23]))
    nsenter.write_text(
        '#!/bin/sh\nprintf "%s " "${1#--target=}"\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    nsenter.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", str(agent), *words], env=env, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == f"{heard}\n"


def test_the_agent_knows_its_nodes(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text(agent_script([17, 23]))
    done = subprocess.run(["sh", str(agent), "node2", "true"], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (255, "the lab has no node node2\n")


def test_every_mpirun_in_a_lab_finds_the_nodes() -> None:
    plain, slurm = environment(TWO), environment(replace(TWO, slurm=True))
    assert plain["RINGBENCH_LAB"] == "nodes=2 ranks_per_node=3 rate=400mbit slurm=no"
    assert {plain[name] for name in plain if name.endswith(("_agent", "_EXEC"))} == {"/run/agent"}
    for name in ("PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile"):
        assert plain[name] == "/run/hosts.openmpi"
    assert plain["HYDRA_HOST_FILE"] == "/run/hosts.hydra"
    assert plain["PRTE_MCA_hwloc_default_binding_policy"] == "none"
    assert plain["OMPI_MCA_mpi_yield_when_idle"] == "1"
    # In an allocation of Slurm it is Slurm that says which nodes there are.
    assert set(plain) - set(slurm) == {name for name in plain if "agent" in name.lower() or "host" in name.lower()} | {
        "HYDRA_LAUNCHER",
        "HYDRA_LAUNCHER_EXEC",
        "HYDRA_IFACE",
    }
    assert slurm["SLURM_CONF"] == "/run/slurm.conf"


@pytest.mark.parametrize("lab", [Lab(), TWO, Lab(nodes=7, rate="1.5gbit", delay="200us", slurm=True)])
def test_a_lab_is_known_inside_by_what_it_says_of_itself(lab: Lab) -> None:
    assert lab_around(environment(lab)) == lab
    assert lab_around({}) is None


@pytest.mark.parametrize(
    "text", ["", "nodes=2", "nodes=two ranks_per_node=1 rate=1gbit slurm=no", "x", f"{TWO.words} a=b"]
)
def test_what_describes_no_lab_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"RINGBENCH_LAB=.* describes no lab"):
        read_words(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", 0),
        ("nodes", 201),
        ("ranks_per_node", 0),
        ("rate", "400"),
        ("rate", "400 mbit"),
        ("rate", "0mbit"),
        ("rate", "50mbps"),
        ("rate", "1gbit; reboot"),
        ("delay", "200"),
        ("delay", "-1ms"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=str(value)):
        Lab(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "bytes_per_s", "burst"), [("400mbit", 5e7, 16500), ("10mbit", 1.25e6, 16384), ("2.5gbit", 312.5e6, 103125)]
)
def test_rates_in_bytes(rate: str, bytes_per_s: float, burst: int) -> None:
    assert (Lab(rate=rate).bytes_per_s, Lab(rate=rate).burst) == (bytes_per_s, burst)


SLURM = replace(TWO, slurm=True)


@pytest.mark.parametrize(
    ("lab", "nranks", "environ", "before"),
    [
        (TWO, 2, {}, []),
        (SLURM, 1, {}, ["salloc", "--quiet", "--nodes=1", "--ntasks=1"]),
        (SLURM, 4, {}, ["salloc", "--quiet", "--nodes=2", "--ntasks=4"]),
        (SLURM, 9, {}, ["salloc", "--quiet", "--nodes=2", "--ntasks=6"]),
        (SLURM, 4, {"SLURM_JOB_ID": "1"}, []),
    ],
)
def test_mpirun_asks_slurm_for_nodes(lab: Lab, nranks: int, environ: dict[str, str], before: list[str]) -> None:
    assert in_lab(lab, nranks, environ) == before


def test_configuration_of_slurm() -> None:
    lines = slurm_conf(SLURM).splitlines()
    assert lines[:3] == ["ClusterName=lab", "SlurmctldHost=head(10.0.0.254)", "AuthType=auth/none"]
    assert lines[-3:] == [
        "NodeName=node[0-1] CPUs=3 State=UNKNOWN",
        "PartitionName=lab Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 State=UP",
        "PartitionName=short Nodes=ALL MaxTime=1 State=UP",
    ]
    assert {"TmpFS=/run/tmp", "SlurmdTimeout=15"} <= set(lines)
    assert "NodeName=node0 CPUs=1 State=UNKNOWN" in slurm_conf(Lab(nodes=1)).splitlines()


def test_what_is_missing_is_said_with_its_package() -> None:
    needed = {"ip": "iproute2", "tc": "iproute2", "mount": "mount"}
    assert missing_programs(needed, dict.fromkeys(needed, "/bin/x")) is None
    assert missing_programs(needed, {"ip": None, "tc": None, "mount": "/bin/mount"}) == (
        "a lab needs ip, tc: install iproute2 (Debian: apt-get install iproute2)"
    )


@pytest.mark.parametrize(
    ("kernel", "cure"),
    [
        ({"user.max_user_namespaces": "0\n"}, "sysctl -w user.max_user_namespaces=10000"),
        ({"kernel.unprivileged_userns_clone": "0\n"}, "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            {"user.max_user_namespaces": "9", "kernel.apparmor_restrict_unprivileged_userns": "1"},
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"user.max_user_namespaces": "9", "kernel.unprivileged_userns_clone": ""}, "refuses: unshare: no"),
    ],
)
def test_what_forbids_namespaces_is_said_with_its_cure(kernel: dict[str, str], cure: str) -> None:
    line = refused_namespaces("\nunshare: no\nmore\n", kernel)
    assert cure in line
    assert "\n" not in line


def test_what_slurm_needs_of_an_ordinary_user() -> None:
    ids = {"/etc/subuid": "ann:100000:65536\n1002:200000:65536\n", "/etc/subgid": "ann:100000:65536\n"}
    assert missing_ids("ann", 1001, ids, "/usr/bin/newuidmap") is None
    assert "uidmap" in (missing_ids("ann", 1001, ids, None) or "")
    line = missing_ids("bob", 1002, ids, "/usr/bin/newuidmap")
    assert line is not None
    assert "/etc/subgid has no line for bob" in line
    assert "usermod --add-subuids 100000-165535" in line


def test_why_a_node_failed() -> None:
    unknown = "RTNETLINK\nError: Specified qdisc kind is unknown.\n"
    assert "no netem" in failed_node("node0", unknown, replace(TWO, delay="1ms"))
    assert "no tbf" in failed_node("node0", unknown, TWO)
    assert failed_node("node1", "a\nb\n\n", TWO) == "node1 could not be set up: b"
    assert failed_node("node1", "", TWO) == "node1 could not be set up: it ended without a word"

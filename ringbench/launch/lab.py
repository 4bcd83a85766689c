"""An emulated cluster in user namespaces: what it is, and the texts and commands that make it. Nothing here runs them.

One network namespace and host name for each node, a bridge between them, and links that are shaped as they leave a
node. All of it belongs to one process and ends with it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Says of a process that it runs in a lab, and of which; see ``Lab.words``.
VARIABLE = "RINGBENCH_LAB"

NETWORK = "10.0.0.0/24"
BRIDGE, HEAD, HEAD_ADDRESS = "br0", "head", "10.0.0.254"
MOST_NODES, MOST_RANKS = 200, 1024

#: A tmpfs of the lab's own lies over /run: a folder that every system has, and nothing that is written there stays.
FOLDER = "/run"
TMP = f"{FOLDER}/tmp"
AGENT = f"{FOLDER}/agent"
HOSTS = f"{FOLDER}/hosts"
OPENMPI_HOSTS, HYDRA_HOSTS = f"{FOLDER}/hosts.openmpi", f"{FOLDER}/hosts.hydra"
SLURM_CONF = f"{FOLDER}/slurm.conf"

#: What a node holds back at most is a tenth of a second; a burst is a third of a millisecond, two large segments.
_LATENCY, _BURST_S, _LEAST_BURST = "100ms", 330e-6, 16384
_SEGMENT, _IN_LINE = 8192, 65536

#: What stands in a socket keeps waiting what comes behind it: the answer that lets the other direction begin for
#: instance. So it is as short as keeps the wire busy, unless a delay needs more to be under way.
_BURSTS_IN_SOCKET = 2

_RATE = re.compile(r"(\d+(?:\.\d+)?)(k|m|g)bit")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_BIT_S = {"k": 1e3, "m": 1e6, "g": 1e9}


class LabError(RuntimeError):
    """Report a lab that cannot be set up: one line that says what to install or to enable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lab:
    """Say what cluster to emulate: ``rate`` limits what a node sends, as tc writes it, ``delay`` is added to a link.

    With ``slurm`` a controller and one slurmd on each node start the jobs. Raises ValueError naming a wrong value.
    """

    nodes: int = 4
    ranks_per_node: int = 1
    rate: str = "400mbit"
    delay: str | None = None
    slurm: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError naming a value that makes no lab."""
        if not 1 <= self.nodes <= MOST_NODES:
            raise ValueError(f"{self.nodes} nodes: must be 1 to {MOST_NODES}")
        if not 1 <= self.ranks_per_node <= MOST_RANKS:
            raise ValueError(f"{self.ranks_per_node} ranks per node: must be 1 to {MOST_RANKS}")
        match = _RATE.fullmatch(self.rate)
        if match is None or not 1e5 <= float(match[1]) * _BIT_S[match[2]] <= 1e11:
            raise ValueError(f"rate {self.rate!r}: must be 100kbit to 100gbit, as in 400mbit")
        if self.delay is not None and _DELAY.fullmatch(self.delay) is None:
            raise ValueError(f"delay {self.delay!r}: must be as in 200us or 1.5ms")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the host names of the nodes."""
        return tuple(f"node{index}" for index in range(self.nodes))

    @property
    def ranks(self) -> int:
        """Return how many ranks the nodes have room for."""
        return self.nodes * self.ranks_per_node

    @property
    def bytes_per_s(self) -> float:
        """Return the rate in bytes per second, headers included."""
        match = _RATE.fullmatch(self.rate)
        assert match is not None
        return float(match[1]) * _BIT_S[match[2]] / 8

    @property
    def burst(self) -> int:
        """Return the bytes that may leave a node at once."""
        return max(_LEAST_BURST, round(self.bytes_per_s * _BURST_S))

    def arguments(self) -> list[str]:
        """Return the options of ``ringbench lab`` that say the same."""
        words = [f"--nodes={self.nodes}", f"--ranks-per-node={self.ranks_per_node}", f"--rate={self.rate}"]
        return [*words, *([f"--delay={self.delay}"] if self.delay else []), *(["--slurm"] if self.slurm else [])]

    @property
    def words(self) -> str:
        """Return the lab as the value of ``RINGBENCH_LAB``; ``read_words`` reads it."""
        delay = [f"delay={self.delay}"] if self.delay else []
        words = [f"nodes={self.nodes}", f"ranks_per_node={self.ranks_per_node}", f"rate={self.rate}", *delay]
        return " ".join([*words, f"slurm={'yes' if self.slurm else 'no'}"])


def read_words(text: str) -> Lab:
    """Return the lab that the value of ``RINGBENCH_LAB`` tells; raise ValueError naming it where it tells none."""
    try:
        said: dict[str, Any] = dict(word.split("=", 1) for word in text.split())
        for name in ("nodes", "ranks_per_node"):
            said[name] = int(said[name])
        return Lab(**(said | {"slurm": said["slurm"] == "yes"}))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{VARIABLE}={text!r} describes no lab; ringbench lab sets it") from None


def lab_around(environ: Mapping[str, str]) -> Lab | None:
    """Return the lab that this process runs in, None outside of one."""
    text = environ.get(VARIABLE)
    return None if text is None else read_words(text)


def address(index: int) -> str:
    """Return the address of a node."""
    return f"10.0.0.{index + 1}"


def environment(lab: Lab) -> dict[str, str]:
    """Return the variables by which every mpirun in the lab, without an option, starts its ranks on the nodes.

    Each node believes that it has all cores to itself: ranks are not bound, or those of several nodes would share one,
    and Open MPI's yield while they wait. MPICH has no such switch. Ranks fill one node after the other.
    """
    variables = {
        VARIABLE: lab.words,
        "TMPDIR": TMP,
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "^ofi,openib,uct,usnic",
        "OMPI_MCA_btl_tcp_if_include": NETWORK,
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "PRTE_MCA_prte_if_include": NETWORK,
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:OVERSUBSCRIBE",
        # The same for Open MPI 4.
        "OMPI_MCA_oob_tcp_if_include": NETWORK,
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_rmaps_base_mapping_policy": "slot",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    if lab.slurm:
        return variables | {"SLURM_CONF": SLURM_CONF}
    return variables | {
        "PRTE_MCA_plm_ssh_agent": AGENT,
        "PRTE_MCA_prte_default_hostfile": OPENMPI_HOSTS,
        "OMPI_MCA_plm_rsh_agent": AGENT,
        "OMPI_MCA_orte_default_hostfile": OPENMPI_HOSTS,
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": AGENT,
        "HYDRA_HOST_FILE": HYDRA_HOSTS,
        "HYDRA_IFACE": BRIDGE,
    }


def in_lab(lab: Lab, nranks: int, environ: Mapping[str, str]) -> list[str]:
    """Return what goes before an mpirun on a lab: with Slurm, outside of an allocation, the command that asks for one.

    One rank takes one core, and more ranks than there are cores share them. mpirun finds its nodes in the allocation.
    """
    if not lab.slurm or "SLURM_JOB_ID" in environ:
        return []
    nodes = min(lab.nodes, -(-nranks // lab.ranks_per_node))
    return ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks={min(nranks, lab.ranks)}"]


def unshare_command(*, user: bool, ids: bool = False) -> list[str]:
    """Return what goes before a command to run it as process 1 of namespaces of its own.

    ``user`` is for whoever is not root, who becomes root inside; ``ids`` maps his subordinate ids too, which slurmd
    needs. When process 1 ends, the kernel ends all others and takes the namespaces down.
    """
    own = ["--user", "--map-root-user", *(["--map-auto"] if ids else [])] if user else []
    new = ["--net", "--mount", "--uts", "--ipc", "--pid"]
    return ["unshare", *own, *new, "--fork", "--kill-child", "--mount-proc", "--"]


def hold_command(script: str) -> list[str]:
    """Return what starts a node: a process in its namespaces that runs the node's script."""
    return ["unshare", "--net", "--mount", "--uts", "--ipc", "--", "sh", "-ec", script]


def enter_command(pid: int) -> list[str]:
    """Return what goes before a command to run it on the node that process ``pid`` holds.

    Not ``ip netns exec``, which mounts a new /sys where slurmd misses its control groups.
    """
    return ["nsenter", f"--target={pid}", "--net", "--mount", "--uts", "--ipc", "--"]


def head_script(lab: Lab) -> str:
    """Return what makes the head of what ``unshare_command`` starts, before there are nodes."""
    lines = [
        f"mount -t tmpfs tmpfs {FOLDER}",
        f"mkdir {TMP} {FOLDER}/boot_id",
        "mount -t tmpfs tmpfs /dev/shm",
        f"printf %s {shlex.quote(hosts_file(lab))} > {HOSTS}",
        f"mount --bind {HOSTS} /etc/hosts",
        f"hostname {HEAD}",
    ]
    return "\n".join(lines) + "\n"


def network_batch(pids: Sequence[int]) -> str:
    """Return the lines for ``ip -batch`` on the head: a bridge, and a link to each node, which a process holds."""
    lines = [
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"addr add {HEAD_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    for index, pid in enumerate(pids):
        lines.append(f"link add node{index} type veth peer name eth0 netns {pid}")
        lines.append(f"link set node{index} master {BRIDGE} up")
    return "\n".join(lines) + "\n"


def node_script(lab: Lab, index: int) -> str:
    """Return what a node does: say that it is there, wait for its link, set itself up, say so, and stay.

    A temporary folder and shared memory of its own keep what the ranks of one node share from those of another; UCX
    tells nodes apart by the boot id alone. Small segments leave in even steps: with those of 64 KiB, and a bucket that
    holds one, the bandwidth of a message would depend on its size. So it would where a congestion control that probes
    the link, or a handshake that waits behind what already stands in line, had its say: the link loses nothing, Reno
    fills it, and a socket keeps little in its line.
    """
    waiting = _BURSTS_IN_SOCKET * lab.burst
    shaped, delayed = "root handle 1:", []
    if lab.delay is not None:
        delayed = [f"tc qdisc add dev eth0 root handle 1: netem delay {lab.delay} limit 100000"]
        shaped = "parent 1:1 handle 2:"
    boot_id = f"{FOLDER}/boot_id/node{index}"
    lines = [
        "echo here",
        "read -r linked",
        f"mount -t tmpfs tmpfs {TMP}",
        "mount -t tmpfs tmpfs /dev/shm",
        f"echo {index:08x}-0000-4000-8000-000000000000 > {boot_id}",
        f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id",
        f"hostname node{index}",
        "ip link set lo up",
        f"ip addr add {address(index)}/24 dev eth0",
        f"ip link set eth0 gso_max_size {_SEGMENT} up",
        "echo 0 > /proc/sys/net/ipv4/tcp_slow_start_after_idle",
        "echo reno > /proc/sys/net/ipv4/tcp_congestion_control",
        f"echo {_IN_LINE} > /proc/sys/net/ipv4/tcp_limit_output_bytes",
        *([] if lab.delay else [f"echo {waiting} {waiting} {waiting} > /proc/sys/net/ipv4/tcp_wmem"]),
        *delayed,
        f"tc qdisc add dev eth0 {shaped} tbf rate {lab.rate} burst {lab.burst} latency {_LATENCY}",
        "echo up",
        "exec sleep infinity",
    ]
    return "\n".join(lines) + "\n"


def hosts_file(lab: Lab) -> str:
    """Return the lab's /etc/hosts."""
    lines = ["127.0.0.1 localhost", f"{HEAD_ADDRESS} {HEAD}"]
    return "\n".join([*lines, *(f"{address(index)} {name}" for index, name in enumerate(lab.names))]) + "\n"


def openmpi_hosts(lab: Lab) -> str:
    """Return the default host file of Open MPI."""
    return "".join(f"{name} slots={lab.ranks_per_node}\n" for name in lab.names)


def hydra_hosts(lab: Lab) -> str:
    """Return the default host file of MPICH's mpirun."""
    return "".join(f"{name}:{lab.ranks_per_node}\n" for name in lab.names)


def agent_script(pids: Sequence[int]) -> str:
    """Return the program that an mpirun calls in place of ssh: it enters the node of a host and runs a command there.

    Called as ``agent HOST COMMAND...`` (Open MPI) or ``agent -x HOST COMMAND...`` (MPICH); as with ssh a shell reads
    the words of the command once more.
    """
    nodes = "".join(f"node{index} | {address(index)}) pid={pid} ;;\n" for index, pid in enumerate(pids))
    enter = shlex.join([*enter_command(0), "sh", "-c", 'cd "$1" && shift && eval "$*"', "sh"])
    return (
        "#!/bin/sh\n"
        '[ "$1" = -x ] && shift\n'
        f'case "$1" in\n{nodes}*) echo "the lab has no node $1" >&2; exit 255 ;;\nesac\n'
        f'shift\nexec {enter.replace("--target=0", "--target=$pid")} "$PWD" "$@"\n'
    )


def slurm_conf(lab: Lab) -> str:
    """Return the configuration of a Slurm without munge, accounts or control groups, each node with a core a rank.

    Jobs may be requeued after 5 seconds: until the credentials of the first start are void. A node that does not answer
    for 15 seconds is down. What is pending is looked at each second, or a requeued job would wait half a minute more.
    What a node's steps keep in files is in its own temporary folder, where those of two nodes cannot collide.
    """
    nodes = "node0" if lab.nodes == 1 else f"node[0-{lab.nodes - 1}]"
    folder = f"{FOLDER}/slurm"
    return f"""ClusterName=lab
SlurmctldHost={HEAD}({HEAD_ADDRESS})
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdTimeout=15
ReturnToService=2
SlurmdParameters=config_overrides
TmpFS={TMP}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
NodeName={nodes} CPUs={lab.ranks_per_node} State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
"""

"""What a machine does to numbers: facts of one node, and which guards they raise. Needs no MPI, and never raises.

Facts come from the kernel's files and from variables, both given, so that any machine can be played in a test. What
cannot be read is unknown, and no warning.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringbench.records.guards import GUARDS
from ringbench.records.kernel import control_groups, lines, number, whole
from ringbench.records.libraries import network_choices, tuning

#: Others may use so much of one core, and of every core, before it counts: the accounting knows whole ticks only.
SPARE_CPUS, SPARE_SHARE = 0.25, 0.005

#: What Open MPI maps for each rank (btl_sm_segment_size); MPICH takes less.
SHM_NBYTES = 16 * 2**20

OK, WARN, UNKNOWN = "ok", "WARN", "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Hold the facts of one node; ``unknown`` says of a guard's facts why they are not known.

    ``quota_cpus`` is the time per time that control groups allow (None: no limit), ``others_cpus`` what others used of
    ``cores``, ``turbo`` whether clocks above the nominal one are on, ``tuned`` the settings that choose algorithms,
    ``cma`` what came of reading another process's memory (None: not tried), ``fabric`` what says which network is used.
    """

    host: str
    cores: tuple[int, ...]
    quota_cpus: float | None = None
    others_cpus: float | None = None
    governors: Mapping[str, int] = field(default_factory=dict)
    turbo: bool | None = None
    tuned: tuple[str, ...] = ()
    shm_free_nbytes: int | None = None
    cma: str | None = None
    interfaces: tuple[str, ...] = ()
    fabric: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Hold what one guard finds: its name, ``ok``, ``WARN`` or ``unknown``, and the facts in words."""

    guard: str
    state: str
    text: str


def read_machine(
    *,
    host: str,
    cores: Collection[int],
    others_cpus: float | None,
    cma: str | None,
    environ: Mapping[str, str],
    root: str | Path = "/",
    statvfs: Callable[[str], Any] = os.statvfs,
) -> Machine:
    """Return the facts of this node for ranks on ``cores``; ``root`` holds proc, sys and dev."""
    root = Path(root)
    unknown: dict[str, str] = {}
    if not any(os.path.exists(folder) for _, folder in control_groups(root, "cpu")):
        unknown["cpu quota"] = "no control group of this process can be read"
    if others_cpus is None:
        unknown["busy"] = "/proc/stat does not tell how long these cores worked"
    governors = _governors(root, cores)
    if not governors:
        unknown["governor"] = "the kernel sets no clock frequency here (a virtual machine?)"
    interfaces = _interfaces(root)
    if interfaces is None:
        unknown["interfaces"] = "/proc/net/route cannot be read"
    free = None
    try:
        space = statvfs(str(root / "dev/shm"))
        free = int(space.f_bavail * space.f_frsize)
    except OSError as error:
        unknown["small shm"] = f"/dev/shm: {error.strerror or error}"
    return Machine(
        host=host,
        cores=tuple(sorted(cores)),
        quota_cpus=cpu_quota(root),
        others_cpus=None if others_cpus is None else min(others_cpus, len(cores)),
        governors=governors,
        turbo=_turbo(root),
        tuned=(*tuning(environ), *_tuned_by_file(environ)),
        shm_free_nbytes=free,
        cma=cma,
        interfaces=interfaces or (),
        fabric=_fabric(root, environ),
        unknown=unknown,
    )


def judge(machine: Machine, *, nranks: int, nnodes: int, library: str | None) -> list[Finding]:
    """Return what each guard says of ``nranks`` ranks on this node, of a job on ``nnodes``; what harms nobody is ok.

    ``library`` is what the MPI library calls itself, None where that is not known: settings of others do not count.
    """
    found = {
        "cpu quota": _judge_quota(machine, nranks),
        "busy": _judge_busy(machine, nranks),
        "governor": _judge_governor(machine),
        "library tuned": _judge_tuning(machine, library),
        "small shm": _judge_shm(machine, nranks),
        "no cma": _judge_cma(machine, nranks),
        "interfaces": _judge_interfaces(machine, nnodes),
    }
    judged = {name: (UNKNOWN, machine.unknown[name]) if name in machine.unknown else found[name] for name in found}
    return [Finding(guard=name, state=state, text=text) for name, (state, text) in judged.items()]


def machine_warnings(judged: Sequence[tuple[str, Sequence[Finding]]]) -> tuple[tuple[str, ...], list[str]]:
    """Return the warnings that rows must carry, and a line with advice for each, from hosts and their findings.

    Several nodes with the same trouble have one line together.
    """
    raised: dict[str, list[tuple[str, str]]] = {}
    for host, findings in judged:
        for finding in findings:
            if finding.state == WARN:
                raised.setdefault(finding.guard, []).append((host, finding.text))
    told = []
    for name, places in raised.items():
        host, text = places[0]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        told.append(f"{host}{more}: {text}; {GUARDS[name].advice}")
    return tuple(name for name in GUARDS if name in raised), told


def _judge_busy(machine: Machine, nranks: int) -> tuple[str, str]:
    used, ncores = machine.others_cpus or 0.0, len(machine.cores)
    allowed = SPARE_CPUS + SPARE_SHARE * ncores + max(0, ncores - nranks)
    return (
        WARN if used > allowed else OK,
        f"others used {used:.2f} of the {_count(ncores, 'core')} that {_count(nranks, 'rank')} may run on",
    )


# Control groups, clocks, shared memory.


def cpu_quota(root: str | Path = "/") -> float | None:
    """Return how many CPUs' worth of time this process's control groups allow, the least of all, None for no limit."""
    quotas = []
    for version, folder in control_groups(Path(root), "cpu"):
        if version == 2:
            words = " ".join(lines(folder / "cpu.max")).split()
            runtime, period = (whole(word) for word in (*words, "", "")[:2])
        else:
            runtime, period = number(folder / "cpu.cfs_quota_us"), number(folder / "cpu.cfs_period_us")
        if runtime is not None and period:
            quotas.append(runtime / period)
    return min(quotas, default=None)


def _judge_quota(machine: Machine, nranks: int) -> tuple[str, str]:
    if machine.quota_cpus is None:
        return OK, "no limit on CPU time"
    text = f"a control group allows {machine.quota_cpus:g} CPUs to {_count(nranks, 'rank')}"
    return (WARN if machine.quota_cpus < nranks else OK), text


def _governors(root: Path, cores: Collection[int]) -> dict[str, int]:
    folder = root / "sys/devices/system/cpu"
    found = [lines(folder / f"cpu{core}/cpufreq/scaling_governor") for core in sorted(cores)]
    return dict(Counter(words[0].strip() for words in found if words))


def _turbo(root: Path) -> bool | None:
    """Return whether clocks above the nominal one are allowed, None where no driver tells."""
    folder = root / "sys/devices/system/cpu"
    off, boost = number(folder / "intel_pstate/no_turbo"), number(folder / "cpufreq/boost")
    if off is not None:
        return not off
    return None if boost is None else bool(boost)


def _judge_governor(machine: Machine) -> tuple[str, str]:
    shown = ", ".join(f"{name} on {_count(cores, 'core')}" for name, cores in machine.governors.items())
    turbo = {None: "", True: "; turbo is on", False: "; turbo is off"}[machine.turbo]
    return (OK if set(machine.governors) == {"performance"} else WARN), f"frequency governor {shown}{turbo}"


def _judge_shm(machine: Machine, nranks: int) -> tuple[str, str]:
    if nranks < 2:
        return OK, "one rank on the node shares no memory"
    free, need = machine.shm_free_nbytes or 0, nranks * SHM_NBYTES
    text = f"/dev/shm has {free // 2**20} MiB free; {nranks} ranks may map {need // 2**20} MiB"
    left = max(0, free - need) // nranks // 2**20
    return (WARN, text) if free < need else (OK, f"{text}, and have {left} MiB each for vectors in shared memory")


def _judge_cma(machine: Machine, nranks: int) -> tuple[str, str]:
    if nranks < 2:
        return OK, "one rank on the node reads no other's memory"
    if machine.cma is None:
        return UNKNOWN, "nobody could try to read another process's memory"
    if machine.cma == "ok":
        return OK, "processes may read each other's memory"
    return WARN, f"one process may not read another's memory ({machine.cma})"


# What the MPI library is told.


def _tuned_by_file(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what the user's file of Open MPI's parameters says of collectives, named as a variable would be."""
    home = environ.get("HOME")
    for line in lines(Path(home) / ".openmpi/mca-params.conf") if home else []:
        name, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
        if equals and tuning({f"OMPI_MCA_{name}": value}):
            yield f"OMPI_MCA_{name}={value} (~/.openmpi/mca-params.conf)"


def _judge_tuning(machine: Machine, library: str | None) -> tuple[str, str]:
    own = [text for text in machine.tuned if tuning(dict([text.split("=", 1)]), library)]
    return (WARN, f"set for collectives: {', '.join(own)}") if own else (OK, "nothing chooses the library's algorithms")


# Networks.


def _interfaces(root: Path) -> tuple[str, ...] | None:
    """Return the network interfaces that are up and have a route, without lo: those that TCP may take; None if unknown.

    A bridge of containers is one of them, and the classic reason why messages between nodes never arrive.
    """
    table = lines(root / "proc/net/route")
    rows = [line.split() for line in table[1:]]
    up = {row[0] for row in rows if len(row) > 3 and _hexadecimal(row[3]) & 1}  # RTF_UP of route.h
    return tuple(sorted(up - {"lo"})) if table else None


def _hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _fabric(root: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the adapters that libraries prefer to TCP, and the variables that choose a network."""
    found = []
    for kind in ("infiniband", "cxi"):
        try:
            found += sorted(path.name for path in (root / "sys/class" / kind).iterdir())
        except OSError:
            continue
    return (*found, *network_choices(environ))


def _judge_interfaces(machine: Machine, nnodes: int) -> tuple[str, str]:
    names = ", ".join(machine.interfaces) or "none but lo"
    if nnodes < 2:
        return OK, f"{names}; one node needs none"
    if machine.fabric:
        return OK, f"{names}; chosen by {', '.join(machine.fabric)}"
    return (WARN if len(machine.interfaces) > 1 else OK), f"network interfaces that TCP may take: {names}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"

"""What a lab needs of a system, and what to install or to enable where it lacks: pure functions that return a line."""

from __future__ import annotations

from collections.abc import Mapping

from ringbench.launch.lab import Lab

#: The commands that a lab consists of, and Debian's package of each.
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "ip": "iproute2",
    "tc": "iproute2",
}
SLURM_PROGRAMS = dict.fromkeys(
    ("slurmctld", "slurmd", "sinfo", "sbatch", "srun", "salloc", "squeue", "scancel"), "slurm-wlm"
)

#: Settings of a kernel that forbid namespaces to ordinary users.
SWITCHES = (
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)


def missing_programs(needed: Mapping[str, str], found: Mapping[str, str | None]) -> str | None:
    """Return what to install where some of the programs are not found, None where all are."""
    lacking = [name for name in needed if found[name] is None]
    if not lacking:
        return None
    packages = " ".join(dict.fromkeys(needed[name] for name in lacking))
    return f"a lab needs {', '.join(lacking)}: install {packages} (Debian: apt-get install {packages})"


def refused_namespaces(said: str, kernel: Mapping[str, str]) -> str:
    """Return what to enable where namespaces cannot be made.

    ``said`` is what unshare says, ``kernel`` the values of the switches of this kernel that forbid them.
    """
    cures = {
        "user.max_user_namespaces": ("0", "10000"),
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    }
    for name, (bad, good) in cures.items():
        if kernel.get(name, "").strip() == bad:
            return f"a lab needs user namespaces, which {name}={bad} forbids: sysctl -w {name}={good} as root"
    first = next((line.strip() for line in said.splitlines() if line.strip()), "unshare failed")
    return f"a lab needs user, network, mount and PID namespaces, which this system refuses: {first}"


def missing_ids(user: str, uid: int, ids: Mapping[str, str], newuidmap: str | None) -> str | None:
    """Return what a user lacks to run Slurm's daemons in a user namespace, None where nothing.

    ``ids`` holds the texts of /etc/subuid and /etc/subgid.
    """
    if newuidmap is None:
        return "Slurm in a lab needs newuidmap for ordinary users: install uidmap (Debian: apt-get install uidmap)"
    for file, text in ids.items():
        if not any(line.split(":")[0] in (user, str(uid)) for line in text.splitlines()):
            return (
                f"Slurm in a lab needs subordinate ids, and {file} has no line for {user}: "
                f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user} as root"
            )
    return None


def failed_node(name: str, said: str, lab: Lab) -> str:
    """Return why a node could not be set up, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if lab.delay is not None and any("qdisc kind is unknown" in line for line in lines):
        return f"delay {lab.delay}: this kernel has no netem to delay with (module sch_netem); leave --delay out"
    if any("qdisc kind is unknown" in line for line in lines):
        return f"rate {lab.rate}: this kernel has no tbf to shape links with (module sch_tbf)"
    return f"{name} could not be set up: {lines[-1] if lines else 'it ended without a word'}"

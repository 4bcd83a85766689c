"""What the variables of a launcher say, and the environment of a job started from here. Pure functions of a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringbench.records.libraries import is_openmpi, library_name

OPENMPI, HYDRA, SRUN = "Open MPI's mpirun", "MPICH's mpirun (hydra)", "srun"

#: Slurm numbers the steps that are no srun from here on: interactive, batch, extern, pending (slurm.h, SLURM_*_STEP).
_FIRST_SPECIAL_STEP = 0xFFFFFFFA

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# Seen in the environment of ranks of Open MPI 4.1.4 and 5.0.11 and MPICH 5.0.2, and absent outside of a job.
_STRIPPED_PREFIXES = ("OMPI_COMM_WORLD_", "OMPI_WORLD_", "PMIX_", "PMI_")
_KEPT_PREFIXES = ("PMIX_MCA_", "PMIX_INSTALL_PREFIX")
_STRIPPED = frozenset(
    {
        "HYDI_CONTROL_FD",
        "MPI_LOCALNRANKS",
        "MPI_LOCALRANKID",
        "OMPI_APP_CTX_NUM_PROCS",
        "OMPI_ARGV",
        "OMPI_COMMAND",
        "OMPI_FILE_LOCATION",
        "OMPI_FIRST_RANKS",
        "OMPI_LIBDIR_LOC",
        "OMPI_NUM_APP_CTX",
        "OMPI_TOOL_NAME",
        "OMPI_UNIVERSE_SIZE",
        "OMPI_VERSION",
        "OPAL_USER_PARAMS_GIVEN",
        "PRTE_LAUNCHED",
        "PRTE_SHARED_FS",
    }
)
# Named like settings of the user, but written by mpirun for each rank; a user may set some of them outside of a job.
_STRIPPED_IN_JOB = frozenset(
    {
        "OMPI_MCA_PREFIXES",
        "OMPI_MCA_cpu_type",
        "OMPI_MCA_ess",
        "OMPI_MCA_ess_base_jobid",
        "OMPI_MCA_ess_base_vpid",
        "OMPI_MCA_initial_wdir",
        "OMPI_MCA_mpi_oversubscribe",
        "OMPI_MCA_num_procs",
        "OMPI_MCA_orte_app_num",
        "OMPI_MCA_orte_bound_at_launch",
        "OMPI_MCA_orte_ess_node_rank",
        "OMPI_MCA_orte_ess_num_procs",
        "OMPI_MCA_orte_hnp_uri",
        "OMPI_MCA_orte_jobfam_session_dir",
        "OMPI_MCA_orte_launch",
        "OMPI_MCA_orte_local_daemon_uri",
        "OMPI_MCA_orte_num_nodes",
        "OMPI_MCA_orte_precondition_transports",
        "OMPI_MCA_orte_tmpdir_base",
        "OMPI_MCA_orte_top_session_dir",
        "OMPI_MCA_pmix",
        "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    }
)

_HINT = "start with the mpirun of the MPI library that mpi4py uses"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """Hold what the innermost launcher declares: its name, the job's ranks, this rank, the variable of the size."""

    launcher: str
    size: int
    rank: int
    variable: str


def launched(environ: Mapping[str, str]) -> Launched | None:
    """Return what the innermost launcher declares, None where no launcher started this process.

    mpirun inside a Slurm allocation comes before Slurm. The batch script of a Slurm job has ``SLURM_NTASKS`` and
    ``SLURM_PROCID=0`` but is no task of a step: it was not launched. Values that are no integers are ignored.
    """
    found = _declared(environ, OPENMPI, ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_RANK")
    if found is None:
        # srun --mpi=pmi2 declares the same pair; only hydra counts the ranks of the node.
        by_srun = "SLURM_PROCID" in environ and "MPI_LOCALNRANKS" not in environ
        found = _declared(environ, SRUN if by_srun else HYDRA, ("PMI_SIZE",), "PMI_RANK")
    if found is None and _in_slurm_step(environ):
        found = _declared(environ, SRUN, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_PROCID")
    return found


def declared_size(environ: Mapping[str, str]) -> int | None:
    """Return the number of ranks that the innermost launcher declares, None where there is none."""
    found = launched(environ)
    return found.size if found else None


def inside_mpi_job(environ: Mapping[str, str]) -> str | None:
    """Return why this process cannot start MPI jobs of its own, naming variable and value, or None where it can.

    A rank of mpirun cannot, whatever the size, nor one of several tasks of srun. The batch script of a Slurm job, an
    interactive shell of salloc and a single task (``srun --pty``) can.
    """
    found = launched(environ)
    if found is None or (found.launcher == SRUN and found.size <= 1):
        return None
    return f"{found.variable}={found.size}: this is already a rank of a job that {found.launcher} started"


def check_library(environ: Mapping[str, str], library: str) -> str | None:
    """Return what is wrong with an MPI library under this launcher, None where they go together.

    ``library`` is the text of ``MPI_Get_library_version``, which may be asked before ``MPI_Init``: MPICH under Open
    MPI's mpirun aborts in MPI_Init, so a check of the world's size would come too late. An MPICH that its user points
    at PMIx (``MPIR_CVAR_PMI_VERSION``) is left alone.
    """
    found = launched(environ)
    if found is None or found.launcher == SRUN:
        return None
    name = library_name(library)
    of_openmpi = is_openmpi(library)
    if of_openmpi == (found.launcher == OPENMPI) or (not of_openmpi and environ.get("MPIR_CVAR_PMI_VERSION")):
        return None
    return (
        f"{found.launcher} started {found.size} ranks ({found.variable}={found.size}), "
        f"but mpi4py uses {name}, under which each of them is a world of 1: {_HINT}"
    )


def check_world(environ: Mapping[str, str], world_size: int) -> str | None:
    """Return what is wrong where the launcher declares another number of ranks than the world has, else None.

    ``mpirun -n 1`` within an allocation of several tasks is right: the innermost launcher counts.
    """
    found = launched(environ)
    if found is None or found.size == world_size:
        return None
    hint = "try srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list says what there is)" if found.launcher == SRUN else _HINT
    return (
        f"{found.launcher} started {found.size} ranks ({found.variable}={found.size}), "
        f"but rank {found.rank} sees a world of {world_size}: {hint}"
    )


def node_count(environ: Mapping[str, str]) -> int:
    """Return the number of nodes of the Slurm allocation, 1 where there is none or it says nothing sensible."""
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"):
        number = _integer(environ.get(name))
        if number is not None and number > 0:
            return number
    return 1


def tasks_per_node(environ: Mapping[str, str]) -> int | None:
    """Return the tasks per node that were asked of Slurm, None where there was no such wish."""
    number = _integer(environ.get("SLURM_NTASKS_PER_NODE"))
    return number if number is not None and number > 0 else None


def job_environment(environ: Mapping[str, str], *, flavour: str, uid: int) -> dict[str, str]:
    """Return the environment for an MPI job started from here; ``flavour`` is that of the launcher.

    Variables of an enclosing job are left out, settings of the user kept (``OMPI_MCA_*``, ``PRTE_MCA_*``,
    ``PMIX_MCA_*``, ``OMPI_ALLOW_*``, ``UCX_*``, ``MPIR_CVAR_*``, ``SLURM_*``). Unless set, math libraries get one
    thread in each rank, and the steps of a Slurm job may overlap. Open MPI refuses to run as root without its two
    switches: they are set for uid 0 alone.
    """
    in_job = "OMPI_COMM_WORLD_RANK" in environ
    job = {
        name: value
        for name, value in environ.items()
        if name.startswith(_KEPT_PREFIXES)
        or not (name.startswith(_STRIPPED_PREFIXES) or name in _STRIPPED or (in_job and name in _STRIPPED_IN_JOB))
    }
    if flavour == "openmpi" and uid == 0:
        job |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # A step waits for the CPUs of the one before, and where that is just ending srun looks again after half a minute.
    overlap = {"SLURM_OVERLAP": "1"} if "SLURM_JOB_ID" in environ else {}
    return dict.fromkeys(_THREADS, "1") | overlap | job


def _in_slurm_step(environ: Mapping[str, str]) -> bool:
    """Say whether Slurm's variables are those of a task of srun and not of a batch script or interactive shell."""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID")
    if step is not None:
        number = _integer(step)
        return number is not None and 0 <= number < _FIRST_SPECIAL_STEP
    # A batch script is process 0 of a job and has no step; any other process of Slurm is a task.
    in_job = "SLURM_JOB_ID" in environ or "SLURM_JOBID" in environ
    return not in_job or _integer(environ.get("SLURM_PROCID")) != 0


def _declared(
    environ: Mapping[str, str], launcher: str, size_variables: tuple[str, ...], rank_variable: str
) -> Launched | None:
    rank = _integer(environ.get(rank_variable))
    for variable in size_variables:
        size = _integer(environ.get(variable))
        if size is not None and rank is not None:
            return Launched(launcher=launcher, size=size, rank=rank, variable=variable)
    return None


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None

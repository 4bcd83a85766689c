"""What commands do about GPUs: try the MPI library in a process of its own, give each rank its device, say what is."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringbench.cli.talk import say

if TYPE_CHECKING:
    from ringbench.launch.mpirun import Mpirun
    from ringbench.launch.process import JobResult, LaunchError
    from ringbench.records.ddp_settings import DdpSettings
    from ringbench.records.settings import Settings
    from ringbench.report.doctor import Check
    from ringbench.runtime.awareness import Trial

#: A trial loads CuPy and makes a context on the device, which takes seconds, and minutes on a slow file system.
TRIAL_LIMIT_S = 90.0

CHECK = ("run", "--check", "--device=cuda")


def running(settings: Settings | DdpSettings) -> set[str]:
    """Return the names of what runs: an engine of the library's own reductions runs ``mpi``, whatever is named."""
    from ringbench.ddp.choices import LIBRARYS_OWN

    return {*settings.algorithms, *("mpi" for engine in getattr(settings, "engines", ()) if engine in LIBRARYS_OWN)}


def needs_trial(settings: Settings | DdpSettings) -> bool:
    """Say whether messages of arrays of a device are to be given to the MPI library as they are."""
    return settings.device == "cuda" and settings.staging == "none" and running(settings) != {"nccl"}


def try_by_job(nranks: int, mpirun: Mpirun, extra: Sequence[str], environ: Mapping[str, str]) -> Trial:
    """Have some ranks of a job of their own send arrays of a device."""
    from ringbench.launch.sweep import run_on_ranks

    return _trial(lambda words, output: run_on_ranks(nranks, words, mpirun, environ, extra, TRIAL_LIMIT_S, output))


def try_by_singleton(environ: Mapping[str, str]) -> Trial:
    """Have a process that no launcher started send arrays of a device to itself: a rank starts no jobs."""
    from ringbench.launch.environment import job_environment
    from ringbench.launch.process import run_job

    own = {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "PALS_"))}
    env = job_environment(own, flavour="openmpi", uid=os.getuid())
    return _trial(
        lambda words, output: run_job(words, env=env, time_limit_s=TRIAL_LIMIT_S, stdout=output, stderr=output)
    )


def _trial(start: Callable[[Sequence[str], int], JobResult]) -> Trial:
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import SAFE_PATH
    from ringbench.runtime.awareness import Trial

    with tempfile.TemporaryFile() as output:
        try:
            done = start([sys.executable, *SAFE_PATH, "-m", "ringbench", *CHECK], output.fileno())
        except LaunchError as error:
            return Trial(text=f"ringbench: {error}", status=2)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Trial(text=text, status=None if done.timed_out else done.returncode)


def ask_library(comm: Any = None) -> Any:
    """Return what the MPI library says of CUDA; without a communicator only what can be asked before MPI starts."""
    from ringbench.records.libraries import is_openmpi
    from ringbench.runtime.awareness import memory_kinds, ompi_info, query, said_by
    from ringbench.runtime.world import library_version

    library = library_version()
    built = None
    if is_openmpi(library):
        beside = Path(sys.executable).parent / "ompi_info"
        program = str(beside) if beside.exists() else shutil.which("ompi_info")
        built = ompi_info(program, os.environ) if program else None
    answer, kinds = (None, None) if comm is None else (query(), memory_kinds(comm))
    return said_by(library, answer, kinds, built, os.environ)


def problem_of_device(settings: Settings) -> str | None:
    """Return why arrays cannot be on the settings' device here, in one line; nothing of a device is taken for it."""
    from ringbench.runtime.arrays import backend_for

    try:
        backend = backend_for(settings.device)
        backend.check_dtype(settings.dtype)
    except ValueError as error:
        return str(error)
    return None


def refuse_sweep(settings: Settings, nranks: int, mpirun: Mpirun, extra: Sequence[str]) -> str | None:
    """Try the library on two ranks of a job; return why a sweep cannot be, None where it can."""
    from ringbench.runtime.awareness import refusal

    if not needs_trial(settings):
        return None
    trial = try_by_job(min(2, nranks), mpirun, extra, os.environ)
    return refusal(ask_library(), trial, running(settings))


def refuse_run(comm: Any, settings: Settings | DdpSettings, tried: bool) -> str | None:
    """Try the library beside this job, on rank 0 for all; return why it cannot measure, None where it can. Collective.

    A process that cannot start MPI by itself shows nothing; then what the library says counts, and its silence does
    not.
    """
    from ringbench.runtime.awareness import refusal
    from ringbench.runtime.ranks import OF_ONE_JOB

    problem = None
    if needs_trial(settings) and not tried and comm.Get_rank() == 0:
        trial = try_by_singleton(os.environ)
        said = ask_library(comm)
        if OF_ONE_JOB in trial.text or said.supported is False:
            problem = refusal(said, trial, running(settings))
        else:
            answers = ", ".join(said.answers) or "nothing"
            say(f"ringbench: {said.name} could not be tried in a process of its own ({trial.end}); it says {answers}")
    found: str | None = comm.bcast(problem, root=0)
    return found


def look_at_devices(device: str, launcher: Mpirun | LaunchError, library: str | None) -> list[Check]:
    """Return what doctor says of the devices here: what they are, and what the MPI library does with their arrays."""
    from ringbench.report.doctor import device_checks
    from ringbench.runtime.arrays import backend_for

    try:
        backend = backend_for(device)
        devices = [backend.use(index) for index in range(backend.devices())]
    except Exception as error:  # CuPy's errors are of many kinds
        return device_checks(ValueError(str(error).strip().partition("\n")[0]), None, None)
    if library is None or isinstance(launcher, Exception):
        return device_checks(devices, None, None)
    return device_checks(devices, ask_library(), try_by_job(2, launcher, (), os.environ))


def check_transfers(comm: Any, settings: Settings) -> None:
    """Say who has which device; unless staged, send and reduce arrays there.

    What worked is printed as it comes: what follows may end this process.
    """
    from ringbench.runtime.arrays import backend_for
    from ringbench.runtime.awareness import SAYS, try_transfers
    from ringbench.runtime.devices import bind_devices, devices_line

    backend = backend_for(settings.device)
    table = bind_devices(comm, backend)
    if comm.Get_rank() == 0:
        print(devices_line(table))
        print(f"{SAYS}{', '.join(ask_library(comm).answers) or 'nothing of CUDA'}", flush=True)
    if settings.staging == "none":
        try_transfers(comm, backend, lambda text: print(text, flush=True))

"""The mpirun that belongs to this Python, and the command line that starts a job with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringbench.launch.process import LaunchError
from ringbench.records.libraries import is_openmpi, library_name

_NAMES = ("mpirun", "mpiexec")
_VERSION_LIMIT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Mpirun:
    """Hold a launcher: its path, its flavour, its version if known.

    The flavour is ``openmpi``, ``mpich`` (all of hydra's kin) or ``slurm`` (srun).
    """

    path: str
    flavour: str
    version: tuple[int, ...] = ()


def find_mpirun(environ: Mapping[str, str], executable: str = sys.executable, override: str | None = None) -> Mpirun:
    """Return the mpirun or mpiexec beside the Python, else the first on the PATH; ``override`` names another.

    The path of the Python is not resolved: in a virtual environment it is a link, and the mpirun is beside the link.
    Raises LaunchError where there is none, or where it says of itself neither Open MPI nor hydra.
    """
    path = environ.get("PATH", "")
    if override is not None:
        found = shutil.which(override, path=path)
        if found is None:
            raise LaunchError(f"no program {override!r} to start MPI jobs with")
        return identify(found, environ)
    folders = [os.path.dirname(executable)]
    if executable == sys.executable:
        folders.append(os.path.join(sys.prefix, "bin"))
    for search in (*folders, path):
        for name in _NAMES:
            found = shutil.which(name, path=search)
            if found is not None:
                return identify(found, environ)
    raise LaunchError(
        f"no mpirun or mpiexec beside {executable} or on the PATH: install the package openmpi or mpich there, "
        "or load the module of an MPI library"
    )


def identify(path: str, environ: Mapping[str, str]) -> Mpirun:
    """Ask a launcher for its flavour and version; raise LaunchError naming path and answer where it tells neither."""
    answer = _ask([path, "--version"], environ)
    flavour, version = read_version(answer)
    if flavour is None:
        first = next((line.strip() for line in answer.splitlines() if line.strip()), "nothing")
        raise LaunchError(f"{path} is the launcher of no MPI library known here; of its version it says: {first}")
    return Mpirun(path=path, flavour=flavour, version=version)


def _ask(line: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what a launcher says, on whichever stream; raise LaunchError where it cannot be started or hangs."""
    try:
        return subprocess.run(
            line,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_LIMIT_S,
            check=False,
        ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{' '.join(line)} says nothing in {_VERSION_LIMIT_S:g} s") from None
    except OSError as error:
        raise LaunchError(f"cannot start {line[0]}: {error.strerror or error}") from error


def read_version(text: str) -> tuple[str | None, tuple[int, ...]]:
    """Return flavour and version that the answer to ``mpirun --version`` tells: None and () where it does not."""
    if re.search(r"\((Open MPI|OpenRTE)\)", text):
        flavour, number = "openmpi", re.search(r"\((?:Open MPI|OpenRTE)\)\s*v?(\d+(?:\.\d+)*)", text)
    elif "HYDRA" in text or "Intel(R) MPI" in text:
        flavour, number = "mpich", re.search(r"\bVersion:?\s+(\d+(?:\.\d+)*)", text)
    elif text.startswith("slurm"):
        flavour, number = "slurm", re.search(r"^slurm\S* (\d+(?:\.\d+)*)", text)
    else:
        return None, ()
    return flavour, tuple(int(part) for part in number[1].split(".")) if number else ()


def mpi_type(listing: str, library: str) -> str:
    """Return the ``--mpi`` by which srun starts the ranks of an MPI library.

    ``listing`` is the answer to ``srun --mpi=list``, ``library`` the text of ``MPI_Get_library_version``. Open MPI 5
    speaks PMIx alone, MPICH as it is commonly built PMI 1 and 2. Raises ValueError where Slurm has nothing for it.
    """
    known = {line.removeprefix("srun: ").strip() for line in listing.splitlines()}
    pmix = is_openmpi(library)
    found = next((name for name in (("pmix",) if pmix else ("pmi2", "cray_shasta")) if name in known), None)
    if found is None:
        lacks = "pmix (Debian: apt-get install libpmix-dev on the nodes)" if pmix else "pmi2"
        raise ValueError(
            f"srun cannot start {library_name(library)}: this Slurm has no {lacks}; use mpirun, or name another --mpi"
        )
    return found


def ask_mpi_types(srun: Mpirun, environ: Mapping[str, str]) -> str:
    """Return the answer to ``srun --mpi=list``; raise LaunchError where there is none."""
    return _ask([srun.path, "--mpi=list"], environ)


def usable_cpus() -> tuple[int, bool]:
    """Return how many CPUs this process may use, and whether they are all there are, so that ranks may be bound.

    Under ``taskset`` both launchers bind to the first cores of the machine, outside of the mask that they were given.
    """
    count = len(os.sched_getaffinity(0))
    return count, count == os.cpu_count()


def command(
    mpirun: Mpirun,
    nranks: int,
    program: Sequence[str],
    *,
    cpus: int,
    bind: bool = True,
    extra: Sequence[str] = (),
    in_allocation: bool = False,
) -> list[str]:
    """Return the command line that starts ``program`` on ``nranks`` ranks; ``extra`` goes to the launcher as it is.

    One rank a core where they fit into ``cpus`` and ``bind`` allows it; otherwise no binding, and ranks that outnumber
    the CPUs yield while they wait. An allocation of several nodes knows its mapping, and srun its own: there nothing is
    added. What ``extra`` says of mapping, binding or yielding replaces what would be said here (Open MPI refuses a
    repetition).
    Raises ValueError where ``nranks`` is below 1.
    """
    if nranks < 1:
        raise ValueError(f"{nranks} ranks: at least 1 is needed")
    placed: dict[str, list[str]] = {}
    bound = bind and nranks <= cpus
    if in_allocation or mpirun.flavour == "slurm":
        pass
    elif mpirun.flavour == "mpich":
        # Intel MPI, whose versions are years, binds by itself and has no such option.
        placed = {"bind-to": ["-bind-to", "core"]} if bound and mpirun.version < (1000,) else {}
    else:
        # Open MPI counts cores where ``cpus`` counts hardware threads: without the two permissions it would refuse to
        # start two ranks on the two threads of a core. Versions 4.1.4 and 5.0.11 both take this form.
        placed = {
            "map-by": ["--map-by", "core:OVERSUBSCRIBE" if bound else ":OVERSUBSCRIBE"],
            "bind-to": ["--bind-to", "core:overload-allowed" if bound else "none"],
        }
        if nranks > cpus:
            placed["mpi_yield_when_idle"] = ["--mca", "mpi_yield_when_idle", "1"]
    said = {word.lstrip("-") for word in extra}
    options = [word for what, words in placed.items() if what not in said for word in words]
    return [mpirun.path, "-n", str(nranks), *options, *extra, *program]

"""Whether the MPI library takes arrays of a device: what it says of itself, what a small transfer shows, what to do.

What a library says is not what it does: one that was built for CUDA may run on a transport that was not, and one that
was not may run on a transport that was. So both are asked, and the transfer decides. It is tried in a process of its
own, since a library that takes an address of a device for one of the host ends with a signal.
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.records.libraries import is_openmpi, library_name
from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import Backend
from ringbench.runtime.execute import buffer_spec

#: What a rank that tries says of each transfer that worked, on standard output.
WORKS = "works with arrays of device"
SAYS = "the MPI library says: "
MESSAGE, REDUCTION = "Sendrecv", "Allreduce"

#: Variables that switch the taking of arrays of a device on or off, or say what carries them.
VARIABLES = re.compile(
    r"MPIR_CVAR_ENABLE_GPU|MPIR_CVAR_CH4_IPC_GPU\w*|MPICH_GPU_\w+|MV2_USE_(CUDA|GDR\w*)|MVP_(USE_CUDA|ENABLE_GPU)"
    r"|UCX_(TLS|MEMTYPE_CACHE|RNDV_SCHEME|CUDA_\w+|IB_GPU_DIRECT_RDMA)"
    r"|OMPI_MCA_(pml|btl|opal_cuda_support|accelerator)|I_MPI_OFFLOAD\w*|FI_HMEM\w*"
)

#: Elements of the transfer: enough for a message that no library keeps in its own memory on the way.
ELEMENTS = 2**15

ASK_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Hold what a library says: its name, whether it takes arrays of CUDA (None: it does not say), and each answer."""

    name: str
    supported: bool | None
    answers: tuple[str, ...]


def query(name: str = "MPIX_Query_cuda_support") -> int | None:
    """Return what the library's own function answers, None where it has none; MPI must have been started."""
    try:
        function = getattr(ctypes.CDLL(MPI.__file__), name)
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = (), ctypes.c_int
    return int(function())


def memory_kinds(comm: Any) -> str | None:
    """Return MPI 4.1's info key ``mpi_memory_alloc_kinds`` of a communicator, None where it has none."""
    info = comm.Get_info()
    try:
        found: str | None = info.Get("mpi_memory_alloc_kinds")
        return found
    finally:
        info.Free()


def ompi_info(program: str, environ: Mapping[str, str]) -> str | None:
    """Return what Open MPI's ``ompi_info`` says of CUDA, ``true`` or ``false``, None where it says nothing."""
    line = [program, "--parsable", "--all"]
    try:
        done = subprocess.run(
            line, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb"built_with_cuda_support:value:(\w+)", done.stdout)
    return found[1].decode() if found else None


def said_by(library: str, answer: int | None, kinds: str | None, built: str | None, environ: Mapping[str, str]) -> Said:
    """Return what the answers come to: a yes of any is a yes, a no of any that is not contradicted a no."""
    answers = [] if answer is None else [f"MPIX_Query_cuda_support {answer}"]
    votes = [] if answer is None else [bool(answer)]
    if kinds is not None:
        answers.append(f"mpi_memory_alloc_kinds {kinds}")
        votes.append("cuda" in kinds)
    if built is not None:
        answers.append(f"ompi_info: built with CUDA {built}")
        votes.append(built == "true")
    answers += [f"{name}={environ[name]}" for name in sorted(environ) if VARIABLES.fullmatch(name)]
    return Said(name=library_name(library), supported=any(votes) if votes else None, answers=tuple(answers))


def how_to_enable(library: str) -> str:
    """Return what makes a library take arrays of CUDA, in a few words."""
    if is_openmpi(library):
        return "Open MPI: one built --with-cuda, or on a UCX with CUDA (ucx_info -v) with OMPI_MCA_pml=ucx"
    if "CRAY" in library.upper():
        return "Cray MPICH: load craype-accel-nvidia80 (or 90), MPICH_GPU_SUPPORT_ENABLED=1, mpi4py built so"
    if "MVAPICH" in library.upper():
        return "MVAPICH: one built --enable-cuda, with MV2_USE_CUDA=1 (MVP_USE_CUDA=1 from version 3 on)"
    if "INTEL" in library.upper():
        return "Intel MPI: I_MPI_OFFLOAD=1"
    return "MPICH: one built --with-cuda, on UCX or OFI with CUDA, and MPIR_CVAR_ENABLE_GPU=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Hold how a trial ended: what the ranks said on either stream, and the exit status (None: at its time limit)."""

    text: str
    status: int | None

    @property
    def answers(self) -> str | None:
        """Return what the library said in the trial, where it came so far."""
        found = re.search(rf"^{SAYS}(.+)$", self.text, re.MULTILINE)
        return found[1] if found else None

    def works(self, what: str) -> bool:
        """Say whether a transfer worked: ``Sendrecv`` or ``Allreduce``."""
        return f"{what} {WORKS}" in self.text

    @property
    def end(self) -> str:
        """Say how it ended: at its limit, by a signal, or with what was said last."""
        number = _signal(self.status, self.text)
        if self.status is None:
            return "came to no end"
        if number is not None:
            return f"ended with signal {number}"
        own = [line for line in self.text.splitlines() if line.startswith("ringbench: ")]
        return own[-1].removeprefix("ringbench: ") if own else f"ended with status {self.status}"


def _signal(status: int | None, text: str) -> str | None:
    """Return the name of the signal that a rank died of, by the status of a shell or what launchers say of it."""
    found = re.search(r"signal:? (\d+)|EXIT CODE: (\d+)", text)
    number = int(next(filter(None, found.groups()))) if found else 0
    if not number and status is not None:
        number = -status if status < 0 else status - 128 if status > 128 else 0
    try:
        return f"{number} ({signal.Signals(number).name})" if number else None
    except ValueError:
        return None


def refusal(said: Said, trial: Trial, algorithms: Collection[str]) -> str | None:
    """Return in one line why a job with messages of a device's arrays cannot be, and the ways out; None where it can.

    The library's own reductions count only where they are to be measured.
    """
    needs = [MESSAGE, *([REDUCTION] if "mpi" in algorithms else [])]
    failed = [what for what in needs if not trial.works(what)]
    if not failed:
        return None
    told = trial.answers or ", ".join(said.answers) or "it says nothing of CUDA"
    out = "; --staging host copies through the host instead"
    if failed == [REDUCTION]:
        out += ", and without mpi among the --algorithms (iallreduce among the --engines) no Allreduce is needed"
    return (
        f"device 'cuda': {failed[0]} of {said.name} does not take arrays of a device ({told}; a trial {trial.end}): "
        f"{how_to_enable(said.name)}{out}"
    )


def try_transfers(comm: Any, backend: Backend, tell: Callable[[str], object]) -> None:
    """Send a device's array around the ring of ranks and reduce one; ``tell`` what worked. Collective.

    Raises the same ValueError on all ranks where what arrives is not what was sent.
    """
    rank, nranks = comm.Get_rank(), comm.Get_size()
    one = backend.from_host(np.full(ELEMENTS, rank + 1, np.float32))
    other = backend.from_host(np.zeros(ELEMENTS, np.float32))
    backend.synchronize()
    send, recv = buffer_spec(one, MPI.FLOAT), buffer_spec(other, MPI.FLOAT)
    left = (rank - 1) % nranks
    for what, expected in ((MESSAGE, left + 1), (REDUCTION, nranks * (nranks + 1) // 2)):
        if what == MESSAGE:
            comm.Sendrecv(send, (rank + 1) % nranks, 0, recv, left, 0)
        else:
            comm.Allreduce(send, recv, MPI.SUM)
        found = backend.to_host(other)
        wrong = int(np.count_nonzero(found != expected))
        agree(comm, f"{what}: {wrong} of {ELEMENTS} elements are wrong, {found[0]} for {expected}" if wrong else None)
        if rank == 0:
            tell(f"{what} {WORKS} {backend.device}")

"""What MPI libraries are called, and the variables by which they are told what to do. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping

_COLLECTIVE = r"(ALLREDUCE|ALLGATHERV?|ALLTOALL[VW]?|REDUCE|REDUCE_SCATTER(_BLOCK)?|BCAST|BARRIER)"

#: Settings that choose algorithms: of Open MPI and its plug-ins; of MPICH, Cray MPICH, MVAPICH2 and Intel MPI.
_OF_OPENMPI = re.compile(r"OMPI_MCA_coll(_(?!.*verbose).*)?|(OMPI_MCA_)?UCC_.*TUNE")
_OF_MPICH = re.compile(
    rf"(MPIR_CVAR|MPIR_PARAM|MPICH|MV2|MVP)_(.*ALGORITHM.*|(.*_)?(COLL|{_COLLECTIVE})(_.*)?)"
    r"|I_MPI_(ADJUST|COLL|TUNING)_.*"
)
_DEFAULTS = frozenset({"", "0", "auto", "ignore", "default"})

_NETWORK = re.compile(
    r"OMPI_MCA_(btl_tcp_if_(include|exclude)|btl|mtl|pml_ucx_(tls|devices))|UCX_(NET_DEVICES|TLS)"
    r"|FI_(PROVIDER|TCP_IFACE|SOCKETS_IFACE|OPX_.*|CXI_.*)|MPIR_CVAR_(CH4_OFI_.*|OFI_.*|NEMESIS_TCP_NETWORK_IFACE)"
    r"|MPICH_(INTERFACE_HOSTNAME|OFI_NIC_.*)|I_MPI_OFI_PROVIDER"
)


def library_name(library: str) -> str:
    """Return the short name, with version, in the text of ``MPI_Get_library_version``."""
    return " ".join(library.strip().partition("\n")[0].partition(",")[0].split())


def is_openmpi(library: str) -> bool:
    """Say whether a library is started by Open MPI's mpirun; everything that hydra starts descends from MPICH."""
    name = library_name(library)
    return name.startswith("Open MPI") or "Spectrum MPI" in name  # IBM's is an Open MPI with its own name


def tuning(environ: Mapping[str, str], library: str | None = None) -> tuple[str, ...]:
    """Return the variables, with their values, that choose a library's algorithms for collectives.

    Those of every library where ``library`` is None. Settings to the default do not count, nor what only talks.
    """
    patterns = [_OF_OPENMPI, _OF_MPICH] if library is None else [_OF_OPENMPI if is_openmpi(library) else _OF_MPICH]
    return tuple(
        f"{name}={value}"
        for name, value in sorted(environ.items())
        if any(pattern.fullmatch(name) for pattern in patterns)
        and not (name.lower().endswith("algorithm") and value.strip().lower() in _DEFAULTS)
    )


def network_choices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the variables that choose a network or an interface."""
    return tuple(sorted(name for name in environ if _NETWORK.fullmatch(name)))

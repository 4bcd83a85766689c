"""Lengths at which messages change their ways: the library's eager limits, and the caches of a core."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

from mpi4py import MPI

from ringbench.records.kernel import lines
from ringbench.records.units import parse_size

#: Variables of Open MPI and MPICH that hold the longest message sent without asking first, inside a node and beyond.
EAGER = (
    "btl_sm_eager_limit",
    "btl_tcp_eager_limit",
    "btl_uct_eager_limit",
    "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE",
    "MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD",
    "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD",
)

#: A value may be longer than the number it begins with.
_ROOM = 64


def eager_limits() -> dict[str, int]:
    """Return the eager limits that the library in use tells of, in bytes; none where it has no such interface.

    None either where MPI does not run: Open MPI 5.0.11 that was asked before cannot be started any more.

    Asked through the tool interface of MPI 3, section 14.3, which mpi4py does not wrap but its module is linked to.
    """
    found: dict[str, int] = {}
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return found
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(MPI.__file__)
        provided = ctypes.c_int()
        # The level that MPI has: Open MPI takes what is asked for here as that of all its calls from now on.
        if library.MPI_T_init_thread(MPI.Query_thread(), ctypes.byref(provided)):
            return {}
        for name in EAGER:
            value = _read(library, name)
            if value is not None and 0 < value < 2**31:
                found[name] = value
        library.MPI_T_finalize()
    return found


def _read(library: ctypes.CDLL, name: str) -> int | None:
    index, number, handle = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    if library.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)):
        return None
    if library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(number)):
        return None
    room = (ctypes.c_ubyte * _ROOM)()
    failed = number.value != 1 or library.MPI_T_cvar_read(handle, room)
    library.MPI_T_cvar_handle_free(ctypes.byref(handle))
    # A number of 4 or of 8 bytes, the rest of the room being 0.
    return None if failed else int.from_bytes(bytes(room[:8]), "little")


def cache_sizes(root: str | Path = "/") -> dict[str, int]:
    """Return the data caches of the first core in bytes by level, ``L2``; none where the kernel does not tell."""
    found: dict[str, int] = {}
    for folder in sorted((Path(root) / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (lines(folder / name)[:1] for name in ("level", "type", "size"))
        if level and size and kind and kind[0] != "Instruction":
            with contextlib.suppress(ValueError):
                found[f"L{level[0]}"] = parse_size(size[0])
    return found

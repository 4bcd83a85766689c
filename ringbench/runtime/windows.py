"""Memory that the ranks of a node share: vectors in MPI's shared-memory windows, found again by their address.

A window is made by all ranks of a communicator that share a node, and must be freed by all of them. No rank knows when
the others have dropped their arrays, and Python drops them when it likes. So nothing is freed then: at the next
collective call of ringbench's own on that communicator the ranks tell each other which windows none of them uses any
more, and free those together, in the order in which they were made. What is left is freed when the communicator is, if
all have dropped it by then, and else at the end of the program.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import os
import sys
import uuid
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import PAGE, Array, numpy_dtype
from ringbench.runtime.gate import Gate, close_window, gate_nbytes, open_window
from ringbench.schedule.parameters import Groups

#: Where MPI libraries put windows, if nothing else is said, and what must be free there to find out.
SHM, PROBE = "/dev/shm", 16 * PAGE

#: Of madvise(2), since Linux 5.14: map pages for writing now, and say so where there are none.
_MADV_POPULATE_WRITE = 23


def empty_shared(comm: Any, count: int, dtype: object = "float32") -> Array:
    """Return a vector of this rank in memory that all ranks of its node can reach, starting on a page.

    ``count`` elements, which may differ over the ranks, of a type as NumPy or ringbench name it; what is in them is
    undefined. The memory is that of one MPI window for each node of ``comm``, freed some time after all its ranks have
    dropped their arrays (see this module). Collective. Raises the same ValueError on all ranks where no two of several
    ranks share a node, and, before anything is allocated, where a node's file system for shared memory has not the
    room.
    """
    error: str | None = None
    nbytes = 0
    try:
        kind = numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)  # type: ignore[call-overload]
        if kind.hasobject:
            raise ValueError(f"dtype {dtype!r}: references to objects mean nothing to another process")
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ValueError(f"count {count!r}: must be a number of elements")
        nbytes = int(count) * kind.itemsize
    except (TypeError, ValueError, ImportError) as problem:
        error = str(problem)
    agree(comm, error)
    node = node_of(comm)
    node.collect()
    if comm.Get_size() > 1 and all(len(group) == 1 for group in node.groups):
        raise ValueError(f"the {comm.Get_size()} ranks share no memory: each is on a node of its own")
    sizes = [-(-size // PAGE) * PAGE for size in node.comm.allgather(nbytes)]
    lacking = node.lacks_room(sum(sizes) + PAGE)
    if lacking is not None:
        gc.collect()  # arrays that only refer to each other may still hold a window
        node.collect()
        lacking = node.lacks_room(sum(sizes) + PAGE)
    agree(comm, lacking)
    vector, error = node.allocate(sizes)
    agree(comm, error)
    return vector[:nbytes].view(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Say where an array lies in shared memory: the window's name, the same on all its ranks, and the bytes there."""

    window: str
    start: int
    nbytes: int


class Window:
    """Hold one window: MPI's, and the memory of all its ranks, as long as some array on this rank is a view of it."""

    def __init__(self, win: Any, name: str, memory: Array) -> None:
        self.win, self.name = win, name
        self.start, self.nbytes = memory.ctypes.data, memory.nbytes
        self._memory = weakref.ref(memory)  # NumPy has all views refer to the first array, not to each other

    @property
    def memory(self) -> Array | None:
        """Return the whole memory as bytes, None once nobody on this rank uses it any more."""
        return self._memory()

    def free(self) -> None:
        """Give the memory back; collective over the node."""
        close_window(self.win)


def groups_of_nodes(comm: Any, node: Any) -> Groups:
    """Return which ranks of ``comm`` are on a node together, from the communicator of each rank's own; collective."""
    firsts = comm.allgather(min(node.allgather(comm.Get_rank())))
    return tuple(tuple(rank for rank, at in enumerate(firsts) if at == first) for first in sorted(set(firsts)))


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.1f} KiB"


def _bytes_at(address: int, nbytes: int) -> Array:
    memory: Any = MPI.buffer.fromaddress(address, nbytes)
    return np.frombuffer(memory, dtype=np.uint8)


class Node:
    """Know which ranks of a communicator share memory, and keep what this rank has in common with them."""

    def __init__(self, comm: Any) -> None:
        self.parent = comm
        self.comm = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.groups = groups_of_nodes(comm, self.comm)
        self.windows: list[Window] = []
        self.gates: dict[tuple[int, ...], Gate] = {}

    def gate(self, ranks: tuple[int, ...]) -> Gate:
        """Return the barrier of some ranks of the communicator, all on this node; collective over them at first."""
        found = self.gates.get(ranks)
        if found is None:
            everyone = self.parent.Get_group()
            group = everyone.Incl(ranks)
            members = self.parent.Create_group(group)
            group.Free()
            everyone.Free()
            found = self.gates[ranks] = Gate(members)
            members.Free()
        return found

    def collect(self) -> None:
        """Free the windows that no rank of the node uses any more; collective, and nothing where there are none."""
        if not self.windows:
            return
        dropped = np.array([window.memory is None for window in self.windows], dtype=np.int32)
        self.comm.Allreduce(MPI.IN_PLACE, dropped, MPI.MIN)
        for window, everywhere in zip(list(self.windows), dropped.tolist(), strict=True):
            if everywhere:
                self.windows.remove(window)
                del _WINDOWS[window.name]
                window.free()

    @cached_property
    def folder(self) -> str | None:
        """Return where MPI puts the memory, as the kernel tells of a small window; None where it is no file.

        Collective over the node at first.
        """
        win, memory = open_window(self.comm, PAGE)
        folder = folder_of(memory.address)
        close_window(win)
        return folder

    def lacks_room(self, nbytes: int) -> str | None:
        """Say why so many bytes do not fit, None where they do, or where nobody can know; the same on all the node."""
        error = None
        if "folder" not in self.__dict__ and self.comm.Get_rank() == 0:  # where MPI puts windows most likely
            free = room_in(SHM)
            if free is not None and free < PROBE:
                error = f"{SHM} has room for {_size(free)}, but a window needs {_size(PROBE)} at least"
        found: str | None = self.comm.bcast(error)
        if found is not None:
            return found
        folder = self.folder
        if self.comm.Get_rank() == 0 and folder is not None:
            free = room_in(folder)
            if free is not None and nbytes > free:
                error = f"{folder} has room for {_size(free)}, but a window of {_size(nbytes)} is needed"
        found = self.comm.bcast(error)
        return found  # noqa: RET504  (typed above)

    def lacks_room_for_gates(self, meets: Iterable[tuple[int, ...]]) -> str | None:
        """Say the same of the barriers of some ranks that are not there yet; collective over the node."""
        new = [ranks for ranks in meets if ranks not in self.gates]
        each = sum(-(-gate_nbytes(len(ranks)) // PAGE) * PAGE for ranks in new)
        return self.lacks_room(self.comm.Get_size() * each)

    def allocate(self, sizes: Sequence[int]) -> tuple[Array, str | None]:
        """Make a window with whole pages for each rank of the node; return this rank's, or why they are not there.

        The pages are taken here and now: near the core that writes first, and while a lack of them is no SIGBUS.
        """
        rank, total = self.comm.Get_rank(), sum(sizes) + PAGE
        try:
            win, part = open_window(self.comm, total)
        except MPI.Exception as problem:
            why = str(problem).splitlines()[-1]
            return np.empty(0, np.uint8), f"a window of {total / 2**20:.1f} MiB cannot be had: {why}"
        base = part.address
        memory: Array = _bytes_at(base, total)
        window = Window(win, self.comm.bcast(uuid.uuid4().hex), memory)
        start = -base % PAGE + sum(sizes[:rank])
        vector = memory[start : start + sizes[rank]]
        if any(self.comm.allgather(lacks_pages(base + start, sizes[rank]))):
            window.free()
            room = f"the room for a window of {total / 2**20:.1f} MiB was taken meanwhile"
            return np.empty(0, np.uint8), f"{self.folder}: {room}"
        self.windows.append(window)
        _WINDOWS[window.name] = window
        return vector, None

    def close(self, *, everything: bool) -> bool:
        """Free what is not used any more, or everything; collective over the node. Say whether nothing is left."""
        if everything:
            for window in self.windows:
                _WINDOWS.pop(window.name, None)
                window.free()
            self.windows.clear()
        else:
            self.collect()
        for gate in self.gates.values():
            gate.close()
        self.gates.clear()
        if not self.windows:
            self.comm.Free()
        return not self.windows


_WINDOWS: dict[str, Window] = {}
_NODES: list[Node] = []
_key: int | None = None


def known_node(comm: Any) -> Node | None:
    """Return the node of a communicator where something was shared on it before."""
    found: Node | None = None if _key is None else comm.Get_attr(_key)
    return found


def node_of(comm: Any) -> Node:
    """Return the node of this rank within a communicator; collective at first. It is kept as long as that is."""
    global _key
    if _key is None:
        _key = MPI.Comm.Create_keyval(delete_fn=_parent_freed)
        atexit.register(_close_all)
    node = known_node(comm)
    if node is None:
        node = Node(comm)
        comm.Set_attr(_key, node)
        _NODES.append(node)
    return node


def _parent_freed(comm: Any, key: int, node: Node) -> None:
    """Go with the communicator; what arrays still use stays until the program ends."""
    if node in _NODES and not MPI.Is_finalized() and node.close(everything=False):
        _NODES.remove(node)


def _close_all() -> None:
    """Free everything, in the order in which it was made, before MPI ends.

    Not after an exception that nobody handled: the other ranks are elsewhere, and ``python -m mpi4py`` has to come to
    ending them.
    """
    if MPI.Is_finalized() or hasattr(sys, "last_value"):
        return
    while _NODES:
        _NODES.pop(0).close(everything=True)


def place_of(array: Array) -> Place | None:
    """Return where a contiguous array lies in shared memory, None where it does not."""
    if not isinstance(array, np.ndarray):
        return None
    address = array.ctypes.data
    for window in _WINDOWS.values():
        start = address - window.start
        if window.memory is not None and start >= 0 and start + array.nbytes <= window.nbytes:
            return Place(window=window.name, start=start, nbytes=array.nbytes)
    return None


def array_at(place: Place, dtype: np.dtype[Any]) -> Array | None:
    """Return what lies at a place, of whichever rank; None where this rank does not share that memory."""
    window = _WINDOWS.get(place.window)
    memory = None if window is None else window.memory
    return None if memory is None else memory[place.start : place.start + place.nbytes].view(dtype)


def reaches(place: Place) -> bool:
    """Say whether this rank shares the memory of a place."""
    return place.window in _WINDOWS


def sync_of(place: Place) -> Any:
    """Return the call that orders this rank's reads and writes of a window's memory."""
    return _WINDOWS[place.window].win.Sync


def folder_of(address: int, maps: str | Path = "/proc/self/maps") -> str | None:
    """Return the folder of the file that is mapped at an address, None where none is: System V's memory has no room."""
    try:
        lines = Path(maps).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        span, *_, path = line.split(maxsplit=5)
        low, _, high = span.partition("-")
        if int(low, 16) <= address < int(high, 16):
            folder = os.path.dirname(path.removesuffix(" (deleted)"))
            return folder if os.path.isdir(folder) and folder != "/" else None
    return None


def room_in(folder: str) -> int | None:
    """Return the free bytes of a file system, None where that cannot be told."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def lacks_pages(address: int, nbytes: int) -> bool:
    """Have pages at an address, zeroed where they are new; say whether the kernel has none left for them."""
    if not nbytes:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), _MADV_POPULATE_WRITE) != 0
    return failed and ctypes.get_errno() in (errno.EFAULT, errno.ENOMEM)

"""What a plan needs to reach into the memory of other ranks: where their buffers lie, and a barrier with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringbench.runtime.agree import agree
from ringbench.runtime.arrays import Array
from ringbench.runtime.moves import Combine, Copy, Gather, Program
from ringbench.runtime.windows import Place, array_at, empty_shared, node_of, place_of, reaches, sync_of
from ringbench.schedule.parameters import Groups
from ringbench.schedule.registry import Algorithm

EMPTY_SHARED = "take them from ringbench.empty_shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Hold the buffers of other ranks by name and rank, those of this rank's own in shared memory, and the barriers."""

    theirs: Mapping[tuple[str, int], Array]
    own: Mapping[str, Array]
    meet: Callable[[tuple[int, ...]], Callable[[], None]]


def may_share(comm: Any, send: Array | None, recv: Array, groups: Groups) -> bool:
    """Say whether each group of ranks is on one node, and all its buffers in memory that it shares. Collective.

    Where no rank has any elements there is nothing to share.
    """
    own = [place_of(array) for array in (send, recv) if array is not None and array.nbytes]
    places: list[list[Place | None]] = comm.allgather(own)
    if not any(places) or any(place is None for theirs in places for place in theirs):
        return False
    nodes = {rank: number for number, ranks in enumerate(node_of(comm).groups) for rank in ranks}
    mine = next(group for group in groups if comm.Get_rank() in group)
    reachable = all(place is not None and reaches(place) for rank in mine for place in places[rank])
    return all(comm.allgather(reachable and len({nodes[rank] for rank in mine}) == 1))


def reach(comm: Any, algorithm: Algorithm, program: Program, arrays: Mapping[str, Array], count: int) -> Reach:
    """Find, or make, what an algorithm shares, and a barrier for each of its meets. Collective.

    Raises the same ValueError on all ranks where ranks that must meet are not on one node, and where a buffer that must
    be shared is not.
    """
    node = node_of(comm)
    rank = comm.Get_rank()
    here = next(group for group in node.groups if rank in group)
    meets = dict.fromkeys(move.ranks for move in program.moves if isinstance(move, Gather))
    apart = any(other not in here for ranks in meets for other in ranks)
    words = f"{algorithm.title}: its ranks share memory, but are on {len(node.groups)} nodes"
    agree(comm, words if apart else None)

    dtype = arrays["result"].dtype
    own: dict[str, Array] = {}
    if algorithm.shared == "temp":
        nblocks = algorithm.blocks(comm.Get_size())
        own["temp"] = empty_shared(comm, algorithm.temp(comm.Get_size()) // nblocks * count, dtype)
    shared = own if algorithm.shared == "temp" else arrays
    places = {name: place_of(array) for name, array in shared.items() if array.nbytes}
    private = [name for name, place in places.items() if place is None]
    names = " and ".join({"input": "sendbuf", "result": "recvbuf"}.get(name, name) for name in private)
    everyone: list[dict[str, Place | None]] = comm.allgather(places)
    agree(comm, f"{algorithm.title}: {names} not in shared memory; {EMPTY_SHARED}" if private else None)

    touched = {
        (piece.buffer, piece.rank)
        for move in program.moves
        if isinstance(move, (Combine, Copy))
        for piece in move
        if piece.rank is not None
    }
    theirs: dict[tuple[str, int], Array] = {}
    lost = None
    for name, other in sorted(touched):
        place = everyone[other].get(name)
        found = None if place is None else array_at(place, dtype)
        if found is None:
            lost = f"{algorithm.title}: the buffers of rank {other} are in memory that rank {rank} does not share"
        else:
            theirs[name, other] = found
    agree(comm, lost)
    syncs = [sync_of(place) for place in {place.window: place for place in places.values() if place}.values()]
    other_windows = {place.window: place for name, other in touched if (place := everyone[other].get(name)) is not None}
    known = {place.window for place in places.values() if place}
    syncs += [sync_of(place) for window, place in other_windows.items() if window not in known]
    agree(comm, node.lacks_room_for_gates(meets))
    # Made now, by all at the same time, not when each first comes there.
    gates = {ranks: node.gate(ranks).passing(syncs) for ranks in meets}
    return Reach(theirs=theirs, own=own, meet=gates.__getitem__)

"""The order of kernels and messages on a device: what is started together, and where the host must wait.

Kernels of a device return before they have run. All of a plan's are started on the current stream, which runs them in
the order of their start, so kernels never wait for each other on the host. MPI, the clock and the caller know nothing
of the stream. The host therefore waits for it

1. before a message that sends what a kernel still writes,
2. before a message whose receiver overwrites what a kernel still writes or reads,
3. at the end, before the clock is read and the caller goes on;

and nowhere else. At the start the caller's own kernels may still be writing its buffers: they count as kernels of the
plan. One wait is for all kernels that were started before it, of this stream alone and not of the device.

Where messages are staged through the host, a copy from the device goes before a message, on the same stream, and a copy
to the device after it: both count as kernels that read one piece and write another, of the device or of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ringbench.runtime.moves import Combine, Divide, Move, Piece

#: Operands of one kernel at most: its code is written out for each number of them.
MOST_OPERANDS = 16


def overlap(one: Piece, other: Piece) -> bool:
    """Say whether two pieces share an element."""
    same = (one.buffer, one.rank) == (other.buffer, other.rank)
    return same and max(one.start, other.start) < min(one.stop, other.stop)


class Running:
    """Hold which pieces the kernels read and write that were started since the host last waited.

    ``buffers`` are those of the caller, which kernels of its own may still write.
    """

    def __init__(self, buffers: Iterable[Piece]) -> None:
        self.read: list[Piece] = []
        self.written: list[Piece] = list(buffers)
        self.any = True

    def start(self, read: Sequence[Piece], written: Piece) -> None:
        """Take note of a kernel."""
        self.read += read
        self.written.append(written)
        self.any = True

    def bars(self, sent: Piece | None, received: Piece | None) -> bool:
        """Say whether a message must wait: kernels write what it sends, or use what it overwrites."""
        return any(sent is not None and overlap(sent, piece) for piece in self.written) or any(
            received is not None and overlap(received, piece) for piece in (*self.written, *self.read)
        )

    def end(self) -> None:
        """Forget them: the host has waited."""
        self.read, self.written, self.any = [], [], False


class Chain(NamedTuple):
    """Reduce several pieces in their order into ``out``, and divide that by the number of ranks where asked for."""

    operands: tuple[Piece, ...]
    out: Piece
    divide: bool = False


Launch: TypeAlias = "Move | Chain"


def launches(moves: Iterable[Move], can: Callable[[int, bool], bool]) -> list[Launch]:
    """Return the moves with those that follow each other on one piece as one chain, where one kernel ``can`` do it.

    ``can`` is called with the number of operands and whether to divide. The additions stay in their order.
    """
    found: list[Launch] = []
    for move in moves:
        last = found[-1] if found else None
        if isinstance(last, Combine):
            last = Chain((last.one, last.other), last.out)
        if isinstance(last, Chain) and not last.divide:
            longer = _longer(last, move)
            if longer is not None and can(len(longer.operands), longer.divide):
                found[-1] = longer
                continue
        found.append(move)
    return found


def _longer(chain: Chain, move: Move) -> Chain | None:
    if isinstance(move, Divide) and move.piece == chain.out:
        return chain._replace(divide=True)
    if not isinstance(move, Combine) or move.one != chain.out or move.out != chain.out:
        return None
    if len(chain.operands) == MOST_OPERANDS or overlap(move.other, chain.out):
        return None
    return chain._replace(operands=(*chain.operands, move.other))

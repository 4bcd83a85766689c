"""Half the bytes or less: gradients travel as float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringbench.ddp.compress_codec import Codec, Compression, Exchange, Message, Vector, elements, empty
from ringbench.ddp.hooks import Piece
from ringbench.runtime.demands import check_types

#: The names of the hooks, and the dtypes on the wire.
WIRES = {"fp16": "float16", "bf16": "bfloat16"}


class HalfCodec(Codec):
    """Hold one bucket's copy of two bytes per element."""

    def __init__(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int, wire: str) -> None:
        super().__init__(vector, pieces, rank, nranks, feedback=False)
        self.wire = empty(vector.size, wire)
        self.plan(("encode", self.encode), Exchange(collective="allreduce", buffer=self.wire), ("decode", self.decode))

    def encode(self) -> None:
        """Divide by N in the bucket's own dtype, and round once to that of the wire."""
        divisor = self.vector.dtype.type(self.nranks)
        np.divide(self.vector, divisor, out=self.wire, dtype=self.vector.dtype, casting="unsafe")

    def decode(self) -> None:
        """Widen the sum."""
        np.copyto(self.vector, self.wire, casting="unsafe")


class Half(Compression):
    """Send two bytes per element: ``fp16`` or ``bf16``.

    Every rank divides its gradients by N before it rounds them, so that a sum is too large for float16 only where the
    average is nearly so, or some rank's N-th part. The collective adds in the wire's own dtype: ringbench's algorithms
    compute each addition in float32 and round its result, so a sum of N numbers is rounded N times in all. Nothing is
    carried over: what is rounded away (in float16 all below 3e-8 N) is lost. What is too large becomes infinite, and
    is counted in ``Account.nonfinite``. As PyTorch's fp16_compress_hook, which rounds before it divides.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in WIRES:
            raise ValueError(f"unknown compression {name!r}; of two bytes are {', '.join(WIRES)}")
        self.name, self.wire = name, WIRES[name]
        check_types("allreduce", "sum", self.wire)

    def bind(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> HalfCodec:
        """Return the state for one bucket."""
        return HalfCodec(vector, pieces, rank, nranks, self.wire)

    def messages(self, pieces: Sequence[Piece], itemsize: int, nranks: int) -> tuple[Message, ...]:
        """Return one allreduce of two bytes per element."""
        count = elements(pieces)
        return (Message(collective="allreduce", count=count, itemsize=2),) if count else ()

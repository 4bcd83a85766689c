"""What cannot be added on the way: signs and largest elements, gathered from all ranks by an allgather of bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from ringbench.ddp.compress_codec import Codec, Compression, Exchange, Message, Vector, elements, empty
from ringbench.ddp.hooks import Piece

#: What each rank sends is a multiple of so many bytes, so that numbers in it lie where the processor wants them.
WORD = 8

#: So many bytes of signs are looked up at once: NumPy makes indices of eight bytes of them.
CHUNK = 8192


def words(nbytes: int) -> int:
    """Return so many bytes, rounded up to whole words."""
    return -(-nbytes // WORD) * WORD


class _Gathered(Codec, ABC):
    """Hold the bytes of all ranks, one after the other."""

    def __init__(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int, nbytes: int) -> None:
        super().__init__(vector, pieces, rank, nranks, feedback=True)
        gathered = empty(nranks * nbytes, "uint8")
        gathered.fill(0)
        self.parts = gathered.reshape(nranks, nbytes)
        self.plan(("encode", self.encode), Exchange(collective="allgather", buffer=gathered), ("decode", self.decode))

    @abstractmethod
    def encode(self) -> None:
        """Write this rank's bytes, and keep what they leave out."""

    @abstractmethod
    def decode(self) -> None:
        """Average what all ranks sent, in the order of ranks: the same bits on all of them."""


def _gather(nbytes: int, nranks: int) -> tuple[Message, ...]:
    """Return one allgather of so many bytes from each rank."""
    return (Message(collective="allgather", count=nranks * nbytes, itemsize=1),) if nbytes else ()


def sign_nbytes(pieces: Sequence[Piece], itemsize: int) -> int:
    """Return what a rank sends: a scale for each parameter, a bit for each element."""
    return words(len(pieces) * itemsize + ceil(elements(pieces) / 8))


class SignCodec(_Gathered):
    """Hold one bucket's residual, and the signs of one rank as numbers."""

    def __init__(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> None:
        dtype = vector.dtype.name
        count = elements(pieces)
        self.signs = empty(ceil(count / 8) * 8, dtype)
        bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
        self.table = 2 * bits.astype(dtype) - 1
        super().__init__(vector, pieces, rank, nranks, sign_nbytes(pieces, vector.dtype.itemsize))
        self.spans = [slice(at, at + prod(shape)) for at, shape in pieces]
        header = len(pieces) * vector.dtype.itemsize
        self.scales = self.parts[:, :header].view(vector.dtype) if header else np.empty((nranks, 0), vector.dtype)
        self.bits = self.parts[:, header : header + ceil(count / 8)]

    def _scaled(self, rank: int) -> Iterator[tuple[slice, Vector]]:
        """Yield what a rank sent for each parameter, as numbers."""
        bits, rows = self.bits[rank], self.signs.reshape(-1, 8)
        for start in range(0, len(bits), CHUNK):
            part = slice(start, start + CHUNK)
            np.take(self.table, bits[part], axis=0, out=rows[part], mode="clip")
        for span, scale in zip(self.spans, self.scales[rank], strict=True):
            yield span, np.multiply(self.signs[span], scale, out=self.signs[span])

    def encode(self) -> None:
        """Write scales and signs."""
        carried = self.carry()
        for at, span in enumerate(self.spans):
            size = np.abs(carried[span], out=self.signs[span])
            self.scales[self.rank, at] = size.mean(dtype=np.float64) if size.size else 0
        np.greater_equal(carried, 0, out=self.mask)
        self.bits[self.rank] = np.packbits(self.mask)
        for span, sent in self._scaled(self.rank):
            np.subtract(carried[span], sent, out=carried[span])

    def decode(self) -> None:
        """Average the scaled signs."""
        self.vector.fill(0)
        for rank in range(self.nranks):
            for span, sent in self._scaled(rank):
                np.add(self.vector[span], sent, out=self.vector[span])
        np.divide(self.vector, self.vector.dtype.type(self.nranks), out=self.vector)


class Sign(Compression):
    """Send one bit per element: ``sign``. Karimireddy, Rebjock, Stich, Jaggi 2019 (EF-signSGD); Seide et al. 2014.

    Each parameter is sent as its signs (zero counts as positive) times the mean of its absolute values, and what that
    leaves out is added to the next step's gradients. The average is that of what the ranks sent, no vote, or the
    feedback would be of something else. Signs cannot be added on the way, so every rank's go to all: with N ranks
    N - 1 times a 32nd part, which from 64 ranks on is more than a ring sends in float32 (``loses_from``).
    """

    name = "sign"

    def bind(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> SignCodec:
        """Return the state for one bucket."""
        return SignCodec(vector, pieces, rank, nranks)

    def messages(self, pieces: Sequence[Piece], itemsize: int, nranks: int) -> tuple[Message, ...]:
        """Return the allgather of scales and bits."""
        return _gather(sign_nbytes(pieces, itemsize), nranks)


def index_dtype(count: int) -> str:
    """Return the type of an element's number in a bucket."""
    return "int32" if count <= 2**31 else "int64"


def kept(count: int, density: float) -> int:
    """Return how many of ``count`` elements are sent: at least one of any."""
    return min(count, max(1, round(density * count)))


def topk_nbytes(count: int, density: float, itemsize: int) -> int:
    """Return what a rank sends: values and numbers of the elements that it sends."""
    return words(kept(count, density) * (itemsize + np.dtype(index_dtype(count)).itemsize))


class TopkCodec(_Gathered):
    """Hold one bucket's residual and its absolute values."""

    def __init__(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int, density: float) -> None:
        super().__init__(vector, pieces, rank, nranks, topk_nbytes(elements(pieces), density, vector.dtype.itemsize))
        self.kept = kept(vector.size, density)
        self.size = empty(vector.size, vector.dtype.name)
        index = np.dtype(index_dtype(vector.size))
        border = self.kept * vector.dtype.itemsize
        end = border + self.kept * index.itemsize
        shape = (nranks, self.kept)
        self.values = self.parts[:, :border].view(vector.dtype) if self.kept else np.empty(shape, vector.dtype)
        self.index = self.parts[:, border:end].view(index) if self.kept else np.empty(shape, index)

    def _sizes(self, carried: Vector) -> Any:
        """Return the absolute values, of NaN the largest: it must be seen."""
        np.abs(carried, out=self.size)
        np.isnan(self.size, out=self.mask)
        np.copyto(self.size, np.inf, where=self.mask)
        return self.size

    def encode(self) -> None:
        """Write the largest elements; of equal ones those that come first."""
        carried = self.carry()
        if not self.kept:
            return
        place = carried.size - self.kept
        self._sizes(carried).partition(place)
        least = self.size[place]
        size = self._sizes(carried)
        above = np.flatnonzero(np.greater(size, least, out=self.mask))
        equal = np.flatnonzero(np.equal(size, least, out=self.mask))
        index = np.concatenate((above, equal[: self.kept - above.size]))
        index.sort()
        self.index[self.rank] = index
        self.values[self.rank] = carried[index]
        carried[index] = 0

    def decode(self) -> None:
        """Average what was sent; what a rank did not send counts as zero."""
        self.vector.fill(0)
        for index, values in zip(self.index, self.values, strict=True):
            self.vector[index] += values
        np.divide(self.vector, self.vector.dtype.type(self.nranks), out=self.vector)


class Topk(Compression):
    """Send the largest elements of each bucket: ``topk:d`` sends the d-th part of them. Stich, Cordonnier, Jaggi 2018.

    As values and numbers, of four bytes each in float32; what is not sent is added to the next step's gradients. Each
    rank chooses its own, so they are gathered: with N ranks more is sent than by a ring in float32 if N d > 1.
    """

    def __init__(self, density: float) -> None:
        super().__init__()
        if not 0 < density <= 1:
            raise ValueError(f"density {density!r} of topk: must be above 0 and at most 1")
        self.name, self.density = f"topk:{density:g}", density

    def bind(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> TopkCodec:
        """Return the state for one bucket."""
        return TopkCodec(vector, pieces, rank, nranks, self.density)

    def messages(self, pieces: Sequence[Piece], itemsize: int, nranks: int) -> tuple[Message, ...]:
        """Return the allgather of values and numbers."""
        return _gather(topk_nbytes(elements(pieces), self.density, itemsize), nranks)

"""Gradients as products of two thin matrices: PowerSGD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ringbench.ddp.compress_codec import Codec, Compression, Exchange, Message, Vector, elements, empty
from ringbench.ddp.hooks import Piece

#: The first directions are drawn from it, the same on all ranks.
SEED = 20190531


class Matrix(NamedTuple):
    """Say where a parameter that is compressed lies: offset in the bucket, rows, columns, rank of the product."""

    offset: int
    rows: int
    columns: int
    rank: int

    @property
    def stop(self) -> int:
        """Return where it ends in the bucket."""
        return self.offset + self.rows * self.columns


def matrix_of(piece: Piece, rank: int) -> Matrix | None:
    """Return a parameter as a matrix, its first axis the rows; None where r(n + m) numbers would not be fewer than nm.

    So a vector is none, and neither is a matrix of no higher rank than asked for.
    """
    offset, shape = piece
    if len(shape) < 2 or not prod(shape):
        return None
    rows, columns = shape[0], prod(shape[1:])
    return Matrix(offset, rows, columns, rank) if rank * (rows + columns) < rows * columns else None


class _Factor(NamedTuple):
    """Hold the views of one matrix: gradients plus residual, the average, both factors, the first directions."""

    carried: Vector
    average: Vector
    left: Vector
    right: Vector
    first: Vector


class PowerCodec(Codec):
    """Hold one bucket's residual, the factors of its matrices, and a copy of what travels as it is."""

    def __init__(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int, approximation: int) -> None:
        found = [(piece, matrix_of(piece, approximation)) for piece in pieces]
        matrices = [matrix for _, matrix in found if matrix]
        whole = [slice(at, at + prod(shape)) for (at, shape), matrix in found if not matrix]
        dtype = vector.dtype.name
        lefts = sum(matrix.rows * matrix.rank for matrix in matrices)
        self.first = empty(lefts + sum(part.stop - part.start for part in whole), dtype)
        self.second = empty(sum(matrix.columns * matrix.rank for matrix in matrices), dtype)
        self.matrices, self.factors = matrices, list[_Factor]()
        super().__init__(vector, pieces, rank, nranks, feedback=True)
        self.factors = list(self._factors())
        self.product = empty(max((matrix.rows * matrix.columns for matrix in matrices), default=0), dtype)
        places = np.cumsum([lefts, *(part.stop - part.start for part in whole)]).tolist()
        self.whole = [(part, slice(at, to)) for part, at, to in zip(whole, places, places[1:], strict=False)]
        self.reset()
        self.plan(
            ("encode", self.encode),
            Exchange(collective="allreduce", buffer=self.first, op="average"),
            ("encode", self.encode_right),
            Exchange(collective="allreduce", buffer=self.second, op="average"),
            ("decode", self.decode),
        )

    def _factors(self) -> Iterator[_Factor]:
        """Yield the views, and draw the first directions, of every matrix."""
        left = right = 0
        for matrix in self.matrices:
            offset, rows, columns, rank = matrix
            drawn = np.random.default_rng([SEED, offset, rows, columns]).standard_normal((columns, rank))
            drawn /= np.linalg.norm(drawn, axis=0)
            yield _Factor(
                carried=self.residual[offset : matrix.stop].reshape(rows, columns),
                average=self.vector[offset : matrix.stop].reshape(rows, columns),
                left=self.first[left : left + rows * rank].reshape(rows, rank),
                right=self.second[right : right + columns * rank].reshape(columns, rank),
                first=drawn.astype(self.vector.dtype),
            )
            left, right = left + rows * rank, right + columns * rank

    def reset(self) -> None:
        """Forget the residual, and begin with the first directions again."""
        super().reset()
        for factor in self.factors:
            np.copyto(factor.right, factor.first)

    def encode(self) -> None:
        """Multiply each matrix by the directions found last, and copy what travels as it is."""
        for factor, matrix in zip(self.factors, self.matrices, strict=True):
            part = slice(matrix.offset, matrix.stop)
            np.add(self.vector[part], self.residual[part], out=self.residual[part])
            np.matmul(factor.carried, factor.right, out=factor.left)
        for part, place in self.whole:
            np.copyto(self.first[place], self.vector[part])

    def encode_right(self) -> None:
        """Make the averaged columns orthonormal, project each matrix on them, and keep what that leaves out.

        By Householder reflections in float64, whose columns are orthonormal even where those given depend on each
        other, or are zero.
        """
        for factor in self.factors:
            carried, _, left, right, _ = factor
            np.copyto(left, np.linalg.qr(left)[0] if np.isfinite(left).all() else np.nan)
            np.matmul(carried.T, left, out=right)
            product = self.product[: carried.size].reshape(carried.shape)
            np.matmul(left, right.T, out=product)
            np.subtract(carried, product, out=carried)

    def decode(self) -> None:
        """Multiply the factors, and scale the right one for the next step.

        Directions that were lost (a gradient of zeros, NaN) begin anew as the first ones did; all ranks see the same.
        """
        for factor in self.factors:
            np.matmul(factor.left, factor.right.T, out=factor.average)
            length = np.linalg.norm(factor.right.astype(np.float64), axis=0)
            kept = (length > 0) & np.isfinite(length)
            np.copyto(factor.right, np.where(kept, factor.right / np.where(kept, length, 1), factor.first))
        for part, place in self.whole:
            np.copyto(self.vector[part], self.first[place])


class PowerSgd(Compression):
    """Send each matrix as a product of rank r: ``powersgd:r``. Vogels, Karimireddy, Jaggi 2019, algorithms 1 and 2.

    One step of a power iteration, begun with what the last step found: P = MQ is averaged over the ranks and made
    orthonormal, Q = transposed M times P is averaged, and PQ' stands for the average of M: gradients, plus what the
    rank's own projection left out so far. Two allreduces, the second of which must wait for the first. Vectors, and
    matrices that would not become shorter, travel as they are in the first. Parameters of more axes are matrices of
    shape[0] rows. The averaged factors are the same bits on all ranks; so is what is computed from them on each, where
    all ranks multiply matrices alike (one kind of processor, as many BLAS threads).
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"rank {rank!r} of powersgd: must be a whole number from 1 on")
        self.name, self.rank = f"powersgd:{rank}", rank

    def bind(self, vector: Vector, pieces: Sequence[Piece], rank: int, nranks: int) -> PowerCodec:
        """Return the state for one bucket."""
        return PowerCodec(vector, pieces, rank, nranks, self.rank)

    def messages(self, pieces: Sequence[Piece], itemsize: int, nranks: int) -> tuple[Message, ...]:
        """Return the allreduce of all P and of what is not compressed, and that of all Q."""
        matrices = [matrix for matrix in (matrix_of(piece, self.rank) for piece in pieces) if matrix]
        whole = elements(pieces) - sum(matrix.rows * matrix.columns for matrix in matrices)
        first = whole + sum(matrix.rows * matrix.rank for matrix in matrices)
        second = sum(matrix.columns * matrix.rank for matrix in matrices)
        return tuple(
            Message(collective="allreduce", count=count, itemsize=itemsize) for count in (first, second) if count
        )

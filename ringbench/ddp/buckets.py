"""Which gradients are reduced together: buckets filled in the order in which backward makes them. Pure.

The rule is that of PyTorch's DistributedDataParallel (``compute_bucket_assignment_by_size``, as its reducer uses it
from the second iteration on), with one difference. Parameters are taken in reverse order of registration, since
backward ends with the first layer. Each joins the open bucket of its dtype and device, and a bucket **closes when it
has reached its limit**, so that it may exceed it by its last parameter: four parameters of 10 MiB make buckets of 10
and 30 MiB (a rule that never exceeds would make 10, 20 and 10). The limit of the first bucket of each dtype and device
is small, so that communication begins early; all others have the same one. What is left open at the end is a bucket
too.

The difference: a parameter that is larger than the limit has a bucket to itself. The open one closes before it, so that
small gradients which are ready need not wait for the large one. PyTorch lets it join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

MIB = 2**20

#: Bytes at which a bucket closes, and at which the first one does: the defaults of PyTorch.
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * MIB, 1 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Describe one parameter; its gradient has the same shape, dtype and device."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    itemsize: int = 4
    device: str = "cpu"

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes."""
        return self.size * self.itemsize

    def __str__(self) -> str:
        """Say all that ranks must agree on."""
        return f"{self.name} {self.dtype} {self.shape} on {self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Name the parameters of a bucket by their place in the order of registration, in the order of their memory."""

    indices: tuple[int, ...]
    nbytes: int


@dataclass(slots=True)
class _Open:
    """Hold a bucket that is being filled, and how many of its dtype and device were closed before."""

    indices: list[int] = field(default_factory=list)
    nbytes: int = 0
    closed: int = 0


def assign_buckets(
    parameters: Sequence[Parameter],
    bucket_bytes: int = BUCKET_BYTES,
    first_bucket_bytes: int = FIRST_BUCKET_BYTES,
) -> tuple[Bucket, ...]:
    """Return the buckets of parameters given in forward order, in the order in which backward completes them.

    Every parameter is in exactly one bucket, and a bucket holds one dtype on one device. Raises ValueError for limits
    below one byte.
    """
    for name, value in (("bucket_bytes", bucket_bytes), ("first_bucket_bytes", first_bucket_bytes)):
        if value < 1:
            raise ValueError(f"{name} {value!r}: must be at least one byte")
    found: list[Bucket] = []
    filling: dict[tuple[str, str], _Open] = {}

    def close(bucket: _Open) -> None:
        found.append(Bucket(indices=tuple(bucket.indices), nbytes=bucket.nbytes))
        bucket.indices, bucket.nbytes, bucket.closed = [], 0, bucket.closed + 1

    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        bucket = filling.setdefault((parameter.dtype, parameter.device), _Open())
        alone = parameter.nbytes > bucket_bytes
        if bucket.indices and alone:
            close(bucket)
        bucket.indices.append(index)
        bucket.nbytes += parameter.nbytes
        if alone or bucket.nbytes >= (bucket_bytes if bucket.closed else first_bucket_bytes):
            close(bucket)
    for bucket in filling.values():
        if bucket.indices:
            close(bucket)
    return tuple(sorted(found, key=lambda bucket: -bucket.indices[-1]))

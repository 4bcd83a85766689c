"""What compression does to learning, on simulated ranks: the codecs as they are, the collectives by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ringbench.ddp.compress_codec import Codec, Compression, Exchange, Vector, Work
from ringbench.ddp.hooks import Piece


def run_step(codecs: Sequence[Codec]) -> None:
    """Run one step of one bucket on all simulated ranks, whose codecs these are, phase by phase.

    Sums are made in the order of ranks and in the buffer's dtype, as a collective that adds so would.
    """
    for phases in zip(*(codec.phases for codec in codecs), strict=True):
        exchanges = [phase for phase in phases if isinstance(phase, Exchange)]
        if exchanges:
            _exchange(exchanges)
        for phase in phases:
            if isinstance(phase, Work):
                phase()


def _exchange(exchanges: Sequence[Exchange]) -> None:
    first, nranks = exchanges[0], len(exchanges)
    with np.errstate(all="ignore"):
        if first.collective == "allgather":
            parts = [one.buffer.reshape(nranks, -1)[rank] for rank, one in enumerate(exchanges)]
            whole = np.concatenate(parts)
        else:
            whole = first.buffer.copy()
            for one in exchanges[1:]:
                whole += one.buffer
            if first.op == "average":
                whole /= whole.dtype.type(nranks)
    for one in exchanges:
        np.copyto(one.buffer, whole)


def pieces_of(shapes: Sequence[tuple[int, ...]]) -> tuple[Piece, ...]:
    """Return parameters of some shapes one after the other."""
    ends = np.cumsum([0, *(prod(shape) for shape in shapes)]).tolist()
    return tuple(Piece(offset, shape) for offset, shape in zip(ends, shapes, strict=False))


def train(
    compression: Compression | None,
    *,
    nranks: int = 4,
    steps: int = 100,
    features: int = 32,
    classes: int = 10,
    samples: int = 512,
    batch: int = 32,
    rate: float = 0.5,
    seed: int = 0,
) -> list[float]:
    """Return the losses over all samples, before and after each step, of a logistic regression on simulated ranks.

    ``samples`` of each rank are drawn from ``classes`` normal clouds in ``features`` dimensions, of which every rank
    has other shares; each step takes ``batch`` of them at random per rank, averages the gradients with the compression
    (None: exactly) and goes down with the fixed ``rate``. Data and batches depend on ``seed`` alone.
    """
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((classes, features))
    shares = draw.dirichlet(np.full(classes, 2.0), nranks)
    labels = [draw.choice(classes, samples, p=share) for share in shares]
    inputs = [centres[label] + 1.5 * draw.standard_normal((samples, features)) for label in labels]
    every, label_of = np.concatenate(inputs), np.concatenate(labels)

    pieces = pieces_of([(features, classes), (classes,)])
    buckets = [np.zeros(features * classes + classes, np.float32) for _ in range(nranks)]
    codecs = (
        [compression.codec(bucket, pieces, rank, nranks) for rank, bucket in enumerate(buckets)] if compression else []
    )
    model = np.zeros(buckets[0].size)
    losses = [_loss(model, every, label_of)[0]]
    for _ in range(steps):
        for bucket, own, label in zip(buckets, inputs, labels, strict=True):
            chosen = draw.choice(samples, batch, replace=False)
            bucket[:] = _loss(model, own[chosen], label[chosen])[1]
        if codecs:
            run_step(codecs)
        model -= rate * (buckets[0] if codecs else np.mean(buckets, axis=0))
        losses.append(_loss(model, every, label_of)[0])
    return losses


def _loss(model: Vector, inputs: Vector, labels: Vector) -> tuple[float, Vector]:
    """Return the mean cross-entropy and its gradient."""
    features = inputs.shape[1]
    classes = model.size // (features + 1)
    scores = inputs @ model[: features * classes].reshape(features, classes) + model[features * classes :]
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(chances[rows, labels]).mean())
    chances[rows, labels] -= 1
    chances /= len(labels)
    return loss, np.concatenate([(inputs.T @ chances).ravel(), chances.sum(axis=0)])

"""A real model: a perceptron of several layers, in NumPy or CuPy, trained on scikit-learn's digits by all ranks.

What N ranks with N equal shards of a batch compute is, up to rounding, what one process computes with the whole batch;
that holds for every engine, algorithm and way to share the work, and is what tests hold them to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from ringbench.ddp.reducer import DataParallel
from ringbench.ddp.sharded import ShardedDataParallel
from ringbench.runtime.arrays import Array, backend_for, backend_of

#: Units of the layers: 8 x 8 pixels, two hidden layers, ten digits.
SIZES = (64, 48, 32, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Hold images as rows of 64 numbers from 0 to 1, and what they show as rows of ten with a single 1."""

    images: Array
    labels: Array


def load_digits(dtype: str = "float64", device: str = "cpu") -> Digits:
    """Return the 1797 images that come with scikit-learn, on a device; raise ValueError where that is not installed."""
    try:
        found = import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise ValueError("scikit-learn, which has the digits, is not installed (extra digits)") from None
    put = backend_for(device).from_host
    return Digits(images=put((found.data / 16).astype(dtype)), labels=put(np.eye(10, dtype=dtype)[found.target]))


def initial_parameters(sizes: Sequence[int] = SIZES, dtype: str = "float64", seed: int = 0) -> dict[str, Array]:
    """Return weights and biases of all layers, in forward order, the same for the same seed."""
    random = np.random.default_rng(seed)
    parameters: dict[str, Array] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        parameters[f"{layer}.weight"] = (random.standard_normal((inputs, outputs)) / inputs**0.5).astype(dtype)
        parameters[f"{layer}.bias"] = np.zeros(outputs, dtype=dtype)
    return parameters


def backward(
    parameters: Mapping[str, Array],
    batch: Digits,
    gradients: Mapping[str, Array],
    done: Callable[[str], object],
    *,
    share: float = 1.0,
    add: bool = False,
) -> float:
    """Write the gradients of ``share`` times the mean loss of a batch, or ``add`` them; return that loss.

    The loss is the cross entropy after a softmax; hidden units are tanh. ``done(name)`` is called for each parameter,
    from the last layer to the first, when its gradient is complete.
    """
    layers = len(parameters) // 2
    values = [batch.images]
    for layer in range(layers):
        values.append(values[-1] @ parameters[f"{layer}.weight"] + parameters[f"{layer}.bias"])
        if layer < layers - 1:
            np.tanh(values[-1], out=values[-1])
    scores = values.pop()
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    totals = weights.sum(axis=1, keepdims=True)
    scale = share / len(scores)
    loss = float((np.log(totals)[:, 0] - (scores * batch.labels).sum(axis=1)).sum()) * scale
    delta = (weights / totals - batch.labels) * scale
    for layer in reversed(range(layers)):
        inputs = values.pop()
        weight, bias = gradients[f"{layer}.weight"], gradients[f"{layer}.bias"]
        if add:
            bias += delta.sum(axis=0)
            weight += inputs.T @ delta
        else:
            bias[...] = delta.sum(axis=0)
            np.matmul(inputs.T, delta, out=weight)
        done(f"{layer}.bias")
        done(f"{layer}.weight")
        if layer:
            delta = (delta @ parameters[f"{layer}.weight"].T) * (1 - inputs * inputs)
    return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Hold the loss of each step, over the whole batch, and the parameters at the end."""

    losses: tuple[float, ...]
    parameters: Mapping[str, Array]


def train(
    comm: Any,
    digits: Digits,
    *,
    steps: int = 20,
    batch: int = 96,
    accumulate: int = 1,
    rate: float = 0.1,
    momentum: float = 0.9,
    max_norm: float | None = None,
    seed: int = 0,
    sharded: bool = False,
    **settings: Any,
) -> Trained:
    """Train on the ranks of ``comm`` with stochastic gradient descent, in batches of ``batch`` images in all.

    Each rank takes an equal shard of every batch, in ``accumulate`` parts of which the last one communicates.
    ``max_norm`` clips. ``settings`` are those of ``DataParallel``, or of ``ShardedDataParallel`` where ``sharded``.
    Raises ValueError where shards would be unequal.
    """
    rank, nranks = comm.Get_rank(), comm.Get_size()
    if batch < 1 or batch % (nranks * accumulate):
        raise ValueError(f"batch {batch}: must be a multiple of {nranks} ranks times {accumulate} parts")
    put = backend_of(digits.images).from_host
    model = {name: put(one) for name, one in initial_parameters(dtype=str(digits.images.dtype), seed=seed).items()}
    losses = []
    kind = ShardedDataParallel if sharded else DataParallel
    with kind(comm, model, **settings) as averaged:
        if isinstance(averaged, ShardedDataParallel):
            parameters: Mapping[str, Array] = averaged.parameters
            stepped = [(shard.parameter, shard.gradient) for shard in averaged.shards]
        else:
            parameters = model
            stepped = [(parameters[name], averaged.gradients[name]) for name in parameters]
        speeds = [np.zeros_like(gradient) for _, gradient in stepped]

        def done(name: str) -> None:
            averaged.ready(name)
            averaged.poll()

        for whole in batches(digits, steps, batch, seed):
            own = part(whole, rank, nranks)
            averaged.zero()
            loss = 0.0
            for at in range(accumulate):
                with averaged.no_sync() if at < accumulate - 1 else nullcontext():
                    piece = part(own, at, accumulate)
                    loss += backward(
                        parameters, piece, averaged.gradients, done, share=1 / accumulate, add=accumulate > 1
                    )
            averaged.finish()
            losses.append(loss)
            if max_norm is not None:
                averaged.clip_global_norm(max_norm)
            for (parameter, gradient), speed in zip(stepped, speeds, strict=True):
                speed *= momentum
                speed += gradient
                parameter -= rate * speed
            if isinstance(averaged, ShardedDataParallel):
                averaged.gather()
        kept = {name: parameter.copy() for name, parameter in parameters.items()}
    every = comm.allgather(losses)
    return Trained(losses=tuple(sum(of_step) / nranks for of_step in zip(*every, strict=True)), parameters=kept)


def batches(digits: Digits, steps: int, batch: int, seed: int) -> Iterator[Digits]:
    """Yield so many batches of images drawn at random, the same ones on all ranks."""
    random = np.random.default_rng([seed, 1])
    for _ in range(steps):
        chosen = random.choice(len(digits.images), batch, replace=False)
        yield Digits(images=digits.images[chosen], labels=digits.labels[chosen])


def part(whole: Digits, index: int, number: int) -> Digits:
    """Return one of so many equal parts of a batch."""
    size = len(whole.images) // number
    chosen = slice(index * size, (index + 1) * size)
    return Digits(images=whole.images[chosen], labels=whole.labels[chosen])

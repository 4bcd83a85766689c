from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from ringbench.ddp.compress import hook_named
from ringbench.ddp.compress_study import train


@cache
def curve(name: str, seed: int, nranks: int) -> list[float]:
    return train(hook_named(name), nranks=nranks, steps=120, seed=seed)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("nranks", [1, 4])
@pytest.mark.parametrize("name", ["fp16", "bf16", "powersgd:1", "powersgd:4", "sign", "topk:0.05", "topk:0.3"])
def test_the_loss_goes_down_as_without_compression(name: str, nranks: int, seed: int) -> None:
    exact, found = curve("none", seed, nranks), curve(name, seed, nranks)
    assert exact[0] == found[0]
    assert exact != found
    fallen = exact[0] - mean(exact[-20:])
    assert fallen > 0.5
    assert found[0] - mean(found[-20:]) > 0.85 * fallen


def test_sixteen_bits_change_the_curve_by_less_than_a_hundredth() -> None:
    for one, other in zip(curve("none", 0, 4), curve("fp16", 0, 4), strict=True):
        assert other == pytest.approx(one, rel=0.01)


def test_data_depend_on_the_seed_alone() -> None:
    assert train(None, steps=3, seed=5) == train(None, steps=3, seed=5)
    assert train(None, steps=3, seed=5) != train(None, steps=3, seed=6)

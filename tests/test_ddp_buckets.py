from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbench.ddp.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, MIB, Bucket, Parameter, assign_buckets


def parameters(*nbytes: int, dtype: str = "float32", itemsize: int = 4) -> list[Parameter]:
    return [
        Parameter(name=f"p{at}", shape=(size // itemsize,), dtype=dtype, itemsize=itemsize)
        for at, size in enumerate(nbytes)
    ]


def sizes(buckets: tuple[Bucket, ...]) -> list[int]:
    return [bucket.nbytes // MIB for bucket in buckets]


def test_a_bucket_closes_when_its_limit_is_reached() -> None:
    four = parameters(*[10 * MIB] * 4)
    buckets = assign_buckets(four)
    assert sizes(buckets) == [10, 30]
    assert [bucket.indices for bucket in buckets] == [(3,), (2, 1, 0)]
    assert sizes(assign_buckets(four, 20 * MIB)) == [10, 20, 10]
    assert sizes(assign_buckets(four, 20 * MIB, 20 * MIB)) == [20, 20]


def test_the_defaults_are_those_of_pytorch() -> None:
    assert (BUCKET_BYTES, FIRST_BUCKET_BYTES) == (25 * MIB, MIB)


def test_a_parameter_above_the_limit_has_a_bucket_to_itself() -> None:
    buckets = assign_buckets(parameters(4 * MIB, 4 * MIB, 30 * MIB, 4 * MIB, 4 * MIB))
    assert [bucket.indices for bucket in buckets] == [(4,), (3,), (2,), (1, 0)]
    assert sizes(assign_buckets(parameters(30 * MIB, MIB // 2))) == [0, 30]
    # One that is as large as the limit is not above it.
    assert sizes(assign_buckets(parameters(25 * MIB, 4 * MIB, MIB))) == [1, 29]


def test_the_last_bucket_may_be_small() -> None:
    assert [bucket.nbytes for bucket in assign_buckets(parameters(4, MIB))] == [MIB, 4]
    assert [bucket.nbytes for bucket in assign_buckets(parameters(4))] == [4]
    assert assign_buckets([]) == ()


def test_unlike_parameters_share_no_bucket_and_each_kind_has_a_small_first_one() -> None:
    half = Parameter(name="h", shape=(MIB,), dtype="float16", itemsize=2)  # 2 MiB
    full = Parameter(name="f", shape=(MIB,))  # 4 MiB
    there = Parameter(name="d", shape=(MIB,), device="cuda")
    buckets = assign_buckets([half, full, there, half, full, half, full], 4 * MIB)
    # Taken from the end: f6 closes (first of its kind), h5 closes, f4 closes, h3 stays open, d2, f1, h0 closes h3.
    assert [bucket.indices for bucket in buckets] == [(6,), (5,), (4,), (2,), (1,), (3, 0)]


def test_buckets_stand_in_the_order_in_which_backward_completes_them() -> None:
    half = Parameter(name="h", shape=(8,), dtype="float16", itemsize=2)
    full = Parameter(name="f", shape=(MIB,))
    buckets = assign_buckets([full, full, half, full])
    assert [bucket.indices for bucket in buckets] == [(3,), (2,), (1, 0)]


@pytest.mark.parametrize(("limits", "named"), [((0, 1), "bucket_bytes 0"), ((1, -5), "first_bucket_bytes -5")])
def test_a_limit_of_nothing_is_refused(limits: tuple[int, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        assign_buckets(parameters(8), *limits)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["float32", "float16"]), st.sampled_from(["cpu", "cuda"]))),
    st.integers(1, 100),
    st.integers(1, 100),
)
def test_every_parameter_is_in_one_bucket_and_no_bucket_is_too_large(
    found: list[tuple[int, str, str]], limit: int, first: int
) -> None:
    given = [
        Parameter(name=str(at), shape=(size,), dtype=dtype, itemsize=4 if dtype == "float32" else 2, device=device)
        for at, (size, dtype, device) in enumerate(found)
    ]
    buckets = assign_buckets(given, limit, first)
    assert sorted(index for bucket in buckets for index in bucket.indices) == list(range(len(given)))
    assert sum(bucket.nbytes for bucket in buckets) == sum(parameter.nbytes for parameter in given)
    lasts = [bucket.indices[-1] for bucket in buckets]
    assert lasts == sorted(lasts, reverse=True)
    for bucket in buckets:
        members = [given[index] for index in bucket.indices]
        assert len({(one.dtype, one.device) for one in members}) == 1
        assert bucket.nbytes == sum(one.nbytes for one in members)
        assert list(bucket.indices) == sorted(bucket.indices, reverse=True)
        before = bucket.nbytes - members[-1].nbytes
        assert before < max(limit, first)  # it was still open when the last one joined
        assert len(members) == 1 or all(one.nbytes <= limit for one in members)

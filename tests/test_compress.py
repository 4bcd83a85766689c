"""Compression on simulated ranks: what is sent, what is lost, what is carried over. No MPI."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest

from ringbench.ddp.compress import hook_named, step_error
from ringbench.ddp.compress_codec import Compression, Exchange, Vector, Work
from ringbench.ddp.compress_gathered import kept
from ringbench.ddp.compress_powersgd import Matrix, matrix_of
from ringbench.ddp.compress_study import pieces_of, run_step
from ringbench.ddp.hooks import Hook, Piece
from ringbench.runtime import demands

NAMES = ("fp16", "bf16", "powersgd:2", "sign", "topk:0.05")
FEEDBACK = NAMES[2:]
SHAPES = ((12, 20), (7,), (3, 4, 5), (), (0, 3), (5, 1))
COUNT = sum(prod(shape) for shape in SHAPES)


def compression(name: str) -> Compression:
    found = hook_named(name)
    assert found is not None
    return found


class Ranks:
    """Simulated ranks with one bucket each."""

    def __init__(
        self, name: str, nranks: int, shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: str = "float32"
    ) -> None:
        pieces = pieces_of(shapes)
        count = sum(prod(shape) for shape in shapes)
        self.vectors = [np.zeros(count, dtype) for _ in range(nranks)]
        one = compression(name)
        self.codecs = [one.codec(vector, pieces, rank, nranks) for rank, vector in enumerate(self.vectors)]

    def step(self, gradients: Sequence[Vector]) -> Any:
        """Run a step, check that all ranks have the same bits, and return the average they have."""
        for vector, gradient in zip(self.vectors, gradients, strict=True):
            vector[:] = gradient
        run_step(self.codecs)
        assert len({vector.tobytes() for vector in self.vectors}) == 1
        assert len({codec.nonfinite for codec in self.codecs}) == 1
        return self.vectors[0].copy()

    def left(self) -> Any:
        """Return the average of what the ranks carry over."""
        return mean([codec.residual for codec in self.codecs])


def draws(nranks: int, count: int = COUNT, seed: int = 1, dtype: str = "float32") -> list[Vector]:
    draw = np.random.default_rng([seed, count])
    common = draw.standard_normal(count)  # what gradients of one model share
    return [(common + draw.standard_normal(count)).astype(dtype) for _ in range(nranks)]


def mean(gradients: Sequence[Vector]) -> Any:
    return np.mean(gradients, axis=0, dtype=np.float64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", FEEDBACK)
def test_what_is_not_sent_now_is_sent_later(name: str, nranks: int, dtype: str) -> None:
    """The sum of all averages is that of all gradients less what is still carried: nothing is lost or counted twice."""
    ranks = Ranks(name, nranks, dtype=dtype)
    sent, given = np.zeros(COUNT), np.zeros(COUNT)
    steps = 12
    for step in range(steps):
        gradients = draws(nranks, seed=step, dtype=dtype)
        sent += ranks.step(gradients)
        given += mean(gradients)
    rounding = steps**2 * 30 * np.finfo(dtype).eps
    assert np.abs(sent + ranks.left() - given).max() < rounding
    assert np.abs(ranks.left()).max() > 0.1  # there is something to carry


@pytest.mark.parametrize("name", FEEDBACK)
def test_the_mean_over_steps_comes_to_the_exact_average(name: str) -> None:
    gradients = draws(3)
    ranks, total, errors = Ranks(name, 3), np.zeros(COUNT), []
    for step in range(1, 401):
        total += ranks.step(gradients)
        errors.append(step_error(total / step, mean(gradients)))
    assert errors[0] > 0.3
    assert errors[-1] < errors[0] / 8
    assert errors[-1] < 3 * errors[199]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "unit", "least"), [("fp16", 2.0**-11, 2.0**-25), ("bf16", 2.0**-8, 2.0**-133)])
def test_sixteen_bits_lose_what_their_rounding_says(name: str, unit: float, least: float, dtype: str) -> None:
    for nranks in (1, 2, 3, 8):
        gradients = [scale * part for scale in (1e-6, 1, 100) for part in draws(nranks, dtype=dtype)]
        for scale in range(3):
            own = gradients[scale * nranks : (scale + 1) * nranks]
            found = Ranks(name, nranks, dtype=dtype).step(own)
            bound = nranks * (unit * 1.01 * mean([np.abs(part) for part in own]) + least)
            assert (np.abs(found - mean(own)) <= bound).all()
            assert (found != mean(own)).any()  # it is compressed at all


def test_sixteen_bits_add_after_the_division() -> None:
    largest = np.full(COUNT, 60000, np.float32)  # two of which are too many for float16
    ranks = Ranks("fp16", 4)
    assert step_error(ranks.step([largest] * 4), largest) == 0
    assert ranks.codecs[0].nonfinite == 0


def test_what_is_too_large_for_the_wire_is_counted() -> None:
    gradients = draws(2)
    gradients[1][[3, 8]] = 1e6
    ranks = Ranks("fp16", 2)
    assert np.flatnonzero(np.isinf(ranks.step(gradients))).tolist() == [3, 8]
    assert [codec.account().nonfinite for codec in ranks.codecs] == [2, 2]
    assert np.isfinite(Ranks("bf16", 2).step(gradients)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_on_all_ranks_and_gone_in_the_next_step(name: str, poison: float) -> None:
    ranks = Ranks(name, 3)
    ranks.step(draws(3))
    assert ranks.codecs[0].nonfinite == 0
    gradients = draws(3, seed=2)
    gradients[1][4] = poison
    found = ranks.step(gradients)
    assert not np.isfinite(found[4])
    assert ranks.codecs[0].nonfinite == np.count_nonzero(~np.isfinite(found))
    for codec in ranks.codecs:
        assert np.isfinite(codec.residual).all()
    again = draws(3, seed=3)
    errors = [step_error(ranks.step(again), mean(again)) for _ in range(2)]
    assert np.isfinite(errors).all()
    assert max(errors) < 10
    assert ranks.codecs[0].nonfinite == np.count_nonzero(~np.isfinite(found))


def test_more_nan_than_are_sent_leave_nothing_behind() -> None:
    ranks = Ranks("topk:0.05", 2)
    assert np.isnan(ranks.step([np.full(COUNT, np.nan, np.float32)] * 2)).any()
    assert np.isfinite(ranks.left()).all()


@pytest.mark.parametrize("name", NAMES)
def test_zeros_stay_zeros_and_stop_nothing(name: str) -> None:
    ranks = Ranks(name, 3)
    for _ in range(3):
        assert (ranks.step([np.zeros(COUNT, np.float32)] * 3) == 0).all()
    gradients, errors = draws(3), []
    total = np.zeros(COUNT)
    for step in range(1, 41):
        total += ranks.step(gradients)
        errors.append(step_error(total / step, mean(gradients)))
    assert errors[-1] < 0.5
    assert errors[0] <= 1.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_empty_buckets_and_single_elements(name: str, nranks: int, dtype: str) -> None:
    nothing: list[list[tuple[int, ...]]] = [[], [(0,)], [(0, 4), (0,)]]
    single: list[list[tuple[int, ...]]] = [[()], [(1,)], [(1, 1)], [(1, 1, 1), (0,)]]
    for shapes in nothing:
        empty = Ranks(name, nranks, shapes, dtype)
        assert empty.step([np.zeros(0, dtype)] * nranks).size == 0
        assert empty.codecs[0].account().steps == 1
    for shapes in single:
        one = Ranks(name, nranks, shapes, dtype)
        assert one.step([np.array([0.75 * nranks], dtype)] * nranks) == pytest.approx(0.75 * nranks, rel=2.0**-7)


def test_a_sparse_gradient_passes_topk_whole() -> None:
    size, few = 400, kept(400, 0.05)
    gradients = []
    for rank in range(3):
        gradient = np.zeros(size, np.float32)
        gradient[rank + 7 * np.arange(few)] = 3 * (1 + np.arange(few))
        gradients.append(gradient)
    ranks = Ranks("topk:0.05", 3, [(size,)])
    assert (ranks.step(gradients) == mean(gradients)).all()
    assert (ranks.left() == 0).all()


@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
def test_topk_sends_the_largest_and_of_equal_ones_the_first(density: float) -> None:
    size = 200
    few = max(1, round(density * size))
    same = Ranks(f"topk:{density}", 2, [(size,)])
    signs = np.where(np.arange(size) % 3 == 0, -2, 2).astype(np.float32)
    assert np.flatnonzero(same.step([signs, signs])).tolist() == list(range(few))
    (gradient,) = draws(1, size)
    one = Ranks(f"topk:{density}", 1, [(size,)])
    found = one.step([gradient])
    order = np.argsort(-np.abs(gradient), kind="stable")
    assert sorted(np.flatnonzero(found)) == sorted(order[:few])
    assert (found + one.left() == gradient).all()


def test_signs_are_scaled_by_the_mean_of_each_parameter() -> None:
    gradient = np.array([3, -1, 0, -0.0, -8, 2, 0, 0, 0], np.float32)
    found = Ranks("sign", 1, [(4,), (2,), (3,)]).step([gradient])
    assert found.tolist() == [1, -1, 1, 1, -5, 5, 0, 0, 0]


def test_signs_of_a_long_bucket_are_all_its_own() -> None:
    sizes = 70_001, 130_003
    (gradient,) = draws(1, sum(sizes))
    found = Ranks("sign", 1, [(size,) for size in sizes]).step([gradient])
    assert ((found > 0) == (gradient > 0)).all()
    assert len(np.unique(np.abs(found))) == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signs_lose_what_the_theory_says(dtype: str) -> None:
    """The squares of what is left are those of M less the square of the sum of absolute values over their number."""
    (gradient,) = draws(1, dtype=dtype)
    ranks = Ranks("sign", 1, [(COUNT,)], dtype)
    ranks.step([gradient])
    wide = gradient.astype(np.float64)
    assert (ranks.left() ** 2).sum() == pytest.approx((wide**2).sum() - np.abs(wide).sum() ** 2 / COUNT, rel=1e-5)


def test_large_numbers_do_not_overflow_on_the_way() -> None:
    for name, size in (("sign", 1e37), ("powersgd:2", 1e30), ("topk:0.05", 1e37)):
        ranks = Ranks(name, 2)
        for seed in range(4):
            found = ranks.step([np.float32(size) * part for part in draws(2, seed=seed)])
            assert np.isfinite(found).all(), name


def test_directions_that_overflowed_begin_anew() -> None:
    ranks = Ranks("powersgd:1", 2, [(400, 4)])
    large = np.full(1600, 3e37, np.float32)  # its rows are short enough for P, its columns too long for Q
    assert np.isinf(ranks.step([large, large])).all()
    ones = np.ones(1600, np.float32)
    assert step_error(ranks.step([ones, ones]), ones) < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nranks", [1, 2, 4])
def test_an_average_of_low_rank_is_exact(nranks: int, dtype: str) -> None:
    draw = np.random.default_rng(5)
    rows, columns = 30, 17
    left = draw.standard_normal((rows, 2))
    gradients = [(left @ draw.standard_normal((2, columns))).ravel().astype(dtype) for _ in range(nranks)]
    for name in ("powersgd:2", "powersgd:5"):
        ranks = Ranks(name, nranks, [(rows, columns)], dtype)
        for _ in range(3):
            assert step_error(ranks.step(gradients), mean(gradients)) < 200 * np.finfo(dtype).eps


def test_ranks_as_high_as_the_matrix_send_it_whole() -> None:
    gradients = draws(3)
    for name in ("powersgd:12", "powersgd:1000"):
        ranks = Ranks(name, 3)
        assert step_error(ranks.step(gradients), mean(gradients)) < 1e-6
        assert (ranks.left() == 0).all()
        assert len(ranks.codecs[0].phases) == 4  # one collective, and nothing to do for a second


def test_a_warm_start_finds_the_best_product() -> None:
    """With the same matrix again and again, and no feedback, it is a power iteration: to the singular vectors."""
    draw = np.random.default_rng(3)
    rows, columns, rank = 40, 25, 3
    turns = [np.linalg.qr(draw.standard_normal((size, columns)))[0] for size in (rows, columns)]
    values = 2.0 ** -np.arange(columns)
    matrix = turns[0] * values @ turns[1].T
    best = np.linalg.norm(values[rank:]) / np.linalg.norm(values)
    ranks = Ranks(f"powersgd:{rank}", 2, [(rows, columns)], "float64")
    errors = []
    for _ in range(20):
        errors.append(step_error(ranks.step([matrix.ravel()] * 2), matrix.ravel()))
        for codec in ranks.codecs:
            codec.residual.fill(0)
    assert errors[0] > 1.05 * best
    assert errors[-1] == pytest.approx(best, rel=1e-6)


def test_which_parameters_are_matrices() -> None:
    assert matrix_of(Piece(5, (64, 3, 7, 7)), 4) == Matrix(5, 64, 147, 4)
    assert matrix_of(Piece(0, (10, 10)), 4) == Matrix(0, 10, 10, 4)
    assert matrix_of(Piece(0, (10, 10)), 5) is None  # as many numbers as before
    assert matrix_of(Piece(0, (1000,)), 1) is None
    assert matrix_of(Piece(0, (1000, 1)), 1) is None
    assert matrix_of(Piece(0, ()), 1) is None
    assert matrix_of(Piece(0, (0, 1000)), 1) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shapes", [SHAPES, (), ((100, 100),), ((1,),), ((0, 2),)])
def test_messages_are_the_buffers_of_the_collectives(
    name: str, dtype: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    for nranks in (1, 2, 7):
        codec = Ranks(name, nranks, shapes, dtype).codecs[0]
        buffers = [
            (phase.collective, phase.buffer.size, phase.buffer.itemsize)
            for phase in codec.phases
            if isinstance(phase, Exchange)
        ]
        messages = compression(name).messages(pieces_of(shapes), np.dtype(dtype).itemsize, nranks)
        assert [(one.collective, one.count, one.itemsize) for one in messages] == buffers


def test_bytes_on_the_wire() -> None:
    pieces = pieces_of([(100, 300), (300,)])
    sent = {name: compression(name).wire_bytes(pieces, 4, 4) for name in ("fp16", "powersgd:3", "sign", "topk:0.01")}
    assert sent == {
        "fp16": 3 * 30300,  # 2 * 3/4 of two bytes each
        "powersgd:3": 6 * (3 * 400 + 300),
        "sign": 3 * (2 * 4 + 30300 // 8 + 1 + 4),  # two scales, the bits, filled up to whole words
        "topk:0.01": 3 * 303 * 8,
    }
    assert all(compression(name).wire_bytes(pieces, 4, 1) == 0 for name in NAMES)
    assert compression("fp16").wire_bytes(pieces, 4, 4, lambda collective, nranks: Fraction(nranks)) == 4 * 60600


@pytest.mark.parametrize(
    ("name", "itemsize", "nranks"),
    [("sign", 4, 64), ("sign", 8, 128), ("topk:0.01", 4, 101), ("topk:0.5", 4, 3), ("topk:1", 4, 2), ("fp16", 4, None)],
)
def test_from_how_many_ranks_on_compression_sends_more(name: str, itemsize: int, nranks: int | None) -> None:
    assert compression(name).loses_from(pieces_of([(1000, 1000)]), itemsize) == nranks


def test_signs_of_tiny_parameters_lose_earlier() -> None:
    many = pieces_of([(2,)] * 1000)
    assert compression("sign").loses_from(many, 4) == 4  # half of what is sent are scales
    assert compression("powersgd:1").loses_from(many, 4) is None


@pytest.mark.parametrize("name", NAMES)
def test_after_a_reset_all_is_as_at_the_start(name: str) -> None:
    def steps(ranks: Ranks) -> list[bytes]:
        return [ranks.step(draws(2, seed=seed)).tobytes() for seed in range(4)]

    ranks = Ranks(name, 2)
    first = steps(ranks)
    again = steps(ranks)
    assert (again[0] != first[0]) == (name in FEEDBACK)
    for codec in ranks.codecs:
        codec.reset()
    assert steps(ranks) == first


@pytest.mark.parametrize("name", NAMES)
def test_a_step_allocates_little(name: str) -> None:
    shapes = [(1000, 300), (1000,)]
    count = 301_000
    codec = compression(name.replace("0.05", "0.001")).codec(np.zeros(count, np.float32), pieces_of(shapes), 0, 1)
    for seed in range(3):
        codec.vector[:] = draws(1, count, seed)[0]
        tracemalloc.start()
        for phase in codec.phases:
            if isinstance(phase, Work):
                phase()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < codec.vector.nbytes / 8, f"step {seed}"


class OneRank:
    """A communicator of one rank, for hooks that ask it for nothing else."""

    def Get_rank(self) -> int:  # noqa: N802
        return 0

    def Get_size(self) -> int:  # noqa: N802
        return 1


def no_message(collective: str, sendbuf: Any, recvbuf: Any, op: str = "sum") -> Any:
    assert sendbuf is recvbuf
    return lambda: None


@pytest.mark.parametrize("name", NAMES)
def test_a_hook_counts_what_its_buckets_take_and_forgets_what_they_carry(name: str) -> None:
    hook = compression(name)
    kind: Hook = hook  # as the reducer sees it
    vectors = [np.zeros(COUNT, np.float32) for _ in range(2)]
    stages = [kind.stages(OneRank(), vector, pieces_of(SHAPES), no_message) for vector in vectors]
    assert hook.account().steps == 0
    for vector, bucket in zip(vectors, stages, strict=True):
        for seed in range(3):
            vector[:] = draws(1, seed=seed)[0]
            for stage in bucket:
                stage()
    vectors[0][0] = np.inf
    for stage in stages[0]:
        stage()
    account = hook.account()
    assert account.steps == 7
    assert account.nonfinite >= 1
    assert account.encode_s > 0
    assert account.decode_s > 0
    hook.reset()
    assert all((codec.residual == 0).all() for codec in hook.codecs)


def test_names() -> None:
    for name in ("fp16", "bf16", "sign", "powersgd:4", "topk:0.01", "topk:1"):
        assert compression(name).name == name
        assert repr(compression(name)) == f"<compression {name}>"
    assert hook_named("none") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fp8", ["'fp8'", "powersgd:RANK", "none"]),
        ("", ["''", "known"]),
        ("powersgd", ["'powersgd'", "powersgd:4"]),
        ("powersgd:", ["rank ''"]),
        ("powersgd:0", ["rank 0"]),
        ("powersgd:-1", ["rank -1"]),
        ("powersgd:1.5", ["rank '1.5'"]),
        ("topk", ["topk:0.01"]),
        ("topk:x", ["density 'x'"]),
        ("topk:0", ["density 0.0"]),
        ("topk:1.1", ["density 1.1"]),
        ("topk:nan", ["density nan"]),
        ("fp16:2", ["fp16 takes no '2'"]),
        ("none:1", ["none takes no '1'"]),
        ("powersgd:RANK", ["rank 'RANK'"]),
    ],
)
def test_wrong_names_are_refused(text: str, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"compress|powersgd|topk") as caught:
        hook_named(text)
    assert [word for word in words if word not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


def test_bf16_without_its_package_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demands, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^dtype 'bfloat16': .*install ml_dtypes"):
        hook_named("bf16")


@pytest.mark.parametrize("name", NAMES)
def test_buckets_that_cannot_be_compressed_are_refused(name: str) -> None:
    hook = compression(name)

    def refused(vector: Any, pieces: Sequence[Piece], match: str) -> None:
        with pytest.raises(ValueError, match=match):
            hook.codec(vector, pieces, 0, 2)

    whole = [Piece(0, (4,))]
    for dtype in ("float16", "int32", "complex64"):
        refused(np.zeros(4, dtype), whole, f"{dtype}.*float32 and float64")
    refused([0.0] * 4, whole, "a bucket of list")
    refused(np.zeros(8)[::2], whole, "strides")
    refused(np.zeros((2, 2)), whole, "must be flat")
    refused(np.zeros(4), [Piece(0, (2,)), Piece(3, (1,))], "at 3: the one before it ends at 2")
    refused(np.zeros(4), [Piece(0, (3,))], "end at 3, the bucket at 4")


def test_errors_of_a_step() -> None:
    one = np.array([3.0, 4.0])
    assert step_error(np.array([3.0, 4.5], np.float32), one) == 0.1
    assert step_error(np.zeros(2), np.zeros(2)) == 0
    assert step_error(one, np.zeros(2)) == np.inf
    assert np.isnan(step_error(np.array([np.nan, 1]), one))

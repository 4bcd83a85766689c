from __future__ import annotations

import pytest

from ringbench.ddp.choices import ENGINES
from ringbench.ddp.timeline import (
    Bucket,
    buckets_of,
    overlap,
    ready_times,
    timeline,
    unavoidable,
)
from ringbench.ddp.workloads import Layer, Workload

MILLI = 1e-3


def even(number: int, ready: float = 20 * MILLI, nbytes: int = 2**19) -> list[Bucket]:
    return [Bucket(nbytes=nbytes, ready_s=ready * (at + 1)) for at in range(number)]


def test_a_bucket_starts_when_it_is_ready_and_the_one_before_is_done() -> None:
    buckets = [Bucket(nbytes=3, ready_s=1.0), Bucket(nbytes=5, ready_s=2.0), Bucket(nbytes=1, ready_s=20.0)]
    found = timeline(buckets, float, 20.0)
    assert [(slot.start_s, slot.end_s) for slot in found.slots] == [(1.0, 4.0), (4.0, 9.0), (20.0, 21.0)]
    assert (found.step_s, found.exposed_s, found.communication_s) == (21.0, 1.0, 9.0)
    assert found.hidden_share == pytest.approx(8 / 9)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_engines_differ_in_when_they_start(engine: str) -> None:
    found = timeline(even(16), lambda nbytes: 15 * MILLI, 320 * MILLI, engine)
    step = {"none": 320, "blocking": 560, "iallreduce": 560}.get(engine, 335)
    assert found.step_s == pytest.approx(step * MILLI)
    assert found.hidden_share == (None if engine == "none" else pytest.approx(0.0 if step == 560 else 15 / 16))


def test_a_link_that_is_too_slow_is_busy_from_the_first_bucket_on() -> None:
    found = timeline(even(16), lambda nbytes: 25 * MILLI, 320 * MILLI)
    assert found.step_s == pytest.approx((20 + 16 * 25) * MILLI)
    assert unavoidable(found) == pytest.approx(100 * MILLI)
    blocking = timeline(even(16), lambda nbytes: 25 * MILLI, 320 * MILLI, "blocking")
    assert unavoidable(blocking) == pytest.approx(100 * MILLI)  # no engine could have hidden more


def test_what_is_encoded_takes_its_time_too() -> None:
    found = timeline([Bucket(nbytes=4, ready_s=0.0, encode_s=2.0)], float, 1.0)
    assert found.step_s == 6.0


def test_gradients_are_ready_from_the_last_layer_on_in_the_last_micro_batch() -> None:
    layers = [Layer(name=str(at), shapes=((4,),), forward_s=1.0, backward_s=at + 1.0) for at in range(3)]
    workload = Workload(name="w", layers=tuple(layers))
    assert ready_times(workload) == [9.0, 8.0, 6.0]
    assert ready_times(workload, 2) == [18.0, 17.0, 15.0]
    buckets = buckets_of(workload, "float16", 16, 16)
    assert buckets == [Bucket(nbytes=16, ready_s=8.0), Bucket(nbytes=8, ready_s=9.0)]
    with pytest.raises(ValueError, match="dtype 'int8': gradients are of float64, float32"):
        buckets_of(workload, "int8", 16, 16)


@pytest.mark.parametrize(
    ("step", "share", "osu", "imb", "note"),
    [
        (130, 0.5, 0.5, 0.5, None),
        (160, 0.0, 0.0, 0.0, None),
        (170, 0.0, 0.0, 0.0, "nothing is hidden: 10ms longer than"),
        (100, 1.0, 1.0, 1.0, None),
        (95, None, 65 / 60, 1.0, "impossible: the step (95ms) is shorter than its computing (100ms)"),
    ],
)
def test_shares_that_cannot_be_are_flagged(
    step: float, share: float | None, osu: float, imb: float, note: str | None
) -> None:
    found = overlap(0.1, 0.06, step * MILLI)
    assert found.hidden_share == (None if share is None else pytest.approx(share))
    assert found.osu == pytest.approx(osu)
    assert found.imb == pytest.approx(imb)
    assert (found.note is None) == (note is None)
    assert (note or "") in (found.note or "")


def test_a_step_is_not_shorter_than_its_communication() -> None:
    assert overlap(0.1, 0.2, 0.15).hidden_share is None
    assert "its communication (200ms)" in str(overlap(0.1, 0.2, 0.15).note)


def test_times_within_their_error_count_as_equal() -> None:
    near = overlap(0.1, 0.06, 0.0995, within_s=0.001)
    assert (near.hidden_share, near.note) == (1.0, None)
    over = overlap(0.1, 0.06, 0.1605, within_s=0.001)
    assert (over.hidden_share, over.note) == (0.0, None)


def test_what_could_be_hidden_is_all_but_the_last_bucket() -> None:
    found = timeline(even(16), lambda nbytes: 15 * MILLI, 320 * MILLI)
    seen = overlap(0.32, 0.24, 0.3500, unavoidable_s=unavoidable(found))
    assert seen.possible_share == pytest.approx(0.21 / 0.225)
    more = overlap(0.32, 0.24, 0.3250, unavoidable_s=unavoidable(found))
    assert more.possible_share == 1.0
    assert "more is hidden than could be, by 10ms" in str(more.note)


def test_nothing_to_hide_has_no_share() -> None:
    found = overlap(0.1, 0.0, 0.1)
    assert (found.hidden_share, found.possible_share, found.osu, found.imb, found.note) == (None,) * 5
    with pytest.raises(ValueError, match="unknown engine 'fast'; known: blocking, thread"):
        timeline([], float, 1.0, "fast")

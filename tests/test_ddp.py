"""What gradient synchronisation consists of, without MPI jobs: choices, clipping, order of stages, the model."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from threading import Thread
from types import SimpleNamespace
from typing import Any

import mpi4py
import numpy as np
import pytest

mpi4py.rc(initialize=False)  # its constants are enough

from ringbench import ddp  # noqa: E402
from ringbench.ddp import engines as of_engines  # noqa: E402
from ringbench.ddp.choices import CALLING, ENGINES, algorithm_for, reaches_into_buckets  # noqa: E402
from ringbench.ddp.clip import clip, sum_of_squares  # noqa: E402
from ringbench.ddp.determinism import exact_average, ulp_distance  # noqa: E402
from ringbench.ddp.engines import MAKERS, Blocking, Engine, Job, Nonblocking, Nothing, Threaded  # noqa: E402
from ringbench.ddp.mlp import Digits, backward, batches, initial_parameters, load_digits, part  # noqa: E402
from ringbench.runtime.execute import Plan  # noqa: E402
from ringbench.schedule.registry import algorithms  # noqa: E402


class Collective(Plan):
    """Stand for a plan; it is over when ``arrive`` was called, or when somebody waits for it."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__("allreduce", name, [(log.append, (f"call {name}",))], in_place=True)
        self.log, self.arrived, self.flying = log, False, False

    def start(self) -> None:
        self.log.append(f"start {self.algorithm}")
        self.flying = True

    def test(self) -> bool:
        if self.arrived:
            self.wait()
        return not self.flying

    def wait(self) -> None:
        if self.flying:
            self.log.append(f"over {self.algorithm}")
        self.flying = False


def two_jobs(log: list[str]) -> tuple[Collective, Collective, Collective, tuple[Job, Job]]:
    """Return a job with two collectives between local work, and one with a single collective."""
    one, two, three = (Collective(name, log) for name in ("one", "two", "three"))

    def work(name: str) -> Callable[[], None]:
        return lambda: log.append(name)

    first = Job("first", (work("encode"), one, work("between"), two, work("decode")))
    return one, two, three, (first, Job("second", (three,)))


def test_polling_starts_what_follows_when_the_last_collective_before_it_has_started() -> None:
    log: list[str] = []
    one, _, three, jobs = two_jobs(log)
    engine = Nonblocking(polls=True)
    for job in jobs:
        engine.launch(job)
    engine.poll()
    assert log == ["encode", "start one"]  # three waits for two, on every rank alike
    one.arrived = True
    engine.poll()
    assert log[2:] == ["over one", "between", "start two", "start three"]
    three.arrived = True
    engine.poll()
    assert log[6:] == ["over three"]
    engine.finish()
    assert log[7:] == ["over two", "decode"]
    assert all(job.begin_s <= job.end_s for job in jobs)
    engine.finish()
    assert len(log) == 9


def test_without_polling_nothing_goes_on_until_the_end() -> None:
    log: list[str] = []
    one, _, three, jobs = two_jobs(log)
    engine = Nonblocking(polls=False)
    engine.launch(jobs[1])
    engine.launch(jobs[0])
    assert log == ["start three", "encode", "start one"]
    one.arrived = three.arrived = True
    engine.poll()
    engine.launch(Job("third", (lambda: log.append("third"),)))
    assert len(log) == 3
    engine.finish()
    assert log[3:] == ["over three", "over one", "between", "start two", "third", "over two", "decode"]


def test_blocking_runs_all_at_the_end_and_nothing_runs_nothing() -> None:
    log: list[str] = []
    *_, jobs = two_jobs(log)
    engines: tuple[tuple[Engine, list[str]], ...] = (
        (Nothing(), []),
        (Blocking(), ["encode", "call one", "between", "call two", "decode", "call three"]),
    )
    for engine, wanted in engines:
        for job in jobs:
            engine.launch(job)
            engine.poll()
        assert log == []
        engine.finish()
        assert log == wanted


def test_a_thread_that_gets_no_device_says_so_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter_thread() -> None:
        raise RuntimeError("no device")

    monkeypatch.setattr(of_engines, "thread_level", lambda: "multiple")
    monkeypatch.setattr(of_engines, "BACKENDS", [SimpleNamespace(enter_thread=enter_thread)])
    log: list[str] = []
    engine = Threaded()

    def use() -> None:
        engine.launch(Job("one", (lambda: log.append("one"),)))
        try:
            engine.finish()
        except RuntimeError as error:
            log.append(str(error))
        engine.close()

    user = Thread(target=use, daemon=True)
    user.start()
    user.join(30)
    assert log == ["no device"]
    assert not user.is_alive()


def test_every_engine_that_can_be_chosen_can_be_made() -> None:
    assert set(MAKERS) == set(ENGINES)


def test_engines_of_the_library_take_no_other_algorithm() -> None:
    assert [algorithm_for(engine, None) for engine in ("poll", "iallreduce", "iallreduce_progress")] == [
        "auto",
        "mpi",
        "mpi",
    ]
    assert algorithm_for("thread", "ring") == "ring"
    assert algorithm_for("iallreduce", "mpi") == "mpi"
    with pytest.raises(ValueError, match="'iallreduce' runs MPI's own collectives, not algorithm 'ring'"):
        algorithm_for("iallreduce", "ring")
    with pytest.raises(ValueError, match="unknown engine 'turbo'; known: blocking, thread"):
        algorithm_for("turbo", None)


def test_only_engines_that_call_plans_run_what_shares_memory() -> None:
    for algorithm in ("shared_memory", "shared_copy"):
        assert [algorithm_for(engine, algorithm) for engine in CALLING] == [algorithm] * 2
        with pytest.raises(ValueError, match=f"'poll' cannot wait, as algorithm '{algorithm}' must"):
            algorithm_for("poll", algorithm)
    reaching = {one.name for one in algorithms("allreduce") if reaches_into_buckets("thread", one.name)}
    assert reaching == {"shared_memory", "hierarchical", "hierarchical_leaders"}
    others = set(ENGINES) - set(CALLING)
    assert not any(reaches_into_buckets(engine, name) for engine in others for name in (*reaching, "mpi", "auto"))


def test_the_norm_is_clipped_to_its_limit_and_only_from_above() -> None:
    vectors = [np.array([1.5], np.float32), np.array([2.0, 0.0], np.float32)]
    assert sum_of_squares(vectors) == 6.25
    clip(vectors, 2.5, 5.0)
    assert [vector.tolist() for vector in vectors] == [[1.5], [2.0, 0.0]]
    clip(vectors, 2.5, 1.0)
    assert np.allclose(vectors[0], 0.6)
    assert np.allclose(vectors[1], [0.8, 0])
    half = np.full(100, 300, np.float16)  # whose squares exceed float16
    assert sum_of_squares([half]) == 100 * 300.0**2


@pytest.mark.parametrize("norm", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_changes_nothing(norm: float) -> None:
    vector = np.array([3.0, math.inf])
    clip([vector], norm, 1.0)
    assert vector.tolist() == [3.0, math.inf]


@pytest.mark.parametrize("limit", [0, -1.0, math.nan])
def test_a_limit_that_is_not_positive_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="max_norm"):
        clip([np.ones(1)], 1.0, limit)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ulps_count_the_numbers_between(dtype: str) -> None:
    kind = np.dtype(dtype).type
    one = np.array([1, -1, 0, 0, -2, 3], dtype)
    after = np.nextafter(one, kind(np.inf))
    assert ulp_distance(one, after).tolist() == [1] * 6
    assert ulp_distance(one, -one)[2] == 0
    smallest = np.nextafter(kind(0), kind(1))
    assert ulp_distance(np.array([-smallest]), np.array([smallest])).tolist() == [2]
    most = np.array([np.finfo(dtype).max], dtype)
    assert ulp_distance(-most, most)[0] == 2 * int(most.view(f"u{most.itemsize}")[0])


def test_the_exact_average_is_rounded_once() -> None:
    parts = [np.array([value], np.float32) for value in (1e8, 1.0, -1e8, 2.0)]
    assert exact_average(parts).tolist() == [0.75]
    assert exact_average([part.astype(np.float64) for part in parts]).dtype == np.float64


# The model.


def small() -> Digits:
    random = np.random.default_rng(3)
    return Digits(images=random.random((6, 4)), labels=np.eye(3)[[0, 1, 2, 2, 1, 0]])


def gradients_of(parameters: dict[str, Any], digits: Digits, **more: Any) -> tuple[float, dict[str, Any], list[str]]:
    found = {name: np.full_like(value, 2.0) for name, value in parameters.items()}
    order: list[str] = []
    return backward(parameters, digits, found, order.append, **more), found, order


def test_gradients_are_slopes_of_the_loss_and_come_from_the_last_layer_on() -> None:
    parameters = initial_parameters((4, 5, 3))
    _, found, order = gradients_of(parameters, small())
    assert order == ["1.bias", "1.weight", "0.bias", "0.weight"]
    for name, value in parameters.items():
        for at in np.ndindex(value.shape):
            kept, losses = value[at], []
            for step in (1e-6, -1e-6):
                value[at] = kept + step
                losses.append(gradients_of(parameters, small())[0])
            value[at] = kept
            assert math.isclose((losses[0] - losses[1]) / 2e-6, found[name][at], rel_tol=1e-5, abs_tol=1e-8), name


def test_parts_of_a_batch_add_up_to_the_whole() -> None:
    parameters = initial_parameters((4, 5, 3))
    loss, whole, _ = gradients_of(parameters, small())
    sums = {name: np.zeros_like(value) for name, value in parameters.items()}
    total = sum(
        backward(parameters, part(small(), at, 3), sums, lambda name: None, share=1 / 3, add=True) for at in range(3)
    )
    assert math.isclose(loss, total)
    for name, value in whole.items():
        assert np.allclose(sums[name], value, rtol=1e-12, atol=1e-15)


def test_the_digits_and_their_batches_are_the_same_each_time() -> None:
    digits = load_digits("float32")
    assert (digits.images.shape, digits.labels.shape) == ((1797, 64), (1797, 10))
    assert digits.images.dtype == np.float32
    assert (digits.images.min(), digits.images.max()) == (0, 1)
    assert (digits.labels.sum(axis=1) == 1).all()
    pairs = zip(batches(digits, 3, 12, 7), batches(digits, 3, 12, 7), strict=True)
    assert all((one.images == other.images).all() for one, other in pairs)


def test_a_missing_scikit_learn_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"^scikit-learn, which has the digits, is not installed \(extra digits\)$"):
        load_digits()


def test_the_interface_is_found_by_name() -> None:
    assert ddp.DataParallel.__name__ == "DataParallel"
    assert ddp.ShardedDataParallel.__name__ == "ShardedDataParallel"
    with pytest.raises(AttributeError, match=r"ringbench\.ddp.*'Parallel'"):
        _ = ddp.Parallel
    code = "import ringbench; ringbench.ddp; ringbench.ddp.DataParallel"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)

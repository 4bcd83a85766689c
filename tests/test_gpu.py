"""What only a GPU can show. Left out, with the reason in the first lines that pytest prints, where there is none."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Mpi
from fakecuda import KERNELS
from harness import check_lines, environment, run, start

from ringbench.runtime.arrays import HALVES, CupyBackend, numpy_dtype

pytestmark = pytest.mark.gpu

BACKEND = CupyBackend()
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
KINDS = (
    *((dtype, op) for dtype in FLOATS for op in ("sum", "prod", "min", "max")),
    *((dtype, op) for dtype in INTEGERS for op in ("sum", "prod", "min", "max", "land", "lor")),
    *((dtype, op) for dtype in ("complex64", "complex128") for op in ("sum", "prod")),
    ("bool", "land"),
    ("bool", "lor"),
)


def some(dtype: str, seed: int, count: int = 4099) -> Any:
    random = np.random.default_rng(seed)
    values = random.integers(0, 2, count) if dtype == "bool" else random.integers(1, 9, count)
    if dtype in FLOATS:
        return (values / 7).astype(numpy_dtype(dtype))
    return (values + 1j * values[::-1] if dtype.startswith("complex") else values).astype(numpy_dtype(dtype))


@pytest.mark.parametrize(("dtype", "op"), KINDS)
def test_kernels_give_what_numpy_gives(dtype: str, op: str) -> None:
    one, other = some(dtype, 1), some(dtype, 2)
    here, there = BACKEND.from_host(one), BACKEND.from_host(other)
    BACKEND.kernel(op)(here, there, here)
    function: Any = KERNELS[op]
    right = function(one, other).astype(one.dtype)
    if dtype.startswith("complex") and op == "prod":  # where a device may fuse a product and a sum
        np.testing.assert_allclose(BACKEND.to_host(here), right, rtol=1e-6)
    else:
        assert np.array_equal(BACKEND.to_host(here), right)


@pytest.mark.parametrize(
    ("dtype", "op", "terms", "divisor"),
    [
        *((dtype, "sum", 3, None) for dtype in (*FLOATS, "int8", "int32", "complex64")),
        *((dtype, "prod", 4, None) for dtype in (*FLOATS, "int8", "int32", "complex64")),
        *((dtype, "average", 5, 3) for dtype in FLOATS),
    ],
)
def test_fused_kernels_give_what_their_steps_give(dtype: str, op: str, terms: int, divisor: int | None) -> None:
    arrays = [some(dtype, seed) for seed in range(terms)]
    there = [BACKEND.from_host(array) for array in arrays]
    kernel = BACKEND.fused(op, dtype, terms, divisor)
    assert kernel is not None
    kernel(*there, there[0])
    wide = np.dtype("float32") if dtype in HALVES else arrays[0].dtype
    function: Any = KERNELS[op]
    right = reduce(lambda one, other: function(one, other).astype(one.dtype), arrays)
    if divisor is not None:
        right = (right.astype(wide) / wide.type(divisor)).astype(arrays[0].dtype)
    np.testing.assert_array_equal(BACKEND.to_host(there[0]), right)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64"])
def test_a_division_is_rounded_once(dtype: str) -> None:
    values = some(dtype, 3)
    here = BACKEND.from_host(values)
    BACKEND.divide(here, 3)
    parts = values.view(values.real.dtype) if dtype == "complex64" else values
    right = (parts.astype("float32" if dtype in HALVES else parts.dtype) / parts.dtype.type(3)).astype(parts.dtype)
    assert np.array_equal(BACKEND.to_host(here).view(parts.dtype), right)


def test_nan_passes_the_least_and_the_greatest() -> None:
    for op in ("min", "max"):
        here = BACKEND.from_host(np.array([np.nan, 1, 2], np.float32))
        BACKEND.kernel(op)(here, BACKEND.from_host(np.array([0, np.nan, 3], np.float32)), here)
        assert np.isnan(BACKEND.to_host(here)).tolist() == [True, True, False]


def test_copies_through_page_locked_memory_keep_the_order_of_the_stream() -> None:
    there, back = BACKEND.empty(2**22, "float32"), BACKEND.empty(2**22, "float32")
    host = BACKEND.pinned(2**22, "float32")
    for value in (1, 2, 3):
        there[...] = value
        BACKEND.copy_out(host, there)
        there[...] = 0
        BACKEND.copy_in(back, host)
        BACKEND.synchronize()
        assert (host == value).all()
        assert (BACKEND.to_host(back) == value).all()


def test_an_operand_that_is_the_result_is_not_copied() -> None:
    pool = BACKEND.cupy.get_default_memory_pool()
    one, other = BACKEND.from_host(np.ones(2**20, np.float32)), BACKEND.from_host(np.ones(2**20, np.float32))
    before = pool.total_bytes()
    BACKEND.kernel("sum")(one, other, one)
    BACKEND.synchronize()
    assert pool.total_bytes() == before


def test_a_device_says_what_it_is() -> None:
    facts = BACKEND.use(0)
    assert facts["device"] == 0
    assert facts["pci"].count(":") == 2
    assert facts["name"]
    assert facts["nbytes"] > 2**30
    json.dumps(facts)
    assert BACKEND.seconds(lambda: None, 3) >= 0


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
def test_every_algorithm_is_right_on_devices_through_the_host(mpi: Mpi, nranks: int) -> None:
    start(mpi, nranks, ["on_gpu.py", "host"], limit_s=120)


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
def test_every_algorithm_is_right_on_devices_where_the_library_takes_them(mpi: Mpi, nranks: int) -> None:
    tried = start(mpi, 2, ["-m", "ringbench", "run", "--check", "--device=cuda"], status=None, limit_s=60)
    if "Sendrecv works" not in tried.stdout:
        pytest.skip(f"{mpi.flavour} here takes no arrays of a device (status {tried.status})")
    start(mpi, nranks, ["on_gpu.py", "none"], limit_s=120)


def test_a_library_that_takes_no_arrays_of_a_device_is_refused_in_one_line(mpi: Mpi, tmp_path: Path) -> None:
    words = ("sweep", "--device", "cuda", "--ranks", "2", "--sizes", "64KiB", "--time-budget", "2s")
    done = run([mpi.python, "-m", "ringbench", *words, "--out", str(tmp_path / "a")], env=environment(mpi), status=None)
    assert done.status in (0, 2)
    if done.status == 2:
        assert len(done.said) == 1
        assert "--staging host" in done.said[0]
    else:
        rows = [record for record in check_lines(tmp_path / "a" / "run.jsonl") if record["kind"] == "row"]
        assert rows
        assert all(row["wrong"] == 0 for row in rows)


def test_doctor_looks_at_the_devices(mpi: Mpi) -> None:
    done = run([mpi.python, "-m", "ringbench", "doctor", "--device", "cuda"], env=environment(mpi), status=None)
    assert done.status in (0, 1)
    (line,) = (line for line in done.stdout.splitlines() if "cuda devices" in line)
    assert line.startswith("ok ")
    assert BACKEND.use(0)["name"] in line

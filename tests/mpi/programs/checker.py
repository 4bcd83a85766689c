"""Wrong collectives among right ones: the check of every measurement must tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import broken
from battery import Battery, battery

from ringbench.model.compare import CANNOT_TELL, compare_rows
from ringbench.model.fit import fit_rows
from ringbench.records.row import Row
from ringbench.records.settings import Settings
from ringbench.runtime import worker

Spoil = Callable[[Any, Any, int], None]
RIGHT = ("ring", "mpi")
QUICK = {"min_samples": 2, "max_samples": 2, "warmup": 1}


def measured(tests: Battery, names: tuple[str, ...], **settings: Any) -> list[Row]:
    return list(worker.measure(tests.comm, Settings(algorithms=names, **QUICK, **settings)))


def expect_right(tests: Battery, row: Row, what: str) -> None:
    algbw, _, reason = row.bandwidths()
    tests.check(row.wrong == 0 and row.wrong_detail is None, f"{what}: {row.wrong}, {row.wrong_detail}")
    tests.check((algbw is not None) == (row.nranks > 1), f"{what}: bandwidth {algbw}, {reason}")
    tests.check("wrong" not in row.warnings and row.usable, f"{what}: {row.warnings}")
    if row.collective == "allreduce" and row.dtype.startswith("float") and row.algorithm != "mpi":
        tests.check(row.identical_bits is True, f"{what}: bits differ between ranks")


def expect_wrong(tests: Battery, row: Row, what: str, *words: str) -> None:
    tests.check(row.wrong is not None and row.wrong > 0, f"{what}: passes as right")
    tests.check(row.bandwidths() == (None, None, "wrong result"), f"{what}: {row.bandwidths()}")
    tests.check("wrong" in row.warnings and not row.usable, f"{what}: warnings {row.warnings}")
    cell = row.table_cell()
    tests.check(cell["algbw_gb_per_s"] is None and cell["busbw_gb_per_s"] is None, f"{what}: {cell}")
    for word in ("check", "rank ", "element ", " is ", *words):
        tests.check(word in str(row.wrong_detail), f"{what}: {word!r} is not in {row.wrong_detail!r}")


def broken_schedules(tests: Battery) -> None:
    """Each broken schedule is wrong at every size and placement, those beside it are right."""
    bad = broken.register_schedules()
    sizes = (tests.nranks * 40, tests.nranks * 4096)
    for dtype in ("float32", "int32"):
        for op in ("sum", "average") if dtype == "float32" else ("sum",):
            rows = measured(tests, (*bad, *RIGHT), sizes=sizes, dtype=dtype, op=op, placement="both")
            tests.check(len(rows) == len(bad + RIGHT) * 4, f"{len(rows)} rows")
            for row in rows:
                what = f"{row.algorithm} {dtype} {op} {row.nbytes} B, {'in' if row.in_place else 'out of'} place"
                (expect_wrong if row.algorithm in bad else expect_right)(tests, row, what)


def spoilers(nranks: int, collective: str, dtype: str) -> Mapping[str, Callable[[int], Spoil | None]]:
    """Return, by name, what spoils a rank's plan."""
    last = nranks - 1
    found: dict[str, Callable[[int], Spoil | None]] = {
        "stale": lambda rank: broken.Stale(),
        "frozen": lambda rank: broken.Frozen(),
        "flipped": lambda rank: broken.flip_first_block if rank == 0 else None,
        "flipped_at_the_last": lambda rank: broken.flip_first_block if rank == last else None,
        "rolled": lambda rank: broken.roll,
    }
    if dtype == "float32":
        found["not_a_number"] = lambda rank: broken.not_a_number if rank == last else None
    if collective != "reduce_scatter":
        found["flipped_end"] = lambda rank: broken.flip(-1) if rank == last else None
    return found


def spoiled_plans(tests: Battery) -> None:
    """Whatever is done to a result after the fact, on all ranks or one, shows."""
    last = tests.nranks - 1
    nbytes = tests.nranks * 4 * 1000
    right = worker.plan
    for collective in ("allreduce", "reduce_scatter", "allgather"):
        for dtype in ("float32", "int32"):
            found = spoilers(tests.nranks, collective, dtype)
            for name in found:
                if dtype == "float32":
                    broken.alias(collective, name)
            broken.spoil_plans(
                lambda name, rank, size, found=found: found[name](rank) if name in found else None  # type: ignore[misc]
            )
            rows = measured(
                tests, (*found, *RIGHT), sizes=(nbytes,), dtype=dtype, collective=collective, placement="both"
            )
            worker.plan = right
            tests.check(len(rows) == 2 * len(found) + 4, f"{len(rows)} rows")
            for row in rows:
                what = f"{row.algorithm} {collective} {dtype}, {'in' if row.in_place else 'out of'} place"
                if row.algorithm in RIGHT:
                    expect_right(tests, row, what)
                elif row.algorithm == "flipped":
                    expect_wrong(tests, row, what, "first check, rank 0: ")
                elif row.algorithm in ("flipped_at_the_last", "flipped_end", "not_a_number"):
                    expect_wrong(tests, row, what, f"rank {last}: ")
                    # One element in each exact check; the flipped bit is within the bound of the one that rounds.
                    times = 4 if row.algorithm == "not_a_number" and collective != "allgather" else 3
                    tests.check(row.wrong == times, f"{what}: {row.wrong} wrong elements, not {times}")
                else:
                    expect_wrong(tests, row, what)


def subtle(tests: Battery) -> None:
    """Other bits on one rank are wrong where none are expected; a changed input is wrong out of place only."""
    right = worker.plan
    last = tests.nranks - 1
    for name in ("last_bit", "scribbled"):
        broken.alias("allreduce", name)

    def spoiler(name: str, rank: int, size: int) -> Spoil | None:
        if name == "scribbled":
            return broken.scribble
        return broken.last_bit if name == "last_bit" and rank == last else None

    broken.spoil_plans(spoiler)
    rows = measured(tests, ("last_bit", "scribbled", *RIGHT), sizes=(tests.nranks * 4000,), placement="both")
    worker.plan = right
    for row in rows:
        what = f"{row.algorithm}, {'in' if row.in_place else 'out of'} place"
        if row.algorithm == "last_bit":
            tests.check(row.identical_bits is False, f"{what}: identical bits {row.identical_bits}")
            found = "bits on rank" if tests.nranks > 2 else "element"  # two ranks' sum is off by more than its bound
            tests.check(bool(row.wrong) and found in str(row.wrong_detail), f"{what}: {row.wrong_detail}")
            tests.check("bits differ" in row.warnings and not row.usable, f"{what}: warnings {row.warnings}")
        elif row.algorithm == "scribbled" and not row.in_place:
            expect_wrong(tests, row, what, "sendbuf changed")
        else:
            expect_right(tests, row, what)


def one_side_wrong(tests: Battery) -> None:
    """CASE 18: where one of the two is wrong at one size, the comparison says which, and the fit leaves it out."""
    right = worker.plan
    sizes = tuple(tests.nranks * 4 * 10**power for power in range(5))
    for side in RIGHT:
        broken.spoil_plans(
            lambda name, rank, size, side=side: (  # type: ignore[misc]
                broken.flip_first_block if name == side and size == sizes[2] and rank == 1 else None
            )
        )
        rows = measured(tests, RIGHT, sizes=sizes)
        worker.plan = right
        for row in rows:
            off = row.algorithm == side and row.nbytes == sizes[2]
            what = f"{row.algorithm} at {row.nbytes} B, with {side} wrong at {sizes[2]} B"
            (expect_wrong if off else expect_right)(tests, row, what)
        for found in compare_rows(rows, "ring", "mpi"):
            if found.nbytes == sizes[2]:
                tests.check(found.reason == f"{side}: wrong result", f"compare says {found.reason}")
                tests.check(found.ratio is None and found.verdict == CANNOT_TELL, f"{found.ratio}, {found.verdict}")
            else:
                tests.check(found.ratio is not None and "wrong" not in str(found.reason), f"compare: {found}")
        fits = fit_rows(rows)
        points = {fit.algorithm: fit.points for fit in fits.segments}
        tests.check(points == {name: 4 if name == side else 5 for name in RIGHT}, f"points of the fits: {points}")
        tests.check(any("wrong" in note for note in fits.notes), f"the fit's notes: {fits.notes}")


if __name__ == "__main__":
    with battery(least=200) as tests:
        broken_schedules(tests)
        spoiled_plans(tests)
        subtle(tests)
        one_side_wrong(tests)

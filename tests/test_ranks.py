from __future__ import annotations

import os
import random
from itertools import combinations
from typing import Any

import mpi4py
import pytest

mpi4py.rc(initialize=False)  # the library's version may be asked without

from ringbench.records.guards import CROWDED, GUARDS  # noqa: E402
from ringbench.runtime.ranks import (  # noqa: E402
    COMMON,
    describe_rank,
    gather_ranks,
    hosts_line,
    other_hosts,
    placement_warnings,
    ring_edges_line,
)


def ranks(*masks: set[int], host: str = "a", host_cpus: int | None = None) -> list[dict[str, Any]]:
    """Return ranks on one host, whose cores are those of all the masks unless said otherwise."""
    return [{"host": host, "cpus": sorted(mask), "host_cpus": host_cpus or len(set().union(*masks))} for mask in masks]


def test_a_rank_describes_itself() -> None:
    found = describe_rank("1.2.3")
    assert found["ringbench"] == "1.2.3"
    assert set(found["cpus"]) == os.sched_getaffinity(0)
    assert found["host"] == os.uname().nodename
    assert found["host_cpus"] == os.cpu_count()
    assert {*COMMON, "mpi_standard", "threads"} <= set(found)
    assert "\n" not in found["mpi_library"]
    assert found["mpi_standard"].split(".")[0] in ("3", "4", "5")


def test_case_37_threads_of_math_libraries_are_recorded_where_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    threads = describe_rank("1")["threads"]
    assert threads["MKL_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in threads


class Comm:
    """Stand for a communicator of three ranks, of which the last differs in some things."""

    def __init__(self, **last: Any) -> None:
        self.last = last

    def allgather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        return [mine, mine, mine | self.last]


def test_all_ranks_are_known_everywhere() -> None:
    found = gather_ranks(Comm(host="b", cpus=[7]), "1")
    assert [rank["host"] for rank in found][2] == "b"
    assert len(found) == 3


@pytest.mark.parametrize("name", COMMON)
def test_ranks_that_disagree_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^ranks disagree on {name}: .* on rank 0, other on rank 2$"):
        gather_ranks(Comm(**{name: "other"}), "1")


# Placement.


def test_one_core_for_each_rank_is_what_one_wants() -> None:
    assert placement_warnings(ranks({0}, {1}, {2}, {3})) == ((), [])


def test_a_rank_that_may_move_is_unpinned() -> None:
    names, lines = placement_warnings(ranks({0, 1}, {2, 3}))
    assert names == ("unpinned",)
    assert lines == [f"a: ranks are not bound to one core each, and may move between them; {GUARDS['unpinned'].advice}"]
    assert placement_warnings(ranks({0}, {1, 2}))[0] == ("unpinned",)


def test_case_31_two_ranks_on_one_core() -> None:
    names, lines = placement_warnings(ranks({0}, {0}, host_cpus=2))
    assert names == ("shared core",)
    assert lines == [
        f"a: 2 ranks share core 0; their times are not those of the network; {GUARDS['shared core'].advice}"
    ]


def test_a_machine_of_one_core_is_oversubscribed_by_two_ranks() -> None:
    """Binding in another way would not help."""
    assert placement_warnings(ranks({0}, {0}))[0] == ("oversubscribed",)
    assert placement_warnings(ranks({0}, {0}, {1}, {1}))[0] == ("oversubscribed",)
    assert placement_warnings(ranks({0}, {0}, {1}, {1}, host_cpus=4))[0] == ("shared core",)


def test_case_31_four_ranks_on_two_cores() -> None:
    names, lines = placement_warnings(ranks(*[{0, 1}] * 4))
    assert names == ("oversubscribed",)
    assert lines[0].startswith("a: 4 ranks share cores 0-1;")


def test_two_of_many_ranks_are_enough() -> None:
    names, lines = placement_warnings(ranks(*[{core} for core in range(4)], {2}))
    assert (names, lines[0].split(";")[0]) == (("oversubscribed",), "a: 2 ranks share core 2")
    names, lines = placement_warnings(ranks(*[{core} for core in range(4)], {2}, host_cpus=5))
    assert (names, lines[0].split(";")[0]) == (("shared core",), "a: 2 ranks share core 2")
    names, lines = placement_warnings(ranks({0, 1, 2, 3}, {1, 5}, {1, 5}, {1, 5}))
    assert (names, lines[0].split(";")[0]) == (("oversubscribed",), "a: 3 ranks share cores 1,5")


def test_cores_that_overlap_are_shared_although_no_two_masks_are_equal() -> None:
    names, lines = placement_warnings(ranks({0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {3, 4, 5, 6, 7, 8, 9}))
    assert names == ("oversubscribed",)
    assert lines[0].startswith("a: 4 ranks share cores 0-2;")
    names, lines = placement_warnings(ranks({0, 1}, {1, 2}, {0, 2}, {0, 1}, *[{core} for core in range(3, 9)]))
    assert (names, lines[0].split(";")[0]) == (("oversubscribed",), "a: 4 ranks share cores 0-2")


def test_a_rank_gives_way_where_it_can() -> None:
    assert placement_warnings(ranks({0, 1}, {0, 2}, {0}, {1, 3}))[0] == ("unpinned",)


def test_hosts_are_judged_apart() -> None:
    names, lines = placement_warnings(ranks({0}, {1}) + ranks({0}, {1}, host="b"))
    assert (names, lines) == ((), [])
    names, lines = placement_warnings(
        ranks({0}, {0}, host_cpus=1) + ranks({0, 1}, {0, 1}, host="b") + ranks({5}, host="c")
    )
    assert names == ("oversubscribed", "unpinned")
    assert [line.partition(":")[0] for line in lines] == ["a", "b"]


def test_placement_is_halls_condition() -> None:
    dice = random.Random(5)
    crowded = 0
    for _ in range(500):
        ncores = dice.randint(1, 6)
        masks = [set(dice.sample(range(ncores), dice.randint(1, ncores))) for _ in range(dice.randint(1, 6))]
        subsets = [chosen for size in range(1, len(masks) + 1) for chosen in combinations(masks, size)]
        wanted = any(len(set().union(*chosen)) < len(chosen) for chosen in subsets)
        assert bool(CROWDED & set(placement_warnings(ranks(*masks))[0])) == wanted, masks
        crowded += wanted
    assert 100 < crowded < 400


# The ring's edges.


def edges(hosts: str) -> str | None:
    return ring_edges_line([{"host": host} for host in hosts])


def test_case_36_edges_between_nodes() -> None:
    assert edges("aabb") == "ring: 2 edges between 2 nodes"
    assert edges("abab") == (
        "ring: 4 edges between 2 nodes; 2 are possible with ranks in order of nodes (--map-by slot)"
    )


@pytest.mark.parametrize(
    ("hosts", "count", "advice"),
    [("ab", 2, False), ("abb", 2, False), ("abba", 2, False), ("aabbcc", 3, False), ("abcabc", 6, True)],
)
def test_the_least_number_of_edges_is_the_number_of_nodes(hosts: str, count: int, advice: bool) -> None:
    line = str(edges(hosts))
    assert line.startswith(f"ring: {count} edges between ")
    assert ("are possible" in line) == advice


@pytest.mark.parametrize("hosts", ["a", "aaaa"])
def test_one_node_has_none(hosts: str) -> None:
    assert edges(hosts) is None


def test_rows_of_other_hosts_are_named() -> None:
    jobs: list[dict[str, Any]] = [{"hosts": ["a", "a"]}, {"hosts": ["b", "b"]}, {"hosts": ["c"]}, {"nranks": 2}]
    assert other_hosts(jobs, ["a", "a"]) == "measured on a, but earlier rows of this run on b"
    assert other_hosts(jobs, ["d", "e"]) == "measured on d,e, but earlier rows of this run on a and b"
    assert other_hosts(jobs[:1], ["a", "a"]) is None
    assert other_hosts(jobs, ["d", "d", "d"]) is None  # no earlier row has three ranks


def test_a_job_is_described_by_hosts_and_library() -> None:
    hosts = [{"host": host, "mpi_library": "Open MPI v5.0.11, package: x"} for host in ("a", "a", "b", "a")]
    assert hosts_line(hosts) == "4 ranks of one job (a: 0-1,3, b: 2), Open MPI v5.0.11"
    assert hosts_line(hosts[:1]) == "1 rank of one job (a: 0), Open MPI v5.0.11"

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import mpi4py
import numpy as np
import pytest
from fakecuda import FakeCudaBackend

mpi4py.rc(initialize=False)  # its constants are enough

from mpi4py import MPI  # noqa: E402

import ringbench.collectives  # noqa: E402, F401  (fills the registry)
from ringbench.runtime import arrays  # noqa: E402
from ringbench.runtime.choices import CHUNK_NBYTES, MOST_CHUNKS, choose_by_rule, default_chunks  # noqa: E402
from ringbench.runtime.plan import Plan, node_groups, plan  # noqa: E402
from ringbench.schedule.cost import cost  # noqa: E402
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms  # noqa: E402
from ringbench.schedule.semantics import COLLECTIVES  # noqa: E402

SIZES = (0, 1, 8, 256, 1024, 4096, 32768, 32769, 2**17, 2**18, 2**19, 2**20, 2**21, 2**24, 2**30, 2**40)
FLAT = (
    "must be a flat allreduce with identical bits: swing, bine, binomial_tree, ring, double_binary_tree, naive, "
    "parameter_server, recursive_doubling, rabenseifner"
)
every = pytest.mark.parametrize("collective", sorted(COLLECTIVES))


# Chunks.


@pytest.mark.parametrize(
    ("nbytes", "chunks"),
    [(0, 1), (8, 1), (2**19, 1), (2**20 - 1, 1), (2**20, 2), (2**24, 32), (2**25, 64), (2**30, 64), (2**45, 64)],
)
def test_chunks_grow_with_the_vector_up_to_a_limit(nbytes: int, chunks: int) -> None:
    assert default_chunks(nbytes) == chunks
    assert chunks <= MOST_CHUNKS
    assert chunks == 1 or nbytes // chunks >= CHUNK_NBYTES


# The rule.


@every
def test_the_rule_names_a_registered_algorithm_for_every_case(collective: str) -> None:
    for nranks in (*range(1, 10), 16, 17, 100, 1024):
        for nbytes in SIZES:
            chosen = algorithm_named(collective, choose_by_rule(collective, nranks, nbytes))
            chosen.check(nranks)


@every
def test_the_rule_has_no_gaps_between_short_and_long(collective: str) -> None:
    """Once a longer vector gets another algorithm, no still longer one gets the first again."""
    for nranks in range(2, 10):
        chosen = [choose_by_rule(collective, nranks, nbytes) for nbytes in SIZES]
        assert sum(one != other for one, other in pairwise(chosen)) == len(set(chosen)) - 1


@pytest.mark.parametrize(
    ("collective", "nranks", "nbytes", "name"),
    [
        ("allreduce", 4, 32 * 2**10, "recursive_doubling"),
        ("allreduce", 4, 32 * 2**10 + 1, "rabenseifner"),
        ("allreduce", 4, 2**20, "rabenseifner"),
        ("allreduce", 4, 2**20 + 1, "ring"),
        ("allreduce", 3, 32 * 2**10 + 1, "ring"),
        ("allreduce", 2, 2**17, "recursive_doubling"),
        ("reduce_scatter", 8, 2**19, "recursive_halving"),
        ("reduce_scatter", 6, 2**19, "pat"),
        ("reduce_scatter", 8, 2**19 + 1, "ring"),
        ("allgather", 8, 2**19, "recursive_doubling"),
        ("allgather", 6, 2**19, "bruck"),
        ("allgather", 8, 2**19 + 1, "ring"),
        ("bcast", 4, 2**17, "binomial"),
        ("bcast", 4, 2**17 + 1, "scatter_allgather"),
        ("bcast", 2, 2**30, "binomial"),
        ("reduce", 4, 2**15, "binomial"),
        ("reduce", 4, 2**15 + 1, "rabenseifner"),
        ("reduce", 2, 2**30, "binomial"),
        ("alltoall", 8, 256 * 8, "bruck"),
        ("alltoall", 8, 256 * 8 + 1, "pairwise"),
        ("alltoall", 4, 8, "pairwise"),
    ],
)
def test_where_one_algorithm_follows_the_other(collective: str, nranks: int, nbytes: int, name: str) -> None:
    assert choose_by_rule(collective, nranks, nbytes) == name


@cache
def priced(algorithm: Algorithm, nranks: int, nbytes: int) -> tuple[int, int]:
    found = cost(algorithm, nranks, nbytes)
    return found.rounds, found.critical_sent


@every
@pytest.mark.parametrize(("alpha", "beta"), [(1e-6, 0.05e-9), (2e-6, 0.1e-9), (5e-6, 0.2e-9)])
def test_no_other_schedule_is_far_faster_on_the_links_that_the_rule_is_made_for(
    collective: str, alpha: float, beta: float
) -> None:
    for nranks in range(2, 10):
        for nbytes in [2520 * 4**power for power in range(9)]:  # whole blocks for up to 10 ranks
            seconds = {}
            for algorithm in (one for one in algorithms(collective) if one.shared is None):
                rounds, sent = priced(algorithm.given(chunks=default_chunks(nbytes)), nranks, nbytes)
                seconds[algorithm.name] = rounds * alpha + sent * beta
            chosen = choose_by_rule(collective, nranks, nbytes)
            assert seconds[chosen] <= 2.5 * min(seconds.values()), (nranks, nbytes, chosen, seconds)


# What a plan makes of it.


class Comm:
    """Stand for a communicator all of whose ranks ask for the same; ``nodes`` says on which host each rank is."""

    def __init__(self, nranks: int = 4, rank: int = 0, nodes: str | None = None) -> None:
        self.nranks, self.rank = nranks, rank
        self.nodes = nodes or "a" * nranks
        self.freed = 0

    def Is_inter(self) -> bool:  # noqa: N802
        return False

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return self.nranks

    def allgather(self, value: Any) -> list[Any]:
        if isinstance(value, int):  # the first rank on each rank's node
            assert value == self.nodes.index(self.nodes[self.rank])
            return [self.nodes.index(host) for host in self.nodes]
        return [value] * self.nranks

    def Split_type(self, kind: int) -> Shared:  # noqa: N802
        assert kind == MPI.COMM_TYPE_SHARED
        return Shared(self)

    def Sendrecv(self, *arguments: Any) -> None:  # noqa: N802
        raise AssertionError("nothing runs here")


class Shared:
    def __init__(self, comm: Comm) -> None:
        self.comm = comm

    def allgather(self, value: int) -> list[int]:
        assert value == self.comm.rank
        return [rank for rank, host in enumerate(self.comm.nodes) if host == self.comm.nodes[value]]

    def Free(self) -> None:  # noqa: N802
        self.comm.freed += 1


def planned(
    collective: str, algorithm: str, count: int, comm: Comm | None = None, *, op: str = "sum", **options: Any
) -> Plan:
    result = np.zeros(count, dtype="float32")
    return plan(collective, algorithm, comm or Comm(), MPI.IN_PLACE, result, op, **options)


@every
def test_auto_runs_what_the_rule_names_and_says_so(collective: str) -> None:
    for nranks in range(2, 10):
        for count in (0, 2520, 252_000):
            found = planned(collective, "auto", count, Comm(nranks))
            name = choose_by_rule(collective, nranks, 4 * count)
            assert found.algorithm == name
            assert str(found.remark).split(", ")[0] == f"{name} chosen by rule"
            assert found.bytes_sent is not None


def test_auto_asks_once_for_the_case_and_runs_what_it_is_told() -> None:
    asked: list[tuple[str, int, int]] = []

    def choose(*case: Any) -> str:
        asked.append(case)
        return "naive"

    found = planned("allreduce", "auto", 10, choose=choose)
    assert (found.algorithm, found.remark, asked) == ("naive", "naive chosen by a run", [("allreduce", 4, 40)])
    asked.clear()
    assert planned("allreduce", "ring", 10, choose=choose).remark is None
    assert asked == []


def test_auto_that_is_told_nonsense_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"^unknown algorithm 'magic' for allreduce; known: "):
        planned("allreduce", "auto", 10, choose=lambda *case: "magic")

    def refuse(*case: Any) -> str:
        raise ValueError("auto: no rows")

    with pytest.raises(ValueError, match=r"^auto: no rows$"):
        planned("allreduce", "auto", 10, choose=refuse)
    with pytest.raises(ValueError, match="op 'land' of dtype 'float32'"):
        planned("allreduce", "auto", 10, op="land")


@pytest.mark.parametrize(
    ("collective", "algorithm", "options", "remark"),
    [
        ("allreduce", "ring", {}, None),
        ("allreduce", "ring", {"root": 2, "chunks": 7}, None),
        ("allreduce", "mpi", {}, None),
        ("allreduce", "double_binary_tree", {}, "1 chunk"),
        ("allreduce", "double_binary_tree", {"chunks": 7}, "7 chunks"),
        ("bcast", "chain", {"chunks": 3, "root": 2}, "3 chunks, root 2"),
        ("bcast", "binomial", {}, None),
        ("reduce", "binomial", {"root": 1}, "root 1"),
        ("allreduce", "hierarchical", {}, "1 node of 4, ring between"),
        ("allreduce", "hierarchical", {"groups": ((0, 2), (1, 3))}, "2 nodes of 2, ring between"),
        (
            "allreduce",
            "hierarchical",
            {"groups": ((0,), (1, 2, 3)), "outer": "naive"},
            "2 nodes of 1 and 3, naive between leaders: nodes of unlike size have no common shards",
        ),
        (
            "allreduce",
            "hierarchical_leaders",
            {"groups": ((0, 1), (2, 3)), "outer": "double_binary_tree", "chunks": 5},
            "5 chunks, 2 nodes of 2, double_binary_tree between leaders",
        ),
    ],
)
def test_what_was_decided_is_remarked(
    collective: str, algorithm: str, options: dict[str, Any], remark: str | None
) -> None:
    comm = Comm()
    if algorithm == "mpi":
        vars(comm)["Allreduce"] = print
    assert planned(collective, algorithm, 16, comm, **options).remark == remark


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"root": 4}, "^root 4: must be one of the 4 ranks$"),
        ({"root": -1}, "^root -1: must be a rank$"),
        ({"root": True}, "^root True: must be a rank$"),
        ({"chunks": 0}, "^chunks 0: must be a number from 1 to 4096$"),
    ],
)
def test_arguments_that_make_no_sense_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planned("bcast", "chain", 16, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": ((0, 1), (2,))}, "^groups 0,1/2: must hold each of the ranks 0 to 3 once$"),
        ({"groups": ((0, 1), ())}, "must be groups of ranks, none empty$"),
        ({"outer": "hierarchical"}, f"^outer 'hierarchical': {FLAT}$"),
        ({"outer": "swing_latency"}, f"^outer 'swing_latency': {FLAT}$"),
        ({"outer": "rings"}, f"^outer 'rings': {FLAT}$"),
    ],
)
def test_nodes_that_make_no_sense_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planned("allreduce", "hierarchical", 16, **options)


@every
def test_a_root_is_one_of_the_ranks_where_the_collective_has_one(collective: str) -> None:
    for root in (4, 100):
        if collective in ("bcast", "reduce"):
            with pytest.raises(ValueError, match=f"^root {root}: must be one of the 4 ranks$"):
                planned(collective, "auto", 16, root=root)
        else:
            assert planned(collective, "auto", 16, root=root).remark == planned(collective, "auto", 16).remark
    for wrong in (-1, True, "0"):
        with pytest.raises(ValueError, match=f"^root {wrong!r}: must be a rank$"):
            planned(collective, "auto", 16, root=wrong)


def test_a_plan_names_what_runs_and_what_was_decided() -> None:
    assert repr(planned("allreduce", "ring", 16)) == "<plan of allreduce ring>"
    found = planned("bcast", "chain", 16, chunks=3, root=2)
    assert repr(found) == "<plan of bcast chain, 3 chunks, root 2>"
    found = planned("allreduce", "auto", 16)
    assert repr(found) == "<plan of allreduce recursive_doubling, recursive_doubling chosen by rule>"


# Nodes.


@pytest.mark.parametrize(
    ("nodes", "groups"),
    [
        ("aaaa", ((0, 1, 2, 3),)),
        ("aabb", ((0, 1), (2, 3))),
        ("abab", ((0, 2), (1, 3))),
        ("abcd", ((0,), (1,), (2,), (3,))),
        ("baab", ((0, 3), (1, 2))),
    ],
)
def test_case_4_nodes_are_what_shares_memory_and_nothing_is_kept(
    nodes: str, groups: tuple[tuple[int, ...], ...]
) -> None:
    for rank in range(4):
        comm = Comm(4, rank, nodes)
        assert node_groups(comm) == groups
        assert comm.freed == 1


def test_nodes_are_looked_for_only_where_a_schedule_asks_and_nobody_told() -> None:
    comm = Comm(4, 0, "abab")
    assert planned("allreduce", "hierarchical", 16, comm).remark == "2 nodes of 2, ring between"
    assert comm.freed == 1
    planned("allreduce", "ring", 16, comm)
    planned("allreduce", "hierarchical", 16, comm, groups=((0, 1), (2, 3)))
    assert comm.freed == 1


def test_a_device_has_no_other_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeCudaBackend()
    monkeypatch.setattr(arrays, "BACKENDS", [device, *arrays.BACKENDS])
    found = plan("allreduce", "auto", Comm(), MPI.IN_PLACE, device.empty(16, "bool"), "lor")
    assert found.algorithm == choose_by_rule("allreduce", 4, 16)

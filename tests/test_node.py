"""The facts of nodes, gathered over ranks that are played here; tests/mpi has real ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ringbench.records.guards import GUARDS
from ringbench.runtime.machine import Machine
from ringbench.runtime.node import gather_machines, judge_machines


class Alone:
    """Stand for a communicator of one rank."""

    def Get_rank(self) -> int:  # noqa: N802
        return 0

    def Barrier(self) -> None:  # noqa: N802
        pass

    def allgather(self, mine: Any) -> list[Any]:
        return [mine]


def ranks(*hosts: str) -> list[dict[str, Any]]:
    return [{"host": host, "cpus": [rank], "mpi_library": "Open MPI v5.0.11"} for rank, host in enumerate(hosts)]


def machine(host: str, **facts: Any) -> Machine:
    calm: dict[str, Any] = {"governors": {"performance": 2}, "cma": "ok", "others_cpus": 0.0}
    return Machine(host=host, cores=(0, 1), **calm | facts)


def test_a_rank_alone_reads_its_node(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu0 1 2 3 4 5 6 7 8\n")
    environ = {"OMPI_MCA_coll": "^tuned"}
    (found,) = gather_machines(Alone(), ranks("here"), environ, tmp_path)
    assert (found.host, found.cores, found.others_cpus) == ("here", (0,), 0.0)
    assert found.cma is None  # there is nobody to try with
    assert found.tuned == ("OMPI_MCA_coll=^tuned",)
    assert judge_machines([found], ranks("here"))[0] == ("library tuned",)


def test_this_node_is_read_by_a_rank() -> None:
    alone = [{"host": "here", "cpus": sorted(os.sched_getaffinity(0)), "mpi_library": "Open MPI"}]
    (found,) = gather_machines(Alone(), alone, {})
    assert found.others_cpus is None or 0 <= found.others_cpus <= len(found.cores)


def test_ranks_of_a_node_are_counted_for_it() -> None:
    calm = [machine("a", shm_free_nbytes=40 * 2**20), machine("b", shm_free_nbytes=40 * 2**20)]
    assert judge_machines(calm, ranks("a", "a", "b", "b")) == ((), [])
    names, lines = judge_machines(calm, ranks("a", "a", "a", "b"))
    assert names == ("small shm",)
    assert lines == [f"a: /dev/shm has 40 MiB free; 3 ranks may map 48 MiB; {GUARDS['small shm'].advice}"]


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_interfaces_count_between_nodes_alone(hosts: str) -> None:
    found = [machine(host, shm_free_nbytes=2**30, interfaces=("eth0", "eth1")) for host in dict.fromkeys(hosts)]
    assert judge_machines(found, ranks(*hosts))[0] == (("interfaces",) if hosts == "ab" else ())

"""Intel MPI Benchmarks (IMB-MPI1 and IMB-NBC), any number of benchmarks and process counts in one file.

A sample is ``t_avg``, the mean over repetitions of each rank's own time, averaged over ranks; ``t_pure`` of a
non-blocking collective. ``#bytes`` is the size of one rank's block for allgather, alltoall and reduce_scatter_block;
for reduce_scatter it is that of the whole vector up to version 2018 and of a block from 2019 on (src_c/IMB_*.c). The
line of 0 bytes is the cost of the call; it is kept, and enters no fit. MPI_Bcast has one buffer, so it is in place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringbench.records.importers.found import MPI_DTYPES, MPI_OPS, Asked, Found, LeftOut, Table, Tool, reported
from ringbench.records.importers.lines import Line, count, number, seconds
from ringbench.records.importers.own import Own, Said
from ringbench.schedule.semantics import COLLECTIVES, collective_named

IMB = "Intel MPI Benchmarks"

_VERSION = re.compile(r"Intel ?\(R\) MPI Benchmarks (\d+(?:\.\d+)*(?: Update \d+)?)")
_BENCHMARK = re.compile(r"Benchmarking (\S+)")
_PROCESSES = re.compile(r"#?processes = (\d+)")
_FACTS = re.compile(r"(MPI_Datatype|MPI_Datatype for reductions|MPI_Op)\s*:\s*(\w+)")
_TIMES = ("t_avg[usec]", "t_pure[usec]")
_BLOCKS = ("allgather", "alltoall", "reduce_scatter_block")


class Imb(Tool):
    """Follow the output of IMB-MPI1 and IMB-NBC, one table for each benchmark and number of processes."""

    def __init__(self, asked: Asked, own: Own):
        super().__init__(asked)
        self.own = own

    def forget(self) -> None:
        """Forget version, types, benchmark and number of processes."""
        self.version: str | None = None
        self.facts = {"MPI_Datatype": "MPI_BYTE", "MPI_Datatype for reductions": "MPI_FLOAT", "MPI_Op": "MPI_SUM"}
        self.benchmark: str | None = None
        self.nranks: int | None = None
        self.said = Said()

    def heed(self, line: Line) -> Table | bool | None:
        """Take in version, types, benchmark and ``#processes``; open a table at ``#bytes #repetitions ...``."""
        bare = line.bare
        if version := _VERSION.match(bare):
            self.forget()
            self.version = version[1]
        elif benchmark := _BENCHMARK.fullmatch(bare):
            self.benchmark, self.nranks, self.said = benchmark[1], None, self.own.take()
            return LeftOut([], "")
        elif processes := _PROCESSES.fullmatch(bare):
            self.nranks = self.asked.nranks_or(count(processes[1]))
        elif fact := _FACTS.fullmatch(bare):
            self.facts[fact[1]] = fact[2]
        else:
            columns = [name.lstrip("#") for name in bare.split()]
            if "repetitions" not in columns or not any("[usec]" in name for name in columns):
                return None
            return self._table(columns)
        return True

    def _table(self, columns: list[str]) -> Table:
        name = self.benchmark
        plain = name.removesuffix("_pure").lower() if name else None
        waits = plain is not None and plain[:1] == "i"
        called = plain[1:] if plain and waits else plain
        collective = "reduce_scatter" if called == "reduce_scatter_block" else called
        time = next((time for time in _TIMES if time in columns), None)
        if (name and collective not in COLLECTIVES) or time is None or columns[0] != "bytes":
            return LeftOut(columns, f"{name or 'a table without averages'}: no collective that ringbench knows")
        version = self.said.columns or self.version
        year = count(re.split(r"\W", version)[0]) if version else None
        if called == "reduce_scatter" and year is None:
            reason = "its size means the vector until IMB 2018 and a block from 2019, and the file names no version"
            return LeftOut(columns, f"{name}: {reason}")
        block = called in _BLOCKS or (called == "reduce_scatter" and year is not None and year >= 2019)
        return _ImbTable(columns, time, self, collective, block, waits)


class _ImbTable(Table):
    def __init__(self, columns: list[str], time: str, tool: Imb, collective: str | None, block: bool, waits: bool):
        super().__init__(columns)
        self.time, self.collective, self.block, self.waits = time, collective, block, waits
        self.asked, self.version, self.facts, self.nranks = tool.asked, tool.version, dict(tool.facts), tool.nranks
        self.said = tool.said

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        size, time = count(cells["bytes"]), seconds(cells[self.time], 6)
        if size is None or time is None:
            return None
        collective = self.asked.collective_or(self.collective)
        fact = "MPI_Datatype for reductions" if collective_named(collective).reduces else "MPI_Datatype"
        dtype, op = MPI_DTYPES.get(self.facts[fact]), MPI_OPS.get(self.facts["MPI_Op"])
        if dtype is None or op is None:
            return f"type {self.facts[fact]} or operation {self.facts['MPI_Op']}: not known"
        defects = number(cells["defects"]) if "defects" in cells else None
        timed = "a non-blocking call and its wait" if self.waits else "the local duration"
        return [
            self.said.over(
                Found(
                    tool=IMB,
                    version=self.version,
                    collective=collective,
                    algorithm="mpi",
                    op=op,
                    dtype=dtype,
                    device="cpu",
                    nranks=self.asked.nranks_or(self.nranks),
                    size=size,
                    samples_s=(time,),
                    estimand=f"mean over repetitions and ranks of {timed} (IMB {self.time})",
                    in_place=collective == "bcast",
                    block=self.block or (self.collective is None and collective in _BLOCKS),
                    wrong=None if defects is None else int(defects != 0),
                    wrong_detail="the benchmark's own check found defects" if defects else None,
                    reported=reported(cells),
                )
            )
        ]

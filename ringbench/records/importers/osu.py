"""OSU Micro-Benchmarks 5 to 7 and OMB-Py, and what ringbench itself writes in their columns.

A sample is the column ``Avg Latency(us)``, the mean over iterations of each rank's own time, averaged over ranks, with
and without ``-f``; of a non-blocking collective ``Pure Comm.(us)``. The size is that of one rank's block for allgather
and alltoall, else of the whole vector (c/mpi/collective in osu-micro-benchmarks). MPI_Bcast has one buffer, so it is in
place; the others are out of place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringbench.records.importers.found import MPI_DTYPES, Asked, Found, LeftOut, Table, Tool, reported
from ringbench.records.importers.lines import Line, count, seconds
from ringbench.records.importers.own import Own, Said
from ringbench.schedule.semantics import COLLECTIVES, collective_named

OSU, OMB_PY = "OSU Micro-Benchmarks", "OMB-Py"

_TITLE = re.compile(
    r"(?P<tool>OSU|OMB[- ]Py(?:thon)?) (?P<library>MPI|x?CCL|NCCL|RCCL)(?:-(?P<device>\w+))?\S* (?P<name>.{1,80}?)"
    r"(?: Latency)? Test(?: v(?P<version>[\w.]+))?"
)
_OTHER_TITLE = re.compile(r"(?:OSU|OMB[- ]Py(?:thon)?) .{1,100} Test(?: v[\w.]+)?.{0,40}")
_DATATYPE = re.compile(r"Datatype: (\w+)\.?")
_COLUMN = re.compile(
    r"Size(?: ?[\[(]B(?:ytes)?[\])])?"
    r"|(?:Avg |Min |Max )?(?:Latency|Bandwidth) ?[\[(]\w+(?:/s)?[\])]"
    r"|Coll\. Init\(us\)|(?:Pure |Min |Max )Comm\.\(us\)|P\d+ Tail Lat\(us\)|\S+"
)
_TIME = re.compile(r"(?:Avg )?Latency ?[\[(]us[\])]|Pure Comm\.\(us\)")
_RENAMED = {"broadcast": "bcast", "all-to-all": "alltoall", "reduce_scatter_block": "reduce_scatter"}
_BLOCKS = ("allgather", "alltoall")


class Osu(Tool):
    """Follow the output of osu_allreduce and its like, one table for each program or datatype."""

    def __init__(self, asked: Asked, own: Own):
        super().__init__(asked)
        self.own = own

    def forget(self) -> None:
        """Forget title, type and what was said before it."""
        self.title: Mapping[str, str | None] = {}
        self.dtype: str | None = None
        self.said = Said()

    def heed(self, line: Line) -> Table | bool | None:
        """Take in titles and types; open a table at ``# Size ...``."""
        if title := _TITLE.fullmatch(line.bare) or _OTHER_TITLE.fullmatch(line.bare):
            self.title = {"whole": line.bare, **title.groupdict()}
            self.dtype, self.said = None, self.own.take()
            return LeftOut([], "")
        if datatype := _DATATYPE.fullmatch(line.bare):
            self.dtype = datatype[1]
            return True
        columns = _COLUMN.findall(line.bare)
        if not columns or not columns[0].startswith("Size"):
            return None
        times = [name for name in columns if _TIME.fullmatch(name)]
        if not times and not any("/s" in name for name in columns):
            return None
        self.said = self.said.and_then(self.own.take())
        return self._table(columns, times)

    def _table(self, columns: list[str], times: list[str]) -> Table:
        name = (self.title.get("name") or "").lower()
        plain = name.replace("non-blocking ", "").replace(" persistent", "").replace(" personalized exchange", "")
        collective = _RENAMED.get(plain, plain) or None
        if (self.title and collective not in COLLECTIVES) or not times:
            what = self.title.get("whole") or "a table without latencies"
            return LeftOut(columns, f"{what}: no collective that ringbench knows")
        return _OsuTable(columns, times[0], self, collective, plain == "reduce_scatter_block")


class _OsuTable(Table):
    def __init__(self, columns: list[str], time: str, tool: Osu, collective: str | None, equal: bool):
        super().__init__(columns)
        self.time, self.collective, self.equal, self.asked = time, collective, equal, tool.asked
        self.title, self.said, self.datatype = tool.title, tool.said, tool.dtype
        self.largest = -1

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        size, time = count(ordered[0]), seconds(cells[self.time], 6)
        if "N/A" in cells[self.time]:
            return "no time (N/A)"
        if size is None or time is None or size <= self.largest:  # sizes ascend: another table began unseen
            return None
        self.largest = size
        collective = self.asked.collective_or(self.collective)
        dtype = self._dtype(collective)
        if dtype is None:
            return f"type {self.datatype}: not known"
        failed = cells.get("Validation", "").lower() == "fail"
        python = (self.title.get("tool") or "").startswith("OMB")
        library, device = self.title.get("library") or "MPI", self.title.get("device")
        return [
            self.said.over(
                Found(
                    tool=OMB_PY if python else OSU,
                    version=self.title.get("version"),
                    collective=collective,
                    algorithm="mpi" if library == "MPI" else library.lower(),
                    op="sum",
                    dtype=dtype,
                    device=device.lower() if device else "cpu" if library == "MPI" else "cuda",
                    nranks=self.asked.nranks_or(self.said.nranks),
                    size=size,
                    samples_s=(time,),
                    estimand=f"mean over iterations and ranks of {self._timed()} ({self.time})",
                    in_place=collective == "bcast",
                    block=collective in _BLOCKS,
                    equal=self.equal,
                    wrong={"pass": 0, "fail": 1}.get(cells.get("Validation", "").lower()),
                    wrong_detail="the benchmark's own validation failed" if failed else None,
                    reported=reported(cells),
                )
            )
        ]

    def _dtype(self, collective: str) -> str | None:
        """Return what the file says, else what programs before 7.0 take (OMB-Py: always bytes)."""
        if self.datatype is not None:
            return MPI_DTYPES.get(self.datatype)
        if (self.title.get("tool") or "").startswith("OMB"):
            return "uint8"
        return "float32" if collective_named(collective).reduces else "int8"

    def _timed(self) -> str:
        name = (self.title.get("name") or "").lower()
        if "non-blocking" in name or self.time.startswith("Pure"):
            return "a non-blocking call and its wait"
        return "a persistent call and its wait" if "persistent" in name else "the local duration after a barrier"

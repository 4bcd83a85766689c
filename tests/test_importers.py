"""What other benchmarks print becomes rows: sizes of the whole vector, seconds, the tool's own estimand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT

from ringbench.cli import main
from ringbench.model.fit import fit_rows
from ringbench.model.pool import table_cells
from ringbench.records.importers.lines import NotSaidError
from ringbench.records.importers.read import Imported, read_files
from ringbench.records.row import Row
from ringbench.records.run import read_run

OSU_SHORT = """
# OSU MPI Allreduce Latency Test v5.6.2
# Size       Avg Latency(us)
4                       5.47
8                       5.89
1024                   15.07
"""

OSU_FULL = """# OSU MPI-CUDA Allreduce Latency Test v7.2
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                      34.31             33.27             35.07        1000
65536                 137.90            136.15            139.51         100
"""

OSU_WAITS = """# OSU MPI Non-blocking Allreduce Latency Test v5.6.3
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
4                       8.77              5.32              4.43             22.08
"""

OMB_PY = """# OMB-Py MPI Allreduce Latency Test
# Size (B)      Latency (us)
8                       3.25
"""

OWN = """# algorithm ring
# nranks 4
# OSU MPI Allreduce Latency Test v7.4
# Size       Avg Latency(us)
8                      10.00
# algorithm mpi
# nranks 3
# OSU MPI Allreduce Latency Test v7.4
# Size       Avg Latency(us)
8                       9.00
"""

IMB = """#----------------------------------------------------------------
#    Intel(R) MPI Benchmarks {version}, MPI-1 part
#----------------------------------------------------------------
# MPI_Datatype                   :   MPI_BYTE
# MPI_Datatype for reductions    :   MPI_FLOAT
# MPI_Op                         :   MPI_SUM
#----------------------------------------------------------------
# Benchmarking {name}
# #processes = {nranks}
# ( 2 additional processes waiting in MPI_Barrier )
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0         1000         0.05         0.23         0.06
         1024         1000        21.27        27.89        24.93
"""

NCCL_DEVICES = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# Using devices
#  Rank  0 Group  0 Pid   1 on      node0 device  0 [0000:04:00] A GPU
#  Rank  1 Group  0 Pid   2 on      node0 device  1 [0000:05:00] A GPU
#  Rank  2 Group  0 Pid   3 on      node1 device  0 [0000:04:00] A GPU
"""
NCCL = f"""# Collective test starting: all_reduce_perf
{NCCL_DEVICES}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    17.93    0.00    0.00      0    17.72    0.00    0.00    N/A
        1024           256     float     sum      -1    20.35    0.05    0.09      0    20.32    0.05    0.09      7
# Out of bounds values : 7 FAILED
# Avg bus bandwidth    : 19.7866
"""
NCCL_FIRST = """#     size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
         512           128   float     sum    34.84    0.01    0.03  6e-08    34.49    0.01    0.03  6e-08
"""
NCCL_GATHER = """# all_gather_perf
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
         512            32   float    34.84    0.01    0.03  0e+00    34.49    0.01    0.03  0e+00
"""
_ITERATIONS = "time algbw busbw #wrong i_min i_max i_p99 i_cv%"
NCCL_EACH = f"""# nccl-tests version 2.18.0 nccl-headers=22900 nccl-library=22900
# Collective test starting: reduce_scatter_perf
# size count type redop root {_ITERATIONS} {_ITERATIONS} timestamp
 1024 128 half avg -1 20.1 0.1 0.1 0 19.0 30.0 29.0 3.1 21.5 0.1 0.1 0 19.5 31.0 30.0 3.2 2026-01-02 03:04:05
"""
RCCL = f"""rccl-tests: Version develop:a7809b3
{NCCL.replace("all_reduce_perf", "alltoall_perf")}"""


def imported(tmp_path: Path, *texts: str, nranks: int | None = None, collective: str | None = None) -> Imported:
    paths = []
    for number, text in enumerate(texts):
        paths.append(str(tmp_path / f"{number}.txt"))
        Path(paths[-1]).write_text(text)
    return read_files(paths, nranks=nranks, collective=collective)


def rows(tmp_path: Path, *texts: str, nranks: int | None = None, collective: str | None = None) -> list[Row]:
    return list(imported(tmp_path, *texts, nranks=nranks, collective=collective).rows)


def told(row: Row) -> tuple[object, ...]:
    return row.collective, row.algorithm, row.op, row.dtype, row.device, row.nranks, row.nbytes, row.in_place


# Each tool.


def test_osu_without_f(tmp_path: Path) -> None:
    found = rows(tmp_path, OSU_SHORT, nranks=64)
    assert [told(row) for row in found] == [
        ("allreduce", "mpi", "sum", "float32", "cpu", 64, nbytes, False) for nbytes in (4, 8, 1024)
    ]
    assert [row.samples_s for row in found] == [(5.47e-6,), (5.89e-6,), (1.507e-5,)]
    assert {row.estimand for row in found} == {
        "mean over iterations and ranks of the local duration after a barrier (Avg Latency(us))"
    }


def test_osu_with_f_keeps_what_else_it_says(tmp_path: Path) -> None:
    found = imported(tmp_path, OSU_FULL, nranks=16)
    assert [told(row) for row in found.rows] == [
        ("allreduce", "mpi", "sum", "int32", "cuda", 16, nbytes, False) for nbytes in (4, 65536)
    ]
    assert found.rows[1].samples_s == (1.379e-4,)
    assert found.further[0] == {
        "Size": 4,
        "Avg Latency(us)": 34.31,
        "Min Latency(us)": 33.27,
        "Max Latency(us)": 35.07,
        "Iterations": 1000,
    }
    assert found.reports[0].tools == {("OSU Micro-Benchmarks", "7.2"): 2}


def test_osu_non_blocking_is_the_pure_communication(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, OSU_WAITS, nranks=4)
    assert row.samples_s == (4.43e-6,)
    assert row.estimand == "mean over iterations and ranks of a non-blocking call and its wait (Pure Comm.(us))"


@pytest.mark.parametrize(
    ("title", "columns", "cells", "time"),
    [
        ("MPI-ROCM Allreduce", "Avg Latency(us) P50 Tail Lat(us) P90 Tail Lat(us)", "1.50 2.50 3.50", 1.5e-6),
        (
            "MPI Non-Blocking Broadcast",
            "Overall(us) Compute(us) Coll. Init(us) MPI_Test(us) MPI_Wait(us) Pure Comm.(us) Min Comm.(us) "
            "Max Comm.(us) Overlap(%)",
            "1.00 2.00 3.00 4.00 5.00 6.00 7.00 8.00 -9.00",
            6e-6,
        ),
        ("MPI Allreduce Persistent", "Avg Latency(us) Validation", "1.50 Pass", 1.5e-6),
        ("NCCL Allreduce", "Avg Latency(us)", "1.50", 1.5e-6),
    ],
)
def test_osu_has_many_columns(tmp_path: Path, title: str, columns: str, cells: str, time: float) -> None:
    (row,) = rows(tmp_path, f"# OSU {title} Latency Test v7.4\n# Size  {columns}\n8  {cells}\n", nranks=2)
    assert row.samples_s == (time,)
    algorithm, device = {"MPI-ROCM": ("mpi", "rocm"), "NCCL": ("nccl", "cuda")}.get(title.split()[0], ("mpi", "cpu"))
    assert (row.algorithm, row.device) == (algorithm, device)


def test_osu_validation_is_a_verdict(tmp_path: Path) -> None:
    text = "# OSU MPI Allreduce Latency Test v7.2\n# Size Avg Latency(us) Validation\n4 5.00 Pass\n8 5.00 Fail\n"
    right, wrong = rows(tmp_path, text, nranks=2)
    assert (right.wrong, wrong.wrong, wrong.bandwidths()[2]) == (0, 1, "wrong result")


def test_omb_py_sends_bytes(tmp_path: Path) -> None:
    found = imported(tmp_path, OMB_PY, nranks=2)
    assert told(found.rows[0]) == ("allreduce", "mpi", "sum", "uint8", "cpu", 2, 8, False)
    assert found.reports[0].tools == {("OMB-Py", None): 1}


def test_lines_before_a_title_name_algorithm_and_ranks(tmp_path: Path) -> None:
    """One table's lines are not the next one's."""
    found = rows(tmp_path, OWN)
    assert [(row.algorithm, row.nranks, row.samples_s) for row in found] == [
        ("ring", 4, (1e-5,)),
        ("mpi", 3, (9e-6,)),
    ]
    with pytest.raises(NotSaidError, match="line 13: the file does not say how many ranks"):
        rows(tmp_path, OWN + OSU_SHORT.lstrip())


def test_several_types_under_one_title(tmp_path: Path) -> None:
    more = "# Datatype: MPI_FLOAT.\n# Size       Avg Latency(us)\n4                      30.00\n"
    found = rows(tmp_path, OSU_FULL + more, nranks=2)
    assert [(row.dtype, row.nbytes) for row in found] == [("int32", 4), ("int32", 65536), ("float32", 4)]


@pytest.mark.parametrize("version", ["4.1", "2018 Update 1", "2019 Update 6", "2021.7"])
def test_imb_has_its_ranks_in_the_file(tmp_path: Path, version: str) -> None:
    text = "".join(IMB.format(version=version, name="Allreduce", nranks=nranks) for nranks in (2, 512))
    found = imported(tmp_path, text)
    assert [(row.nranks, row.nbytes) for row in found.rows] == [(2, 0), (2, 1024), (512, 0), (512, 1024)]
    assert found.rows[3].samples_s == (2.493e-5,)
    assert found.reports[0].tools == {("Intel MPI Benchmarks", version): 4}
    assert found.further[3]["repetitions"] == 1000
    assert found.reports[0].strange == []


def test_imb_leaves_out_by_name_what_is_no_collective(tmp_path: Path) -> None:
    text = IMB.format(version="4.1", name="Exchange", nranks=2) + IMB.format(version="4.1", name="Bcast", nranks=2)
    found = imported(tmp_path, text)
    assert {told(row)[:5] for row in found.rows} == {("bcast", "mpi", "none", "uint8", "cpu")}
    assert found.reports[0].left_out == {"Exchange: no collective that ringbench knows": 2}


def test_imb_non_blocking(tmp_path: Path) -> None:
    head, _ = IMB.format(version="2019", name="Iallreduce", nranks=2).split("       #bytes")
    text = (
        head + " #bytes #repetitions t_ovrl[usec] t_pure[usec] t_CPU[usec] overlap[%]\n 8 1000 9.00 5.00 4.00 12.00\n"
    )
    (row,) = rows(tmp_path, text)
    assert (row.collective, row.samples_s) == ("allreduce", (5e-6,))
    assert row.estimand == "mean over repetitions and ranks of a non-blocking call and its wait (IMB t_pure[usec])"


def test_imb_groups_at_once_are_another_experiment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Multi-Allreduce: no collective"):
        rows(tmp_path, IMB.format(version="4.1", name="Multi-Allreduce", nranks=2))


def test_nccl_has_two_rows_a_line_and_its_ranks_in_the_file(tmp_path: Path) -> None:
    found = imported(tmp_path, NCCL)
    assert [(row.nbytes, row.in_place, row.samples_s, row.wrong) for row in found.rows] == [
        (8, False, (1.793e-5,), 0),
        (8, True, (1.772e-5,), None),
        (1024, False, (2.035e-5,), 0),
        (1024, True, (2.032e-5,), 7),
    ]
    assert {told(row)[:6] for row in found.rows} == {("allreduce", "nccl", "sum", "float32", "cuda", 3)}
    assert {row.estimand for row in found.rows} == {"mean over iterations that nccl-tests reports (time)"}
    assert found.hosts == {(0, 3): ("node0", "node0", "node1")}
    assert found.reports[0].notes == ["line 13: 7 results out of bounds: the tool calls some wrong"]
    assert found.reports[0].strange == []


def test_nccl_of_the_first_generation_knows_no_count_of_wrong_elements(tmp_path: Path) -> None:
    found = rows(tmp_path, NCCL_FIRST, nranks=16, collective="allreduce")
    assert [(row.samples_s, row.wrong) for row in found] == [((3.484e-5,), None), ((3.449e-5,), None)]
    found = rows(tmp_path, NCCL_GATHER, nranks=4)
    assert [told(row) for row in found] == [
        ("allgather", "nccl", "none", "float32", "cuda", 4, 512, in_place) for in_place in (False, True)
    ]


def test_nccl_with_iterations_and_a_timestamp(tmp_path: Path) -> None:
    found = imported(tmp_path, NCCL_EACH, nranks=8)
    assert [told(row) for row in found.rows] == [
        ("reduce_scatter", "nccl", "average", "float16", "cuda", 8, 1024, in_place) for in_place in (False, True)
    ]
    assert found.further[1]["i_p99"] == 30.0
    assert found.reports[0].tools == {("nccl-tests", "2.18.0"): 2}


def test_rccl_is_told_from_nccl(tmp_path: Path) -> None:
    found = imported(tmp_path, RCCL)
    assert told(found.rows[0]) == ("alltoall", "rccl", "none", "float32", "rocm", 3, 8, False)
    assert ("rccl-tests", "develop:a7809b3") in found.reports[0].tools


def nccl_json() -> str:
    one = {"time": 20.0, "alg_bw": 0.1, "bus_bw": 0.1, "nwrong": 0.0}
    record = {
        "size": 1024,
        "type": "float",
        "redop": "sum",
        "out_of_place": one,
        "out_of_place_per_iter": {"min_us": 19.0, "times_us": [19.0, 20.0, 21.0]},
        "in_place": {**one, "time": 22.0, "nwrong": None},
    }
    devices = [{"rank": rank, "group": 0, "hostname": "node0"} for rank in range(2)]
    head = {"version": 2, "args": ["/opt/all_reduce_perf", "-b", "8"], "config": {"devices": devices}}
    return json.dumps({**head, "results": [record, {**record, "size": 2048}], "end_time": "now"})


def test_nccl_json_has_the_time_of_each_iteration(tmp_path: Path) -> None:
    found = rows(tmp_path, nccl_json())
    assert [(row.nbytes, row.in_place, row.samples_s, row.wrong) for row in found[:2]] == [
        (1024, False, (1.9e-5, 2e-5, 2.1e-5), 0),
        (1024, True, (2.2e-5,), None),
    ]
    assert [row.nbytes for row in found[2:]] == [2048, 2048]
    assert {told(row)[:6] for row in found} == {("allreduce", "nccl", "sum", "float32", "cuda", 2)}


def rccl_json() -> str:
    record = {"numCycle": 0, "name": "AllReduce", "ranks": 4, "type": "float", "redop": "sum", "wrong": "0"}
    records = [{**record, "size": 64, "inPlace": place, "time": 10.5 + place} for place in (0, 1)]
    return "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n"


def test_nccl_json_without_a_program_says_which_collective_is_missing(tmp_path: Path) -> None:
    text = json.dumps({**json.loads(nccl_json()), "args": []})
    with pytest.raises(ValueError, match="nccl-tests"):
        imported(tmp_path, text)


def test_what_json_escapes_never_reaches_a_terminal(tmp_path: Path) -> None:
    report = json.loads(nccl_json())
    (result, *_), escape = report["results"], "\x1b[31mred"
    for text in (
        json.dumps({**report, "results": [{**result, "type": escape}, result]}),
        json.dumps([*json.loads(rccl_json()), {**json.loads(rccl_json())[0], "name": escape}]),
    ):
        found = imported(tmp_path, text)
        assert all(line.isascii() and line.isprintable() for report in found.reports for line in report.lines())


def test_two_algorithms_of_a_file_are_no_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"allreduce,{name},4,1024,{us + i}e-6" for name, us in (("ring", 20), ("mpi", 40)) for i in range(8)]
    assert command(tmp_path, "collective,algorithm,nranks,nbytes,seconds\n" + "\n".join(lines) + "\n") == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "log"), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["launch_p_value"] is not None


def test_rccl_json_is_a_list(tmp_path: Path) -> None:
    found = rows(tmp_path, rccl_json())
    assert [(row.samples_s, row.in_place, row.wrong) for row in found] == [
        ((1.05e-5,), False, 0),
        ((1.15e-5,), True, 0),
    ]
    assert told(found[0])[:7] == ("allreduce", "rccl", "sum", "float32", "rocm", 4, 64)


CSV = """collective,algorithm,nranks,nbytes,seconds
allreduce,ring,8,32,4.6569e-05
allreduce,ring,8,256,N/A
scan,ring,8,256,1e-3
allreduce,recursive_doubling,16,268435456,0.470249567
"""


def test_csv_claims_nothing_that_it_does_not_say(tmp_path: Path) -> None:
    found = imported(tmp_path, CSV)
    assert [told(row) for row in found.rows] == [
        ("allreduce", "ring", "sum", "unknown", "cpu", 8, 32, False),
        ("allreduce", "recursive_doubling", "sum", "unknown", "cpu", 16, 268435456, False),
    ]
    assert found.rows[1].samples_s == (0.470249567,)
    assert found.reports[0].left_out == {"no time (N/A)": 1, "scan: no collective that ringbench knows": 1}


def test_csv_with_further_columns(tmp_path: Path) -> None:
    text = "nbytes,seconds,collective,algorithm,nranks,in_place,dtype,node\n8,1e-6,bcast,x,2,true,int32,n1\n"
    found = imported(tmp_path, text)
    assert told(found.rows[0]) == ("bcast", "x", "none", "int32", "cpu", 2, 8, True)
    assert found.further[0] == {"node": "n1"}


# Sizes.

#: A table of each tool for 4 ranks and 1024 bytes.
OSU_NAMES = {
    "allreduce": "Allreduce",
    "allgather": "Allgather",
    "reduce_scatter": "Reduce_scatter",
    "reduce_scatter_block": "Reduce_scatter_block",
    "bcast": "Broadcast",
    "reduce": "Reduce",
    "alltoall": "All-to-All Personalized Exchange",
}


def sized(tool: str, call: str) -> str:
    if tool == "OSU":
        return OSU_SHORT.replace("Allreduce", OSU_NAMES[call])
    if tool.startswith("IMB"):
        return IMB.format(version="2018" if "2018" in tool else "2019 Update 3", name=call.capitalize(), nranks=4)
    programs = {"allreduce": "all_reduce", "allgather": "all_gather", "bcast": "broadcast"}
    return NCCL.replace("all_reduce", programs.get(call, call))


def conventions() -> list[tuple[str, str, str]]:
    """Return tool, call and meaning from the table in IMPORTING.md."""
    lines = (ROOT / "IMPORTING.md").read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| call |"))
    tools = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        call, *meanings = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        found += [(tool, call, meaning) for tool, meaning in zip(tools, meanings, strict=True) if meaning != "-"]
    return found


@pytest.mark.parametrize(("tool", "call", "meaning"), conventions())
def test_sizes_mean_what_the_page_says(tmp_path: Path, tool: str, call: str, meaning: str) -> None:
    nranks = None if tool.startswith("IMB") else 3 if "nccl" in tool else 4
    found = rows(tmp_path, sized(tool, call), nranks=nranks)
    nbytes = {row.nbytes for row in found}
    assert max(nbytes) == {"vector": 1024, "block": 4096}[meaning]
    assert {row.collective for row in found} == {call.removesuffix("_block")}
    one_buffer = call == "bcast" and "nccl" not in tool
    assert {row.in_place for row in found} == ({True} if one_buffer else {False, True} if "nccl" in tool else {False})


def test_the_page_says_what_every_size_means() -> None:
    assert len(conventions()) >= 25


def test_a_block_of_osu_is_whole_elements(tmp_path: Path) -> None:
    """4 B among 3 ranks: no rank has an element, nothing is moved."""
    text = sized("OSU", "reduce_scatter_block")
    assert [row.nbytes for row in rows(tmp_path, text, nranks=3)] == [0, 0, 1020]


def test_reduce_scatter_of_an_unknown_imb_is_left_out(tmp_path: Path) -> None:
    text = IMB.format(version="4.1", name="Reduce_scatter", nranks=2).replace("Intel(R) MPI Benchmarks", "")
    with pytest.raises(ValueError, match="the file names no version"):
        rows(tmp_path, text)


# What people do to logs.


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[0] ", "    ", "> ", "  12: "])
@pytest.mark.parametrize("text", [OSU_FULL, NCCL, IMB.format(version="2019", name="Allreduce", nranks=4)])
def test_prefixes_change_nothing(tmp_path: Path, prefix: str, text: str) -> None:
    plain = imported(tmp_path, text, nranks=2)
    changed = imported(tmp_path, "".join(f"{prefix}{line}\n" for line in text.splitlines()), nranks=2)
    assert changed.rows == plain.rows
    assert changed.reports[0].strange == plain.reports[0].strange


@pytest.mark.parametrize("text", [OSU_FULL, NCCL, IMB.format(version="2019", name="Allreduce", nranks=4)])
def test_headings_without_their_hash_change_nothing(tmp_path: Path, text: str) -> None:
    bare = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    assert rows(tmp_path, f"Look:\n```\n{bare}```\n", nranks=2) == rows(tmp_path, text, nranks=2)
    assert rows(tmp_path, text.replace("\n", "\r\n"), nranks=2) == rows(tmp_path, text, nranks=2)


def test_prose_between_rows_is_named_by_line(tmp_path: Path) -> None:
    lines = OSU_SHORT.splitlines()
    lines[4:4] = ["WARNING: There was an error initializing a device.", "4 of 8 links are up", "12"]
    found = imported(tmp_path, "\n".join(lines) + "\n", nranks=2)
    assert [row.nbytes for row in found.rows] == [4, 8, 1024]
    assert found.reports[0].strange == [5, 6, 7]
    said = "\n".join(found.reports[0].lines())
    assert "3 lines not understood: 5-7" in said
    assert "line 6: '4 of 8 links are up'" in said


def test_a_table_of_something_else_is_not_the_collectives(tmp_path: Path) -> None:
    text = OSU_SHORT + "# OSU MPI Bandwidth Test v5.6.2\n# Size      Bandwidth (MB/s)\n2048                   32.07\n"
    found = imported(tmp_path, text, nranks=2)
    assert [row.nbytes for row in found.rows] == [4, 8, 1024]
    (why,) = found.reports[0].left_out
    assert why.startswith("OSU MPI Bandwidth Test")


def test_sizes_that_start_again_are_another_table(tmp_path: Path) -> None:
    found = imported(tmp_path, OSU_SHORT + "4  7.00\n", nranks=2)
    assert len(found.rows) == 3
    assert found.reports[0].strange == [7]


def test_several_tools_in_one_file(tmp_path: Path) -> None:
    found = imported(tmp_path, OSU_SHORT + NCCL + IMB.format(version="2019", name="Bcast", nranks=4), nranks=2)
    assert [tool for tool, _ in found.reports[0].tools] == [
        "OSU Micro-Benchmarks",
        "nccl-tests",
        "Intel MPI Benchmarks",
    ]
    assert [row.nranks for row in found.rows] == [2] * 3 + [3] * 4 + [4] * 2


def test_ranks_of_one_table_are_not_the_next_ones(tmp_path: Path) -> None:
    with pytest.raises(NotSaidError, match="line 17: the file does not say how many ranks"):
        rows(tmp_path, NCCL + NCCL_FIRST, collective="allreduce")


def test_what_the_file_says_goes_before_what_the_command_says(tmp_path: Path) -> None:
    assert {row.nranks for row in rows(tmp_path, NCCL, nranks=99)} == {3}


def test_what_occurs_again_is_another_launch(tmp_path: Path) -> None:
    found = imported(tmp_path, OSU_SHORT, OSU_SHORT.replace("5.47", "5.49"), nranks=2)
    assert [row.launch for row in found.rows] == [0, 0, 0, 1, 1, 1]
    assert "3 rows repeat a cell: taken for further launches of it" in found.reports[1].notes
    with pytest.raises(ValueError, match="the same as"):
        imported(tmp_path, OSU_SHORT, OSU_SHORT, nranks=2)


def test_few_means_have_no_interval(tmp_path: Path) -> None:
    texts = [OSU_SHORT.replace("5.47", f"5.4{digit}") for digit in range(7)]
    assert table_cells(rows(tmp_path, *texts[:5], nranks=2))[0]["ci_low_s"] is None
    assert table_cells(rows(tmp_path, *texts[:1], nranks=2))[0]["ci_low_s"] is None
    seven = table_cells(rows(tmp_path, *texts, nranks=2))[0]
    assert seven["ci_low_s"] < seven["median_s"] == 5.43e-6 < seven["ci_high_s"]


# The command.


def command(tmp_path: Path, text: str, *more: str, name: str = "log") -> int:
    (tmp_path / f"{name}.txt").write_text(text)
    return main(["import", str(tmp_path / f"{name}.txt"), "--out", str(tmp_path / name), *more])


def test_an_imported_run_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, OSU_FULL.replace("65536 ", "8 1 1 1 1\n16 1 1 1 1\n65536 "), "--nranks", "16") == 0
    assert "4 rows of OSU Micro-Benchmarks 7.2" in capsys.readouterr().err
    run = read_run(tmp_path / "log")
    assert run.status == "complete"
    (source,) = run.provenance["imported"]
    assert source["tools"] == [{"tool": "OSU Micro-Benchmarks", "version": "7.2", "rows": 4}]
    assert len(source["sha256"]) == 64
    assert main(["table", str(tmp_path / "log")]) == 0
    assert "a sample is the mean over iterations and ranks" in " ".join(capsys.readouterr().out.split())
    (fit,) = fit_rows(run.rows).segments
    assert fit.basis == "call"
    assert main(["fit", str(tmp_path / "log")]) == 0
    assert main(["sweep", "--resume", "--out", str(tmp_path / "log")]) == 2
    assert "holds no settings to go on with" in capsys.readouterr().err


def test_runs_of_two_tools_are_compared_by_force_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imb = IMB.format(version="2019", name="Allreduce", nranks=4)
    assert command(tmp_path, imb, name="imb") == command(tmp_path, OSU_SHORT, "--nranks", "4", name="osu") == 0
    both = [str(tmp_path / "osu"), str(tmp_path / "imb")]
    capsys.readouterr()
    assert main(["compare", *both]) == 2
    assert "the runs are unlike: estimand: " in capsys.readouterr().err
    assert main(["compare", *both, "--force", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["nbytes"], row["verdict"], row["ratio_low"], row["warnings"]) == (1024, "cannot tell", None, ["forced"])
    assert row["ratio"] == pytest.approx(24.93 / 15.07)


def test_rows_of_two_estimands_are_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# algorithm ring\n# nranks 4\n" + OSU_SHORT + IMB.format(version="2019", name="Allreduce", nranks=4)
    assert command(tmp_path, text) == 0
    assert main(["compare", str(tmp_path / "log")]) == 2
    assert "have no cell in common" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (OSU_SHORT, (), "line 4: the file does not say how many ranks: give --nranks N"),
        (NCCL_FIRST, ("--nranks", "2"), "line 3: the file does not say which collective: give --collective NAME"),
    ],
)
def test_what_is_not_said_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, more: tuple[str, ...], said: str
) -> None:
    assert command(tmp_path, text, *more) == 2
    assert capsys.readouterr().err == f"ringbench: {tmp_path / 'log.txt'}: {said}\n"
    assert not (tmp_path / "log").exists()


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, NCCL) == 0
    before = (tmp_path / "log" / "run.jsonl").read_bytes()
    assert command(tmp_path, NCCL) == 2
    assert (tmp_path / "log" / "run.jsonl").read_bytes() == before
    assert main(["import", str(tmp_path / "none"), "--out", str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err.endswith(f"{tmp_path / 'none'}: No such file or directory\n")

"""What must be refused, in the same words on every rank, and leaves the communicator as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from battery import Battery, battery
from mpi4py import MPI

import ringbench.collectives  # noqa: F401  (fills the registry)
from ringbench.runtime.moves import DEFAULT_SEGMENT
from ringbench.runtime.plan import plan
from ringbench.schedule.registry import algorithms
from ringbench.schedule.semantics import COLLECTIVES

NAMES = ("ring", "naive", "parameter_server", "mpi")


def ones(count: int = 10, dtype: str = "float64") -> Any:
    return np.ones(count, dtype=dtype)


class Refusals:
    """Ask for plans that must be refused."""

    def __init__(self, tests: Battery) -> None:
        self.tests, self.rank, self.nranks = tests, tests.rank, tests.nranks
        self.last = tests.nranks - 1
        self.number = 0

    def expect(self, what: str, call: Callable[[], object], *words: str) -> None:
        self.tests.refused(what, *words, call=call)
        self.tests.usable(what)
        self.number += 1

    def unlike(self, what: str, *words: str, send: Any = None, recv: Any = None, **other: Any) -> None:
        """Ask for the usual thing, and on the last rank for something else."""
        asked: dict[str, Any] = {"collective": "allreduce", "algorithm": "ring", "op": "sum", "segment": 4096}
        sendbuf, recvbuf = ones(), ones()
        if self.rank == self.last:
            asked |= other
            sendbuf = sendbuf if send is None else send
            recvbuf = recvbuf if recv is None else recv
        first = asked.pop("collective"), asked.pop("algorithm")
        self.expect(
            what, lambda: plan(*first, self.tests.comm, sendbuf, recvbuf, asked["op"], asked["segment"]), *words
        )

    def everywhere(self, what: str, send: Any, recv: Any, *words: str, **asked: Any) -> None:
        """Ask for the same wrong thing on all ranks."""
        names = (asked.pop("collective", "allreduce"), asked.pop("algorithm", "ring"))
        self.expect(what, lambda: plan(*names, self.tests.comm, send, recv, **asked), *words)

    def at_one_rank(self, what: str, send: Any, recv: Any, *words: str, **asked: Any) -> None:
        """Ask for something wrong on the last rank alone."""
        names = (asked.pop("collective", "allreduce"), asked.pop("algorithm", "ring"))
        if self.rank != self.last:
            send, recv = ones(), ones()
        call = lambda: plan(*names, self.tests.comm, send, recv, **asked)  # noqa: E731
        self.expect(f"{what}, on one rank", call, f"rank {self.last}: ", *words)


def unlike_requests(refuse: Refusals) -> None:
    """CASE 6: what differs between ranks is named with both values."""
    last = f"rank {refuse.last}"
    for name in NAMES:
        words = ("number of elements", "10 on rank 0", f"9 on {last}")
        refuse.unlike(f"9 elements, {name}", *words, algorithm=name, send=ones(9), recv=ones(9))
        sendbuf = ones() if refuse.rank == 0 else ones(9)
        call = lambda name=name, sendbuf=sendbuf: plan(  # noqa: E731
            "allreduce", name, refuse.tests.comm, MPI.IN_PLACE, sendbuf
        )
        refuse.expect(f"10 against 9 in place, {name}", call, "10 on rank 0", "9 on rank 1")
    refuse.unlike(
        "dtype", "'float64' on rank 0", f"'float32' on {last}", send=ones(10, "float32"), recv=ones(10, "float32")
    )
    refuse.unlike("dtype of one size", "'float64'", "'int64'", send=ones(10, "int64"), recv=ones(10, "int64"))
    refuse.unlike("op", "op 'sum' on rank 0", f"'average' on {last}", op="average")
    refuse.unlike("algorithm", "algorithm 'ring' on rank 0", f"'naive' on {last}", algorithm="naive")
    refuse.unlike("library", "algorithm 'ring' on rank 0", f"'mpi' on {last}", algorithm="mpi")
    refuse.unlike("segment", "segment 4096 on rank 0", f"0 on {last}", segment=0)
    refuse.unlike("placement", "in place False on rank 0", f"True on {last}", send=MPI.IN_PLACE)
    refuse.unlike(
        "collective", "collective", "allreduce", "reduce_scatter", collective="reduce_scatter", send=MPI.IN_PLACE
    )
    # What is left to the default is not what is asked for: only the former asks whether ranks share memory.
    inner = None if refuse.rank == refuse.last else "ring"
    call = lambda: plan("allreduce", "hierarchical", refuse.tests.comm, ones(), ones(), inner=inner)  # noqa: E731
    refuse.expect("inner", call, "inner 'ring' on rank 0", f"'None' on {last}")
    # Both at once: number of elements and dtype.
    refuse.unlike("two things", "10 on rank 0", "'float32'", send=ones(9, "float32"), recv=ones(9, "float32"))


def layouts(refuse: Refusals) -> None:
    """CASE 7: no view that a flat vector would read or write in another order."""
    strided = np.arange(20.0)[::2]
    column = np.arange(20.0).reshape(10, 2)[:, 0]
    backwards = np.arange(10.0)[::-1]
    fortran = np.asfortranarray(np.arange(10.0).reshape(2, 5))
    repeated = np.broadcast_to(np.ones(1), (10,))
    for what, view in (
        ("every other", strided),
        ("column", column),
        ("reversed", backwards),
        ("Fortran order", fortran),
        ("repeated", repeated),
    ):
        before = view.copy()
        words = ("not contiguous", str(view.shape))
        for name in NAMES:
            refuse.everywhere(f"{what} as sendbuf, {name}", view, ones(), *words, algorithm=name)
            refuse.everywhere(f"{what} as recvbuf, {name}", ones(), view, *words, algorithm=name)
            refuse.everywhere(f"{what} in place, {name}", MPI.IN_PLACE, view, *words, algorithm=name)
        refuse.everywhere(f"{what} twice", view, view, *words)
        refuse.at_one_rank(f"{what} as sendbuf", view, ones(), *words)
        refuse.at_one_rank(f"{what} as recvbuf", ones(), view, *words)
        refuse.tests.check((view == before).all(), f"{what}: changed by a refusal")
    small = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    refuse.everywhere("Fortran order of (2, 3)", small, np.ones((2, 3)), "not contiguous", "(2, 3)")


def read_only(refuse: Refusals) -> None:
    """CASE 8: what takes the result may be written."""
    frozen = ones()
    frozen.setflags(write=False)
    for name in NAMES:
        refuse.everywhere(f"read-only in place, {name}", MPI.IN_PLACE, frozen, "read-only", algorithm=name)
        refuse.everywhere(f"read-only twice, {name}", frozen, frozen, "read-only", algorithm=name)
        refuse.everywhere(f"read-only recvbuf, {name}", ones(), frozen, "read-only", algorithm=name)
    refuse.at_one_rank("read-only recvbuf", ones(), frozen, "read-only")
    refuse.tests.check((frozen == 1).all(), "a read-only array changed")


def overlaps(refuse: Refusals) -> None:
    """Two views of one memory are the same memory or have none in common."""
    memory = ones(15)
    refuse.everywhere("overlap", memory[:10], memory[5:], "overlap by 40 bytes")
    refuse.everywhere("overlap the other way", memory[5:], memory[:10], "overlap by 40 bytes")
    refuse.everywhere("overlap of the library's", memory[:10], memory[1:11], "overlap by 72 bytes", algorithm="mpi")
    refuse.at_one_rank("overlap", memory[:10], memory[5:], "overlap")
    # A block inside of the whole vector is the usual way to be wrong with these two.
    whole = ones(refuse.nranks * 4)
    own = slice(4 * refuse.rank, 4 * refuse.rank + 4)
    refuse.everywhere("a block of the input", whole, whole[own], "overlap", collective="reduce_scatter")
    refuse.everywhere("a block of the result", whole[own], whole, "overlap", collective="allgather")


def types(refuse: Refusals) -> None:
    """CASE 10 and its like: one policy for all algorithms; no arrays but arrays."""
    for name in NAMES:
        flags = np.ones(10, dtype=bool)
        refuse.everywhere(f"bool, {name}", flags, flags.copy(), "bool", "lor", "land", algorithm=name)
        refuse.everywhere(
            f"average of int32, {name}",
            ones(10, "int32"),
            ones(10, "int32"),
            "average",
            "int32",
            algorithm=name,
            op="average",
        )
        for dtype in ("uint16", "uint64", "float128", ">f8"):
            refuse.everywhere(
                f"{dtype}, {name}", ones(10, dtype), ones(10, dtype), dtype, "float32", "int64", algorithm=name
            )
        for dtype, op, word in (
            ("complex64", "max", "no order"),
            ("complex128", "min", "no order"),
            ("float64", "land", "integers and bool"),
            ("complex64", "lor", "integers and bool"),
            ("uint8", "average", "round"),
            ("bool", "prod", "lor"),
        ):
            refuse.everywhere(
                f"{op} of {dtype}, {name}", MPI.IN_PLACE, ones(10, dtype), dtype, op, word, algorithm=name, op=op
            )
    refuse.everywhere("average of int64", MPI.IN_PLACE, ones(10, "int64"), "average", "int64", op="average")
    refuse.everywhere(
        "average of blocks", MPI.IN_PLACE, ones(10, "int32"), "int32", collective="reduce_scatter", op="average"
    )
    refuse.everywhere("sendbuf of another dtype", ones(10, "float32"), ones(), "float32", "float64")
    for what, thing in (
        ("list", [1.0] * 10),
        ("tuple", (1.0,)),
        ("None", None),
        ("str", "ring"),
        ("bytes", b"0123456789"),
    ):
        refuse.everywhere(f"{what} as recvbuf", ones(), thing, what if thing is not None else "NoneType")
        refuse.everywhere(f"{what} as sendbuf", thing, ones(), what if thing is not None else "NoneType")
        refuse.at_one_rank(f"{what} as sendbuf", thing, ones(), what if thing is not None else "NoneType")
    refuse.everywhere("a number", np.float64(1), ones(1), "float64")
    refuse.everywhere("IN_PLACE as recvbuf", ones(), MPI.IN_PLACE, "no array")


def names(refuse: Refusals) -> None:
    """What is not known is named beside what is."""
    for collective in COLLECTIVES:
        known = [algorithm.name for algorithm in algorithms(collective)] + ["mpi"]
        refuse.everywhere(
            "algorithm", MPI.IN_PLACE, ones(), "'rings'", *known, collective=collective, algorithm="rings"
        )
    refuse.everywhere("collective", ones(), ones(), "'all_reduce'", *COLLECTIVES, collective="all_reduce")
    refuse.everywhere("op", ones(), ones(), "'xor'", "sum", "average", op="xor")
    refuse.everywhere("op of the library", ones(), ones(), "'xor'", "sum", algorithm="mpi", op="xor")
    refuse.everywhere("an algorithm that is no name", ones(), ones(), algorithm=["ring"])
    refuse.everywhere("no algorithm", ones(), ones(), "None", algorithm=None)
    refuse.everywhere("no collective", ones(), ones(), "None", collective=None)
    for segment in (-1, 1.5, "8", True):
        refuse.everywhere(f"segment {segment!r}", ones(), ones(), "segment", repr(segment), segment=segment)
    refuse.at_one_rank(
        "unknown algorithm", ones(), ones(), "'rings'", algorithm="ring" if refuse.rank != refuse.last else "rings"
    )


def counts(refuse: Refusals) -> None:
    """The two buffers of a rank must fit each other."""
    nranks, rank = refuse.nranks, refuse.rank
    refuse.everywhere("shorter result", ones(10), ones(9), "sendbuf has 10", "needs 9")
    for name in ("ring", "mpi"):
        words = (f"recvbuf has {4 * nranks}", "needs 4")
        whole = ones(4 * nranks)
        refuse.everywhere("whole result", whole, ones(4 * nranks), *words, collective="reduce_scatter", algorithm=name)
        refuse.everywhere("one more", whole, ones(5), "recvbuf has 5", collective="reduce_scatter", algorithm=name)
        refuse.everywhere("block", ones(5), ones(4 * nranks), "sendbuf has 5", collective="allgather", algorithm=name)
    # Blocks the other way round: rank 0 has the larger one.
    count = 2 * nranks + 1
    wrong = 3 if rank == nranks - 1 else 2
    refuse.everywhere("uneven blocks", ones(wrong), ones(count), "rank 0", f"rank {nranks - 1}", collective="allgather")


def accepted(tests: Battery) -> None:
    """What looks like the refused and is right."""
    for name in NAMES:
        square = np.full((2, 3), 2.0**tests.rank)
        plan("allreduce", name, tests.comm, square.reshape(-1), square)()
        tests.check((square == 2**tests.nranks - 1).all(), f"{name}, two shapes of one memory: {square}")
        memory = np.full(20, 2.0**tests.rank)
        plan("allreduce", name, tests.comm, memory[:10], memory[10:])()
        tests.check((memory[10:] == 2**tests.nranks - 1).all(), f"{name}, neighbours: {memory}")
        tests.check((memory[:10] == 2**tests.rank).all(), f"{name}, neighbours: the input changed")
        one_row = np.asfortranarray(np.full((1, 6), 2.0**tests.rank))  # contiguous either way
        plan("allreduce", name, tests.comm, MPI.IN_PLACE, one_row)()
        tests.check((one_row == 2**tests.nranks - 1).all(), f"{name}, one row: {one_row}")
        matrix = np.asmatrix(np.full((2, 3), 2.0**tests.rank))  # never flat, whatever the shape asked for
        plan("allreduce", name, tests.comm, MPI.IN_PLACE, matrix, segment=DEFAULT_SEGMENT)()
        tests.check((matrix == 2**tests.nranks - 1).all(), f"{name}, matrix: {matrix}")
    whole = np.zeros(2 * tests.nranks, dtype=np.int32)
    plan("allgather", "ring", tests.comm, np.full(2, tests.rank, dtype=np.int32), whole)()
    tests.check((whole == np.repeat(np.arange(tests.nranks), 2)).all(), f"allgather: {whole}")


def between_groups(tests: Battery) -> None:
    """An intercommunicator is refused before anything is sent: its two groups are no ring."""
    half = tests.comm.Split(tests.rank % 2)
    between = half.Create_intercomm(0, tests.comm, 1 - tests.rank % 2)
    try:
        plan("allreduce", "ring", between, MPI.IN_PLACE, ones())
        tests.check(False, "an intercommunicator was accepted")
    except ValueError as error:
        tests.check("intercommunicator" in str(error), str(error))
    between.Free()
    half.Free()


if __name__ == "__main__":
    with battery(least=300) as tests:
        refuse = Refusals(tests)
        for ask in (unlike_requests, layouts, read_only, overlaps, types, names, counts):
            ask(refuse)
        accepted(tests)
        between_groups(tests)
        tests.check(refuse.number > 100, f"only {refuse.number} refusals")

"""One measured value of another tool on its way to a row: sizes converted, types translated, nothing made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringbench.records.importers.lines import Line, NotSaidError, count, decimals
from ringbench.records.row import Row
from ringbench.schedule.semantics import COLLECTIVES

#: Bytes of an element, by the name that rows use. What a file does not say is ``unknown``, counted in bytes.
ITEM_NBYTES = {
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3", "float8_e5m2", "unknown"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}

#: What MPI calls types and operations.
MPI_DTYPES = {
    "MPI_CHAR": "int8",
    "MPI_SIGNED_CHAR": "int8",
    "MPI_UNSIGNED_CHAR": "uint8",
    "MPI_BYTE": "uint8",
    "MPI_SHORT": "int16",
    "MPI_INT": "int32",
    "MPI_LONG": "int64",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
}
MPI_OPS = {"MPI_SUM": "sum", "MPI_PROD": "prod", "MPI_MAX": "max", "MPI_MIN": "min"}

MOST_RANKS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold what the command says for files that do not say it themselves."""

    nranks: int | None = None
    collective: str | None = None

    def nranks_or(self, said: int | None) -> int:
        """Return the number of ranks that the file says, else the command's; raise NotSaidError for neither."""
        nranks = self.nranks if said is None else said
        if nranks is None:
            raise NotSaidError("the file does not say how many ranks: give --nranks N")
        if not 1 <= nranks <= MOST_RANKS:
            raise ValueError(f"{nranks} ranks: must be 1 to {MOST_RANKS}")
        return nranks

    def collective_or(self, said: str | None) -> str:
        """Return the collective that the file says, else the command's; raise NotSaidError for neither."""
        collective = said or self.collective
        if collective is None:
            raise NotSaidError("the file does not say which collective: give --collective NAME")
        return collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Hold one value as a tool reports it, its size as the tool means it.

    ``block`` says that ``size`` is that of one rank's block, not of the whole vector; ``equal`` that the vector is cut
    down to blocks of one size. ``reported`` is what else the tool said of it, column by column.
    """

    tool: str
    version: str | None
    collective: str
    algorithm: str
    op: str
    dtype: str
    device: str
    nranks: int
    size: int
    samples_s: tuple[float, ...]
    estimand: str
    in_place: bool = False
    buffers: int = 1
    block: bool = False
    equal: bool = False
    wrong: int | None = None
    wrong_detail: str | None = None
    hosts: tuple[str, ...] = ()
    reported: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> Row:
        """Return the row, its size in bytes of the whole vector; raise ValueError naming what no row can hold."""
        item = ITEM_NBYTES[self.dtype]
        elements, rest = divmod(self.size * (self.nranks if self.block else 1), item)
        if rest:
            raise ValueError(f"size {self.size}: no whole number of elements of {self.dtype}")
        if self.equal:
            elements -= elements % self.nranks
        row = Row(
            collective=self.collective,
            algorithm=self.algorithm,
            op=self.op if COLLECTIVES[self.collective].reduces else "none",
            dtype=self.dtype,
            device=self.device,
            nranks=self.nranks,
            nbytes=elements * item,
            count=elements,
            in_place=self.in_place,
            launch=0,
            samples_s=self.samples_s,
            wrong=self.wrong,
            wrong_detail=self.wrong_detail,
            buffers=self.buffers,
            estimand=self.estimand,
        )
        return Row.from_json(row.to_json())


class Table:
    """Read the rows below one heading: cells under ``columns``, split at blanks.

    ``read`` gives what a line says, a reason why it is left out, or None where it is none of the rows.
    """

    def __init__(self, columns: list[str]):
        self.columns = columns
        self._last = ""

    def cells(self, text: str) -> list[str]:
        """Return the cells of a line."""
        return text.split()

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        """Return what a row with as many cells as there are columns says."""
        raise NotImplementedError

    def row_like(self, cells: list[str]) -> bool:
        """Say whether the cells begin as those of a row do: with a size."""
        return count(cells[0]) is not None

    def read(self, line: Line) -> list[Found] | str | None:
        """Read one line.

        A last line without its line break may have lost digits. It counts where its last cell has as many decimals as
        that of the row before, and some.
        """
        cells = self.cells(line.text)
        if len(cells) != len(self.columns) or not self.row_like(cells):
            return None
        if line.torn and not 0 < decimals(cells[-1]) == decimals(self._last):
            return None
        self._last = cells[-1]
        return self.found(dict(zip(self.columns, cells, strict=True)), cells)


class LeftOut(Table):
    """Leave out, with a reason, the rows below the heading of something that is no collective here."""

    def __init__(self, columns: list[str], reason: str):
        super().__init__(columns)
        self.reason = reason

    def found(self, cells: Mapping[str, str], ordered: list[str]) -> list[Found] | str | None:
        """Return the reason."""
        return self.reason


class Tool:
    """Follow a log line by line, and open a table where a heading of the tool stands.

    ``heed`` returns the table, True for a line that says something else of the tool, and None for any other.
    ``notes`` are what the tool says against its own results.
    """

    def __init__(self, asked: Asked):
        self.asked = asked
        self.notes: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Forget what was said before, since what follows is of another tool."""

    def heed(self, line: Line) -> Table | bool | None:
        """Look at one line."""
        raise NotImplementedError


def reported(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the cells of a row for the run's file: numbers where JSON has them, else text."""
    values: dict[str, Any] = {}
    for name, text in cells.items():
        try:
            value: Any = float(text) if any(mark in text for mark in ".eE") else int(text)
        except ValueError:
            value = text
        values[name] = value if isinstance(value, str) or abs(value) < 1e300 else text
    return values

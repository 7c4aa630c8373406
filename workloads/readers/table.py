"""Rows under named columns: what readers of tables share. Every fault names file, line and column."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from itertools import compress
from typing import Any, TypeVar

from stowplan.errors import FileFormatError
from workloads.trace import Trace, TraceJob, sorted_trace
from workloads.words import STATES, state_of

T = TypeVar("T")
Parse = Callable[[str], T]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SHOWN = 60
NUMBER = "a number from 0 on"
POSITIVE = "a number above 0"
COUNT = "a whole number from 0 on"
TIME = "a time such as 2026-03-01 00:18:22 (UTC unless it names its zone)"
STATE = f"a state: {', '.join(STATES)}"


class Table:
    """Cells by column. `lines`: the line of the file in which each row ends."""

    def __init__(
        self, source: str, names: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[int], header_line: int = 1
    ) -> None:
        self.source = source
        self.names = tuple(names)
        self.lines = lines
        self._rows = rows
        self._header_line = header_line
        self._position = {name: k for k, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._position

    def require(self, *names: str, hint: str = "") -> None:
        """Refuse a table that lacks one of these columns."""
        for name in names:
            if name not in self:
                detail = f"there is no column {name!r}; the columns are {list(self.names)}"
                raise FileFormatError.at(self.source, self._header_line, detail + (f". {hint}" if hint else ""))

    def only(self, keep: Sequence[bool]) -> "Table":
        """The rows that are to be kept."""
        rows, lines = list(compress(self._rows, keep)), list(compress(self.lines, keep))
        return Table(self.source, self.names, rows, lines, self._header_line)

    def texts(self, name: str) -> list[str]:
        """Cells of a column, without the space around them."""
        self.require(name)
        k = self._position[name]
        return [row[k].strip() for row in self._rows]

    def required(self, name: str, parse: Parse[T], wanted: str) -> list[T]:
        """Values of a column in which no cell is empty; `wanted` says what they must be."""
        return self._parsed(name, self.texts(name), parse, wanted)

    def optional(self, name: str, parse: Parse[T], wanted: str, *, empty: Sequence[str] = ("",)) -> list[T | None]:
        """Values of a column, None for cells that say nothing and where there is no such column."""
        if name not in self:
            return [None] * len(self)
        return self._parsed(name, self.texts(name), partial(_unless_empty, frozenset(empty), parse), wanted)

    def named(self, name: str, *, empty: Sequence[str] = ("",)) -> list[str | None]:
        """Texts of a column, None for cells that say nothing and where there is no such column."""
        return self.optional(name, str, "a text", empty=empty)

    def fault(self, k: int, name: str, detail: str) -> FileFormatError:
        """The error about a cell of row k."""
        return FileFormatError.at(self.source, self.lines[k], f"column {name!r} {detail}")

    def unique(self, name: str) -> list[str]:
        """Cells of a column in which every row has its own."""
        cells = self.required(name, text_cell, "a text")
        if len(set(cells)) < len(cells):
            first: dict[str, int] = {}
            for k, cell in enumerate(cells):
                if cell in first:
                    raise self.fault(k, name, f"is {cell!r}, which is already in line {self.lines[first[cell]]}")
                first[cell] = k
        return cells

    def _parsed(self, name: str, cells: Sequence[str], parse: Parse[T], wanted: str) -> list[T]:
        try:
            return [parse(cell) for cell in cells]
        except ValueError:
            pass
        for k, cell in enumerate(cells):
            try:
                parse(cell)
            except ValueError as error:
                shown = repr(cell if len(cell) <= _MAX_SHOWN else cell[: _MAX_SHOWN - 3] + "...")
                raise self.fault(k, name, f"is {shown if cell else 'empty'}; must be {wanted}") from error
        raise AssertionError("a cell is wrong the first time only")


def read_table(text: str, source: str, *, names: Sequence[str] | None = None) -> Table:
    """Read a CSV whose first row names the columns, unless `names` does.

    Raises
    ------
    FileFormatError
        When it is none, has no rows, or rows of another length than the header.
    """
    # newline translation is csv's business, hence no splitlines here.
    rows = csv.reader(StringIO(text, newline=""), strict=True)
    kept: list[list[str]] = []
    lines: list[int] = []
    header_line = 1
    try:
        if names is None:
            names = [name.strip() for name in next((row for row in rows if row), [])]
            header_line = rows.line_num
            check_names(source, header_line, names)
        num_columns = len(names)
        for row in rows:
            if len(row) == num_columns:
                kept.append(row)
                lines.append(rows.line_num)
            elif row:
                detail = f"has {len(row)} cells; there are {num_columns} columns"
                raise FileFormatError.at(source, rows.line_num, detail)
    except csv.Error as error:
        raise FileFormatError.at(source, rows.line_num, f"no CSV: {error}") from error
    return Table(source, names, kept, lines, header_line)


def check_names(source: str, line: int, names: Sequence[str]) -> None:
    """Refuse a header without names, or with one twice."""
    if not any(names):
        raise FileFormatError.at(source, 1, "has no header; the first row must name the columns")
    for k, name in enumerate(names):
        if not name or name in names[:k]:
            raise FileFormatError.at(source, line, f"column {k + 1} is called {name!r}; give each a name of its own")


def build_trace(
    name: str,
    source: str,
    columns: Mapping[str, Sequence[Any]],
    *,
    absolute: bool = False,
    origin_s: float | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Trace:
    """The trace of columns that are called as the fields of `TraceJob`.

    With `absolute`, submissions are in seconds since 1970, and the first of them is time zero; else `origin_s` is.

    Raises
    ------
    FileFormatError
        When there are no jobs.
    """
    submits: Sequence[float] = columns["submit_s"]
    if not submits:
        raise FileFormatError.at(source, None, "there are no jobs in the file")
    if absolute:
        first_s = origin_s = min(submits)
        columns = {**columns, "submit_s": [submit_s - first_s for submit_s in submits]}
    fields = tuple(columns)
    rows = zip(*columns.values(), strict=True)
    jobs = (TraceJob(**dict(zip(fields, row, strict=True))) for row in rows)
    return sorted_trace(name, jobs, origin_s=origin_s, left_out={k: n for k, n in (left_out or {}).items() if n})


def number(cell: str) -> float:
    """A number from 0 on."""
    value = float(cell)
    # float() takes 1_000.
    if not 0 <= value < math.inf or "_" in cell:
        raise ValueError(cell)
    return value


def positive(cell: str) -> float:
    """A number above 0."""
    value = number(cell)
    if not value:
        raise ValueError(cell)
    return value


def count(cell: str) -> int:
    """A whole number from 0 on; 4.0 is one."""
    value = number(cell)
    if value % 1:
        raise ValueError(cell)
    return int(value)


def some(cell: str) -> int | None:
    """A whole number from 0 on, where 0 says that it is not known."""
    return count(cell) or None


def time_s(cell: str) -> float:
    """A time of day in seconds since 1970; UTC where it names no zone."""
    moment = datetime.fromisoformat(cell)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH).total_seconds()


def difference(later: Sequence[float | None], earlier: Sequence[float | None]) -> list[float | None]:
    """How much later, nowhere below 0; None where one of them is not known."""
    return [
        None if b is None or a is None else max(0.0, b - a) for b, a in zip(later, earlier, strict=True)
    ]


state = state_of


def text_cell(cell: str) -> str:
    """A text that is not empty."""
    if not cell:
        raise ValueError(cell)
    return cell


def _unless_empty(empty: frozenset[str], parse: Parse[T], cell: str) -> T | None:
    return None if cell in empty else parse(cell)

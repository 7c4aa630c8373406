"""Rows under named columns: what readers of tables share. Every fault names file, line and column."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from itertools import compress
from typing import Any, TypeVar

from stowplan.errors import FileFormatError
from workloads.trace import Trace, jobs_from_columns, sorted_trace
from workloads.words import STATES

T = TypeVar("T")
Parse = Callable[[str], T]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_WITHOUT_ZONE = _EPOCH.replace(tzinfo=None)
_MAX_SHOWN = 60
NUMBER = "a number from 0 on"
POSITIVE = "a number above 0"
COUNT = "a whole number from 0 on"
POSITIVE_COUNT = "a whole number from 1 on"
TIME = "a time such as 2026-03-01 00:18:22 (UTC unless it names its zone)"
STATE = f"a state: {', '.join(STATES)}"


class Table:
    """Cells by column. `lines` gives the line of the file in which each row ends; it is asked when there is a fault."""

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        rows: Sequence[Sequence[str]],
        lines: Callable[[], Sequence[int]],
        header_line: int = 1,
    ) -> None:
        self.source = source
        self.names = tuple(names)
        self._num_rows = len(rows)
        # By column: fewer objects to look after than a list per row.
        self._columns = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
        self._lines = lines
        self._header_line = header_line

    def __len__(self) -> int:
        return self._num_rows

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def require(self, *names: str, hint: str = "") -> None:
        """Refuse a table that lacks one of these columns."""
        for name in names:
            if name not in self:
                detail = f"there is no column {name!r}; the columns are {list(self.names)}"
                raise FileFormatError.at(self.source, self._header_line, detail + (f". {hint}" if hint else ""))

    def only(self, keep: Sequence[bool]) -> "Table":
        """The rows that are to be kept."""
        rows = list(compress(zip(*self._columns.values(), strict=True), keep))
        return Table(self.source, self.names, rows, lambda: list(compress(self._lines(), keep)), self._header_line)

    def texts(self, name: str) -> list[str]:
        """Cells of a column, without the space around them."""
        self.require(name)
        return list(map(str.strip, self._columns[name]))

    def required(self, name: str, parse: Parse[T], wanted: str) -> list[T]:
        """Values of a column in which no cell is empty; `wanted` says what they must be."""
        cells = self.texts(name)
        if parse is time_s:
            self._refuse_mixed_zones(name)
        try:
            return [parse(cell) for cell in cells]
        except ValueError as error:
            raise self._refused(name, parse, wanted, ()) from error

    def optional(self, name: str, parse: Parse[T], wanted: str, *, empty: Sequence[str] = ("",)) -> list[T | None]:
        """Values of a column, None for cells that say nothing and where there is no such column."""
        if name not in self:
            return [None] * len(self)
        if parse is time_s:
            self._refuse_mixed_zones(name)
        try:
            return [None if cell in empty else parse(cell) for cell in self.texts(name)]
        except ValueError as error:
            raise self._refused(name, parse, wanted, empty) from error

    def named(self, name: str) -> list[str | None]:
        """Texts of a column, None for cells that say nothing and where there is no such column."""
        return [cell or None for cell in self.texts(name)] if name in self else [None] * len(self)

    def ids(self, name: str) -> list[str]:
        """Cells of a column in which every row has its own."""
        cells = self.required(name, text_cell, "the id of a job")
        if len(set(cells)) < len(cells):
            first: dict[str, int] = {}
            for k, cell in enumerate(cells):
                if cell in first:
                    raise self.fault(k, name, f"is {cell!r}, which is already in line {self._lines()[first[cell]]}")
                first[cell] = k
        return cells

    def numbered(self) -> list[str]:
        """Ids for the rows of a table that has none: their place among the rows."""
        return [f"job-{k}" for k in range(1, len(self) + 1)]

    def fault(self, k: int, name: str, detail: str) -> FileFormatError:
        """The error about a cell of row k."""
        return FileFormatError.at(self.source, self._lines()[k], f"column {name!r} {detail}")

    def _refuse_mixed_zones(self, name: str) -> None:
        """Refuse times of which some name their zone: the others would be taken for UTC, which they may not be."""
        first: tuple[int, bool] | None = None
        for k, cell in enumerate(self.texts(name)):
            zoned = _names_zone(cell)
            if not cell[:1].isdigit():
                continue
            if first is None:
                first = k, zoned
            elif zoned != first[1]:
                says = "names its zone" if zoned else "names no zone"
                before = "names one" if first[1] else "names none"
                detail = f"is {cell!r}, which {says}; that in line {self._lines()[first[0]]} {before}: give all alike"
                raise self.fault(k, name, detail)

    def _refused(self, name: str, parse: Parse[Any], wanted: str, empty: Sequence[str]) -> FileFormatError:
        """The error about the first cell of a column that cannot be parsed."""
        for k, cell in enumerate(self.texts(name)):
            try:
                if cell not in empty:
                    parse(cell)
            except ValueError:
                shown = repr(cell if len(cell) <= _MAX_SHOWN else cell[: _MAX_SHOWN - 3] + "...")
                return self.fault(k, name, f"is {shown if cell else 'empty'}; must be {wanted}")
        raise AssertionError("a cell is wrong the first time only")


def read_table(text: str, source: str, *, names: Sequence[str] | None = None) -> Table:
    """Read a CSV whose first row names the columns, unless `names` does.

    Raises
    ------
    FileFormatError
        When it is none, has no header, or rows of another length than the header.
    """
    # newline translation is csv's business, hence no splitlines here.
    rows = csv.reader(StringIO(text, newline=""), strict=True)
    header_line = 0
    try:
        if names is None:
            names = [name.strip() for name in next((row for row in rows if row), [])]
            header_line = rows.line_num
            check_names(source, header_line, names)
        kept = [row for row in rows if row]
    except csv.Error as error:
        raise FileFormatError.at(source, rows.line_num, f"no CSV: {error}") from error

    def lines() -> list[int]:
        again = csv.reader(StringIO(text, newline=""), strict=True)
        return [again.line_num for row in again if row and again.line_num > header_line]

    num_columns = len(names)
    if set(map(len, kept)) - {num_columns}:
        k = next(k for k, row in enumerate(kept) if len(row) != num_columns)
        raise FileFormatError.at(source, lines()[k], f"has {len(kept[k])} cells; there are {num_columns} columns")
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
    counted = {reason: count for reason, count in (left_out or {}).items() if count}
    return sorted_trace(name, jobs_from_columns(columns), origin_s=origin_s, left_out=counted)


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
    if cell.isdecimal():
        return int(cell)
    value = number(cell)
    if value % 1:
        raise ValueError(cell)
    return int(value)


def positive_count(cell: str) -> int:
    """A whole number from 1 on."""
    value = count(cell)
    if not value:
        raise ValueError(cell)
    return value


def some(cell: str) -> int | None:
    """A whole number from 0 on, where 0 says that it is not known."""
    return count(cell) or None


def time_s(cell: str) -> float:
    """A time of day in seconds since 1970; UTC where it names no zone."""
    moment = datetime.fromisoformat(cell)
    return (moment - (_EPOCH if moment.tzinfo else _EPOCH_WITHOUT_ZONE)).total_seconds()


def _names_zone(cell: str) -> bool:
    """Whether a time says its zone: `Z`, or an offset behind the date."""
    return cell[-1:] in ("Z", "z") or "+" in cell or "-" in cell[10:]


def difference(later: Sequence[float | None], earlier: Sequence[float | None]) -> list[float | None]:
    """How much later, nowhere below 0; None where one of them is not known."""
    return [None if b is None or a is None else max(0.0, b - a) for b, a in zip(later, earlier, strict=True)]


def text_cell(cell: str) -> str:
    """A text that is not empty."""
    if not cell:
        raise ValueError(cell)
    return cell

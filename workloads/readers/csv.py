"""Any table of jobs, by saying what its columns are; without that, what `workloads.writer` writes.

    submit=submit_time,gpus=gpu_num,duration=run_min:min

names the columns of submission, GPUs and duration, the last in minutes (`:s`, `:ms`, `:min` or `:h`). Submissions are
numbers from the trace's zero, or since 1970 (where all are above 1e9), or times such as 2026-03-01 00:18:22.
Where there is no duration, `start` and `end` give it, and `start` how long a job waited. Without `id` jobs are called
by their place in the file. Columns that are not named are not read.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from stowplan.errors import FileFormatError, InputError
from workloads.readers.table import (
    COUNT,
    NUMBER,
    POSITIVE,
    STATE,
    TIME,
    Parse,
    Table,
    build_trace,
    count,
    difference,
    number,
    positive,
    read_table,
    some,
    time_s,
)
from workloads.trace import Adaptivity, Trace
from workloads.words import state_of

# What a column may be -> the column of that name that we write.
COLUMNS: Mapping[str, str] = {
    "id": "id",
    "submit": "submit_s",
    "gpus": "num_gpus",
    "start": "start_s",
    "end": "end_s",
    "duration": "duration_s",
    "gpu_type": "gpu_type",
    "application": "application",
    "batch": "global_batch",
    "iterations": "iterations",
    "deadline": "deadline_s",
    "priority": "priority",
    "user": "user",
    "queue": "queue",
    "state": "state",
    "nodes": "num_nodes",
    "adaptivity": "adaptivity",
    "waited": "waited_s",
    "time_limit": "time_limit_s",
    "share": "gpu_share",
}
ORIGIN = "origin_s"
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# Numbers above it count from 1970: as times from a trace's zero they would be 31 years.
_EPOCH_S = 1e9
_SHARE = "a number above 0, at most 1"


def read_csv(text: str, source: str, name: str, *, columns: str | None = None) -> Trace:
    """Read a table.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    InputError
        When `columns` is no list of `what=column`.
    """
    table = read_table(text, source)
    cells = _Cells(table, _own_columns(table) if columns is None else parse_columns(columns, table.names))
    cells.require("submit", "gpus")
    submits = cells.moments("submit")
    starts, ends = cells.moments("start"), cells.moments("end")
    if None in submits:
        raise cells.fault(submits.index(None), "submit", f"is empty; must be {NUMBER}, or {TIME}")
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start is not None and end is not None and end < start:
            raise cells.fault(k, "end", f"is {start - end:g} s before the start; a job ends after it began")
    known_submits = [value for value in submits if value is not None]
    fields: dict[str, Sequence[Any]] = {
        "id": cells.ids(),
        "submit_s": known_submits,
        "num_gpus": cells.required("gpus", count, COUNT),
        "duration_s": cells.spans("duration") if "duration" in cells else difference(ends, starts),
        "waited_s": cells.spans("waited") if "waited" in cells else difference(starts, submits),
        "deadline_s": cells.spans("deadline", positive, POSITIVE),
        "time_limit_s": cells.spans("time_limit", positive, POSITIVE),
        "gpu_type": cells.optional("gpu_type", str, "a text"),
        "application": cells.optional("application", str, "a text"),
        "user": cells.optional("user", str, "a text"),
        "queue": cells.optional("queue", str, "a text"),
        "global_batch": cells.optional("batch", some, COUNT),
        "iterations": cells.optional("iterations", positive, POSITIVE),
        "priority": cells.optional("priority", _rank, "a whole number above 0"),
        "state": cells.optional("state", state_of, STATE),
        "num_nodes": cells.optional("nodes", some, COUNT),
        "adaptivity": cells.optional("adaptivity", Adaptivity, f"one of {', '.join(Adaptivity)}"),
        "gpu_share": [1.0 if share is None else share for share in cells.optional("share", _share, _SHARE)],
    }
    absolute = cells.written_as_times("submit") or (known_submits != [] and min(known_submits) >= _EPOCH_S)
    origin_s = _origin(table) if columns is None else None
    return build_trace(name, source, fields, absolute=absolute and origin_s is None, origin_s=origin_s)


def parse_columns(text: str, names: Sequence[str]) -> dict[str, tuple[str, float]]:
    """What columns are: for each of `COLUMNS` that is named, the column and the seconds in its unit.

    Raises
    ------
    InputError
        When it is no such list, or names a column that is not there.
    """
    found: dict[str, tuple[str, float]] = {}
    for part in text.split(","):
        what, _, column = (word.strip() for word in part.partition("="))
        what = next((key for key, own in COLUMNS.items() if what == own), what)
        if what not in COLUMNS or not column:
            near = difflib.get_close_matches(what, COLUMNS, n=1)
            hint = f"did you mean {near[0]}? " if near and what not in COLUMNS else ""
            raise InputError(f"columns: {part.strip()!r} is no what=column; {hint}what may be {', '.join(COLUMNS)}")
        if what in found:
            raise InputError(f"columns: {what} is named twice")
        unit = "s"
        if column not in names and column.rpartition(":")[2] in _UNITS:
            column, _, unit = column.rpartition(":")
        if column not in names:
            raise InputError(f"columns: there is no column {column!r} for {what}; the columns are {list(names)}")
        found[what] = column, _UNITS[unit]
    return found


def _own_columns(table: Table) -> dict[str, tuple[str, float]]:
    """What the columns are in a table with our names."""
    own = {column: what for what, column in COLUMNS.items()}
    for name in table.names:
        if name not in own and name != ORIGIN:
            near = difflib.get_close_matches(name, own, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            detail = f"column {name!r} is none of ours; {hint}say what columns are, as in submit=...,gpus=..."
            raise FileFormatError.at(table.source, 1, detail)
    return {own[name]: (name, 1.0) for name in table.names if name in own}


def _origin(table: Table) -> float | None:
    """Time zero, which stands in every row that we write."""
    origins = set(table.optional(ORIGIN, float, "a number of seconds since 1970"))
    if len(origins) > 1:
        raise FileFormatError.at(table.source, None, f"column {ORIGIN!r} has several values; a trace has one time zero")
    return next(iter(origins), None)


class _Cells:
    """Columns of a table by what they are, in seconds."""

    def __init__(self, table: Table, columns: Mapping[str, tuple[str, float]]) -> None:
        self._table = table
        self._columns = columns

    def __contains__(self, what: str) -> bool:
        return what in self._columns

    def require(self, *names: str) -> None:
        """Refuse a table in which nothing is said to be these."""
        for what in names:
            if what not in self:
                detail = f"no column is named as {what}; say it, as in {what}=..., of {list(self._table.names)}"
                raise FileFormatError.at(self._table.source, 1, detail)

    def fault(self, k: int, what: str, detail: str) -> FileFormatError:
        """The error about a cell of row k."""
        return self._table.fault(k, self._columns[what][0], detail)

    def ids(self) -> list[str]:
        """Ids of the jobs, from their place where no column has them."""
        if "id" in self:
            return self._table.ids(self._columns["id"][0])
        return self._table.numbered()

    def required(self, what: str, parse: Parse[Any], wanted: str) -> list[Any]:
        """Values of which none may be missing."""
        return self._table.required(self._columns[what][0], parse, wanted)

    def optional(self, what: str, parse: Parse[Any], wanted: str) -> list[Any]:
        """Values, None where a cell or the column is missing."""
        if what not in self:
            return [None] * len(self._table)
        return self._table.optional(self._columns[what][0], parse, wanted)

    def spans(self, what: str, parse: Parse[float] = number, wanted: str = NUMBER) -> list[float | None]:
        """Lengths of time."""
        scale = self._columns[what][1] if what in self else 1.0
        return [None if value is None else value * scale for value in self.optional(what, parse, wanted)]

    def moments(self, what: str) -> list[float | None]:
        """Times of day in seconds since 1970, or numbers as they stand there."""
        if self.written_as_times(what):
            return self.optional(what, time_s, TIME)
        return self.spans(what, wanted=f"{NUMBER}, or in every row {TIME}")

    def written_as_times(self, what: str) -> bool:
        """Whether the first cell that says something is a time of day."""
        if what not in self:
            return False
        first = next((cell for cell in self._table.texts(self._columns[what][0]) if cell), "0")
        try:
            float(first)
        except ValueError:
            return True
        return False


def _rank(cell: str) -> int:
    value = count(cell)
    if not value:
        raise ValueError(cell)
    return value


def _share(cell: str) -> float:
    value = positive(cell)
    if value > 1:
        raise ValueError(cell)
    return value

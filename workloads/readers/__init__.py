"""Readers of traces: each turns text into a `Trace`. `READERS` names them, and loads one when it reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from stowplan.collection import without_collection
from stowplan.errors import FileFormatError, InputError
from stowplan.files import read_text
from workloads.trace import Trace

__all__ = ["READERS", "Reader", "detect", "read_trace"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. `function` is `module:function`, (text, source, name) -> Trace.

    A file is of the format when the first line that is not empty begins with `start`, or is a header that has all
    `columns` (and others). has_columns: the function also takes `columns`, which says what the columns of a table are.
    """

    function: str
    start: str = ""
    columns: str = ""
    separator: str = ","
    has_columns: bool = False

    def __call__(self, text: str, source: str, name: str, **options: Any) -> Trace:
        """Read `text`, which stands in the file `source`."""
        trace: Trace = resolve_name(self.function)(text, source, name, **options)
        return trace

    def recognises(self, first_line: str) -> bool:
        """Whether a file that begins so is of this format."""
        if self.start:
            return first_line.startswith(self.start)
        header = {cell.strip().strip('"') for cell in first_line.split(self.separator)}
        return header.issuperset(self.columns.split())


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "csv": Reader("workloads.readers.csv:read_csv", columns="id submit_s num_gpus", has_columns=True),
        "sacct": Reader("workloads.readers.sacct:read_sacct", columns="Submit", separator="|"),
        "sacct-json": Reader("workloads.readers.sacct_json:read_sacct_json", start="{"),
        "swf": Reader("workloads.readers.swf:read_swf", start=";"),
        "philly": Reader("workloads.readers.philly:read_philly", columns="timestamp duration num_gpus cluster"),
        "itp": Reader("workloads.readers.itp:read_itp", columns="job_id submission_time duration num_gpu"),
        "helios": Reader("workloads.readers.helios:read_helios", columns="job_id user vc gpu_num submit_time"),
        "acme": Reader("workloads.readers.acme:read_acme", columns="job_id node_num gpu_num type submit_time"),
        "pai": Reader("workloads.readers.pai:read_pai", columns="job_name task_name inst_num plan_gpu"),
        "openb": Reader("workloads.readers.openb:read_openb", columns="name gpu_milli pod_phase creation_time"),
        "sia": Reader("workloads.readers.sia:read_sia", columns="name time application num_replicas"),
        "arena": Reader("workloads.readers.arena:read_arena", columns="job_id submit_s_rel req_gpus num_iteration_sim"),
    }
)


def read_trace(path: Path, *, format_: str | None = None, columns: str | None = None, name: str | None = None) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path
        The file.
    format_
        One of `READERS`; None to tell it from the first line, or csv where `columns` are given.
    columns
        What the columns of a table are, as in `workloads.readers.csv`.
    name
        What the trace is called; None for the name of the file.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    InputError
        When there is no such format, or it has no columns to name.
    """
    text, source = read_text(path), str(path)
    if format_ is None:
        format_ = detect(text, source) if columns is None else "csv"
    if format_ not in READERS:
        raise InputError(f"there is no format {format_!r} of traces; the formats are {', '.join(READERS)}")
    reader = READERS[format_]
    if columns is not None and not reader.has_columns:
        tables = ", ".join(known for known, other in READERS.items() if other.has_columns)
        raise InputError(f"columns can be named for {tables}; those of {format_} are known")
    options = {"columns": columns} if reader.has_columns else {}
    with without_collection():
        return reader(text, source, name or path.stem or source, **options)


def detect(text: str, source: str) -> str:
    """The one format that the first line is of.

    Raises
    ------
    FileFormatError
        When there is none, or several.
    """
    first_line = text.lstrip().partition("\n")[0].strip()
    found = [name for name, reader in READERS.items() if reader.recognises(first_line)]
    if len(found) != 1:
        what = "several formats" if found else "no known format"
        detail = f"begins as {what}: {first_line[:120]!r}. Name one of {', '.join(found or READERS)}"
        hint = "" if found else ", or say what the columns of a table are, as in submit=...,gpus=..."
        raise FileFormatError.at(source, 1, detail + hint)
    return found[0]

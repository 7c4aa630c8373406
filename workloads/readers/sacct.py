"""Slurm's accounting as text, from `sacct --parsable2` (or `--parsable`) with at least JobID, Submit and AllocTRES.

    sacct --allusers --allocations --parsable2 --starttime=2026-01-01 --format=JobID,User,Partition,State,Submit,Start,
        End,ElapsedRaw,TimelimitRaw,NNodes,ReqTRES,AllocTRES,JobName

A job that never got GPUs has what it asked for (ReqTRES). Steps, runs that were requeued, and tasks of an array that
have not begun are left out. Without SLURM_TIME_FORMAT=%s sacct gives times of the cluster's clock, which are taken as
UTC here; where its zone changes to summer time, differences across the change are wrong by an hour. A `|` in the name
of a job would move all columns behind it, so let JobName be the last. GPUs are counted when AccountingStorageTRES names
gres/gpu. Tried on what Slurm 22.05.8 writes.
"""

import re
from collections.abc import Sequence

from stowplan.errors import FileFormatError
from workloads.readers.slurm_records import RESOURCES, Gpus, gpus_in, told_apart
from workloads.readers.table import (
    COUNT,
    NUMBER,
    STATE,
    TIME,
    Table,
    build_trace,
    check_names,
    difference,
    number,
    some,
    text_cell,
    time_s,
)
from workloads.trace import Trace
from workloads.words import state_of

FIELDS = "JobID,User,Partition,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,ReqTRES,AllocTRES,JobName"
_HINT = f"Ask for sacct --allusers --allocations --parsable2 --format={FIELDS}"
_UNKNOWN = ("", "Unknown", "None", "None assigned")
_UNLIMITED = (*_UNKNOWN, "UNLIMITED", "Partition_Limit", "INVALID")
_S_PER_MINUTE = 60
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_SPANS = "a time such as 1-02:30:00"
# Of a job that waits again, of which this record tells an earlier run.
_REQUEUED = "REQUEUED"


def read_sacct(text: str, source: str, name: str) -> Trace:
    """Read records.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    table = _read_records(text, source)
    id_column = "JobID" if "JobID" in table else "JobIDRaw"
    table.require(id_column, "Submit", hint=_HINT)
    if "AllocTRES" not in table and "ReqTRES" not in table:
        table.require("AllocTRES", hint=_HINT)
    table, left_out = _jobs_only(table, id_column)
    submits = table.required("Submit", _moment, TIME)
    starts = table.optional("Start", _moment, TIME, empty=_UNKNOWN)
    gpus = _gpus(table)
    return build_trace(
        name,
        source,
        {
            "id": told_apart(table.required(id_column, text_cell, "the id of a job")),
            "submit_s": submits,
            "num_gpus": [job.num for job in gpus],
            "duration_s": _durations(table, starts),
            "gpu_type": [job.types for job in gpus],
            "application": table.named("JobName"),
            "user": table.named("User"),
            "queue": table.named("Partition"),
            "state": table.optional("State", state_of, STATE),
            "num_nodes": table.optional("NNodes", some, COUNT),
            "waited_s": difference(starts, submits),
            "time_limit_s": _time_limits(table),
        },
        absolute=True,
        left_out=left_out,
    )


def _read_records(text: str, source: str) -> Table:
    """Rows of a file in which nothing is quoted."""
    lines = text.splitlines()
    first = next((k for k, line in enumerate(lines) if line.strip()), 0)
    names = [name.strip() for name in lines[first].split("|")] if lines else []
    # `--parsable` ends every line with a separator.
    closed = len(names) > 1 and not names[-1]
    names = names[:-1] if closed else names
    check_names(source, first + 1, names)
    rows: list[list[str]] = []
    numbers: list[int] = []
    for line_number, line in enumerate(lines[first + 1 :], start=first + 2):
        if not line.strip():
            continue
        cells = (line.removesuffix("|") if closed else line).split("|")
        if len(cells) > len(names) and names[-1] == "JobName":
            cells[len(names) - 1 :] = ["|".join(cells[len(names) - 1 :])]
        if len(cells) != len(names):
            detail = f"has {len(cells)} cells; the header names {len(names)} columns"
            hint = ". Is there a | in the name of a job? Let JobName be the last column" if "JobName" in names else ""
            raise FileFormatError.at(source, line_number, detail + hint)
        rows.append(cells)
        numbers.append(line_number)
    return Table(source, names, rows, lambda: numbers, first + 1)


def _jobs_only(table: Table, id_column: str) -> tuple[Table, dict[str, int]]:
    ids = table.texts(id_column)
    states = table.texts("State") if "State" in table else [""] * len(ids)
    steps = ["." in job_id for job_id in ids]
    pending = ["[" in job_id for job_id in ids]
    requeued = [word == _REQUEUED for word in states]
    keep = [not any(reasons) for reasons in zip(steps, pending, requeued, strict=True)]
    left_out = {
        "steps of jobs": sum(steps),
        "array tasks that have not begun": sum(pending),
        "runs that were requeued": sum(requeued),
    }
    return table.only(keep), left_out


def _gpus(table: Table) -> list[Gpus]:
    """GPUs that each job got, or that it asked for where it got nothing at all."""
    allocated = table.optional("AllocTRES", gpus_in, RESOURCES)
    requested = table.optional("ReqTRES", gpus_in, RESOURCES)
    return [got or asked or Gpus(0, None) for got, asked in zip(allocated, requested, strict=True)]


def _durations(table: Table, starts: Sequence[float | None]) -> list[float | None]:
    """Time that each job ran, without the time it was suspended where sacct says so."""
    if "ElapsedRaw" in table:
        spans = table.optional("ElapsedRaw", number, NUMBER)
    elif "Elapsed" in table:
        spans = table.optional("Elapsed", _span_s, _SPANS)
    else:
        spans = difference(table.optional("End", _moment, TIME, empty=_UNKNOWN), starts)
    if "Start" not in table:
        return spans
    return [None if start_s is None else span_s for start_s, span_s in zip(starts, spans, strict=True)]


def _time_limits(table: Table) -> list[float | None]:
    if "TimelimitRaw" in table:
        minutes = table.optional("TimelimitRaw", number, NUMBER, empty=_UNLIMITED)
        return [None if not value else value * _S_PER_MINUTE for value in minutes]
    return [span_s or None for span_s in table.optional("Timelimit", _span_s, _SPANS, empty=_UNLIMITED)]


def _moment(cell: str) -> float:
    """A time as sacct writes it, with or without SLURM_TIME_FORMAT=%s."""
    return float(cell) if cell.isdecimal() else time_s(cell)


def _span_s(cell: str) -> float:
    """`[days-]hours:minutes:seconds` in seconds."""
    match = _SPAN.fullmatch(cell)
    if match is None:
        raise ValueError(cell)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)

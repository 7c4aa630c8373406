"""Standard Workload Format 2.2 of the Parallel Workloads Archive: 18 numbers a line, -1 for what is not known.

    ; UnixStartTime: 1000000000
    1   0  10  300  8 -1 -1  8 600 -1 1 3 1 5 0 1 -1 -1

Processors are taken as GPUs. Lines about parts of a job (status 2, 3, 4) are left out: another line has the whole job.
"""

import math
import re
from collections.abc import Sequence

from stowplan.errors import FileFormatError
from workloads.readers.table import build_trace
from workloads.trace import JobState, Trace

_FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "number of allocated processors",
    "average CPU time",
    "used memory",
    "requested number of processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
_JOB, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _STATUS = 0, 1, 2, 3, 4, 7, 8, 10
_USER, _APPLICATION, _QUEUE = 11, 13, 14
_STATES = {-1: None, 0: JobState.FAILED, 1: JobState.COMPLETED, 5: JobState.CANCELED}
_PARTIAL = (2, 3, 4)
_ORIGIN = re.compile(r";\s*UnixStartTime:\s*(\d+)", re.ASCII)


def read_swf(text: str, source: str, name: str) -> Trace:
    """Read a log or a model.

    Raises
    ------
    FileFormatError
        Names file, line, field and what is wrong.
    """
    origin_s: float | None = None
    rows: list[Sequence[float]] = []
    lines: dict[float, int] = {}
    num_partial = 0
    for line, words in enumerate(text.splitlines(), start=1):
        if words.lstrip().startswith(";"):
            match = _ORIGIN.match(words.strip())
            origin_s = float(match[1]) if match and int(match[1]) else origin_s
            continue
        if not words.strip():
            continue
        row = _numbers(source, line, words.split())
        if row[_STATUS] in _PARTIAL:
            num_partial += 1
            continue
        _check(source, line, row)
        if row[_JOB] in lines:
            detail = f"job number {row[_JOB]:g} is already in line {lines[row[_JOB]]}"
            raise FileFormatError.at(source, line, detail)
        lines[row[_JOB]] = line
        rows.append(row)
    return build_trace(
        name,
        source,
        {
            "id": [f"{row[_JOB]:.0f}" for row in rows],
            "submit_s": [row[_SUBMIT] for row in rows],
            "num_gpus": [int(row[_ALLOCATED] if row[_ALLOCATED] > 0 else row[_REQUESTED]) for row in rows],
            "duration_s": [_known(row[_RUN]) for row in rows],
            "application": [_called(row[_APPLICATION]) for row in rows],
            "user": [_called(row[_USER]) for row in rows],
            "queue": [_called(row[_QUEUE]) for row in rows],
            "state": [_STATES[int(row[_STATUS])] for row in rows],
            "waited_s": [_known(row[_WAIT]) for row in rows],
            "time_limit_s": [_known(row[_LIMIT]) or None for row in rows],
        },
        origin_s=origin_s,
        left_out={"parts of jobs": num_partial},
    )


def _numbers(source: str, line: int, words: Sequence[str]) -> Sequence[float]:
    if len(words) != len(_FIELDS):
        raise FileFormatError.at(source, line, f"has {len(words)} fields; a job has {len(_FIELDS)}")
    numbers = []
    for k, word in enumerate(words):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not -1 <= value < math.inf:
            detail = f"field {k + 1} ({_FIELDS[k]}) is {word!r}; must be a number from 0 on, or -1"
            raise FileFormatError.at(source, line, detail)
        numbers.append(value)
    return numbers


def _check(source: str, line: int, row: Sequence[float]) -> None:
    """Refuse a line that is no job."""
    if row[_JOB] < 0 or row[_SUBMIT] < 0:
        raise FileFormatError.at(source, line, "has no job number or submit time; both must be from 0 on")
    if max(row[_ALLOCATED], row[_REQUESTED]) < 0:
        raise FileFormatError.at(source, line, "has neither allocated nor requested processors (fields 5 and 8)")
    if row[_STATUS] not in _STATES:
        raise FileFormatError.at(source, line, f"field 11 (status) is {row[_STATUS]:g}; must be -1 or 0 to 5")


def _known(value: float) -> float | None:
    return None if value < 0 else value


def _called(value: float) -> str | None:
    return None if value < 0 else f"{value:.0f}"

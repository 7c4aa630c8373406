"""Traces as CSV, in the columns that `workloads.readers.csv` reads without being told what they are."""

import csv
from io import StringIO
from pathlib import Path

from stowplan.errors import InputError
from workloads.readers.csv import COLUMNS, ORIGIN
from workloads.trace import Trace, TraceJob

_ALWAYS = ("id", "submit_s", "num_gpus")
_FIELDS = tuple(name for name in COLUMNS.values() if name in TraceJob.__dataclass_fields__)


def csv_text(trace: Trace) -> str:
    """The trace as CSV, without the columns that say nothing. Its name and what was left out are not in it."""
    defaults = {name: TraceJob.__dataclass_fields__[name].default for name in _FIELDS}
    names = [
        name for name in _FIELDS if name in _ALWAYS or any(getattr(job, name) != defaults[name] for job in trace.jobs)
    ]
    origin = [] if trace.origin_s is None else [trace.origin_s]
    written = StringIO(newline="")
    # Lines end as RFC 4180 has it, by which csv also knows which cells to quote.
    rows = csv.writer(written)
    rows.writerow([*names, *([ORIGIN] if origin else [])])
    rows.writerows([*(getattr(job, name) for name in names), *origin] for job in trace.jobs)
    return written.getvalue()


def write_csv(trace: Trace, path: Path) -> None:
    """Write the trace as CSV.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    try:
        path.write_text(csv_text(trace), encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error

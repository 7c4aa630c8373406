"""Rows of a result: medians, a table on the terminal, JSON."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.paths import RESULTS
from benchmarks.suite.machine import environment

# Of tables that go into a file.
_WIDTH = 150

Row = Mapping[str, object]


def command_line() -> str:
    """This call, for the record."""
    return shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])


def median(values: Sequence[float | None]) -> float | None:
    """Median of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def show(title: str, rows: Sequence[Row]) -> None:
    """Print rows that have the same columns."""
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(name: str, protocol: str, rows: Sequence[Row]) -> Path:
    """Write `results/name.json` with command, protocol and environment."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {
        "command": command_line(),
        "protocol": protocol,
        "environment": asdict(environment()),
        "rows": [dict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
    return path

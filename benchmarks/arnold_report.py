"""What the commands about Arnold share: medians, a table on the terminal, results as JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.suite.machine import environment

RESULTS = Path(__file__).parent / "results"
# Of tables that go into a file.
_WIDTH = 150

Row = Mapping[str, object]


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
    """Write `results/name.json` with protocol and environment."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"protocol": protocol, "environment": asdict(environment()), "rows": [dict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
    return path

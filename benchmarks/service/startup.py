"""How long it takes to start: commands, imports, the service until it is ready.

Every run is a fresh interpreter in the folder of its checkout; runs of several checkouts take turns, so that what the
machine does meanwhile meets all of them. CPU is user and system time of the process and of the children that it has
waited for; for the service, of the whole tree of processes until `/readyz` answers 200. A first run of each is not
counted: it may have to compile.
"""

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.paths import RESULTS, ROOT
from benchmarks.rows import command_line
from benchmarks.service.process import checkout_environment, console_command, running_service
from benchmarks.suite.machine import environment, revision
from benchmarks.suite.table import output as terminal
from benchmarks.suite.words import NOTHING, seconds

SCHEMA = "stowplan-startup/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Something that is started, and the most it may cost: CPU of a command, wall clock of the service.

    stowplan, code: arguments of the console command, or statements for `python -c`; with neither it is the service.
    """

    name: str
    stowplan: str = ""
    code: str = ""
    target_s: float | None = None


STARTS = (
    Start(name="stowplan --help", stowplan="--help", target_s=0.3),
    Start(name="stowplan examples", stowplan="examples", target_s=0.3),
    Start(name="import models.planning", code="import models.planning"),
    Start(name="python -c pass", code="pass"),
    Start(name="stowplan serve, until ready", target_s=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """Seconds of every run of one start in one checkout."""

    start: str
    target_s: float | None
    commit: str
    dirty: bool | None
    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]


def main(
    runs: Annotated[int, typer.Option(min=1, help="Of every start.")] = 5,
    checkout: Annotated[
        list[Path] | None, typer.Option(help="Measure this checkout instead; several take turns.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the result goes, as JSON.")] = RESULTS / "startup.json",
) -> None:
    """Measure what starting costs: commands, imports, the service until it is ready."""
    measurements = measure_startup([path.resolve() for path in checkout or [ROOT]], runs)
    terminal().print(startup_table(measurements))
    write_startup(measurements, output)
    print(f"written to {output}")


def measure_startup(checkouts: Sequence[Path], num_runs: int) -> list[StartTimes]:
    """Start everything in every checkout, `num_runs` times."""
    return [times for start in STARTS for times in _measure(start, checkouts, num_runs)]


def _measure(start: Start, checkouts: Sequence[Path], num_runs: int) -> Iterator[StartTimes]:
    rounds = [[_started(start, checkout) for checkout in checkouts] for _ in range(num_runs + 1)][1:]
    for number, checkout in enumerate(checkouts):
        commit, dirty = revision(checkout)
        yield StartTimes(
            start=start.name,
            target_s=start.target_s,
            commit=commit,
            dirty=dirty,
            cpu_s=tuple(times[number][0] for times in rounds),
            wall_s=tuple(times[number][1] for times in rounds),
        )


def startup_table(measurements: Sequence[StartTimes]) -> Table:
    """Medians, least, and targets."""
    table = Table(
        title=f"start-up, medians of {len(measurements[0].cpu_s)} runs; targets: CPU, of the service wall clock"
    )
    for name in ("start", "commit"):
        table.add_column(name, no_wrap=True)
    for name in ("CPU", "least", "wall", "least", "target"):
        table.add_column(name, justify="right")
    for times in measurements:
        columns = [seconds(function(values)) for values in (times.cpu_s, times.wall_s) for function in (median, min)]
        commit = times.commit[:12] + ("+" if times.dirty else "")
        table.add_row(times.start, commit, *columns, NOTHING if times.target_s is None else seconds(times.target_s))
    return table


def write_startup(measurements: Sequence[StartTimes], path: Path) -> None:
    """Write the raw numbers as JSON."""
    document = {
        "schema": SCHEMA,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "environment": asdict(environment()),
        "measurements": [asdict(times) for times in measurements],
    }
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _started(start: Start, checkout: Path) -> tuple[float, float]:
    """CPU and wall clock of one start."""
    if not (start.stowplan or start.code):
        with running_service(checkout=checkout) as service:
            return service.start_cpu_s or 0.0, service.start_s
    console = [*console_command(checkout), *start.stowplan.split()]
    command = console if start.stowplan else [sys.executable, "-c", start.code]
    start_s = time.perf_counter()
    process = subprocess.Popen(command, cwd=checkout, env=checkout_environment(checkout), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed_s = time.perf_counter() - start_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{start.name} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime, elapsed_s

"""Tasks for workers that stand in for reading a request and planning it: they take as long as a test needs."""

import hashlib
import os
import tempfile
import time
from pathlib import Path

from api.plans.outcome import Planned
from api.plans.reading import ReadInTask, ReadPlan, read_plan
from api.plans.reading_planning import read_and_plan
from api.reading.texts import Lacking, RequestText
from solver.monitor import SolveMonitor
from stowplan.errors import WorkerError

_LONG_S = 60.0


def mark_of(body: bytes) -> Path:
    """A file that is there once a worker has died of a request."""
    return Path(tempfile.gettempdir()) / f"stowplan-{hashlib.sha256(body).hexdigest()}"


def tell_read(text: RequestText, monitor: SolveMonitor) -> None:
    asked = read_plan(text, monitor)
    assert isinstance(asked, ReadPlan)
    monitor.tells(ReadInTask(asked=asked, wall_s=0.0))


def slow_task(text: RequestText, monitor: SolveMonitor) -> Planned | Lacking:
    """Take longer than anybody waits for the end alone."""

    def tell(value: object) -> None:
        monitor.tells(value)
        monitor.canceled.wait(1.0)

    return read_and_plan(text, SolveMonitor(on_progress=monitor.on_progress, tells=tell, keeps=monitor.keeps))


def hanging_task(text: RequestText, monitor: SolveMonitor) -> Planned:
    """Read, and find nothing until canceled."""
    tell_read(text, monitor)
    monitor.canceled.wait(_LONG_S)
    raise WorkerError("canceled")


def deaf_task(text: RequestText, monitor: SolveMonitor) -> Planned:  # noqa: ARG001 - the pool's calling convention
    """Never come to read it."""
    monitor.canceled.wait(_LONG_S)
    raise AssertionError("nobody has canceled it")


def broken_task(text: RequestText, monitor: SolveMonitor) -> Planned:
    """Read, and fail as a bug of ours would."""
    tell_read(text, monitor)
    raise ZeroDivisionError("a bug")


def dying_task(text: RequestText, monitor: SolveMonitor) -> Planned:  # noqa: ARG001 - the pool's calling convention
    """Die before anything is read."""
    os._exit(3)


def dying_once_task(text: RequestText, monitor: SolveMonitor) -> Planned | Lacking:
    """Die when the service has what is read; whoever is asked then does its work."""
    mark = mark_of(text.body)
    if mark.exists():
        return read_and_plan(text, monitor)
    mark.touch()
    tell_read(text, monitor)
    time.sleep(1.0)
    os._exit(3)

"""Requests for forecasters, and tasks for workers that stand in for learning."""

import time
from typing import Any

from api.forecasts.task import Trained, Training
from solver.monitor import SolveMonitor
from tests.api.requests import Json
from tests.models.forecast.histories import made_history
from workloads.trace import Trace

PATH = "/v1/forecasters"
_LONG_S = 60.0


def history_document(trace: Trace) -> Json:
    """A history as clients send it."""
    names = ("id", "submit_s", "num_gpus", "duration_s", "user", "state")
    jobs = [{name: getattr(job, name) for name in names} for job in trace.jobs]
    return {"name": trace.name, "origin_s": trace.origin_s, "jobs": jobs}


def forecaster_request(name: str, num_jobs: int = 300, **fields: Any) -> Json:
    """A history of two users, of whom one has short jobs."""
    return {"name": name, "history": history_document(made_history(num_jobs)), **fields}


def patient_task(training: Training, monitor: SolveMonitor) -> Trained:  # noqa: ARG001 - the pool's convention
    """Neither return nor listen."""
    time.sleep(_LONG_S)
    raise AssertionError("nobody ended it")

"""Tasks for workers that stand in for planning: they take as long as a test needs."""

import time
from dataclasses import replace

from api.plans.outcome import Planned
from api.plans.planning import packed, planned
from models.plan import PlanTask
from models.planning import plan
from solver.monitor import Progress, SolveMonitor
from solver.result import Limit, TerminationReason

_LONG_S = 60.0


def hanging_task(task: PlanTask, monitor: SolveMonitor) -> Planned:
    """Find nothing until canceled."""
    outcome = plan(task.request)
    monitor.on_progress(Progress(elapsed_s=0.0))
    monitor.canceled.wait(_LONG_S)
    found_nothing = replace(
        outcome,
        termination=TerminationReason.NO_SOLUTION_FOUND,
        limit=Limit.INTERRUPTED,
        objective=None,
        relative_gap=None,
        plan=None,
    )
    return packed(found_nothing, task.request.snapshot)


def improving_task(task: PlanTask, monitor: SolveMonitor) -> Planned:
    """Report what the real solve reports, and keep the best plan until canceled."""
    outcome = plan(task.request, SolveMonitor(on_progress=monitor.on_progress))
    monitor.canceled.wait(_LONG_S)
    interrupted = replace(outcome, termination=TerminationReason.FEASIBLE, limit=Limit.INTERRUPTED)
    return packed(interrupted, task.request.snapshot)


def stuck_task(task: PlanTask, monitor: SolveMonitor) -> Planned:
    """Find a plan, then neither return nor listen; a second worker that gets the incumbent does its work."""
    if task.resume is not None:
        return planned(task, monitor)
    plan(task.request, SolveMonitor(on_progress=monitor.on_progress))
    time.sleep(_LONG_S)
    raise AssertionError("the pool did not kill this worker")


def deaf_task(task: PlanTask, monitor: SolveMonitor) -> Planned:  # noqa: ARG001 - the pool's calling convention
    """Find nothing, and do not listen."""
    time.sleep(_LONG_S)
    raise AssertionError("the pool did not kill this worker")


def broken_task(task: PlanTask, monitor: SolveMonitor) -> Planned:  # noqa: ARG001 - the pool's calling convention
    """Fail as a bug of ours would."""
    raise ZeroDivisionError("a bug")

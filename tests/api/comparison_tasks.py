"""Tasks for workers that stand in for a solver that is compared: they die, hang or lie."""

import os
import time
from dataclasses import replace

from models.comparison import SolverRun
from models.plan import PlanRequest
from models.tracing import traced_task
from solver.monitor import SolveMonitor
from solver.result import Limit, TerminationReason

_LONG_S = 60.0


def dying_task(request: PlanRequest, monitor: SolveMonitor) -> SolverRun:
    """Die in the middle as SCIP; find a plan and then stop listening as HiGHS."""
    run = traced_task(request, monitor)
    if request.options.solver == "scip":
        # What has been reported is sent before the end.
        time.sleep(0.3)
        os._exit(3)
    if request.options.solver == "highs":
        time.sleep(_LONG_S)
    return run


def lying_task(request: PlanRequest, monitor: SolveMonitor) -> SolverRun:
    """Claim a better optimum as SCIP."""
    run = traced_task(request, monitor)
    if run.outcome is None or request.options.solver != "scip":
        return run
    return replace(run, outcome=replace(run.outcome, objective=99.0, bound=99.0))


def patient_task(request: PlanRequest, monitor: SolveMonitor) -> SolverRun:
    """Keep the best plan until canceled as SCIP."""
    run = traced_task(request, monitor)
    if run.outcome is None or request.options.solver != "scip":
        return run
    monitor.canceled.wait(_LONG_S)
    return replace(run, outcome=replace(run.outcome, termination=TerminationReason.FEASIBLE, limit=Limit.INTERRUPTED))

"""Plan as one of several solvers that are compared, and write down how objective and bound came together."""

from dataclasses import replace

from models.comparison import History, HistoryPoint, SolverRun
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from solver.monitor import Progress, SolveMonitor


def traced_task(request: PlanRequest, monitor: SolveMonitor) -> SolverRun:
    """Entry point of workers: plan with the solver of the options.

    Raises
    ------
    StowplanError
        What planning raises.
    """
    history = History()

    def record(progress: Progress) -> None:
        history.add(progress)
        monitor.on_progress(progress)

    outcome = plan(request, replace(monitor, on_progress=record))
    return SolverRun(
        solver=request.options.solver, outcome=outcome, failure=None, history=(*history.points, _end(outcome))
    )


def _end(outcome: PlanOutcome) -> HistoryPoint:
    """The proof itself, which solvers do not report on the way."""
    elapsed_s = outcome.times.wall_s["solve"]
    return HistoryPoint(elapsed_s=elapsed_s, objective=outcome.objective, bound=outcome.bound)

"""The task of workers that plan: what it ends with is text, which the process that serves stores and sends unread."""

from api.convert.outcome_text import outcome_text
from api.convert.request import issue_in_request
from api.plans.outcome import Planned
from api.reading.packed import tell_what_is_kept
from models.plan import PlanOutcome, PlanTask
from models.planning import plan_task
from models.workload import Snapshot
from solver.monitor import SolveMonitor

# Not in the text: the process that serves has a say in these.
_OPEN_FIELDS = {"termination", "warnings"}


def planned(task: PlanTask, monitor: SolveMonitor) -> Planned:
    """Plan; raises what `models.planning.plan` does."""
    tell_what_is_kept(monitor)
    return packed(plan_task(task, monitor), task.request.snapshot)


def packed(outcome: PlanOutcome, snapshot: Snapshot) -> Planned:
    """Make text of an outcome for the jobs of `snapshot`."""
    return Planned(
        termination=outcome.termination,
        limit=outcome.limit,
        objective=outcome.objective,
        bound=outcome.bound,
        relative_gap=outcome.relative_gap,
        warnings=tuple(issue_in_request(issue) for issue in outcome.warnings),
        times=outcome.times,
        first_incumbent_s=outcome.statistics.first_incumbent_s,
        solver=outcome.solver,
        text=outcome_text(outcome, snapshot, _OPEN_FIELDS),
    )

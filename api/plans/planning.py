"""The task of workers that plan: what it ends with is text, which the process that serves stores and sends unread."""

from dataclasses import dataclass

from api.convert.outcome import issue_documents, outcome_to_document
from api.convert.request import issue_in_request
from api.schemas.plan import TerminationDoc
from models.plan import PhaseTimes, PlanOutcome, PlanTask
from models.planning import plan_task
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.result import Limit, TerminationReason
from stowplan.errors import Issue

PLAN_TASK = f"{__name__}:planned"
# Not in the text: the process that serves has a say in these.
_OPEN_FIELDS = {"termination", "warnings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What planning ended with: what is to be known of it, and in `text` the rest of the `OutcomeDoc` as JSON."""

    termination: TerminationReason
    limit: Limit | None
    objective: float | None
    bound: float | None
    relative_gap: float | None
    warnings: tuple[Issue, ...]
    times: PhaseTimes
    first_incumbent_s: float | None
    solver: str
    text: str

    def document(self) -> str:
        """The whole `OutcomeDoc` as JSON."""
        ended = TerminationDoc(reason=self.termination, limit=self.limit).model_dump_json()
        warnings = ",".join(document.model_dump_json() for document in issue_documents(self.warnings))
        return f'{{"termination":{ended},"warnings":[{warnings}],{self.text[1:]}'


def planned(task: PlanTask, monitor: SolveMonitor) -> Planned:
    """Plan; raises what `models.planning.plan` does."""
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
        text=outcome_to_document(outcome, snapshot).model_dump_json(exclude=_OPEN_FIELDS),
    )

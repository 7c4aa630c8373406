"""How a plan ends: what a worker returned or raised becomes a final state."""

import time
from dataclasses import dataclass, replace
from typing import Any

from api.convert.issues import issue_documents
from api.convert.outcome import MS_PER_S
from api.convert.request import issue_in_request
from api.plans.outcome import Planned
from api.schemas.plan import FailureDoc, PlanStatus, TimingsDoc
from api.store.records import PlanRecord
from models.planning_task import limit_named
from solver.result import Limit, TerminationReason
from solver.ticket import DeadlineError
from stowplan.errors import StowplanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """Final state, and the outcome or the failure behind it."""

    status: PlanStatus
    outcome: Planned | None = None
    failure: FailureDoc | None = None


def termination_of_outcome(outcome: Planned, stopped: PlanStatus | None) -> Termination:
    """Judge what planning returned; `stopped` says as what the plan was asked to stop (None: it was not)."""
    outcome = replace(outcome, limit=limit_named(outcome.limit, canceled=stopped is not None))
    reason, interrupted = outcome.termination, outcome.limit is Limit.INTERRUPTED
    if stopped is not None and interrupted:
        failure = _interruption() if stopped is PlanStatus.INTERRUPTED else None
        return Termination(status=stopped, outcome=outcome, failure=failure)
    if reason.has_incumbent:
        return Termination(status=PlanStatus.SUCCEEDED, outcome=outcome)
    if reason is TerminationReason.INFEASIBLE:
        return Termination(status=PlanStatus.INFEASIBLE, outcome=outcome)
    if reason is TerminationReason.NO_SOLUTION_FOUND:
        return Termination(status=PlanStatus.TIMED_OUT, outcome=outcome)
    failure = FailureDoc(code=reason.value, detail=f"the solver ended with: {reason.value.replace('_', ' ')}")
    return Termination(status=PlanStatus.FAILED, outcome=outcome, failure=failure)


def termination_of_error(error: BaseException, stopped: PlanStatus | None) -> Termination:
    """Judge what planning raised, or what became of its worker."""
    if stopped is not None:
        return Termination(status=stopped, failure=_interruption() if stopped is PlanStatus.INTERRUPTED else None)
    if not isinstance(error, StowplanError):
        return Termination(status=PlanStatus.FAILED, failure=FailureDoc(code="internal_error", detail=str(error)))
    issues = issue_documents([issue_in_request(issue) for issue in error.issues])
    failure = FailureDoc(code=error.code, detail=error.detail, errors=issues)
    at_deadline = isinstance(error, DeadlineError)
    return Termination(status=PlanStatus.TIMED_OUT if at_deadline else PlanStatus.FAILED, failure=failure)


def final_record(record: PlanRecord, termination: Termination, queued_s: float | None) -> PlanRecord:
    """Give the row of the store for a plan that has ended after `queued_s` in the queue."""
    outcome, now_s = termination.outcome, time.time()
    timings = TimingsDoc.model_validate_json(record.timings)
    total_ms = timings.accept_ms + (now_s - record.queued_at_s) * MS_PER_S
    final: dict[str, Any] = {
        "queue_ms": None if queued_s is None else queued_s * MS_PER_S,
        "total_ms": total_ms,
    }
    if outcome is not None:
        first_s = outcome.first_incumbent_s
        final["phases_ms"] = {name: wall_s * MS_PER_S for name, wall_s in outcome.times.wall_s.items()}
        final["cpu_ms"] = outcome.times.cpu_s * MS_PER_S
        final["first_incumbent_ms"] = None if first_s is None else first_s * MS_PER_S
    return replace(
        record,
        status=termination.status,
        finished_at_s=now_s,
        objective=None if outcome is None else outcome.objective,
        bound=None if outcome is None else outcome.bound,
        relative_gap=None if outcome is None else outcome.relative_gap,
        outcome=None if outcome is None else outcome.document(),
        timings=timings.model_copy(update=final).model_dump_json(),
        failure=None if termination.failure is None else termination.failure.model_dump_json(),
    )


def _interruption() -> FailureDoc:
    return FailureDoc(code="interrupted", detail="the service stopped before the plan was final; ask for it again")

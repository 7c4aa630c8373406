"""What `executor.export` takes, from documents."""

from datetime import datetime

from api.convert.outcome import plan_from_outcome
from api.schemas.plan import OutcomeDoc
from executor.export import ExportedJob, ExportedPlan
from executor.export.job import job_of
from models.workload import Job, Snapshot


def exported_job(outcome: OutcomeDoc, job_id: str, job: Job | None) -> ExportedJob:
    """A job of a plan, and what the request said of it, where that is known.

    Raises
    ------
    InputError
        When the plan has no GPUs for it.
    """
    parallelism, model = (None, None) if job is None else (job.parallelism, job.transformer)
    return job_of(plan_from_outcome(outcome), job_id, parallelism=parallelism, model=model)


def exported_plan(outcome: OutcomeDoc, snapshot: Snapshot, taken_at: datetime | None) -> ExportedPlan:
    """A whole plan, and what was planned.

    Raises
    ------
    InputError
        When it is the plan of another snapshot.
    """
    taken_at_s = None if taken_at is None else taken_at.timestamp()
    return ExportedPlan(plan=plan_from_outcome(outcome), snapshot=snapshot, taken_at_s=taken_at_s)

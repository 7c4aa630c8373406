"""What `executor.export` takes, from documents."""

from api.convert.outcome import plan_from_outcome
from api.schemas.plan import OutcomeDoc
from executor.export.job import ExportedJob, job_of
from models.workload import Job


def exported_job(outcome: OutcomeDoc, job_id: str, job: Job | None) -> ExportedJob:
    """A job of a plan, and what the request said of it, where that is known.

    Raises
    ------
    InputError
        When the plan has no GPUs for it.
    """
    parallelism, model = (None, None) if job is None else (job.parallelism, job.transformer)
    return job_of(plan_from_outcome(outcome), job_id, parallelism=parallelism, model=model)

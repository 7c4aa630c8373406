"""Parallel plans of jobs in plans that this service made."""

from dataclasses import replace

from api.common.errors import NotFoundError, PlanNotFinishedError
from api.convert.export import exported_job
from api.convert.request import stored_request
from api.deployments.choice import PlannedJob
from api.schemas.plan import PlanDoc
from api.store.snapshots import Snapshots


def planned_job(plan: PlanDoc, input_text: str, job_id: str, snapshots: Snapshots) -> PlannedJob:
    """Give the parallel plan of a job in a plan whose request was `input_text`.

    Raises
    ------
    PlanNotFinishedError
        When the plan is not final.
    NotFoundError
        When the job has no parallel plan in it, and none follows from its degrees or its batch.
    """
    if not plan.status.final:
        raise PlanNotFinishedError(f"{plan.id} is {plan.status.value}; wait until it is final")
    found = next((known for known in plan.allocations if known.job_id == job_id), None)
    if found is None:
        planned = [known.job_id for known in plan.allocations if known.parallel_plan is not None]
        raise NotFoundError(f"{plan.id} holds no parallel plan for job {job_id!r}; it holds some for {planned}")
    snapshot = snapshots.resolve(stored_request(input_text)[1]).snapshot
    job = next(job for job in snapshot.jobs if job.id == job_id)
    parallel = exported_job(plan, job_id, job).as_plan()
    if parallel is None:
        why = (
            "say in transformer what the job trains (with micro_batch where it has parallelism), and under Sia give it "
            "no performance, or one with a batch"
        )
        raise NotFoundError(f"{plan.id} holds no parallel plan for job {job_id!r}; {why}")
    # Sia chooses the batch of a job with goodput.
    model = None if job.transformer is None else replace(job.transformer, global_batch=parallel.global_batch)
    return PlannedJob(plan=parallel, model=model, calibration=job.calibration, cluster=snapshot.cluster)

"""Jobs of plans as other launchers and frameworks read them."""

from collections.abc import Sequence

from api.common.errors import NotFoundError
from api.convert.export import exported_job
from api.convert.request import stored_request
from api.plans.service import Plans
from api.schemas.export import ExportDoc
from api.store.snapshots import Snapshots
from executor.export import export


def export_job(plans: Plans, snapshots: Snapshots, plan_id: str, job_id: str, formats: Sequence[str]) -> ExportDoc:
    """Write a job of a plan in some formats.

    Raises
    ------
    NotFoundError
        When there is no such plan, or it has no GPUs for such a job.
    InputError
        When a format is not known, or cannot say what the plan wants.
    """
    plan = plans.plan(plan_id)
    placed = [known.job_id for known in plan.allocations] + [known.placement.job_id for known in plan.ahead]
    if job_id not in placed:
        raise NotFoundError(f"{plan_id} is {plan.status.value} and has no GPUs for job {job_id!r}; it has for {placed}")
    snapshot = snapshots.resolve(stored_request(plans.input_text(plan_id))[1]).snapshot
    job = next((known for known in snapshot.jobs if known.id == job_id), None)
    return ExportDoc(job_id=job_id, files=export(exported_job(plan, job_id, job), formats))

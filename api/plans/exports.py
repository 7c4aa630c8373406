"""Plans as schedulers take them over, and their jobs as other launchers and frameworks read them."""

from collections.abc import Mapping, Sequence

from api.common.errors import NotFoundError, PlanNotFinishedError
from api.convert.export import exported_job, exported_plan
from api.convert.issues import issue_documents
from api.convert.request import stored_request
from api.plans.service import Plans
from api.schemas.export import ExportDoc, PlanExportDoc
from api.store.snapshots import Snapshots
from executor.export import export, export_plan
from executor.export.options import read_options
from models.workload import Snapshot


def export_job(
    plans: Plans, snapshots: Snapshots, plan_id: str, job_id: str, formats: Sequence[str], options: Sequence[str]
) -> ExportDoc:
    """Write a job of a plan in some formats.

    Raises
    ------
    NotFoundError
        When there is no such plan, or it has no GPUs for such a job.
    InputError
        When a format is not known, has no such option, or cannot say what the plan wants.
    """
    plan = plans.plan(plan_id)
    placed = [known.job_id for known in plan.allocations] + [known.placement.job_id for known in plan.ahead]
    if job_id not in placed:
        raise NotFoundError(f"{plan_id} is {plan.status.value} and has no GPUs for job {job_id!r}; it has for {placed}")
    job = next((known for known in _snapshot(plans, snapshots, plan_id).jobs if known.id == job_id), None)
    files = export(exported_job(plan, job_id, job), formats, read_options(options))
    return ExportDoc(job_id=job_id, files=files)


def export_whole(
    plans: Plans, snapshots: Snapshots, plan_id: str, format_: str, options: Mapping[str, str]
) -> PlanExportDoc:
    """Write a plan in a format that takes over all of it.

    Raises
    ------
    PlanNotFinishedError
        When the plan is not final.
    NotFoundError
        When there is no such plan, or it ended without one.
    InputError
        When the format is not known, has no such option, or cannot say what the plan wants.
    """
    plan = plans.plan(plan_id)
    if not plan.status.final:
        raise PlanNotFinishedError(f"{plan_id} is {plan.status.value}; wait until it is final")
    if not plan.verified:
        raise NotFoundError(f"{plan_id} ended without a plan: it is {plan.status.value}")
    # Without a moment of its own a snapshot is of the moment at which it came.
    taken_at = plans.taken_at(plan_id) or plan.times.queued
    whole = exported_plan(plan, _snapshot(plans, snapshots, plan_id), taken_at)
    made = export_plan(whole, format_, options)
    return PlanExportDoc(plan_id=plan_id, files=dict(made.files), notes=issue_documents(made.notes))


def _snapshot(plans: Plans, snapshots: Snapshots, plan_id: str) -> Snapshot:
    """What was planned."""
    return snapshots.resolve(stored_request(plans.input_text(plan_id))[1]).snapshot

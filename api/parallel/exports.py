"""3D plans of one job as other launchers and frameworks read them."""

from dataclasses import replace

from api.convert.job_model import transformer_from_document
from api.convert.located import located
from api.convert.parallel_plan import plan_from_document
from api.schemas.export import ExportBody, ExportDoc
from executor.deployment import misfits
from executor.export import export, options_of
from executor.export.job import job_of_plan, refuse_virtual_nodes
from executor.hosts import on_hosts, read_hosts
from models.parallel_plan import ParallelPlan
from models.performance.iteration.model_issues import model_issues
from stowplan.errors import InputError, raise_for_errors


def export_parallel_plan(body: ExportBody) -> ExportDoc:
    """Write a plan in some formats.

    Raises
    ------
    InputError
        When plan, model and hosts do not go together, or a format cannot say what the plan wants; pointers into the
        body.
    """
    with located("/plan"):
        plan = plan_from_document(body.plan)
    model = None
    if body.job is not None:
        with located("/job"):
            model = transformer_from_document(body.job)
        raise_for_errors([*model_issues(model, "/job"), *misfits(plan, model)], "request")
    placed = _placed(plan, body.hosts)
    job = job_of_plan(body.job_id, placed, model)
    with located("/options"):
        options = options_of(body.to, body.options)
    files: dict[str, str] = {}
    for k, name in enumerate(body.to):
        with located(f"/to/{k}"):
            files |= export(job, [name], options[name])
    return ExportDoc(job_id=body.job_id, files=files)


def _placed(plan: ParallelPlan, hosts: tuple[str, ...] | None) -> ParallelPlan:
    with located("/hosts"):
        if hosts is None:
            refuse_virtual_nodes(plan, "hosts")
            return plan
        try:
            named = read_hosts("\n".join(hosts))
        except InputError as error:
            # Of lines, which count from 1.
            issues = [replace(issue, pointer=f"/{int(issue.pointer[1:]) - 1}") for issue in error.issues]
            raise InputError(error.detail, issues) from error
        return on_hosts(plan, named)

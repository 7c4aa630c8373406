"""What `stowplan deploy` and `stowplan redeploy` are asked for: a plan as planners wrote it, on hosts in a file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.files import read_json
from api.cli.options import given
from api.cli.planned import load_job
from api.convert.job_model import transformer_to_document
from api.convert.parallel_plan import plan_to_document
from api.convert.reading import read_document
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from executor.export.job import ExportedJob
from models.parallel_plan import ParallelPlan
from models.performance.iteration.calibration import same_costs
from models.transformer import Transformer
from stowplan.errors import InputError

_BODY = TypeAdapter(DeploymentBody)
# Options and where the body says the same.
_FIELDS: Mapping[str, tuple[str, str]] = {
    "backend": ("launch", "backend"),
    "device": ("training", "device"),
    "steps": ("training", "num_steps"),
    "token_file": ("training", "token_file"),
}


def body_of_plan(
    source: Path,
    file: Path | None,
    *,
    job_id: str | None,
    hosts: Path | None,
    request: Path | None,
    options: Mapping[str, object],
) -> DeploymentBody:
    """The body that deploys a plan which a planner has written.

    Parameters
    ----------
    file
        The rest of the body, None: defaults.
    options
        By name, in place of what the rest says; None gives nothing.

    Raises
    ------
    FileFormatError
        When a file cannot be read or is not JSON.
    InputError
        When there is no such plan, nobody says what the job trains, or the rest says what the plan says.
    """
    job = load_job(source, job_id, hosts, request)
    if job.model is None:
        raise InputError(
            f"{source} does not say what job {job.name!r} trains; give the request that was planned, --request"
        )
    plan = _plan_of(job, source)
    document = {} if file is None else read_json(file)
    if not isinstance(document, dict) or (said := document.keys() & {"plan", "plan_id", "job"}):
        raise InputError(f"{file} beside --from: an object without {', '.join(sorted(said or {'plan', 'job'}))}")
    for name, value in given(options).items():
        table, field = _FIELDS[name]
        document[table] = {**document.get(table, {}), field: value}
    document.setdefault("job_id", job_id or job.name)
    model = transformer_to_document(replace(job.model, name=None, global_batch=plan.global_batch))
    texts: dict[str, Any] = {"job": model, "plan": plan_to_document(plan)}
    return read_document(_BODY, to_json({**document, **texts}, inf_nan_mode="constants"))


def change_of_plan(
    source: Path, *, job_id: str | None, hosts: Path | None, request: Path | None, present: Transformer
) -> ReconfigureBody:
    """The body that moves a deployment of `present` to a plan which a planner has written.

    Raises
    ------
    FileFormatError
        When a file cannot be read or is not JSON.
    InputError
        When there is no such plan, or it says that it is one of another model.
    """
    job = load_job(source, job_id, hosts, request)
    if job.model is not None and not same_costs(job.model, present):
        raise InputError(f"{source} plans job {job.name!r} with another model than the deployment trains")
    return ReconfigureBody(plan=plan_to_document(_plan_of(job, source)))


def _plan_of(job: ExportedJob, source: Path) -> ParallelPlan:
    plan = job.as_plan()
    if plan is None:
        raise InputError(
            f"{source} has no 3D plan for job {job.name!r}, and none follows: its degrees or its batch are not known; "
            "give its transformer a micro_batch"
        )
    return plan

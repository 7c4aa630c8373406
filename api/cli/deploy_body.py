"""What `stowplan deploy` and `stowplan redeploy` are asked for: a plan as planners wrote it, on hosts in a file."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.json_files import read_json
from api.cli.options import given
from api.cli.planned import load_job
from api.convert.job_model import transformer_to_document
from api.convert.parallel_plan import plan_to_document
from api.convert.reading import read_document
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from executor.deployment import Deployment
from executor.export.job import ExportedJob
from executor.trainable import run_by
from models.parallel_plan import ParallelPlan
from models.performance.iteration.calibration import same_costs
from stowplan.errors import InputError

_BODY = TypeAdapter(DeploymentBody)
# Options and where the body says the same.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "backend": ("launch", "backend"),
    "device": ("training", "device"),
    "steps": ("training", "num_steps"),
    "token_file": ("training", "token_file"),
    "initial_weights": ("training", "initial_weights"),
    "final_weights": ("training", "final_weights"),
    "layers_hook": ("training", "layers_hook"),
    "command": ("launch", "command"),
    "image": ("launch", "image"),
    "learning_rate": ("training", "schedule", "learning_rate"),
    "decay": ("training", "schedule", "decay"),
    "warmup_steps": ("training", "schedule", "warmup_steps"),
    "data": ("training", "data", "sources"),
    "validation_share": ("training", "data", "validation_share"),
    "evaluate_every": ("training", "data", "evaluation_interval"),
    "document_mask": ("training", "data", "document_mask"),
    "eod_token": ("training", "data", "eod_token"),
    "eod_mask_loss": ("training", "data", "eod_mask_loss"),
}


def sources_of_words(words: Sequence[str]) -> list[dict[str, object]]:
    """Sources as documents from `/data/web`, or `3:/data/web` with a weight.

    Raises
    ------
    InputError
        When a weight is no number above 0.
    """
    sources: list[dict[str, object]] = []
    for word in words:
        weight, colon, path = word.partition(":")
        if not colon or "/" in weight:
            sources.append({"path": word})
            continue
        try:
            value = float(weight)
        except ValueError:
            value = math.nan
        if not (0 < value < math.inf and path):
            raise InputError(f"--data {word!r}: give a path, or weight:path with a weight above 0, such as 3:/data/web")
        sources.append({"path": path, "weight": value})
    return sources


def words_of_line(line: str) -> list[str]:
    """The words of a command as a shell takes them; InputError where a quotation does not end, or there are none."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"--command {line!r}: {error}") from error
    if not words:
        raise InputError("--command is empty; give a program and its arguments")
    return words


# What of the options is text here and more in the body.
_READ: Mapping[str, Callable[[Any], object]] = {"data": sources_of_words, "command": words_of_line}


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
        *tables, field = _FIELDS[name]
        place = document
        for table in tables:
            inner = place.get(table, {})
            if not isinstance(inner, dict):
                raise InputError(f"{file}: {table} is no object")
            place[table] = dict(inner)
            place = place[table]
        place[field] = _READ[name](value) if name in _READ else value
    document.setdefault("job_id", job_id or job.name)
    model = transformer_to_document(replace(job.model, name=None, global_batch=plan.global_batch))
    texts: dict[str, Any] = {"job": model, "plan": plan_to_document(plan)}
    return read_document(_BODY, to_json({**document, **texts}, inf_nan_mode="constants"))


def change_of_plan(
    source: Path, *, job_id: str | None, hosts: Path | None, request: Path | None, present: Deployment
) -> ReconfigureBody:
    """The body that moves a deployment to a plan which a planner has written.

    Raises
    ------
    FileFormatError
        When a file cannot be read or is not JSON.
    InputError
        When there is no such plan, or it says that it is one of another model.
    """
    job = load_job(source, job_id, hosts, request)
    here = run_by(present.model, present.engine)
    if job.model is not None and not same_costs(run_by(job.model, present.engine), here):
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

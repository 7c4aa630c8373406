"""Plans in files, whichever command or service wrote them, for those who take them elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.files import load_dated_snapshot, load_snapshot
from api.cli.json_files import read_json
from api.convert.export import exported_job, exported_plan
from api.convert.job_model import transformer_from_document
from api.convert.parallel_plan import plan_from_document
from api.convert.reading import read_document
from api.schemas.model import TransformerDoc
from api.schemas.parallel_plan import ParallelPlanDoc
from api.schemas.plan import OutcomeDoc
from executor.export import ExportedJob, ExportedPlan
from executor.export.job import job_of_plan, refuse_virtual_nodes
from executor.hosts import on_hosts, read_hosts
from models.parallel_plan import ParallelPlan
from models.transformer import Transformer
from stowplan.errors import InputError
from stowplan.files import read_text

D = TypeVar("D")

_OUTCOME, _PLAN, _MODEL = TypeAdapter(OutcomeDoc), TypeAdapter(ParallelPlanDoc), TypeAdapter(TransformerDoc)
# What of a plan says who gets what.
_PLACED = ("allocations", "communication", "ahead")
_WANTED = (
    "give what `stowplan plan -o` or `stowplan parallel -o` has written, an answer of /v1/plans/{id} or "
    "/v1/parallel-plans, the body of a deployment, or a 3D plan, which has stages"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """A 3D plan in a file, and what it trains, where the file says it."""

    plan: ParallelPlan
    model: TransformerDoc | None


def load_parallel(path: Path, hosts: Path | None) -> PlannedModel:
    """Read the answer of a planner of 3D plans, a plan of its own, or the body of a deployment, and put it on hosts.

    Raises
    ------
    FileFormatError
        When a file cannot be read or is not JSON.
    InputError
        When it is no such document, has nodes that are no hosts and no `hosts` are given, or has more ranks than they.
    """
    return _parallel(path, read_json(path), hosts)


def load_job(path: Path, job_id: str | None, hosts: Path | None, request: Path | None) -> ExportedJob:
    """Read a job of a plan of any policy, or what `load_parallel` reads.

    Parameters
    ----------
    job_id
        None: the only one that the plan has GPUs for.
    request
        What was planned: says what the job trains.

    Raises
    ------
    FileFormatError
        When a file cannot be read or is not JSON.
    InputError
        When the document is no plan, or has no GPUs for the job.
    """
    document = read_json(path)
    jobs = {} if request is None else {job.id: job for job in load_snapshot(request).jobs}
    if isinstance(document, dict) and "allocations" in document:
        if hosts is not None:
            raise InputError("--hosts beside a plan that names its nodes; it goes with answers of `stowplan parallel`")
        placed = {name: document[name] for name in _PLACED if document.get(name) is not None}
        outcome = _read(_OUTCOME, placed, path)
        name = _only_job(outcome) if job_id is None else job_id
        return exported_job(outcome, name, jobs.get(name))
    found = _parallel(path, document, hosts)
    model = None if found.model is None else transformer_from_document(found.model)
    if model is None and jobs:
        model = _model_of(jobs, job_id)
    return job_of_plan(job_id or path.stem, found.plan, model)


def load_whole_plan(path: Path, request: Path | None) -> ExportedPlan:
    """Read a plan of any policy, and what was planned.

    Raises
    ------
    FileFormatError
        When a file cannot be read or is not JSON.
    InputError
        When the document is no plan, or that of another request.
    """
    document = read_json(path)
    if not (isinstance(document, dict) and "allocations" in document):
        raise InputError(f"{path}: is no plan of a policy; give what `stowplan plan -o` has written")
    if not document.get("verified"):
        raise InputError(f"{path}: planning ended without a plan, or nobody checked it")
    if request is None:
        raise InputError("a whole plan is handed over beside what was planned; give that with --request FILE")
    snapshot, taken_at = load_dated_snapshot(request)
    placed = {name: document[name] for name in (*_PLACED, "unplaced") if document.get(name) is not None}
    return exported_plan(_read(_OUTCOME, placed, path), snapshot, taken_at)


def _parallel(path: Path, document: Any, hosts: Path | None) -> PlannedModel:
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no plan; {_WANTED}")
    best = document.get("best")
    plan, model = document.get("plan"), document.get("job")
    if isinstance(best, dict):
        plan, model = best.get("plan"), document.get("transformer")
    elif "stages" in document:
        plan, model = document, None
    if not isinstance(plan, dict):
        raise InputError(f"{path}: is no plan; {_WANTED}")
    read = plan_from_document(_read(_PLAN, plan, path))
    return PlannedModel(plan=_placed(read, hosts), model=None if model is None else _read(_MODEL, model, path))


def _placed(plan: ParallelPlan, hosts: Path | None) -> ParallelPlan:
    if hosts is not None:
        try:
            return on_hosts(plan, read_hosts(read_text(hosts)))
        except InputError as error:
            raise InputError(f"{hosts}: {error.detail}", error.issues) from error
    refuse_virtual_nodes(plan, "--hosts FILE")
    return plan


def _only_job(outcome: OutcomeDoc) -> str:
    names = [known.job_id for known in outcome.allocations]
    names += [known.placement.job_id for known in outcome.ahead]
    if len(names) != 1:
        few = ", ".join(names[:20])
        raise InputError(f"the plan has GPUs for {len(names)} jobs; name one with --job: {few or 'there is none'}")
    return names[0]


def _model_of(jobs: dict[str, Any], job_id: str | None) -> Transformer | None:
    if job_id is None and len(jobs) > 1:
        raise InputError(f"the request has {len(jobs)} jobs; name one with --job")
    job = jobs.get(job_id) if job_id is not None else next(iter(jobs.values()))
    model: Transformer | None = None if job is None else job.transformer
    return model


def _read(adapter: TypeAdapter[D], document: Any, path: Path) -> D:
    try:
        return read_document(adapter, to_json(document, inf_nan_mode="constants"), "plan")
    except InputError as error:
        raise InputError(f"{path}: {error.detail}; {_WANTED}", error.issues) from error

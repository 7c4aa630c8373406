"""From documents to the types of the planner and back. Pointers of the planner become pointers of the request."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import BaseModel

from api.job_model import (
    calibration_from_document,
    calibration_to_document,
    operators_from_document,
    transformer_from_document,
    transformer_to_document,
)
from api.parallel_plan import (
    expansions_from_documents,
    expansions_to_documents,
    map_from_slices,
    plan_from_degrees,
    plan_from_document,
    plan_to_document,
    slices_from_map,
)
from api.performance import performance_from_document, performance_to_document
from api.schemas.parallel_plan import SymmetricPlanDoc
from api.schemas.request import AllocationDoc, ArenaPlanBody, ArnoldPlanBody, OptionsDoc, PlanBodyDoc, SuikaPlanBody
from api.schemas.snapshot import ClusterDoc, JobDoc, NodeDoc, SnapshotDoc
from api.settings import Settings
from models.allocation.arena.parameters import ArenaMethod, ArenaParameters
from models.allocation.sia.parameters import SiaParameters
from models.allocation.suika.parameters import SuikaMethod, SuikaParameters
from models.parallel_plan import ParallelPlan
from models.parallelism.incremental.options import IncrementalOptions
from models.placement.arnold.affinity import CharacterisationRecord
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.check import placement_violations
from models.plan import Change, JobAllocation, Parameters, PlanRequest
from models.transformer import JobModel
from models.validation import request_issues, solver_fault
from models.workload import Job, NodeGpus, Parallelism, Reservation, Snapshot
from solver.options import SolveOptions
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from topology.cluster import Cluster, GpuType, Node, Tier

_DERIVED_FIELD = re.compile(r"^(/allocations/[0-9]+)/(?:num_gpus|gpu_type)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """A plan request and everything that is wrong with it; `request` is None when there is nothing to plan."""

    request: PlanRequest | None
    issues: tuple[Issue, ...]

    def required(self) -> PlanRequest:
        """Give the request.

        Raises
        ------
        InputError
            When an issue is an error.
        """
        raise_for_errors(self.issues, "request")
        assert self.request is not None  # noqa: S101 - without errors there is a request
        return self.request


def check_request(body: PlanBodyDoc, snapshot: Snapshot, settings: Settings) -> CheckedRequest:
    """Turn a body and the snapshot that it brings or refers to into a request, and say what is wrong with it."""
    issues = _limit_issues(body.options, settings)
    try:
        with located("/parameters"):
            parameters = _parameters(body)
    except InputError as error:
        return CheckedRequest(request=None, issues=(*issues, *error.issues))
    fault = solver_fault(parameters, body.options.solver)
    if fault is not None:
        issues.append(Issue(code="unknown_value", pointer="/options/solver", detail=fault))
    issues += [issue_in_request(issue) for issue in request_issues(snapshot, parameters)]
    request = PlanRequest(snapshot=snapshot, parameters=parameters, options=_options(body.options, settings))
    return CheckedRequest(request=request, issues=tuple(issues))


def body_text(body: PlanBodyDoc, snapshot_text: str) -> str:
    """JSON text of a body whose snapshot has been written before: it is by far the largest part."""
    rest = body.model_dump_json(exclude={"snapshot"})
    return f'{rest[:-1]},"snapshot":{snapshot_text}}}'


def issue_in_request(issue: Issue) -> Issue:
    """Point from the request instead of from its snapshot, which is where policies point from."""
    own = issue.pointer.startswith("/parameters")
    return issue if own else replace(issue, pointer="/snapshot" + issue.pointer)


@contextmanager
def located(prefix: str) -> Iterator[None]:
    """Put `prefix` before the pointers of an InputError; one without issues becomes an issue at `prefix`."""
    try:
        yield
    except InputError as error:
        issues = [replace(issue, pointer=prefix + issue.pointer) for issue in error.issues]
        whole = Issue(code=error.code, pointer=prefix, detail=error.detail)
        raise InputError(error.detail, issues or [whole]) from error


def snapshot_from_document(document: SnapshotDoc) -> Snapshot:
    """Build the snapshot.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the document.
    """
    with located("/cluster"):
        cluster = cluster_from_document(document.cluster)
    type_of = {node.id: node.gpu_type for node in cluster.nodes}
    jobs: list[Job] = []
    issues: list[Issue] = []
    for k, job in enumerate(document.jobs):
        try:
            with located(pointer_of("jobs", k)):
                jobs.append(_job(job, type_of))
        except InputError as error:
            issues += error.issues
    raise_for_errors(issues, "snapshot")
    return Snapshot(cluster=cluster, jobs=tuple(jobs))


def cluster_from_document(document: ClusterDoc) -> Cluster:
    """Build the cluster.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the document.
    """
    return Cluster(
        gpu_types=tuple(GpuType(**vars(kind)) for kind in document.gpu_types),
        nodes=tuple(_node(node) for node in document.nodes),
        tiers=tuple(Tier(**vars(tier)) for tier in document.tiers),
        minipod_tier=document.minipod_tier,
        core_bandwidth_fraction=document.core_bandwidth_fraction,
    )


def snapshot_to_document(snapshot: Snapshot) -> SnapshotDoc:
    """Give the document that `snapshot_from_document` turns into an equal snapshot."""
    cluster = ClusterDoc.model_validate(snapshot.cluster, from_attributes=True)
    return SnapshotDoc(cluster=cluster, jobs=tuple(_job_document(job) for job in snapshot.jobs))


def placement_issues(documents: Sequence[AllocationDoc], snapshot: Snapshot) -> list[Issue]:
    """Every rule that a placement by anybody breaks; pointers are relative to an object with `allocations`."""
    violations = placement_violations(snapshot, _allocations(documents, snapshot))
    # What follows from the GPUs is no field of the document.
    return [replace(issue, pointer=_DERIVED_FIELD.sub(r"\1/gpus", issue.pointer)) for issue in violations]


def _allocations(documents: Sequence[AllocationDoc], snapshot: Snapshot) -> list[JobAllocation]:
    """Allocations whose type and count follow from the GPUs; what happens to the jobs is not judged."""
    type_of = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    return [
        JobAllocation(
            job_id=document.job_id,
            gpu_type=next((type_of[node] for node in document.gpus if node in type_of), ""),
            num_gpus=sum(len(gpus) for gpus in document.gpus.values()),
            gpus=slices_from_map(document.gpus),
            change=Change.KEPT,
        )
        for document in documents
    ]


def _parameters(body: PlanBodyDoc) -> Parameters:
    values = vars(body.parameters)
    if isinstance(body, ArnoldPlanBody):
        records = tuple(CharacterisationRecord(**vars(record)) for record in body.parameters.records)
        return ArnoldParameters(**{**values, "records": records})
    if isinstance(body, ArenaPlanBody):
        is_exact = body.policy == "arena-ilp"
        return ArenaParameters(method=ArenaMethod.ILP if is_exact else ArenaMethod.HEURISTIC, **values)
    if isinstance(body, SuikaPlanBody):
        chosen = SuikaMethod.ILP if body.policy == "suika-ilp" else SuikaMethod.HEURISTIC
        planning = IncrementalOptions(**vars(body.parameters.planning))
        return SuikaParameters(**{**values, "method": chosen, "planning": planning})
    return SiaParameters(**values)


def _limit_issues(options: OptionsDoc, settings: Settings) -> list[Issue]:
    asked = (
        ("time_limit_s", options.time_limit_s or 0.0, settings.max_time_limit_s),
        ("threads", options.threads, settings.max_threads),
    )
    return [
        Issue(
            code="out_of_range",
            pointer=f"/options/{name}",
            detail=f"is {value}; this service allows at most {limit}",
        )
        for name, value, limit in asked
        if value > limit
    ]


def _options(options: OptionsDoc, settings: Settings) -> SolveOptions:
    limit_s = settings.time_limit_s if options.time_limit_s is None else options.time_limit_s
    return SolveOptions(**{**vars(options), "time_limit_s": limit_s})


def _node(document: NodeDoc) -> Node:
    taken = document.gpus_in_use
    return Node(**{**vars(document), "gpus_in_use": tuple(range(taken)) if isinstance(taken, int) else taken})


def _job(document: JobDoc, type_of: Mapping[str, str]) -> Job:
    current = slices_from_map(document.current) if document.current else None
    transformer = None if document.transformer is None else transformer_from_document(document.transformer)
    operators = None if document.operators is None else operators_from_document(document.operators)
    with located("/parallel_plan"):
        plan = _running_plan(document, transformer or operators, current or (), type_of)
    return Job(
        **{
            **vars(document),
            "reservation": _built(Reservation, document.reservation),
            "current": current,
            "performance": None if document.performance is None else performance_from_document(document.performance),
            "parallelism": _built(Parallelism, document.parallelism),
            "transformer": transformer,
            "operators": operators,
            "parallel_plan": plan,
            "expansions": expansions_from_documents(document.expansions),
            "calibration": None if document.calibration is None else calibration_from_document(document.calibration),
        }
    )


def _running_plan(
    document: JobDoc, model: JobModel | None, current: Sequence[NodeGpus], type_of: Mapping[str, str]
) -> ParallelPlan | None:
    if isinstance(document.parallel_plan, SymmetricPlanDoc):
        return plan_from_degrees(document.parallel_plan, model, current, type_of)
    return None if document.parallel_plan is None else plan_from_document(document.parallel_plan)


def _built(kind: type[Any], document: BaseModel | None) -> Any:
    return None if document is None else kind(**vars(document))


def _job_document(job: Job) -> JobDoc:
    values: dict[str, Any] = {field.name: getattr(job, field.name) for field in fields(job)}
    values["current"] = None if job.current is None else map_from_slices(job.current)
    values["performance"] = None if job.performance is None else performance_to_document(job.performance)
    values["transformer"] = None if job.transformer is None else transformer_to_document(job.transformer)
    values["parallel_plan"] = None if job.parallel_plan is None else plan_to_document(job.parallel_plan)
    values["expansions"] = expansions_to_documents(job.expansions)
    values["calibration"] = None if job.calibration is None else calibration_to_document(job.calibration)
    return JobDoc.model_validate(values, from_attributes=True)

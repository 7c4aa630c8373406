"""Snapshots and clusters: from their documents to the types of the planner, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from api.convert.calendar import calendar_from_documents, calendar_to_documents
from api.convert.job_model import (
    calibration_from_document,
    calibration_to_document,
    open_model_from_document,
    open_model_to_document,
)
from api.convert.located import located
from api.convert.parallel_plan import (
    expansions_from_documents,
    expansions_to_documents,
    map_from_slices,
    plan_from_degrees,
    plan_from_document,
    plan_to_document,
    slices_from_map,
)
from api.convert.performance import performance_from_document, performance_to_document
from api.schemas.parallel_plan import SymmetricPlanDoc
from api.schemas.snapshot import ClusterDoc, JobDoc, NodeDoc, SnapshotDoc
from models.forecast.lasting import Lasting
from models.parallel_plan import ParallelPlan
from models.parallelism.training import Choices
from models.transformer import JobModel
from models.workload import Job, NodeGpus, Parallelism, Reservation, Snapshot
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from topology.cluster import Cluster, GpuType, Node, Tier

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_JOB_FIELDS = tuple(field.name for field in fields(Job))


def snapshot_from_document(document: SnapshotDoc) -> Snapshot:
    """Build the snapshot.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the document.
    """
    if document.forecaster is not None:
        detail = (
            "names a forecaster, which only requests to a service that has it can do; give `lasting` of jobs, or on "
            "the command line --forecaster FILE"
        )
        raise InputError(detail, [Issue(code="stored_forecaster", pointer="/forecaster", detail=detail)])
    with located("/cluster"):
        cluster = cluster_from_document(document.cluster)
    type_of = {node.id: node.gpu_type for node in cluster.nodes}
    jobs: list[Job] = []
    issues: list[Issue] = []
    for k, job in enumerate(document.jobs):
        try:
            with located(pointer_of("jobs", k)):
                jobs.append(job_from_document(job, type_of))
        except InputError as error:
            issues += error.issues
    raise_for_errors(issues, "snapshot")
    calendar = calendar_from_documents(document.calendar, document.taken_at)
    return Snapshot(cluster=cluster, jobs=tuple(jobs), calendar=calendar)


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


def snapshot_to_document(snapshot: Snapshot, taken_at: datetime = _NO_TIME) -> SnapshotDoc:
    """Give the document that `snapshot_from_document` turns into an equal snapshot.

    A snapshot knows no clock: `taken_at` is when it was taken, and times of its calendar are as fine as microseconds.
    """
    return SnapshotDoc(
        cluster=ClusterDoc.model_validate(snapshot.cluster, from_attributes=True),
        jobs=tuple(_job_document(job) for job in snapshot.jobs),
        taken_at=taken_at if snapshot.calendar else None,
        calendar=calendar_to_documents(snapshot.calendar, taken_at),
    )


def _node(document: NodeDoc) -> Node:
    taken = document.gpus_in_use
    return Node(**{**vars(document), "gpus_in_use": tuple(range(taken)) if isinstance(taken, int) else taken})


def job_from_document(document: JobDoc, type_of: Mapping[str, str]) -> Job:
    """Build a job; `type_of` are the GPU types of nodes. Raises InputError with pointers relative to the document."""
    current = slices_from_map(document.current) if document.current else None
    transformer = None if document.transformer is None else open_model_from_document(document.transformer)
    operators = None if document.operators is None else open_model_from_document(document.operators)
    model, choices = transformer or operators or (None, Choices())
    with located("/lasting"):
        lasting = _built(Lasting, document.lasting)
    with located("/calibration"):
        calibration = None if document.calibration is None else calibration_from_document(document.calibration)
    with located("/parallel_plan"):
        plan = _running_plan(document, model, current or (), type_of)
    return Job(
        **{
            **vars(document),
            "reservation": _built(Reservation, document.reservation),
            "current": current,
            "performance": None if document.performance is None else performance_from_document(document.performance),
            "parallelism": _built(Parallelism, document.parallelism),
            "transformer": None if transformer is None else transformer[0],
            "operators": None if operators is None else operators[0],
            "choices": choices,
            "parallel_plan": plan,
            "expansions": expansions_from_documents(document.expansions),
            "calibration": calibration,
            "lasting": lasting,
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
    values: dict[str, Any] = {name: getattr(job, name) for name in _JOB_FIELDS}
    values["current"] = None if job.current is None else map_from_slices(job.current)
    values["performance"] = None if job.performance is None else performance_to_document(job.performance)
    choices = values.pop("choices")
    for name in ("transformer", "operators"):
        model = values[name]
        values[name] = None if model is None else open_model_to_document(model, choices)
    values["parallel_plan"] = None if job.parallel_plan is None else plan_to_document(job.parallel_plan)
    values["expansions"] = expansions_to_documents(job.expansions)
    values["calibration"] = None if job.calibration is None else calibration_to_document(job.calibration)
    return JobDoc.model_validate(values, from_attributes=True)

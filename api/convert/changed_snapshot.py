"""Snapshots that are told by what is other than in something that the service has."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from api.convert.located import located
from api.convert.reading import read_document
from api.schemas.snapshot import ChangedSnapshot, ClusterDoc, ClusterSnapshot, JobDoc, NodeChangeDoc, SnapshotDoc
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors

_JOB: TypeAdapter[JobDoc] = TypeAdapter(JobDoc)
_ID = "id"


def on_cluster(source: ClusterSnapshot, cluster: ClusterDoc) -> SnapshotDoc:
    """The snapshot of jobs on a cluster; InputError with pointers relative to `source`."""
    return SnapshotDoc(
        cluster=_with_nodes(cluster, source.nodes),
        jobs=source.jobs,
        taken_at=source.taken_at,
        calendar=source.calendar,
        forecaster=source.forecaster,
    )


def changed_snapshot(source: ChangedSnapshot, base: SnapshotDoc) -> SnapshotDoc:
    """The base with all that is other. Jobs stay in their order, new ones come behind.

    Raises
    ------
    InputError
        When it changes or removes what is not there, or what comes of a job is none, or the moment is missing; pointers
        are relative to `source`.
    """
    if base.taken_at is not None and source.taken_at is None:
        detail = f"is missing; the base was taken at {base.taken_at.isoformat()}: say when it has become this one"
        raise InputError(detail, [Issue(code="missing_field", pointer="/taken_at", detail=detail)])
    known = {job.id for job in base.jobs}
    faults = [*_unknown("job", "jobs", source.jobs, known)]
    faults += [
        _fault(pointer_of("remove_jobs", k), f"there is no job {name!r} in the base")
        for k, name in enumerate(source.remove_jobs)
        if name not in known
    ]
    removed = set(source.remove_jobs)
    faults += [
        _fault(pointer_of("jobs", name), f"job {name!r} is removed; change it or remove it")
        for name in source.jobs
        if name in removed
    ]
    raise_for_errors(faults, "the changes do not go with the base")
    jobs = [_changed(job, source.jobs.get(job.id)) for job in base.jobs if job.id not in removed]
    return SnapshotDoc(
        cluster=_with_nodes(base.cluster, source.nodes),
        jobs=(*jobs, *source.add_jobs),
        taken_at=source.taken_at,
        calendar=base.calendar if source.calendar is None else source.calendar,
        forecaster=source.forecaster,
    )


def _changed(job: JobDoc, fields: Mapping[str, Any] | None) -> JobDoc:
    if fields is None:
        return job
    pointer = pointer_of("jobs", job.id)
    if _ID in fields:
        detail = "the name of a job stays; remove the job, and add one"
        raise InputError(detail, [Issue(code="unknown_field", pointer=f"{pointer}/{_ID}", detail=detail)])
    with located(pointer):
        before = from_json(job.model_dump_json())
        return read_document(_JOB, to_json({**before, **fields}, inf_nan_mode="constants"), "change")


def _with_nodes(cluster: ClusterDoc, changes: Mapping[str, NodeChangeDoc]) -> ClusterDoc:
    if not changes:
        return cluster
    known = {node.id for node in cluster.nodes}
    raise_for_errors(_unknown("node", "nodes", changes, known), "the changes do not go with the cluster")
    nodes = (
        node.model_copy(update=changes[node.id].model_dump(exclude_none=True)) if node.id in changes else node
        for node in cluster.nodes
    )
    return cluster.model_copy(update={"nodes": tuple(nodes)})


def _unknown(what: str, field: str, named: Mapping[str, object], known: set[str]) -> list[Issue]:
    unknown = [name for name in named if name not in known]
    return [_fault(pointer_of(field, name), f"there is no {what} {name!r} in the base") for name in unknown]


def _fault(pointer: str, detail: str) -> Issue:
    return Issue(code="unknown_value", pointer=pointer, detail=detail)

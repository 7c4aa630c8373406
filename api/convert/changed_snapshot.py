"""Snapshots that are told by what is other than in something that the service has."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from api.convert.located import located
from api.convert.reading import read_document
from api.schemas.snapshot import ChangedSnapshot, ClusterDoc, ClusterSnapshot, JobDoc, NodeChangeDoc, SnapshotDoc
from models.workload import Snapshot
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
    faults += [
        Issue(code="duplicate_id", pointer=pointer_of("add_jobs", k, _ID), detail=f"the base has a job {job.id!r}")
        for k, job in enumerate(source.add_jobs)
        if job.id in known and job.id not in removed
    ]
    raise_for_errors(faults, "set of changes to the base")
    jobs = [_changed(job, source.jobs.get(job.id)) for job in base.jobs if job.id not in removed]
    return SnapshotDoc(
        cluster=_with_nodes(base.cluster, source.nodes),
        jobs=(*jobs, *source.add_jobs),
        taken_at=source.taken_at,
        calendar=base.calendar if source.calendar is None else source.calendar,
        forecaster=source.forecaster,
    )


@contextmanager
def told_in(source: object, whole: SnapshotDoc) -> Iterator[None]:
    """Give the issues of an InputError the pointers of `issue_in_source`."""
    try:
        yield
    except InputError as error:
        raise InputError(error.detail, [issue_in_source(issue, source, whole) for issue in error.issues]) from error


def issue_in_source(issue: Issue, source: object, whole: SnapshotDoc | Snapshot) -> Issue:
    """Point an issue of the snapshot that came of `source` to where that says what is wrong, or might say it; a pointer
    from the request stays one. What is of the base, or of the cluster that it names, is at that name, and the detail
    says where in it. Issues of a source that is whole stay as they are."""
    if not isinstance(source, ChangedSnapshot | ClusterSnapshot):
        return issue
    prefix = "/snapshot" if issue.pointer.startswith("/snapshot/") else ""
    own: str | None = None
    match issue.pointer.removeprefix(prefix).split("/")[1:], source:
        case ["cluster", "nodes", k, *below], _:
            what, name = "node", whole.cluster.nodes[int(k)].id
            own = pointer_of("nodes", name) if name in source.nodes else None
        case ["jobs", k, *below], ChangedSnapshot():
            what, name = "job", whole.jobs[int(k)].id
            added = int(k) - len(whole.jobs) + len(source.add_jobs)
            if added >= 0:
                own = pointer_of("add_jobs", added)
            elif name in source.jobs:
                own = pointer_of("jobs", name)
        case (["cluster" as what, *below], _) | (["jobs" as what, *below], ChangedSnapshot()):
            name = ""
        case ["calendar" as what, *below], ChangedSnapshot(calendar=None):
            name = ""
        case _:
            return issue
    if own is not None:
        return replace(issue, pointer="/".join((prefix + own, *below)))
    at = prefix + ("/base" if isinstance(source, ChangedSnapshot) else "/cluster")
    if name and repr(name) in issue.detail:
        return replace(issue, pointer=at)
    of = f"{what} {name!r}" if name else f"the {what}"
    return replace(issue, pointer=at, detail=f"{', '.join([of, *below[:1]])}: {issue.detail}")


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
    raise_for_errors(_unknown("node", "nodes", changes, known), "set of changes to the cluster")
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

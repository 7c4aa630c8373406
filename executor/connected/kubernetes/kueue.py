"""Workloads of Kueue that wait for our admission check: Kueue says who has quota, we say when and where they start.

kind: AdmissionCheck    spec.controllerName: stowplan/placement, named by ClusterQueues
kind: Workload          status.admissionChecks: [{name, state: Pending, ...}] until we have placed it, then Ready
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from executor.connected.kubernetes.api import Json, Resource
from executor.connected.kubernetes.gangs import Gang, parallelism_said
from executor.connected.kubernetes.terms import CONTROLLER, NODES, PARALLELISM, QUOTA_SINCE, Terms
from executor.kubernetes.patches import Patch, adding, same_object
from executor.kubernetes.workloads import AnsweredWorkload, read_answered
from models.cluster_state.base import SourceDocument
from models.cluster_state.kubernetes.objects import Object

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
PENDING = "Pending"
_ACTIVE = "Active"


def our_checks(checks: Iterable[Json]) -> list[Json]:
    """The admission checks whose controller we are."""
    return [check for check in checks if check.get("spec", {}).get("controllerName") == CONTROLLER]


def add_workloads(
    gangs: Mapping[str, Gang], documents: Sequence[SourceDocument], checks: Iterable[str], terms: Terms
) -> dict[str, Gang]:
    """The gangs, and those that Kueue has and one of our checks is to let in.

    Raises
    ------
    FileFormatError
        When a workload cannot be read.
    """
    found = dict(gangs)
    for check in checks:
        for name, workload in read_answered(documents, check).items():
            spec = workload.object.object("spec")
            is_ours = workload.check is not None and spec.value.get("active") is not False
            if is_ours and terms.govern(workload.object.namespace, spec.text("queueName")):
                found[name] = _gang(found.get(name, Gang(id=name)), workload)
    return found


def intend_work(workload: AnsweredWorkload, quota_since: str | None, job_id: str, nodes: Sequence[str]) -> Patch:
    """Note on a workload where all of it goes, before it starts: whoever takes over goes on so."""
    noted = {NODES: ",".join(nodes), QUOTA_SINCE: quota_since or ""}
    return noting(workload.object, f"workloads.{workload.version}.{GROUP}", job_id, noted, nodes)


def noting(found: Object, resource: str, job_id: str, noted: Mapping[str, str], nodes: Sequence[str]) -> Patch:
    """Annotate an object with the nodes of its job."""
    where = ("metadata", "annotations")
    if found.object("metadata").texts("annotations"):
        operations = [adding(text, *where, key) for key, text in noted.items()]
    else:
        operations = [adding(dict(noted), *where)]
    return Patch(
        resource=resource,
        namespace=found.namespace,
        name=found.name,
        subresource=None,
        operations=(*same_object(found), *operations),
        job_id=job_id,
        meaning=f"is to be on {len(nodes)} nodes",
    )


def serving(check: Json, resource: Resource, now: datetime) -> Patch | None:
    """Tell Kueue that somebody serves a check of ours: until then its queues take nothing. None where it knows."""
    conditions = (check.get("status") or {}).get("conditions") or []
    if any(one.get("type") == _ACTIVE and one.get("status") == "True" for one in conditions):
        return None
    condition = {
        "type": _ACTIVE,
        "status": "True",
        "reason": "Connected",
        "message": "stowplan is connected",
        "lastTransitionTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    others = [one for one in conditions if one.get("type") != _ACTIVE]
    return Patch(
        resource=f"{resource.plural}.{resource.version}.{resource.group}",
        namespace="",
        name=check["metadata"]["name"],
        subresource="status",
        operations=(adding({**(check.get("status") or {}), "conditions": [*others, condition]}, "status"),),
        job_id="",
        meaning="is served",
    )


def _gang(gang: Gang, workload: AnsweredWorkload) -> Gang:
    quota_since = _quota_since(workload)
    notes = workload.object.object("metadata").texts("annotations")
    # What was noted for an admission that was taken back says nothing of the next one.
    is_noted = bool(notes.get(NODES)) and quota_since is not None and notes.get(QUOTA_SINCE) == quota_since
    nodes = tuple(notes[NODES].split(",")) if is_noted else None
    gang = replace(gang, workload=workload, quota_since=quota_since, nodes=nodes, problem=_fault(workload))
    try:
        return replace(gang, parallelism=gang.parallelism or parallelism_said(_said(workload).get(PARALLELISM)))
    except ValueError as error:
        return replace(gang, problem=str(error))


def _fault(workload: AnsweredWorkload) -> str | None:
    """Why a workload that was not placed cannot be placed now."""
    if workload.check is not None and workload.check.state != PENDING:
        return f"its admission check is {workload.check.state} without a choice of nodes"
    return None if workload.has_quota else "waits for its quota"


def _quota_since(workload: AnsweredWorkload) -> str | None:
    for condition in workload.object.object("status").objects("conditions"):
        if condition.text("type") == "QuotaReserved" and condition.text("status") == "True":
            return condition.text("lastTransitionTime")
    return None


def _said(workload: AnsweredWorkload) -> Mapping[str, str]:
    """Annotations of its pod templates."""
    notes: dict[str, str] = {}
    for pod_set in workload.object.object("spec").objects("podSets"):
        notes |= pod_set.object("template", "metadata").texts("annotations")
    return notes

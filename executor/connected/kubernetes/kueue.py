"""Workloads of Kueue that wait for our admission check: Kueue says who has quota, we say when and where they start.

    kind: AdmissionCheck    spec.controllerName: stowplan/placement (the name of the gate), named by ClusterQueues
    kind: Workload          status.admissionChecks: [{name, state: Pending, ...}] until we have placed it, then Ready

`podSetUpdates` of a check give all pods of a set the same node selector. So a set whose pods go to several nodes needs
our scheduling gate in its pod template: Kueue starts it, and each pod waits for its node behind the gate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from executor.connected.kubernetes.api import Json, Resource
from executor.connected.kubernetes.changes import APPLY, MERGE, Patch
from executor.connected.kubernetes.gangs import Gang, KueueWork, PodSet, parallelism_said
from executor.connected.kubernetes.terms import HOSTNAME, NODES, PARALLELISM, QUOTA_SINCE, Terms
from models.cluster_state.base import SourceDocument
from models.cluster_state.kubernetes.objects import Object
from models.cluster_state.kubernetes.pods import pod_gpus
from models.cluster_state.kubernetes.workloads import workload_id

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
READY, PENDING = "Ready", "Pending"
_ACTIVE = "Active"
_WORKLOADS = SourceDocument(name="workloads", text="")


def our_checks(checks: Iterable[Json], terms: Terms) -> frozenset[str]:
    """Names of the admission checks whose controller we are."""
    return frozenset(
        check["metadata"]["name"] for check in checks if check.get("spec", {}).get("controllerName") == terms.gate
    )


def is_active(check: Json) -> bool:
    """Whether a check is said to be served: until then its queues take nothing."""
    conditions = (check.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == _ACTIVE and one.get("status") == "True" for one in conditions)


def add_workloads(
    gangs: Mapping[str, Gang], workloads: Iterable[Json], checks: frozenset[str], terms: Terms
) -> dict[str, Gang]:
    """The gangs, and those that Kueue has and we are to check."""
    found = dict(gangs)
    for workload in workloads:
        work = _work(workload, checks, terms)
        if work is None:
            continue
        name = workload_id(Object(_WORKLOADS, "", workload))
        gang = found.get(name, Gang(id=name, pods=()))
        found[name] = _with_work(gang, work, workload)
    return found


def _with_work(gang: Gang, work: KueueWork, workload: Json) -> Gang:
    gang = replace(gang, workload=work, nodes=gang.nodes or work.nodes, problem=_fault(work))
    try:
        degrees = gang.parallelism or parallelism_said(_template_notes(workload).get(PARALLELISM))
    except ValueError as error:
        return replace(gang, problem=f"annotation {PARALLELISM} {error}")
    return replace(gang, parallelism=degrees)


def _fault(work: KueueWork) -> str | None:
    """Why a workload that was not placed cannot be placed now."""
    if work.nodes is not None:
        return None
    if work.state != PENDING:
        return f"its admission check is {work.state} without a choice of nodes"
    return None if work.quota_since is not None else "waits for its quota"


def _work(workload: Json, checks: frozenset[str], terms: Terms) -> KueueWork | None:
    metadata, spec, status = workload["metadata"], workload["spec"], workload.get("status") or {}
    ours = next((one for one in status.get("admissionChecks") or () if one["name"] in checks), None)
    true = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    if ours is None or "Finished" in true or spec.get("active") is False:
        return None
    if not terms.govern(metadata.get("namespace", "default"), spec.get("queueName", "")):
        return None
    notes = metadata.get("annotations") or {}
    quota_since = true.get("QuotaReserved", {}).get("lastTransitionTime")
    # What was noted for an admission that was taken back says nothing of the next one.
    is_noted = NODES in notes and quota_since is not None and notes.get(QUOTA_SINCE) == quota_since
    return KueueWork(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        check=ours["name"],
        state=ours.get("state", PENDING),
        quota_since=quota_since,
        pod_sets=tuple(_pod_set(pod_set, terms) for pod_set in spec.get("podSets") or ()),
        nodes=tuple(notes[NODES].split(",")) if is_noted else None,
    )


def _pod_set(pod_set: Json, terms: Terms) -> PodSet:
    template = pod_set.get("template") or {}
    gates = [gate["name"] for gate in (template.get("spec") or {}).get("schedulingGates") or ()]
    pod = Object(_WORKLOADS, "", {"spec": template.get("spec") or {}})
    return PodSet(
        name=pod_set.get("name", "main"), count=int(pod_set["count"]), gpus=pod_gpus(pod), is_gated=terms.gate in gates
    )


def _template_notes(workload: Json) -> dict[str, str]:
    notes: dict[str, str] = {}
    for pod_set in workload["spec"].get("podSets") or ():
        notes |= ((pod_set.get("template") or {}).get("metadata") or {}).get("annotations") or {}
    return notes


def set_faults(work: KueueWork, nodes: Sequence[str]) -> str | None:
    """Why a workload cannot be told to start on these nodes."""
    for pod_set, places in _places(work, nodes):
        if len(set(places)) > 1 and not pod_set.is_gated:
            return (
                f"pods of its set {pod_set.name!r} go to {len(set(places))} nodes, and its template lacks the "
                "scheduling gate behind which each could wait for its own"
            )
    return None


def intend_work(resource: Resource, work: KueueWork, nodes: Sequence[str]) -> Patch:
    """Note on a workload where all of it goes, before it starts."""
    body = {"metadata": {"uid": work.uid, "annotations": {NODES: ",".join(nodes), QUOTA_SINCE: work.quota_since}}}
    return Patch(resource=resource, namespace=work.namespace, name=work.name, body=body, content_type=MERGE)


def ready(
    resource: Resource, work: KueueWork, nodes: Sequence[str] | None, hostnames: Mapping[str, str], now: datetime
) -> Patch:
    """Tell Kueue that a workload may start, and where sets of pods go that stay together; anywhere without nodes."""
    updates = [
        {"name": pod_set.name, "nodeSelector": {HOSTNAME: hostnames[places[0]]}}
        for pod_set, places in _places(work, nodes or ())
        if places and not pod_set.is_gated
    ]
    check = {
        "name": work.check,
        "state": READY,
        "message": "placed by stowplan" if nodes else "released by stowplan, without a choice of nodes",
        "lastTransitionTime": _stamp(now),
        **({"podSetUpdates": updates} if updates else {}),
    }
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": work.name, "namespace": work.namespace, "uid": work.uid},
        "status": {"admissionChecks": [check]},
    }
    return Patch(
        resource=resource, namespace=work.namespace, name=work.name, body=body, content_type=APPLY, part="status"
    )


def serve(resource: Resource, check: Json, now: datetime) -> Patch:
    """Tell Kueue that somebody serves a check of ours."""
    condition = {
        "type": _ACTIVE,
        "status": "True",
        "reason": "Connected",
        "message": "stowplan is connected",
        "lastTransitionTime": _stamp(now),
    }
    name = check["metadata"]["name"]
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "status": {"conditions": [condition]},
    }
    return Patch(resource=resource, namespace=None, name=name, body=body, content_type=APPLY, part="status")


def _places(work: KueueWork, nodes: Sequence[str]) -> Iterable[tuple[PodSet, Sequence[str]]]:
    """Sets with GPUs, and the nodes of their pods, in order."""
    at = 0
    for pod_set in work.pod_sets:
        if pod_set.gpus:
            yield pod_set, nodes[at : at + pod_set.count]
            at += pod_set.count


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

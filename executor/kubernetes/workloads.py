"""Workloads of Kueue as whoever answers their admission check has to know them.

`sigs.k8s.io/kueue/apis/kueue/{v1beta1,v1beta2}/workload_types.go` at v0.19.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from executor.kubernetes.names import LABEL, LABEL_FORM, SUBDOMAIN, SUBDOMAIN_FORM
from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.kubernetes.nodes import gpus_of
from models.cluster_state.kubernetes.objects import Object
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE
from models.cluster_state.kubernetes.workloads import KueueWorkload, read_workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of one template.

    `assignment`: its index in `status.admission.podSetAssignments`, `levels` those of the topology that Kueue assigned
    there (None: it assigned none). `has_gate`: its pods wait for our gate, whatever Kueue says.
    """

    name: str
    num_pods: int
    gpus_per_pod: int
    node_selector: Mapping[str, str]
    has_gate: bool
    assignment: int | None
    levels: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Our check among those of a workload: its index there, and what it says."""

    index: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredWorkload:
    """A workload, and our check there (None: its queue asks for no such check)."""

    object: Object
    version: str
    has_quota: bool
    pod_sets: tuple[PodSet, ...]
    check: Check | None


def read_answered(documents: Sequence[SourceDocument], check: str) -> dict[str, AnsweredWorkload]:
    """Workloads with GPUs that are not over, by the id that their jobs have in snapshots.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    return {found.id: _answered(found, check) for found in read_workloads(documents, Notes())}


def refuse_odd_names(found: Object) -> None:
    """Raise FileFormatError where an object has a name that Kubernetes would not have given it."""
    if not SUBDOMAIN.fullmatch(found.name):
        raise found.fault(f"is {found.name!r}; {SUBDOMAIN_FORM}", "metadata", "name")
    if not LABEL.fullmatch(found.namespace):
        raise found.fault(f"is {found.namespace!r}; {LABEL_FORM}", "metadata", "namespace")


def _answered(found: KueueWorkload, check: str) -> AnsweredWorkload:
    workload = found.object
    refuse_odd_names(workload)
    version = workload.text("apiVersion").rpartition("/")[2]
    if not version:
        raise workload.fault("is missing; give what kubectl writes, whose items say their version", "apiVersion")
    status = workload.object("status")
    assignments = {
        item.text("name") or "main": (k, _levels(item))
        for k, item in enumerate(status.object("admission").objects("podSetAssignments"))
    }
    checks = (
        Check(index=k, state=item.text("state"))
        for k, item in enumerate(status.objects("admissionChecks"))
        if item.text("name") == check
    )
    return AnsweredWorkload(
        object=workload,
        version=version,
        has_quota=found.has_quota,
        pod_sets=tuple(_pod_set(item, assignments) for item in workload.object("spec").objects("podSets")),
        check=next(checks, None),
    )


def _levels(assignment: Object) -> tuple[str, ...] | None:
    topology = assignment.object("topologyAssignment").value
    return tuple(topology.get("levels") or ()) if topology else None


def _pod_set(item: Object, assignments: Mapping[str, tuple[int, tuple[str, ...] | None]]) -> PodSet:
    name = item.text("name") or "main"
    spec = item.object("template", "spec")
    assignment, levels = assignments.get(name, (None, None))
    return PodSet(
        name=name,
        # `read_workloads` has looked at it.
        num_pods=int(item.number("count") or 0),
        gpus_per_pod=gpus_of(spec.objects("containers")),
        node_selector=spec.texts("nodeSelector"),
        has_gate=any(gate.text("name") == PLACEMENT_GATE for gate in spec.objects("schedulingGates")),
        assignment=assignment,
        levels=levels,
    )

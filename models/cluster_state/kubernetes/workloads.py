"""Workloads of Kueue, and JobSets: what waits, of which there are no pods yet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.kubernetes.nodes import gpus_of
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects

COMMAND = "kubectl get workloads.kueue.x-k8s.io --all-namespaces -o json"
_KINDS = {
    "Workload": ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2",),
}
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# Conditions of what is over: of workloads, and of JobSets.
_OVER = ("Finished", "Completed", "Failed")
_LET_IN = ("QuotaReserved", "Admitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueWorkload:
    """A workload, or a JobSet as one, that is not over.

    `id`: namespace and name of what it stands for, as pods have it. `pod_spec`: of its first pods. `num_pods`: with
    GPUs. `has_quota`: its queue has let it in; its pods say where they are. `priority`, `limit_s`: 0 and None where
    nobody says. `held`: why it could not be let in, whatever is free.
    """

    id: str
    object: Object
    pod_spec: Object
    num_pods: int
    gpus_per_pod: int | None
    num_gpus: int
    has_quota: bool
    queue: str
    priority: float
    limit_s: float | None
    held: str | None


def read_workloads(documents: Sequence[SourceDocument], notes: Notes) -> list[KueueWorkload]:
    """All workloads and JobSets with GPUs that are not over; of a JobSet that a workload stands for, the workload.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    found: dict[str, dict[str, KueueWorkload]] = {kind: {} for kind in _KINDS}
    for kind, one in kubernetes_objects(documents, _KINDS, COMMAND):
        conditions = {item.text("type") for item in one.object("status").objects("conditions") if _is_true(item)}
        if conditions.intersection(_OVER):
            continue
        sets = list(_pod_sets(one) if kind == "Workload" else _replicated_jobs(one))
        num_gpus = sum(count * gpus for count, gpus, _ in sets)
        name = workload_id(one) if kind == "Workload" else f"{one.namespace}/{one.name}"
        if not num_gpus:
            detail = f"{kind.lower()} {name} asks for no GPUs; it is left out"
            notes.add("no_gpus_asked", one.document, one.pointer, detail)
            continue
        if name in found[kind]:
            raise one.fault(f"a second {kind.lower()} stands for {name}", "metadata")
        found[kind][name] = _waiting(kind, name, one, sets, has_quota=not conditions.isdisjoint(_LET_IN))
    return list((found["JobSet"] | found["Workload"]).values())


def _waiting(kind: str, name: str, one: Object, sets: Sequence["_PodSet"], *, has_quota: bool) -> KueueWorkload:
    spec, (_, _, pod_spec) = one.object("spec"), sets[0]
    sizes = {gpus for _, gpus, _ in sets if gpus}
    if kind == "Workload":
        queue, priority = spec.text("queueName"), spec.number("priority")
        limit_s = spec.number("maximumExecutionTimeSeconds")
        held = "deactivated (spec.active)" if spec.value.get("active") is False else None
    else:
        queue, priority = one.object("metadata").texts("labels").get(QUEUE_LABEL, ""), pod_spec.number("priority")
        limit_s = None
        # Of one with a queue, Kueue decides; it suspends what waits.
        held = "suspended (spec.suspend)" if spec.value.get("suspend") is True and not queue else None
    return KueueWorkload(
        id=name,
        object=one,
        pod_spec=pod_spec,
        num_pods=sum(count for count, gpus, _ in sets if gpus),
        gpus_per_pod=sizes.pop() if len(sizes) == 1 else None,
        num_gpus=sum(count * gpus for count, gpus, _ in sets),
        has_quota=has_quota,
        queue=queue,
        priority=priority or 0.0,
        limit_s=limit_s,
        held=held,
    )


_PodSet = tuple[int, int, Object]
"""How many pods there are, how many GPUs each of them asks for, and their spec."""


def _pod_sets(workload: Object) -> Iterator[_PodSet]:
    for pod_set in workload.object("spec").objects("podSets"):
        spec = pod_set.object("template", "spec")
        yield _whole(pod_set, "count"), gpus_of(spec.objects("containers")), spec


def _replicated_jobs(jobset: Object) -> Iterator[_PodSet]:
    for replicated in jobset.object("spec").objects("replicatedJobs"):
        job = replicated.object("template", "spec")
        spec = job.object("template", "spec")
        count = _whole(replicated, "replicas", 1) * _whole(job, "parallelism", 1)
        yield count, gpus_of(spec.objects("containers")), spec


def _whole(found: Object, key: str, default: int | None = None) -> int:
    count = found.number(key)
    if count is None and default is not None:
        return default
    if count is None or count < 0 or count != int(count):
        raise found.fault(f"is {count}; must be a whole number from 0 on", key)
    return int(count)


def workload_id(workload: Object) -> str:
    """Namespace and name of what a workload stands for, as its pods have it."""
    owner = next(workload.object("metadata").objects("ownerReferences"), None)
    return f"{workload.namespace}/{workload.name if owner is None else owner.text('name') or workload.name}"


def _is_true(condition: Object) -> bool:
    return condition.text("status") == "True"

"""Workloads of Kueue: what waits for its queue, of which there are no pods yet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.kubernetes.nodes import gpus_of
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects

COMMAND = "kubectl get workloads.kueue.x-k8s.io --all-namespaces -o json"
_VERSIONS = ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2")


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueWorkload:
    """A workload that is not over.

    `id`: namespace and name of what it stands for, as pods have it. `has_quota`: its queue has let it in; its pods say
    where they are. `held`: why it could not be let in, whatever is free.
    """

    id: str
    object: Object
    num_pods: int
    gpus_per_pod: int | None
    num_gpus: int
    has_quota: bool
    held: str | None


def read_workloads(documents: Sequence[SourceDocument], notes: Notes) -> list[KueueWorkload]:
    """All workloads with GPUs that are not over.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    found: dict[str, KueueWorkload] = {}
    for _, workload in kubernetes_objects(documents, {"Workload": _VERSIONS}, COMMAND):
        conditions = {item.text("type") for item in workload.object("status").objects("conditions") if _is_true(item)}
        if "Finished" in conditions:
            continue
        pods = list(_pods(workload))
        num_gpus = sum(count * gpus for count, gpus in pods)
        name = workload_id(workload)
        if not num_gpus:
            detail = f"workload {name} asks for no GPUs; it is left out"
            notes.add("no_gpus_asked", workload.document, workload.pointer, detail)
            continue
        if name in found:
            raise workload.fault(f"a second workload stands for {name}", "metadata", "ownerReferences")
        with_gpus = [(count, gpus) for count, gpus in pods if gpus]
        found[name] = KueueWorkload(
            id=name,
            object=workload,
            num_pods=sum(count for count, _ in with_gpus),
            gpus_per_pod=with_gpus[0][1] if len({gpus for _, gpus in with_gpus}) == 1 else None,
            num_gpus=num_gpus,
            has_quota="QuotaReserved" in conditions or "Admitted" in conditions,
            held="deactivated (spec.active)" if workload.object("spec").value.get("active") is False else None,
        )
    return list(found.values())


def _pods(workload: Object) -> Iterator[tuple[int, int]]:
    """How many pods there are, and how many GPUs each of them asks for, of every set."""
    for pod_set in workload.object("spec").objects("podSets"):
        count = pod_set.number("count")
        if count is None or count < 0 or count != int(count):
            raise pod_set.fault(f"is {count}; must be a whole number from 0 on", "count")
        yield int(count), gpus_of(pod_set.object("template", "spec").objects("containers"))


def workload_id(workload: Object) -> str:
    """Namespace and name of what a workload stands for, as its pods have it."""
    owner = next(workload.object("metadata").objects("ownerReferences"), None)
    return f"{workload.namespace}/{workload.name if owner is None else owner.text('name') or workload.name}"


def _is_true(condition: Object) -> bool:
    return condition.text("status") == "True"

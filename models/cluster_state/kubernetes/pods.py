"""Jobs as pods have them: the pods of one job together, where they run or wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.kubernetes.nodes import gpus_of
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects

COMMAND = "kubectl get pods --all-namespaces -o json"
# What names the job of a pod, those that may have several jobs of the next ones first.
_JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "kueue.x-k8s.io/pod-group-name",
    "scheduling.x-k8s.io/pod-group",
    "batch.kubernetes.io/job-name",
    "job-name",
)
_GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
_OVER = ("Succeeded", "Failed")
KUEUE_GATES = frozenset({"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"})
# Of pods that wait for a plan of ours to say on which node they go.
PLACEMENT_GATE = "stowplan/placement"


@dataclass(slots=True, kw_only=True)
class PodJob:
    """The pods of one job. `held`: why those that wait cannot start now (None: they can)."""

    id: str
    first: Object
    running: list[tuple[str, int, Object]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    held: str | None = None
    is_kueues: bool = False

    @property
    def num_gpus(self) -> int:
        """GPUs of all pods that are not over."""
        return sum(gpus for _, gpus, _ in self.running) + sum(self.waiting)

    @property
    def gpus_per_pod(self) -> set[int]:
        """How many GPUs pods ask for."""
        return {*(gpus for _, gpus, _ in self.running), *self.waiting}


def read_pods(documents: Sequence[SourceDocument], notes: Notes) -> tuple[list[PodJob], float]:
    """Jobs of all pods with GPUs that are not over, in the order of their first pods; and the last moment that pods
    tell of, in seconds since 1970 (0: none).

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    jobs: dict[str, PodJob] = {}
    seen: set[tuple[str, str]] = set()
    seen_s = 0.0
    for _, pod in kubernetes_objects(documents, {"Pod": ("v1",)}, COMMAND):
        key = pod.namespace, pod.name
        if key in seen:
            raise pod.fault(f"pod {'/'.join(key)} stands there twice", "metadata", "name")
        seen.add(key)
        status = pod.object("status")
        seen_s = max(
            seen_s, status.time_s("startTime") or 0.0, pod.object("metadata").time_s("creationTimestamp") or 0.0
        )
        if status.text("phase") in _OVER:
            continue
        gpus = gpus_of_pod(pod)
        if not gpus:
            notes.add(
                "no_gpus_asked", pod.document, pod.pointer, f"pod {'/'.join(key)} asks for no GPUs; it is left out"
            )
            continue
        name = job_id(pod)
        job = jobs.setdefault(name, PodJob(id=name, first=pod))
        _add(job, pod, gpus)
    return list(jobs.values()), seen_s


def job_id(pod: Object) -> str:
    """Namespace and name of what a pod is a part of: by label, else what owns it, else the pod itself."""
    labels = pod.object("metadata").texts("labels")
    for label in _JOB_LABELS:
        if labels.get(label):
            group = f"-{labels[_GROUP_LABEL]}" if label.startswith("leaderworkerset") and _GROUP_LABEL in labels else ""
            return f"{pod.namespace}/{labels[label]}{group}"
    owners = pod.object("metadata").objects("ownerReferences")
    owner = next((owner for owner in owners if owner.value.get("controller") is True), None)
    # Replicas of what is always up are no gang: each of them is planned, and counted, by itself.
    if owner is None or owner.text("kind") in ("ReplicaSet", "StatefulSet", "DaemonSet"):
        return f"{pod.namespace}/{pod.name}"
    return f"{pod.namespace}/{owner.text('name') or pod.name}"


def _add(job: PodJob, pod: Object, gpus: int) -> None:
    node = pod.object("spec").text("nodeName")
    if node:
        job.running.append((node, gpus, pod))
        return
    job.waiting.append(gpus)
    gates = {gate.text("name") for gate in pod.object("spec").objects("schedulingGates")}
    if gates & KUEUE_GATES:
        job.is_kueues = True
    others = sorted(gates - KUEUE_GATES - {PLACEMENT_GATE})
    if others:
        job.held = job.held or f"scheduling gate {others[0]}"


def gpus_of_pod(pod: Object) -> int:
    """GPUs that a pod has: of its containers together, or of one that starts before them."""
    spec = pod.object("spec")
    starting = (gpus_of(iter((container,))) for container in spec.objects("initContainers"))
    return max([gpus_of(spec.objects("containers")), *starting])

"""Gangs: the pods of a job in rank order, which of them wait behind our gate, and where they were put."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from executor.connected.kubernetes.api import Json
from executor.connected.kubernetes.terms import NODE, NODES, NUM_PODS, PARALLELISM, QUEUE_LABEL, Terms
from models.cluster_state.base import SourceDocument
from models.cluster_state.kubernetes.objects import Object
from models.cluster_state.kubernetes.pods import job_id, pod_gpus
from models.workload import NodeGpus, Parallelism

_KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
# What numbers the pods of a gang, coarsest first; each is looked for among labels and annotations.
_RANKS = (
    ("jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/job-index"),
    ("leaderworkerset.sigs.k8s.io/worker-index", "training.kubeflow.org/replica-index"),
    ("batch.kubernetes.io/job-completion-index", "kueue.x-k8s.io/pod-group-pod-index", "volcano.sh/task-index"),
)
_GROUPS = ("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type")
# Replica types of Kubeflow whose pods have the first ranks.
_FIRST = ("master", "launcher", "leader", "chief")
_OVER = ("Succeeded", "Failed")
_DIGITS = re.compile(r"(\d+)")
_PODS = SourceDocument(name="pods", text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod of a gang. `is_gated`: it waits for us; `other_gates` for somebody else. `node`: the one it was given."""

    namespace: str
    name: str
    uid: str
    gpus: int
    is_gated: bool
    node: str | None
    other_gates: tuple[str, ...] = ()
    has_controller: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of a workload that are alike: how many, the GPUs of each, and whether their template has our gate."""

    name: str
    count: int
    gpus: int
    is_gated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueWork:
    """A workload of Kueue that our admission check `check` is to let in. `quota_since`: when Kueue gave it quota (None:
    it has none); `nodes`: where it was decided to go since then."""

    namespace: str
    name: str
    uid: str
    check: str
    state: str
    quota_since: str | None
    pod_sets: tuple[PodSet, ...]
    nodes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A governed job. `pods` in rank order. `nodes`: those that its pods with GPUs were given, in rank order, where it
    was placed. problem: why it cannot be placed as it is."""

    id: str
    pods: tuple[GangPod, ...]
    nodes: tuple[str, ...] | None = None
    parallelism: Parallelism | None = None
    problem: str | None = None
    workload: KueueWork | None = None

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of each pod that has some, in rank order; of pods that are yet to be made as their workload says."""
        if self.pods or self.workload is None:
            return tuple(pod.gpus for pod in self.workers)
        sets = self.workload.pod_sets
        return tuple(one.gpus for one in sets for _ in range(one.count) if one.gpus)

    @property
    def uids(self) -> frozenset[str]:
        """What it is made of: other pods are another try."""
        return frozenset(pod.uid for pod in self.pods) or frozenset(
            () if self.workload is None else (self.workload.uid,)
        )

    @property
    def started(self) -> tuple[GangPod, ...]:
        """Pods that have left our gate."""
        return tuple(pod for pod in self.pods if not pod.is_gated)

    @property
    def gated(self) -> tuple[GangPod, ...]:
        """Pods that wait for us."""
        return tuple(pod for pod in self.pods if pod.is_gated)

    @property
    def workers(self) -> tuple[GangPod, ...]:
        """Pods with GPUs."""
        return tuple(pod for pod in self.pods if pod.gpus)

    @property
    def can_be_made_anew(self) -> bool:
        """Whether a controller makes every pod again that is deleted."""
        return all(pod.has_controller for pod in self.pods)


@dataclass(slots=True, kw_only=True)
class _Found:
    """Pods of a job, with what orders them."""

    pods: list[tuple[tuple[object, ...], GangPod, Json]] = field(default_factory=list)
    is_governed: bool = False


def read_gangs(pods: Iterable[Json], terms: Terms) -> dict[str, Gang]:
    """The governed jobs by id, as the reader of cluster states names them. Pods that are over, or
    being deleted, are none of theirs."""
    found: dict[str, _Found] = {}
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        if metadata.get("deletionTimestamp") or (pod.get("status") or {}).get("phase") in _OVER:
            continue
        notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        gates = [gate["name"] for gate in spec.get("schedulingGates") or ()]
        is_ours = terms.gate in gates or NODE in notes
        if is_ours and not terms.govern(metadata.get("namespace", "default"), labels.get(QUEUE_LABEL, "")):
            continue
        job = found.setdefault(job_id(Object(_PODS, "", pod)), _Found())
        job.is_governed |= is_ours
        job.pods.append((_rank({**notes, **labels}, metadata["name"]), _pod(pod, gates, terms), pod))
    return {name: _gang(name, job) for name, job in found.items() if job.is_governed}


def shown_to_reader(pods: Iterable[Json], gangs: Mapping[str, Gang], terms: Terms) -> list[Json]:
    """Pods as the reader is to see them: our gate holds nobody, and a pod that was given a node is there."""
    ours = {(pod.namespace, pod.name) for gang in gangs.values() for pod in gang.pods}
    shown = []
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        if (metadata.get("namespace", "default"), metadata["name"]) in ours and not spec.get("nodeName"):
            gates = [gate for gate in spec.get("schedulingGates") or () if gate["name"] != terms.gate]
            node = None if gates else (metadata.get("annotations") or {}).get(NODE)
            spec = {**spec, "schedulingGates": gates, **({"nodeName": node} if node else {})}
            pod = {**pod, "spec": spec}
        shown.append(pod)
    return shown


def nodes_of_pods(parts: Sequence[NodeGpus], gpus: Sequence[int]) -> tuple[str, ...] | None:
    """A node for each pod, in rank order, out of the GPUs of a plan, whose order is that of the ranks; None where the
    pods do not go into these."""
    left = [len(part.gpus) for part in parts]
    nodes = []
    for num in gpus:
        k = next((k for k, free in enumerate(left) if free >= num), None)
        if k is None:
            return None
        left[k] -= num
        nodes.append(parts[k].node)
    return tuple(nodes)


def due_pods(gang: Gang, nodes: Sequence[str], *, was_whole: bool = False) -> list[tuple[GangPod, str | None]]:
    """The pods that are yet to be let go, in rank order, each with its node; None for one without GPUs.

    None before all pods are there, whose ranks say which node is whose. Of a gang that `was_whole`, some may be over:
    what was made anew gets the nodes that the others have left, in rank order.
    """
    workers = gang.workers
    if len(workers) == len(nodes):
        places = dict(zip((pod.uid for pod in workers), nodes, strict=True))
    elif was_whole:
        left = list(nodes)
        for pod in workers:
            if not pod.is_gated and pod.node in left:
                left.remove(pod.node)
        places = dict(zip((pod.uid for pod in workers if pod.is_gated), left, strict=False))
    else:
        return []
    return [(pod, places.get(pod.uid)) for pod in gang.gated if not pod.gpus or pod.uid in places]


def _pod(pod: Json, gates: Sequence[str], terms: Terms) -> GangPod:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return GangPod(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        gpus=pod_gpus(Object(_PODS, "", pod)),
        is_gated=terms.gate in gates,
        other_gates=tuple(gate for gate in gates if gate != terms.gate),
        node=pod["spec"].get("nodeName") or (metadata.get("annotations") or {}).get(NODE),
        has_controller=any(owner.get("controller") for owner in owners),
    )


def _gang(name: str, job: _Found) -> Gang:
    members = sorted(job.pods, key=lambda item: item[0])
    notes = {key: text for _, _, pod in members for key, text in _said(pod).items()}
    gang = Gang(id=name, pods=tuple(pod for _, pod, _ in members))
    if NODES in notes:
        gang = replace(gang, nodes=tuple(notes[NODES].split(",")))
    wanted = notes.get(NUM_PODS) or notes.get(_KUEUE_TOTAL)
    try:
        return replace(gang, parallelism=parallelism_said(notes.get(PARALLELISM)), problem=_size_fault(gang, wanted))
    except ValueError as error:
        return replace(gang, problem=f"annotation {PARALLELISM} {error}")


def _said(pod: Json) -> Json:
    metadata = pod["metadata"]
    return {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}


def _size_fault(gang: Gang, wanted: str | None) -> str | None:
    """Why a gang is not whole."""
    num = len(gang.pods)
    if wanted is None:
        return f"says not how many pods it has: annotate them with {NUM_PODS}"
    if not wanted.isdigit() or int(wanted) < 1:
        return f"annotation {NUM_PODS} is {wanted!r}; must be a whole number from 1 on"
    if num != int(wanted):
        return f"has {num} of {wanted} pods"
    if gang.nodes is None and any(not pod.is_gated for pod in gang.workers):
        return "was started in part by somebody else: some of its pods have left the gate, and it was given no nodes"
    others = sorted({gate for pod in gang.pods for gate in pod.other_gates})
    return f"waits behind other gates, too: {', '.join(others)}" if others else None


def parallelism_said(text: str | None) -> Parallelism | None:
    """Degrees as an annotation says them; ValueError says what is wrong."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    names = set(Parallelism.__slots__)
    if (
        not isinstance(found, dict)
        or found.keys() != names
        or not all(type(degree) is int and degree > 0 for degree in found.values())
    ):
        raise ValueError(f'is {text!r}; must be such as {{"tp": 8, "pp": 2, "dp": 4}}')
    return Parallelism(**found)


def _rank(said: Mapping[str, str], name: str) -> tuple[object, ...]:
    """What orders the pods of a gang: groups of pods by name, those with the first ranks before others, then numbers;
    names for want of numbers, digits in them as numbers."""
    group = next((said[key] for key in _GROUPS if key in said), "")
    if _RANKS[0][0] in said:
        # It counts over all groups.
        group = ""
    numbers = [next((int(said[key]) for key in keys if said.get(key, "").isdigit()), 0) for keys in _RANKS]
    parts = _DIGITS.split(name)
    natural = tuple((int(part), "") if k % 2 else (0, part) for k, part in enumerate(parts))
    return (group.lower() not in _FIRST, group, *numbers, natural)

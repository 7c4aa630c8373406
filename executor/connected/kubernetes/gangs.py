"""Gangs: the pods of a governed job in rank order, which of them wait behind our gate, and where they were put."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from executor.connected.kubernetes.api import Json
from executor.connected.kubernetes.terms import NODES, NUM_PODS, PARALLELISM, QUEUE_LABEL, Terms
from executor.kubernetes.gates import GatedPod, place_in_job
from executor.kubernetes.names import HOSTNAME
from executor.kubernetes.workloads import AnsweredWorkload
from models.cluster_state.base import SourceDocument
from models.cluster_state.kubernetes.objects import Object
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE, gpus_of_pod, job_id
from models.workload import Parallelism

_KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_OVER = ("Succeeded", "Failed")
_PODS = SourceDocument(name="pods", text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A governed job.

    `pods` in rank order, those without GPUs among them. `workload` of Kueue, which our admission check lets in; its
    quota is that of `quota_since`. `nodes`: those that its pods with GPUs were given, in rank order, where it was
    placed. problem: why it cannot be placed as it is.
    """

    id: str
    pods: tuple[GatedPod, ...] = ()
    workload: AnsweredWorkload | None = None
    quota_since: str | None = None
    nodes: tuple[str, ...] | None = None
    parallelism: Parallelism | None = None
    problem: str | None = None

    @property
    def workers(self) -> tuple[GatedPod, ...]:
        """Pods with GPUs."""
        return tuple(pod for pod in self.pods if pod.num_gpus)

    @property
    def started(self) -> tuple[GatedPod, ...]:
        """Pods with GPUs that do not wait for us."""
        return tuple(pod for pod in self.workers if pod.gate is None)

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of each pod that has some, in rank order; of pods that are yet to be made as their workload says."""
        if self.pods or self.workload is None:
            return tuple(pod.num_gpus for pod in self.workers)
        sets = self.workload.pod_sets
        return tuple(one.gpus_per_pod for one in sets for _ in range(one.num_pods) if one.gpus_per_pod)

    @property
    def uids(self) -> frozenset[str]:
        """What it is made of: other pods are another try, and so is another admission."""
        return frozenset([*(uid_of(pod.object) for pod in self.pods), self.quota_since or ""])

    @property
    def can_be_made_anew(self) -> bool:
        """Whether a controller makes every pod again that is deleted."""
        owners = (pod.object.object("metadata").objects("ownerReferences") for pod in self.pods)
        return all(any(owner.value.get("controller") for owner in several) for several in owners)


def read_gangs(pods: Iterable[Json], terms: Terms) -> dict[str, Gang]:
    """The governed jobs by id, as the reader of cluster states names them. Pods that are over, or being deleted, are
    none of theirs."""
    found: dict[str, list[GatedPod]] = {}
    for item in pods:
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp") or (item.get("status") or {}).get("phase") in _OVER:
            continue
        pod = Object(_PODS, "", item)
        gates = [gate["name"] for gate in item["spec"].get("schedulingGates") or ()]
        gate = gates.index(PLACEMENT_GATE) if PLACEMENT_GATE in gates else None
        found.setdefault(job_id(pod), []).append(GatedPod(object=pod, num_gpus=gpus_of_pod(pod), gate=gate))
    return {name: _gang(name, members) for name, members in found.items() if _is_governed(members, terms)}


def shown_to_reader(
    pods: Sequence[Json], gangs: Mapping[str, Gang], names: Mapping[str, str], room: Mapping[str, int]
) -> list[Json]:
    """Pods as the reader is to see them: one that was given a node is there, though it is not bound yet, as far as
    others have not taken its GPUs meanwhile.

    Parameters
    ----------
    names
        Host name of a node, as selectors have it -> its name.
    room
        GPUs of each node.
    """
    started = {uid_of(pod.object): pod for gang in gangs.values() if gang.nodes for pod in gang.started}
    places = {uid: names.get(node_of(pod) or "") for uid, pod in started.items()}
    left = {node: room[node] for node in places.values() if node is not None and node in room}
    for item in pods:
        node = item["spec"].get("nodeName")
        if node in left and (item.get("status") or {}).get("phase") not in _OVER:
            left[node] -= gpus_of_pod(Object(_PODS, "", item))
    shown = []
    for item in pods:
        uid = item["metadata"].get("uid", "")
        node = None if item["spec"].get("nodeName") else places.get(uid)
        if node in left and left[node] >= started[uid].num_gpus:
            left[node] -= started[uid].num_gpus
            shown.append({**item, "spec": {**item["spec"], "nodeName": node}})
        else:
            shown.append(item)
    return shown


def due_pods(gang: Gang, nodes: Sequence[str], *, was_whole: bool = False) -> list[tuple[GatedPod, str]]:
    """The pods with GPUs that are yet to be let go, in rank order, each with its node.

    None before all pods are there, whose ranks say which node is whose. Of a gang that `was_whole`, some may be over:
    what was made anew gets the nodes that the others have left, in rank order.
    """
    workers = gang.workers
    if len(workers) == len(nodes):
        return [(pod, node) for pod, node in zip(workers, nodes, strict=True) if pod.gate is not None]
    if not was_whole:
        return []
    left = list(nodes)
    for node in map(node_of, gang.started):
        if node in left:
            left.remove(node)
    return list(zip((pod for pod in workers if pod.gate is not None), left, strict=False))


def node_of(pod: GatedPod) -> str | None:
    """Where a pod is, or the host that it asks for."""
    spec = pod.object.object("spec")
    return spec.text("nodeName") or spec.texts("nodeSelector").get(HOSTNAME)


def uid_of(found: Object) -> str:
    """What tells objects apart that have the same name one after another."""
    return found.object("metadata").text("uid")


def parallelism_said(text: str | None) -> Parallelism | None:
    """Degrees as an annotation says them; ValueError says what is wrong."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if (
        not isinstance(found, dict)
        or found.keys() != set(Parallelism.__slots__)
        or not all(type(degree) is int and degree > 0 for degree in found.values())
    ):
        raise ValueError(f'{PARALLELISM} is {text!r}; must be such as {{"tp": 8, "pp": 2, "dp": 4}}')
    return Parallelism(**found)


def _is_governed(pods: Sequence[GatedPod], terms: Terms) -> bool:
    """Whether a pod waits for us, or did; and all are of a namespace and queue that are ours."""
    is_ours = any(pod.gate is not None or not {NUM_PODS, NODES}.isdisjoint(_notes(pod)) for pod in pods)
    return is_ours and all(
        terms.govern(pod.object.namespace, pod.object.object("metadata").texts("labels").get(QUEUE_LABEL, ""))
        for pod in pods
    )


def _notes(pod: GatedPod) -> Mapping[str, str]:
    return pod.object.object("metadata").texts("annotations")


def _gang(name: str, members: Sequence[GatedPod]) -> Gang:
    pods = tuple(sorted(members, key=lambda pod: place_in_job(pod.object)))
    notes = {key: text for pod in pods for key, text in _notes(pod).items()}
    labels = pods[0].object.object("metadata").texts("labels")
    nodes = tuple(notes[NODES].split(",")) if notes.get(NODES) else None
    gang = Gang(id=name, pods=pods, nodes=nodes)
    wanted = notes.get(NUM_PODS) or notes.get(_KUEUE_TOTAL) or labels.get(_KUEUE_TOTAL)
    try:
        return replace(gang, parallelism=parallelism_said(notes.get(PARALLELISM)), problem=_fault(gang, wanted))
    except ValueError as error:
        return replace(gang, problem=str(error))


def _fault(gang: Gang, wanted: str | None) -> str | None:
    """Why a gang that was not placed cannot be placed now."""
    num = len(gang.pods)
    if wanted is None:
        return f"says not how many pods it has: annotate them with {NUM_PODS}"
    if not wanted.isdecimal() or int(wanted) < 1:
        return f"{NUM_PODS} is {wanted!r}; must be a whole number from 1 on"
    if num != int(wanted):
        return f"has {num} of {wanted} pods"
    if gang.started:
        return f"{len(gang.started)} of its {num} pods were let go by somebody else"
    others = {gate.text("name") for pod in gang.pods for gate in pod.object.object("spec").objects("schedulingGates")}
    others.discard(PLACEMENT_GATE)
    return f"waits behind other gates, too: {', '.join(sorted(others))}" if others else None

"""What Kubernetes says of a cluster, put together: nodes in their units, and jobs out of pods and Kueue's workloads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.cluster_state.base import ClusterState, Documents, Notes, StateJob, StateOptions, priority_ranks
from models.cluster_state.gpus import KnownGpus
from models.cluster_state.kubernetes.nodes import KubernetesNodes, read_nodes
from models.cluster_state.kubernetes.objects import Object
from models.cluster_state.kubernetes.pods import PodJob, read_pods
from models.cluster_state.kubernetes.topology import Units, units_of
from models.cluster_state.kubernetes.workloads import QUEUE_LABEL, KueueWorkload, read_workloads
from models.workload import Job, NodeGpus
from stowplan.collection import without_collection
from topology.cluster import Cluster, Node, Tier
from topology.readers.base import default_minipod_tier

_NAME_CHARS = 256


def read_kubernetes_state(documents: Documents, options: StateOptions) -> ClusterState:
    """Read what Kubernetes says.

    Raises
    ------
    FileFormatError
        Names the document, the JSON pointer, and what is wrong.
    InputError
        When there is no such topology, or no tier is called as `options.minipod_tier` is.
    """
    with without_collection():
        return _state(documents, options)


def _state(documents: Documents, options: StateOptions) -> ClusterState:
    notes, gpus = Notes(), KnownGpus(options)
    tolerated = frozenset(filter(None, (key.strip() for key in options.settings.get("tolerated", "").split(","))))
    nodes = read_nodes(documents["nodes"], gpus, notes, tolerated)
    planned = [node.object for node in nodes.planned.values()]
    units = units_of(planned, documents.get("topology", ()), options.settings.get("topology-labels"), notes)
    pods, seen_s = read_pods(documents.get("pods", ()), notes)
    workloads = read_workloads(documents.get("workloads", ()), notes)
    at_s = options.taken_at_s or max(nodes.seen_s, seen_s)
    held = _Holding(nodes, notes)
    jobs = _Jobs(nodes=nodes, holding=held, notes=notes, at_s=at_s, pods=pods, workloads=workloads).all()
    return ClusterState(
        cluster=_cluster(nodes, units, gpus, held.in_use, options.minipod_tier),
        jobs=jobs,
        taken_at_s=at_s,
        notes=notes.all(),
    )


def _cluster(
    nodes: KubernetesNodes,
    units: Units,
    gpus: KnownGpus,
    in_use: Mapping[str, Sequence[int]],
    minipod_tier: str | None,
) -> Cluster:
    built = [
        Node(
            id=name,
            gpu_type=node.gpu_type,
            num_gpus=node.num_gpus,
            gpus_in_use=tuple(sorted(in_use.get(name, ()))),
            state=node.state,
            path=units.paths.get(name, ()),
            state_reason=node.reason,
        )
        for name, node in nodes.planned.items()
    ]
    return Cluster(
        gpu_types=tuple(gpus.used.values()),
        nodes=tuple(built),
        tiers=tuple(Tier(name=name) for name in units.tiers),
        minipod_tier=default_minipod_tier(built, units.tiers) if minipod_tier is None else minipod_tier,
    )


class _Holding:
    """Which GPUs pods have: Kubernetes counts them, so the lowest free ones of the node. in_use: node -> GPUs of work
    that is not planned."""

    def __init__(self, nodes: KubernetesNodes, notes: Notes) -> None:
        self._nodes = nodes
        self._notes = notes
        self._next: dict[str, int] = dict.fromkeys(nodes.planned, 0)
        self.in_use: dict[str, list[int]] = {}

    def take(self, node: str, num: int, pod: Object) -> NodeGpus | None:
        """GPUs of a pod; None on a node that is left out."""
        if node not in self._nodes.planned:
            if node not in self._nodes.left_out:
                names = ", ".join(document.name for document in self._nodes.documents)
                raise pod.fault(f"runs on node {node!r}, which {names} does not have", "spec", "nodeName")
            return None
        first, has = self._next[node], self._nodes.planned[node].num_gpus
        if first + num > has:
            detail = (
                f"has {num} GPUs of node {node!r}, where {has - first} of {has} are left by other pods: the documents"
            )
            raise pod.fault(f"{detail} may be of different moments", "spec", "nodeName")
        detail = f"Kubernetes does not say which GPUs of node {node!r} a pod has; taken are the lowest free ones"
        self._notes.add("gpu_indices_assumed", pod.document, pod.pointer, detail)
        self._next[node] = first + num
        return NodeGpus(node=node, gpus=tuple(range(first, first + num)))

    def leave_out(self, parts: Sequence[NodeGpus]) -> None:
        """Count GPUs as taken by work that is not planned."""
        for part in parts:
            self.in_use.setdefault(part.node, []).extend(part.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """Makes what is planned of pods and workloads, and notes what is not."""

    nodes: KubernetesNodes
    holding: _Holding
    notes: Notes
    at_s: float
    pods: Sequence[PodJob]
    workloads: Sequence[KueueWorkload]

    def all(self) -> tuple[StateJob, ...]:
        """Jobs that run, then those that wait, in the order of the documents."""
        queued = {workload.id: workload for workload in self.workloads}
        priorities = [_priority(job.first.object("spec")) for job in self.pods]
        priorities += [workload.priority for workload in self.workloads]
        ranks = priority_ranks(priorities)
        made = [self._of_pods(job, queued.get(job.id), ranks) for job in self.pods]
        with_pods = {job.id for job in self.pods if job.running or not job.is_kueues}
        made += [self._of_workload(one, ranks) for one in self.workloads if one.id not in with_pods]
        return tuple(job for job in made if job is not None)

    def _of_pods(self, job: PodJob, workload: KueueWorkload | None, ranks: Mapping[float, int]) -> StateJob | None:
        current = self._current(job)
        if job.running and current is None:
            return None
        if current is None and job.is_kueues and workload is not None:
            return None
        held = None if current else job.held or (self._gated(job) if job.is_kueues else None)
        spec = job.first.object("spec")
        started_s = min(
            (at for _, _, pod in job.running if (at := pod.object("status").time_s("startTime")) is not None),
            default=None,
        )
        running_s = None if started_s is None or current is None else max(0.0, self.at_s - started_s)
        if current and job.waiting:
            detail = f"job {job.id!r} has {len(job.waiting)} pods that wait; it is planned as what runs"
            self.notes.add("partly_running", job.first.document, job.first.pointer, detail)
        limit_s = spec.number("activeDeadlineSeconds")
        num_gpus = sum(len(part.gpus) for part in current) if current else job.num_gpus
        per_pod = job.gpus_per_pod
        return self._state_job(
            job.first,
            Job(
                id=job.id[:_NAME_CHARS],
                min_gpus=num_gpus,
                gpu_types=None if current else self._types(spec, job.first),
                current=current,
                priority=ranks[_priority(spec)],
                age_s=self._age_s(job.first),
                remaining_s=_left_s(limit_s, running_s),
                queue=_name(job.first.object("metadata").texts("labels").get(QUEUE_LABEL, "")),
                attained_gpu_s=num_gpus * (running_s or 0.0),
                user=_name(job.first.namespace),
                application=_name(job.id.partition("/")[2]),
                time_limit_s=limit_s or None,
                running_s=running_s,
            ),
            num_nodes=None,
            gpus_per_pod=per_pod.pop() if len(per_pod) == 1 else None,
            held=held,
        )

    def _of_workload(self, workload: KueueWorkload, ranks: Mapping[float, int]) -> StateJob | None:
        """A workload without pods that run."""
        return self._state_job(
            workload.object,
            Job(
                id=workload.id[:_NAME_CHARS],
                min_gpus=workload.num_gpus,
                gpu_types=self._types(workload.pod_spec, workload.object),
                priority=ranks[workload.priority],
                age_s=self._age_s(workload.object),
                remaining_s=workload.limit_s,
                queue=_name(workload.queue),
                user=_name(workload.object.namespace),
                application=_name(workload.id.partition("/")[2]),
                time_limit_s=workload.limit_s or None,
            ),
            num_nodes=None,
            gpus_per_pod=workload.gpus_per_pod,
            held=workload.held,
        )

    def _state_job(
        self, source: Object, job: Job, *, num_nodes: int | None, gpus_per_pod: int | None, held: str | None
    ) -> StateJob | None:
        if job.gpu_types == ():
            detail = f"job {job.id!r} asks for nodes that there are not; it is left out"
            self.notes.add("nodes_absent", source.document, source.pointer, detail)
            return None
        return StateJob(
            job=job,
            num_nodes=num_nodes,
            gpus_per_node=gpus_per_pod,
            account=_name(source.namespace),
            priority_value=_priority(source.object("spec")),
            held=held,
        )

    def _current(self, job: PodJob) -> tuple[NodeGpus, ...] | None:
        """Where a job runs; None where it does not, or not only on planned nodes of one type (these are taken then)."""
        parts = [self.holding.take(node, num, pod) for node, num, pod in job.running]
        ours = [part for part in parts if part is not None]
        types = {self.nodes.planned[part.node].gpu_type for part in ours}
        if not job.running or (len(ours) == len(parts) and len(types) == 1):
            return _merged(ours) or None
        self.holding.leave_out(ours)
        where = "on nodes that are left out" if len(ours) < len(parts) else f"on GPUs of types {sorted(types)}"
        detail = f"job {job.id!r} runs {where}; its GPUs count as taken"
        self.notes.add("runs_elsewhere", job.first.document, job.first.pointer, detail)
        return None

    def _gated(self, job: PodJob) -> str | None:
        """Pods that Kueue gates, without its workloads: nobody says whether they could be let in."""
        detail = f"job {job.id!r} waits for Kueue, whose workloads were not given; it is planned as its pods"
        self.notes.add("workloads_not_given", job.first.document, job.first.pointer, detail)
        return None

    def _types(self, spec: Object, source: Object) -> tuple[str, ...] | None:
        """GPU types of the nodes that a selector leaves (None: all of them)."""
        wanted = spec.texts("nodeSelector")
        if spec.object("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution").value:
            detail = "asks for nodes by affinity, which plans do not know; name them by nodeSelector"
            self.notes.add("affinity_not_planned", source.document, source.pointer, detail)
        if not wanted:
            return None
        nodes = self.nodes.planned.values()
        ours = [node for node in nodes if wanted.items() <= node.labels.items()]
        types = tuple({node.gpu_type: None for node in ours})
        if 0 < len(ours) < sum(node.gpu_type in types for node in nodes):
            detail = f"may use {len(ours)} of {len(nodes)} nodes ({_labels(wanted)}), which plans do not know"
            self.notes.add("selector_not_planned", source.document, source.pointer, detail)
        return None if len(ours) == len(nodes) else types

    def _age_s(self, source: Object) -> float:
        created_s = source.object("metadata").time_s("creationTimestamp")
        return 0.0 if created_s is None else max(0.0, self.at_s - created_s)


def _merged(parts: Sequence[NodeGpus]) -> tuple[NodeGpus, ...]:
    """One part for each node: several pods of a job may share one."""
    gpus: dict[str, list[int]] = {}
    for part in parts:
        gpus.setdefault(part.node, []).extend(part.gpus)
    return tuple(NodeGpus(node=node, gpus=tuple(sorted(found))) for node, found in gpus.items())


def _priority(spec: Object) -> float:
    return spec.number("priority") or 0.0


def _left_s(limit_s: float | None, running_s: float | None) -> float | None:
    return None if limit_s is None else max(0.0, limit_s - (running_s or 0.0))


def _labels(wanted: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in wanted.items())


def _name(text: str) -> str | None:
    return text[:_NAME_CHARS] or None

"""A whole plan, said to a cluster that has the jobs already: as workloads of Kueue, and as pods behind our gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from executor.kubernetes.answers import AnswerOptions, ready, rejected, retry
from executor.kubernetes.gates import GatedPod, lifted, read_gated
from executor.kubernetes.names import LABEL_VALUE, SUBDOMAIN
from executor.kubernetes.patches import Patch
from executor.kubernetes.placing import UnsayableError
from executor.kubernetes.workloads import AnsweredWorkload, read_answered
from models.cluster_state.base import SourceDocument
from models.plan import Change, JobAllocation, Plan, UnplacedJob
from stowplan.errors import Issue, Severity, pointer_of
from topology.cluster import Cluster

# Reasons that hold whatever is free: only a change of the job helps.
NEVER = frozenset({"illegal_degrees", "no_configuration", "out_of_memory"})


class Hopeless(StrEnum):
    """What workloads are answered that no cluster state would let in: ask again later, or be deactivated."""

    RETRY = "retry"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverOptions:
    """How answers are given, and what those are answered that never fit."""

    answers: AnswerOptions
    hopeless: Hopeless = Hopeless.RETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """What the cluster has of the jobs, by their ids in the snapshot."""

    workloads: Mapping[str, AnsweredWorkload] = field(default_factory=dict)
    pods: Mapping[str, Sequence[GatedPod]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Patches in the order in which they are applied: what ends, what starts, what waits. `notes`: what Kubernetes
    cannot be told, or was not; warnings with pointers into the plan."""

    patches: tuple[Patch, ...]
    notes: tuple[Issue, ...]


def read_objects(workloads: Sequence[SourceDocument], pods: Sequence[SourceDocument], check: str) -> ClusterObjects:
    """What documents as kubectl writes them have of the jobs.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    return ClusterObjects(workloads=read_answered(workloads, check), pods=read_gated(pods))


def hand_over(plan: Plan, cluster: Cluster, objects: ClusterObjects, options: HandoverOptions) -> Handover:
    """Say a plan. A job that Kubernetes cannot be told of is left as it is, and noted."""
    saying = _Saying(objects=objects, options=options, num_gpus={node.id: node.num_gpus for node in cluster.nodes})
    starts_s = {one.placement.job_id: one.start_s for one in plan.ahead}
    ending: list[Patch] = []
    starting: list[Patch] = []
    waiting: list[Patch] = []
    for k, found in enumerate(plan.allocations):
        if found.change is Change.STARTED:
            starting += saying.started(found, pointer_of("allocations", k))
        elif found.change is not Change.KEPT:
            ending += saying.changed(found, pointer_of("allocations", k))
    for k, left in enumerate(plan.unplaced):
        patches = saying.unplaced(left, starts_s.get(left.job_id), pointer_of("unplaced", k))
        (ending if left.preempted else waiting).extend(patches)
    return Handover(patches=(*ending, *starting, *waiting), notes=tuple(saying.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saying:
    """Patches job by job, and what could not be said. `num_gpus`: of every node."""

    objects: ClusterObjects
    options: HandoverOptions
    num_gpus: Mapping[str, int]
    notes: list[Issue] = field(default_factory=list)

    def started(self, found: JobAllocation, pointer: str) -> list[Patch]:
        """Let a job in, or its pods go."""
        name = found.job_id
        workload, pods = self.objects.workloads.get(name), self.objects.pods.get(name, ())
        gpus, patches = found.rank_gpus, []
        try:
            _refuse_nodes(found, self.num_gpus)
            if workload is not None:
                message = f"stowplan: {len(gpus)} x {found.gpu_type} on {_few([part.node for part in found.gpus])}"
                answer = ready(workload, name, gpus, message, self.options.answers)
                patches += [] if answer is None else [answer]
            patches += lifted(pods, name, gpus, self.options.answers.node_key) if pods else []
        except UnsayableError as error:
            self._note(error, name, pointer)
            return []
        if workload is None and not pods:
            self._note(_unknown(), name, pointer)
        return patches

    def changed(self, found: JobAllocation, pointer: str) -> list[Patch]:
        """End a job that goes elsewhere: it is let in there when it asks again."""
        name, workload = found.job_id, self.objects.workloads.get(found.job_id)
        try:
            if workload is None:
                raise _unknown()
            if found.change is Change.RESCALED or _num_gpus(workload) != found.num_gpus:
                raise UnsayableError(
                    "other_size",
                    f"runs with {_num_gpus(workload)} GPUs, and the plan gives it {found.num_gpus}; the size of a "
                    "workload cannot be changed: make it anew",
                )
            message = f"stowplan: {found.change} to {_few([part.node for part in found.gpus])}"
            return [retry(workload, name, message, self.options.answers, after_s=0)]
        except UnsayableError as error:
            self._note(error, name, pointer)
            return []

    def unplaced(self, left: UnplacedJob, start_s: float | None, pointer: str) -> list[Patch]:
        """Take the quota of a job that waits, or end one that runs and shall not."""
        workload, options = self.objects.workloads.get(left.job_id), self.options
        message = f"stowplan: {left.reason}: {left.detail}" + (f"; {left.remedy}" if left.remedy else "")
        if workload is None or not workload.has_quota:
            # It waits as it is: behind our gate, or in its queue.
            if left.preempted:
                self._note(_unknown(), left.job_id, pointer)
            return []
        try:
            if left.reason in NEVER and options.hopeless is Hopeless.REJECT:
                return [rejected(workload, left.job_id, message, options.answers)]
            return [retry(workload, left.job_id, message, options.answers, after_s=start_s)]
        except UnsayableError as error:
            self._note(error, left.job_id, pointer)
            return []

    def _note(self, error: UnsayableError, job_id: str, pointer: str) -> None:
        detail = f"job {job_id!r} {error}"
        self.notes.append(Issue(code=error.code, pointer=pointer, detail=detail, severity=Severity.WARNING))


def _refuse_nodes(found: JobAllocation, num_gpus: Mapping[str, int]) -> None:
    for part in found.gpus:
        if not (SUBDOMAIN.fullmatch(part.node) and LABEL_VALUE.fullmatch(part.node)):
            raise UnsayableError("bad_node_name", f"is put on {part.node!r}, which is no name of a node")
        # Plans of files may be of another cluster than their request.
        there = num_gpus.get(part.node, 0)
        if len(part.gpus) > there:
            detail = f"has {len(part.gpus)} GPUs of node {part.node!r}, which has {there} in the request"
            raise UnsayableError("too_many_gpus", detail)


def _unknown() -> UnsayableError:
    return UnsayableError(
        "not_in_documents", "is no workload and has no pods behind our gate in the documents; it is left as it is"
    )


def _num_gpus(workload: AnsweredWorkload) -> int:
    return sum(one.num_pods * one.gpus_per_pod for one in workload.pod_sets)


def _few(nodes: Sequence[str]) -> str:
    names = list(dict.fromkeys(nodes))
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

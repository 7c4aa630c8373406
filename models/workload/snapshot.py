"""The snapshot: a cluster and its jobs at one moment. A `Snapshot` in hand is legal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from operator import attrgetter

from models.parallel_plan import Gpu
from models.workload.job import Job, NodeGpus
from models.workload.job_issues import job_issues
from stowplan.errors import Issue, Severity, pointer_of, raise_for_errors
from stowplan.living import Living, found_once
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_issues import calendar_issues, calendar_warnings
from topology.cluster import Cluster, Node, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Living):
    """A cluster and its jobs at one moment, and the calendar of the cluster from then on.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the snapshot (`/jobs/2/max_gpus`).
    """

    cluster: Cluster
    jobs: tuple[Job, ...]
    calendar: tuple[CalendarEntry, ...] = ()

    def __post_init__(self) -> None:
        issues = snapshot_issues(self.cluster, self.jobs) + calendar_issues(self.cluster, self.calendar)
        raise_for_errors(issues, "snapshot")


def checked_snapshot(cluster: Cluster, jobs: tuple[Job, ...], calendar: tuple[CalendarEntry, ...] = ()) -> Snapshot:
    """A snapshot of which it is known that it is legal: nobody looks it through.

    For whoever follows a cluster over time, has looked at every job when it came, and gives no GPU away twice.
    """
    snapshot = object.__new__(Snapshot)
    object.__setattr__(snapshot, "cluster", cluster)
    object.__setattr__(snapshot, "jobs", jobs)
    object.__setattr__(snapshot, "calendar", calendar)
    return snapshot


@found_once
def _types_in(cluster: Cluster) -> Mapping[str, str]:
    return {node.id: node.gpu_type for node in cluster.nodes}


@found_once
def _nodes_in(cluster: Cluster) -> Mapping[str, Node]:
    return {node.id: node for node in cluster.nodes}


@found_once
def _used_in(cluster: Cluster) -> Mapping[Gpu, str]:
    return {(node.id, gpu): "work outside the snapshot" for node in cluster.nodes for gpu in node.gpus_in_use}


@found_once
def _has_down(cluster: Cluster) -> bool:
    return any(node.state is NodeState.DOWN for node in cluster.nodes)


@found_once
def _kinds_in(cluster: Cluster) -> Set[str]:
    return {kind.name for kind in cluster.gpu_types}


def snapshot_issues(cluster: Cluster, jobs: tuple[Job, ...]) -> list[Issue]:
    """Every fault (and warning) of the jobs on this cluster, whatever policy will plan them."""
    type_of = _types_in(cluster)
    known = _kinds_in(cluster)
    issues = [issue for k, job in enumerate(jobs) for issue in job_issues(f"/jobs/{k}", job, known, type_of)]
    if len({job.id for job in jobs}) < len(jobs):
        counts = Counter(job.id for job in jobs)
        issues += [
            Issue(
                code="duplicate_id",
                pointer=f"/jobs/{k}/id",
                detail=f"{job.id!r} occurs {counts[job.id]} times; job ids must be unique",
            )
            for k, job in enumerate(jobs)
            if counts[job.id] > 1
        ]
    issues += _current_issues(cluster, jobs)
    return issues


def snapshot_warnings(snapshot: Snapshot) -> list[Issue]:
    """What is odd about a snapshot, which is legal."""
    issues = [*calendar_warnings(snapshot.cluster, snapshot.calendar), *_belonging_warnings(snapshot)]
    if _has_down(snapshot.cluster):
        issues += _current_issues(snapshot.cluster, snapshot.jobs)
    return issues


_entry_of = attrgetter("calendar_entry")


def _belonging_warnings(snapshot: Snapshot) -> Iterator[Issue]:
    """Jobs of reservations that there are not: those that are over leave the calendar before their jobs leave."""
    entries = list(map(_entry_of, snapshot.jobs))
    if entries.count(None) == len(entries):
        return
    reservations = {entry.name for entry in snapshot.calendar if entry.kind is EntryKind.RESERVATION}
    for k, job in [(k, job) for k, job in enumerate(snapshot.jobs) if job.calendar_entry is not None]:
        if job.calendar_entry not in reservations:
            yield Issue(
                code="unknown_reservation",
                pointer=f"/jobs/{k}/calendar_entry",
                detail=f"job {job.id!r} belongs to {job.calendar_entry!r}, and the calendar has no reservation of that "
                "name; it is planned like jobs that belong to none",
                severity=Severity.WARNING,
            )


def _current_issues(cluster: Cluster, jobs: tuple[Job, ...]) -> list[Issue]:
    """Faults of the current placements: unknown nodes or GPUs, GPUs taken twice, mixed types, dead nodes."""
    nodes, owner = _nodes_in(cluster), dict(_used_in(cluster))
    issues: list[Issue] = []
    for k, job in enumerate(jobs):
        types: set[str] = set()
        for slice_ in job.current or ():
            pointer = pointer_of("jobs", k, "current", slice_.node)
            node = nodes.get(slice_.node)
            if node is None:
                issues.append(
                    Issue(
                        code="unknown_node",
                        pointer=pointer,
                        detail=f"job {job.id!r} runs on node {slice_.node!r}, which the cluster does not have",
                    )
                )
                continue
            types.add(node.gpu_type)
            issues += _slice_issues(pointer, job, node, slice_)
            for gpu in slice_.gpus:
                taken = owner.setdefault((node.id, gpu), f"job {job.id!r}")
                if taken != f"job {job.id!r}":
                    issues.append(
                        Issue(
                            code="gpu_taken_twice",
                            pointer=pointer,
                            detail=f"GPU {gpu} of node {node.id!r} is used by job {job.id!r} and by {taken}",
                        )
                    )
        if len(types) > 1:
            issues.append(
                Issue(
                    code="mixed_gpu_types",
                    pointer=f"/jobs/{k}/current",
                    detail=f"job {job.id!r} runs on GPU types {sorted(types)}; one job runs on one type",
                )
            )
    return issues


def _slice_issues(pointer: str, job: Job, node: Node, slice_: NodeGpus) -> Iterator[Issue]:
    wrong = sorted({gpu for gpu in slice_.gpus if not 0 <= gpu < node.num_gpus})
    if wrong:
        yield Issue(
            code="unknown_gpu",
            pointer=pointer,
            detail=f"job {job.id!r} runs on GPU {wrong} of node {node.id!r}, which has GPUs 0 to {node.num_gpus - 1}",
        )
    if not slice_.gpus or len(set(slice_.gpus)) != len(slice_.gpus):
        yield Issue(
            code="bad_gpu_list",
            pointer=pointer,
            detail=f"job {job.id!r} lists GPUs {list(slice_.gpus)} on node {node.id!r}; list each index once",
        )
    if node.state is NodeState.DOWN:
        yield Issue(
            code="runs_on_down_node",
            pointer=pointer,
            detail=f"job {job.id!r} is said to run on node {node.id!r}, which is down; it is planned as waiting there",
            severity=Severity.WARNING,
        )

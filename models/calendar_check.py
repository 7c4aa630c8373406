"""Do these allocations honour the calendar? Shares nothing with what planners ask (`models/windows.py`).

Entries over named nodes are looked at node by node. Of a shape nobody knows here which nodes it will be: enough nodes
must be left that the allocations do not spoil for it. A node is spoiled for an entry when a job is put there that may
not be there once the entry begins. Of the hard reservations that hold at one moment and whose nodes are of one set,
all must find room there side by side, beside those that name their nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.plan import JobAllocation
from models.workload import Job, Snapshot
from stowplan.errors import Issue, pointer_of
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.cluster import Cluster, Node, NodeState

# Between a probability and what is interpolated from it.
_TOLERANCE = 1e-9

_Spoiled = Mapping[str, set[str]]
"""Entry name -> ids of the nodes that are spoiled for it."""


def calendar_violations(snapshot: Snapshot, allocations: Sequence[JobAllocation], epsilon: float) -> list[Issue]:
    """Every entry that the allocations do not honour; pointers as in `placement_violations`.

    A job may be on nodes of an entry that begins later if it ends before with probability at least 1 - epsilon, or has
    been there already. It may be there while the entry holds if it belongs to it, is preemptible on nodes of a soft
    reservation, or was there before and cannot be preempted.
    """
    entries = [entry for entry in snapshot.calendar if entry.end_s > 0.0]
    if not entries:
        return []
    uses = list(_uses(snapshot, allocations))
    shaped = [entry for entry in entries if entry.shape is not None]
    return [
        *_named_violations(entries, uses, epsilon),
        *_shape_violations(snapshot.cluster, entries, shaped, _spoiled(shaped, uses, epsilon)),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """The nodes of one allocation: those where its job was before, and others."""

    k: int
    job: Job
    kept: frozenset[str]
    new: frozenset[str]


def _uses(snapshot: Snapshot, allocations: Sequence[JobAllocation]) -> Iterator[_Use]:
    jobs = {job.id: job for job in snapshot.jobs}
    down = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN}
    for k, allocation in enumerate(allocations):
        job = jobs.get(allocation.job_id)
        if job is not None:
            before = {part.node for part in job.current or ()}
            nodes = frozenset(part.node for part in allocation.gpus)
            kept = frozenset[str]() if before & down else nodes & before
            yield _Use(k=k, job=job, kept=kept, new=nodes - kept)


def _named_violations(entries: Sequence[CalendarEntry], uses: Sequence[_Use], epsilon: float) -> Iterator[Issue]:
    naming: dict[str, list[CalendarEntry]] = {}
    for entry in entries:
        for node in entry.nodes:
            naming.setdefault(node, []).append(entry)
    for use in uses:
        for was_there, nodes in ((False, use.new), (True, use.kept)):
            for node in sorted(nodes & naming.keys()):
                for entry in naming[node]:
                    if not _allowed(use.job, entry, epsilon, was_there=was_there):
                        yield _violation(use.k, use.job, node, entry, epsilon)


def _spoiled(shaped: Sequence[CalendarEntry], uses: Sequence[_Use], epsilon: float) -> _Spoiled:
    spoiled: dict[str, set[str]] = {entry.name: set() for entry in shaped}
    for entry in shaped:
        for use in uses:
            for was_there, nodes in ((False, use.new), (True, use.kept)):
                if nodes and not _allowed(use.job, entry, epsilon, was_there=was_there):
                    spoiled[entry.name] |= nodes
    return spoiled


def _allowed(job: Job, entry: CalendarEntry, epsilon: float, *, was_there: bool) -> bool:
    """Whether a job may be on nodes of an entry."""
    reserves = entry.kind is EntryKind.RESERVATION
    holds = entry.begin_s <= 0.0
    if reserves and job.calendar_entry == entry.name:
        return True
    if was_there and not (holds and job.preemptible):
        return True
    if job.preemptible and not entry.hard and (reserves or not holds):
        return True
    return not holds and _ends_before(job, entry.begin_s) >= 1.0 - epsilon - _TOLERANCE


def _ends_before(job: Job, time_s: float) -> float:
    """Probability with which a job that runs ends before a time."""
    if job.lasting is not None:
        return job.lasting.probability_within(time_s)
    return float(job.remaining_s is not None and 0.0 < job.remaining_s <= time_s)


def _violation(k: int, job: Job, node: str, entry: CalendarEntry, epsilon: float) -> Issue:
    if entry.begin_s <= 0.0:
        why = "which holds now"
    else:
        why = (
            f"which begins in {entry.begin_s:g} s; the job ends before that with probability "
            f"{_ends_before(job, entry.begin_s):.3g}, less than {1.0 - epsilon:g}"
        )
    return Issue(
        code="calendar_not_honoured",
        pointer=pointer_of("allocations", k, "gpus", node),
        detail=f"job {job.id!r} gets GPUs of node {node!r} against {entry.kind} {entry.name!r}, {why}",
    )


def _shape_violations(
    cluster: Cluster, entries: Sequence[CalendarEntry], shaped: Sequence[CalendarEntry], spoiled: _Spoiled
) -> Iterator[Issue]:
    """Entries over shapes that too few nodes are left for: each by itself, then reservations side by side."""
    within = {shape: _nodes_within(cluster, shape) for shape in {_unsized(entry) for entry in shaped}}
    short: set[str] = set()
    for entry in shaped:
        left = within[_unsized(entry)] - spoiled[entry.name]
        if len(left) < _num_nodes(entry):
            short.add(entry.name)
            yield _too_few((entry,), len(left))
    exclusive = [entry for entry in entries if entry.hard and entry.kind is EntryKind.RESERVATION]
    told: set[tuple[str, ...]] = set()
    for moment_s in sorted({max(entry.begin_s, 0.0) for entry in exclusive if entry.shape is not None}):
        together = [entry for entry in exclusive if entry.begin_s <= moment_s < entry.end_s]
        named = {node for entry in together for node in entry.nodes}
        for shape, nodes in within.items():
            group = [entry for entry in together if entry.shape is not None and _is_within(entry.shape, shape)]
            names = tuple(entry.name for entry in group)
            if not group or names in told or short & set(names):
                continue
            lost = set.intersection(*(spoiled[name] for name in names))
            left = nodes - named - lost
            if len(left) < sum(map(_num_nodes, group)):
                told.add(names)
                yield _too_few(group, len(left))


def _too_few(group: Sequence[CalendarEntry], num_left: int) -> Issue:
    wanted = sum(map(_num_nodes, group))
    names = " and ".join(f"{entry.kind} {entry.name!r}" for entry in group)
    detail = f"leave {num_left} nodes that jobs are off in time for {names}, which need {wanted}"
    return Issue(code="calendar_not_honoured", pointer="/allocations", detail=detail)


def _num_nodes(entry: CalendarEntry) -> int:
    return 0 if entry.shape is None else entry.shape.num_nodes


def _unsized(entry: CalendarEntry) -> Shape:
    """The nodes that an entry may be over, as a shape of one node."""
    shape = entry.shape or Shape(num_nodes=1)
    return Shape(num_nodes=1, gpu_type=shape.gpu_type, minipod=shape.minipod)


def _is_within(shape: Shape, other: Shape) -> bool:
    """Whether all nodes of one kind are of the other."""
    return other.gpu_type in (None, shape.gpu_type) and other.minipod in (None, shape.minipod)


def _nodes_within(cluster: Cluster, shape: Shape) -> set[str]:
    tiers = [tier.name for tier in cluster.tiers]
    last = tiers.index(cluster.minipod_tier) if cluster.minipod_tier is not None else -1

    def is_of(node: Node) -> bool:
        minipod = "/".join(node.path[: last + 1])
        return shape.gpu_type in (None, node.gpu_type) and shape.minipod in (None, minipod)

    return {node.id for node in cluster.nodes if is_of(node)}

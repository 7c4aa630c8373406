"""Is this placement legal on this snapshot? Pure functions that know no solver and return every violation.

They judge plans of ours before they leave, and placements by anybody else: nothing is assumed about how the
allocations came about. Pointers are relative to a document with `allocations` (`/allocations/3/gpus/node-1`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.parallel_plan import Gpu
from models.plan import JobAllocation
from models.roll import is_preemptible, reserves, roll_of, row_of
from models.wording import counted
from models.workload import Adaptivity, Job, NodeGpus, Snapshot
from stowplan.arrays import Mask
from stowplan.errors import Issue, pointer_of
from stowplan.living import OfUnchanged, found_once
from stowplan.rolls import objects
from topology.cluster import Cluster, Node, NodeState


def placement_violations(
    snapshot: Snapshot,
    allocations: Sequence[JobAllocation],
    *,
    whole_nodes: bool = True,
    staying: Collection[str] = (),
) -> list[Issue]:
    """Every rule that the allocations break.

    GPUs: exist, are used once, are not used by outside work or by a non-preemptible job, not on a node that takes no
    work. Shape: one GPU type as declared, the declared count, one node or whole nodes (Sia section 3.1; not asked for
    without `whole_nodes`). Job: known, allocated once, within its bounds, types and adaptivity, reservation met. A
    non-preemptible running job, and any that is `staying`, keeps exactly its GPUs, also on a drained node, and whatever
    its bounds say.
    """
    found = _Placement(snapshot, allocations, staying, whole_nodes=whole_nodes)
    return [] if found.is_legal else found.violations()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machines:
    """Nodes by id, and those that are down; GPUs of the largest node of each type. With the GPUs of all nodes one
    behind the other: the first of each node, and those of outside work."""

    nodes: Mapping[str, Node]
    down: Set[str]
    largest: Mapping[str, int]
    first: Mapping[str, int]
    outside: Sequence[int]


@found_once
def machines_of(cluster: Cluster) -> Machines:
    """What checks ask of the nodes of a cluster."""
    nodes, largest = cluster.nodes, Counter[str]()
    for node in nodes:
        largest[node.gpu_type] = max(node.num_gpus, largest[node.gpu_type])
    first = dict(zip([node.id for node in nodes], accumulate([0, *(node.num_gpus for node in nodes)]), strict=False))
    outside = [first[node.id] + gpu for node in nodes for gpu in node.gpus_in_use]
    return Machines(
        nodes={node.id: node for node in nodes},
        down={node.id for node in nodes if node.state is NodeState.DOWN},
        largest=largest,
        first=first,
        outside=outside,
    )


class _Placement:
    """Allocations on a snapshot. Whether they are legal is soon said: an allocation that is the very one of the round
    before, of the very job on the very cluster, keeps by itself all that it kept then, and what all of them together
    must keep is counted. Where they are not, all are looked at to say why."""

    def __init__(
        self,
        snapshot: Snapshot,
        allocations: Sequence[JobAllocation],
        staying: Collection[str],
        *,
        whole_nodes: bool,
    ) -> None:
        self._snapshot = snapshot
        self._allocations = allocations
        self._machines = machines_of(snapshot.cluster)
        self._nodes = self._machines.nodes
        self._whole_nodes = whole_nodes
        jobs, down = snapshot.jobs, self._machines.down
        self._stays: Mask = np.zeros(len(jobs), dtype=np.bool_)
        # Most clusters have no job that stays.
        if staying or not is_preemptible(snapshot).all():
            self._stays = roll_of(snapshot).each(
                "stays",
                np.bool_,
                lambda rows: (
                    (not job.preemptible or job.id in staying) and _runs(job, down)
                    for job in map(jobs.__getitem__, rows)
                ),
                same=(snapshot.cluster,),
                equal=frozenset(staying),
            )
        self._pinned = {jobs[i].id: _canonical(jobs[i].current or ()) for i in self._stays.nonzero()[0].tolist()}

    @property
    def is_legal(self) -> bool:
        """Whether no rule is broken."""
        snapshot, roll = self._snapshot, roll_of(self._snapshot)
        given = given_to(snapshot, self._allocations)
        if given is None:
            return False
        must_run = (self._stays | reserves(snapshot)).nonzero()[0].tolist()
        if must_run and not given[must_run].all():
            return False
        first = self._machines.first

        def places(rows: list[int]) -> Iterator[tuple[int, ...] | None]:
            """GPUs of allocations, which are there where these are legal; None of others."""
            for allocation in given[rows].tolist():
                if allocation is not None and any(self._faults(0, allocation)):
                    yield None
                else:
                    parts = () if allocation is None else allocation.gpus
                    yield tuple([first[part.node] + gpu for part in parts for gpu in part.gpus])

        used = roll.each(
            "places",
            np.object_,
            places,
            same=(snapshot.cluster,),
            equal=self._whole_nodes,
            beside=(given, self._stays),
        ).tolist()
        if any(map(is_, used, repeat(None))):
            return False
        # Each is used once.
        every = [*self._machines.outside, *chain.from_iterable(used)]
        return len(set(every)) == len(every)

    def violations(self) -> list[Issue]:
        """Every rule that is broken."""
        split: list[Issue] = []
        others: list[Issue] = []
        for k, allocation in enumerate(self._allocations):
            own, rest = self._faults(k, allocation)
            split += own
            others += rest
        return [
            *_job_set_violations(self._snapshot.jobs, self._allocations, self._pinned),
            *_gpu_use_violations(self._nodes, self._allocations, self._pinned),
            *split,
            *others,
        ]

    def _faults(self, k: int, allocation: JobAllocation) -> tuple[list[Issue], list[Issue]]:
        """Faults of one allocation: how it is split over nodes, and all others."""
        pointer, nodes, pinned = f"/allocations/{k}", self._nodes, self._pinned
        is_free = self._whole_nodes and allocation.job_id not in pinned
        split = list(_split_violations(pointer, allocation, nodes, self._machines.largest)) if is_free else []
        row = row_of(self._snapshot).get(allocation.job_id)
        job = None if row is None else self._snapshot.jobs[row]
        return split, list(_allocation_violations(pointer, allocation, job, nodes, pinned))


_job_of = attrgetter("job_id")
_given: OfUnchanged[Snapshot, tuple[NDArray[Any] | None]] = OfUnchanged()


def given_to(snapshot: Snapshot, allocations: Sequence[JobAllocation]) -> NDArray[Any] | None:
    """What each job (J,) gets, None where it gets nothing; None where a job is not known, or gets something twice.
    Read-only, and the same array for the same tuple."""
    known = _given.get(snapshot, (allocations,)) if isinstance(allocations, tuple) else None
    if known is None:
        by_id = dict(zip(map(_job_of, allocations), allocations, strict=True))
        given = objects(map(by_id.get, row_of(snapshot)), len(snapshot.jobs))
        given.setflags(write=False)
        known = (given if np.count_nonzero(given) == len(allocations) else None,)
        _given.put(snapshot, (allocations,), None, known)
    return known[0]


def _runs(job: Job, down: Set[str]) -> bool:
    return bool(job.current) and not any(part.node in down for part in job.current or ())


def _canonical(gpus: Sequence[NodeGpus]) -> frozenset[Gpu]:
    return frozenset((part.node, gpu) for part in gpus for gpu in part.gpus)


def _job_set_violations(
    jobs: Sequence[Job], allocations: Sequence[JobAllocation], pinned: Mapping[str, frozenset[Gpu]]
) -> Iterator[Issue]:
    """Jobs that are unknown, allocated more than once, or missing although they must run."""
    counts = Counter(allocation.job_id for allocation in allocations)
    known = {job.id for job in jobs}
    for k, allocation in enumerate(allocations):
        if allocation.job_id not in known:
            yield Issue(
                code="unknown_job",
                pointer=f"/allocations/{k}/job_id",
                detail=f"the snapshot has no job {allocation.job_id!r}",
            )
        if counts[allocation.job_id] > 1:
            yield Issue(
                code="job_allocated_twice",
                pointer=f"/allocations/{k}/job_id",
                detail=f"job {allocation.job_id!r} has {counts[allocation.job_id]} allocations; at most one",
            )
    for job in jobs:
        if job.id in pinned and counts[job.id] == 0:
            yield Issue(
                code="pinned_job_missing",
                pointer="/allocations",
                detail=f"job {job.id!r} is not preemptible and runs; it must keep its GPUs",
            )
        elif job.reservation is not None and counts[job.id] == 0:
            yield Issue(
                code="reservation_not_met",
                pointer="/allocations",
                detail=f"job {job.id!r} has {counted(job.reservation.num_gpus, 'GPU')} of type "
                f"{job.reservation.gpu_type!r} reserved, but gets none",
            )


def _gpu_use_violations(
    nodes: Mapping[str, Node],
    allocations: Sequence[JobAllocation],
    pinned: Mapping[str, frozenset[Gpu]],
) -> Iterator[Issue]:
    """GPUs that somebody else has: outside work, a pinned job, another allocation, the same one."""
    owner = {(node.id, gpu): "work outside the snapshot" for node in nodes.values() for gpu in node.gpus_in_use}
    owner |= {place: f"the non-preemptible job {job_id!r}" for job_id, places in pinned.items() for place in places}
    given: dict[Gpu, str] = {}
    for k, allocation in enumerate(allocations):
        own = pinned.get(allocation.job_id, frozenset())
        for part in allocation.gpus:
            for gpu in part.gpus:
                place = (part.node, gpu)
                others = [f"job {given[place]!r}"] if place in given else []
                if place in owner and place not in own:
                    others.append(owner[place])
                given[place] = allocation.job_id
                for other in others:
                    yield Issue(
                        code="gpu_taken_twice",
                        pointer=pointer_of("allocations", k, "gpus", part.node),
                        detail=f"GPU {gpu} of node {part.node!r} goes to job {allocation.job_id!r}, "
                        f"but is taken by {other}",
                    )


def _allocation_violations(
    pointer: str,
    allocation: JobAllocation,
    job: Job | None,
    nodes: Mapping[str, Node],
    pinned: Mapping[str, frozenset[Gpu]],
) -> Iterator[Issue]:
    """Faults of one allocation."""
    stays = allocation.job_id in pinned
    for part in allocation.gpus:
        for code, detail in _node_faults(allocation, part, nodes.get(part.node), stays):
            yield Issue(code=code, pointer=pointer + pointer_of("gpus", part.node), detail=detail)
    yield from _count_violations(pointer, allocation)
    if stays and _canonical(allocation.gpus) != pinned[allocation.job_id]:
        yield Issue(
            code="pinned_job_moved",
            pointer=f"{pointer}/gpus",
            detail=f"job {allocation.job_id!r} is not preemptible and runs; it must keep exactly its GPUs",
        )
    if not stays and job is not None:
        yield from _bound_violations(pointer, allocation, job)
    if job is not None and job.reservation is not None:
        reserved = job.reservation
        if (allocation.gpu_type, allocation.num_gpus) != (reserved.gpu_type, reserved.num_gpus):
            yield Issue(
                code="reservation_not_met",
                pointer=pointer,
                detail=f"job {job.id!r} has {counted(reserved.num_gpus, 'GPU')} of type {reserved.gpu_type!r} "
                f"reserved, but gets {allocation.num_gpus} of type {allocation.gpu_type!r}",
            )


def _node_faults(
    allocation: JobAllocation, part: NodeGpus, node: Node | None, stays: bool
) -> Iterator[tuple[str, str]]:
    """Code and detail of every fault of the GPUs on one node."""
    if node is None:
        yield "unknown_node", f"the cluster has no node {part.node!r}"
        return
    if part.gpus and not 0 <= min(part.gpus) <= max(part.gpus) < node.num_gpus:
        wrong = sorted({gpu for gpu in part.gpus if not 0 <= gpu < node.num_gpus})
        yield "unknown_gpu", f"node {node.id!r} has GPUs 0 to {node.num_gpus - 1}; there is no GPU {wrong}"
    if not part.gpus:
        yield "bad_gpu_list", f"no GPU of node {node.id!r} is listed; leave it out"
    if node.gpu_type != allocation.gpu_type:
        yield (
            "gpu_type_mismatch",
            f"node {node.id!r} has GPUs of type {node.gpu_type!r}; the allocation is of {allocation.gpu_type!r}",
        )
    if node.state is NodeState.DOWN or (node.state is NodeState.DRAINED and not stays):
        yield "node_unavailable", f"node {node.id!r} is {node.state}; it takes no work"


def _count_violations(pointer: str, allocation: JobAllocation) -> Iterator[Issue]:
    listed = sum([len(part.gpus) for part in allocation.gpus])
    if listed != allocation.num_gpus:
        yield Issue(
            code="gpu_count_mismatch",
            pointer=f"{pointer}/num_gpus",
            detail=f"job {allocation.job_id!r} is said to get {counted(allocation.num_gpus, 'GPU')}; its list has "
            f"{listed}",
        )
    if len(allocation.gpus) < 2:
        return
    names = [part.node for part in allocation.gpus]
    if len(set(names)) < len(names):
        repeated = sorted(name for name, n in Counter(names).items() if n > 1)
        yield Issue(
            code="bad_gpu_list",
            pointer=f"{pointer}/gpus",
            detail=f"nodes {repeated} are listed more than once; list each node once with all its GPUs",
        )


def _split_violations(
    pointer: str, allocation: JobAllocation, nodes: Mapping[str, Node], largest: Mapping[str, int]
) -> Iterator[Issue]:
    """Rules (a) and (b): one node, or whole nodes; `largest` is the GPU count of the largest node of each type."""
    if len(allocation.gpus) < 2:
        return
    parts = [part for part in allocation.gpus if part.gpus and part.node in nodes]
    if len({part.node for part in parts}) < 2:
        return
    listed = sum(len(part.gpus) for part in parts)
    node_size = largest[nodes[parts[0].node].gpu_type]
    broken = [part for part in parts if len(set(part.gpus)) != nodes[part.node].num_gpus]
    if broken and listed < node_size:
        yield Issue(
            code="partial_node_split",
            pointer=f"{pointer}/gpus",
            detail=f"job {allocation.job_id!r} has {listed} GPUs over {len(parts)} nodes; fewer GPUs than a node has "
            f"({node_size}) must sit on one node",
        )
        return
    for part in broken:
        yield Issue(
            code="not_whole_nodes",
            pointer=pointer + pointer_of("gpus", part.node),
            detail=f"job {allocation.job_id!r} spans nodes, so it must take all {nodes[part.node].num_gpus} GPUs "
            f"of node {part.node!r}, not {len(part.gpus)}",
        )


def _bound_violations(pointer: str, allocation: JobAllocation, job: Job) -> Iterator[Issue]:
    """Faults against what the job asks for."""
    if job.gpu_types is not None and allocation.gpu_type not in job.gpu_types:
        yield Issue(
            code="gpu_type_not_allowed",
            pointer=f"{pointer}/gpu_type",
            detail=f"job {job.id!r} runs on {list(job.gpu_types)}, not on {allocation.gpu_type!r}",
        )
    count = allocation.num_gpus
    if job.adaptivity is Adaptivity.RIGID and count != job.min_gpus:
        yield Issue(
            code="rigid_count",
            pointer=f"{pointer}/num_gpus",
            detail=f"job {job.id!r} is rigid and needs exactly {counted(job.min_gpus, 'GPU')}, not {count}",
        )
        return
    if count < job.min_gpus:
        yield Issue(
            code="below_min_gpus",
            pointer=f"{pointer}/num_gpus",
            detail=f"job {job.id!r} needs at least {counted(job.min_gpus, 'GPU')}, not {count}",
        )
    if job.max_gpus is not None and count > job.max_gpus:
        yield Issue(
            code="above_max_gpus",
            pointer=f"{pointer}/num_gpus",
            detail=f"job {job.id!r} takes at most {counted(job.max_gpus, 'GPU')}, not {count}",
        )

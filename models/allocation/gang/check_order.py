"""Does a plan keep the order of the queue, and what it promises to those who are next? Knows no solver.

The queue is gone through once more with the plan in hand, by the rules of `models.allocation.gang.admission`: who
started on a GPU type that nobody before it waited for has started in order, everybody else behind the next job of the
type. Of each next job the earliest start is computed twice on concrete nodes: beside those who run or come before it,
and beside all of the plan. Both must be the same. All of it goes by the nodes that the calendar leaves to each job.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from models.access import Access
from models.allocation.gang.parameters import Backfill, GangParameters
from models.allocation.gang.queue_order import Key, queue_key, seconds_left
from models.allocation.gang.shapes import Shape, Shapes, TypeRoom
from models.plan import JobAllocation, Plan
from models.workload import Job, Snapshot
from stowplan.arrays import FloatVector, IntVector
from stowplan.errors import Issue
from topology.cluster import NodeState

# Seconds and sums of them are compared as they were given.
_SAME_S = 1e-6


def order_violations(
    snapshot: Snapshot,
    parameters: GangParameters,
    plan: Plan,
    shapes: Shapes,
    access: Access,
    running: Set[str],
    keeping: Set[str],
) -> list[Issue]:
    """Every job that starts out of order or in the way of one that is next; `running` now, `keeping` their GPUs."""
    walk = _Walk(snapshot, parameters, plan, shapes, running, keeping)
    found = list(walk.violations())
    if walk.nexts:
        nodes = _Nodes(snapshot, shapes.rooms, access, _timed(snapshot, parameters, plan, running, keeping))
        late_s = parameters.nearness_s
        found += [issue for first in walk.nexts for issue in _promise_violations(nodes, first, late_s)]
    leaving = {job.id for job in snapshot.jobs if job.id in running and access.must_leave(job)}
    losing = running - keeping - leaving - {first.job.id for first in walk.nexts}
    return [*found, *_idle_violations(snapshot, plan, losing)] if losing else found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """A job that is next: its place in the queue, and what it may run as."""

    job: Job
    key: Key
    shapes: tuple[Shape, ...]


class _Walk:
    """The queue, gone through with the plan in hand."""

    def __init__(
        self,
        snapshot: Snapshot,
        parameters: GangParameters,
        plan: Plan,
        shapes: Shapes,
        running: Set[str],
        keeping: Set[str],
    ) -> None:
        self._parameters = parameters
        self._running = running
        self._started = {
            item.job_id: (k, item) for k, item in enumerate(plan.allocations) if item.job_id not in keeping
        }
        self._shapes = shapes
        self._index = {room.name: room.index for room in self._shapes.rooms}
        self._queue = sorted(
            (queue_key(k, job, parameters, runs=job.id in running), job)
            for k, job in enumerate(snapshot.jobs)
            if job.id not in keeping
        )
        self._left = dict(parameters.quotas)
        for job in snapshot.jobs:
            if job.id in running and job.queue in self._left:
                self._left[job.queue] -= sum(len(part.gpus) for part in job.current or ())
        self._over_quota: dict[str, str] = {}
        self._closed: dict[int, str] = {}
        self.nexts: list[_Next] = []

    def violations(self) -> Iterator[Issue]:
        """Jobs that start out of order."""
        for key, job in self._queue:
            shapes = self._shapes.of(job)
            if job.id in self._started:
                yield from self._start(job, *self._started[job.id])
            elif shapes and not self._waits_for_quota(job):
                self._wait(key, job, shapes)

    def _start(self, job: Job, k: int, item: JobAllocation) -> Iterator[Issue]:
        first = self._closed.get(self._index[item.gpu_type])
        if first is not None and self._parameters.backfill is Backfill.NONE:
            yield Issue(
                code="out_of_order",
                pointer=f"/allocations/{k}",
                detail=f"job {job.id!r} starts before job {first!r}, which comes first and waits for type "
                f"{item.gpu_type!r}; there is no backfill",
            )
        if job.queue in self._over_quota and job.id not in self._running:
            yield Issue(
                code="out_of_order",
                pointer=f"/allocations/{k}",
                detail=f"job {job.id!r} of queue {job.queue!r} starts before job {self._over_quota[job.queue]!r}, "
                "which comes first and waits for the quota",
            )
        if first is None:
            self._charge(job)

    def _waits_for_quota(self, job: Job) -> bool:
        if job.queue not in self._left or job.id in self._running:
            return False
        if job.queue not in self._over_quota and job.min_gpus > self._left[job.queue]:
            self._over_quota[job.queue] = job.id
        return job.queue in self._over_quota

    def _wait(self, key: Key, job: Job, shapes: tuple[Shape, ...]) -> None:
        types = [shape.gpu_type for shape in shapes]
        is_next = not any(t in self._closed for t in types)
        if is_next:
            self.nexts.append(_Next(job=job, key=key, shapes=shapes))
            self._charge(job)
        if is_next or self._parameters.backfill is Backfill.NONE:
            self._closed = dict.fromkeys(types, job.id) | self._closed

    def _charge(self, job: Job) -> None:
        if job.queue in self._left and job.id not in self._running:
            self._left[job.queue] -= job.min_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """An allocation, for how long it lasts, and its place in the queue; None for a job that keeps its GPUs."""

    item: JobAllocation
    left_s: float
    key: Key | None

    def is_ahead(self, key: Key) -> bool:
        """Whether it comes before the job with that place."""
        return self.key is None or self.key < key


def _timed(
    snapshot: Snapshot, parameters: GangParameters, plan: Plan, running: Set[str], keeping: Set[str]
) -> Mapping[str, Sequence[_Timed]]:
    """All allocations by GPU type."""
    jobs = {job.id: (k, job) for k, job in enumerate(snapshot.jobs)}
    timed: dict[str, list[_Timed]] = defaultdict(list)
    for item in plan.allocations:
        k, job = jobs[item.job_id]
        key = None if job.id in keeping else queue_key(k, job, parameters, runs=job.id in running)
        timed[item.gpu_type].append(_Timed(item=item, left_s=seconds_left(job, parameters), key=key))
    return timed


def _promise_violations(nodes: "_Nodes", first: _Next, late_s: float) -> Iterator[Issue]:
    """`late_s`: how much later it may start for nodes that are close together."""
    before_s = min(nodes.start_s(first.job, shape, first.key) for shape in first.shapes)
    after_s = min(nodes.start_s(first.job, shape, None) for shape in first.shapes)
    if after_s > before_s + late_s + _SAME_S * max(1.0, before_s):
        yield Issue(
            code="next_job_delayed",
            pointer="/allocations",
            detail=f"job {first.job.id!r} is next and could start in {before_s:g} s; with the jobs behind it that "
            f"start it could not before {after_s:g} s",
        )
    if any(nodes.fits_now(first.job, shape) for shape in first.shapes):
        yield Issue(
            code="next_job_left_out",
            pointer="/unplaced",
            detail=f"job {first.job.id!r} is next and waits, but the GPUs that are left have room for it",
        )


def _idle_violations(snapshot: Snapshot, plan: Plan, losing: Set[str]) -> Iterator[Issue]:
    """Somebody must have what running jobs lose."""
    given = {(part.node, gpu) for item in plan.allocations for part in item.gpus for gpu in part.gpus}
    waiting = {item.job_id for item in plan.unplaced}
    for job in snapshot.jobs:
        lost = [(part.node, gpu) for part in job.current or () for gpu in part.gpus]
        if job.id in losing and job.id in waiting and given.isdisjoint(lost):
            yield Issue(
                code="preempted_for_nothing",
                pointer="/unplaced",
                detail=f"job {job.id!r} runs and loses its GPUs, which nobody else gets",
            )


class _Nodes:
    """Nodes that take work, by GPU type, and when they have room beside the allocations on them."""

    def __init__(
        self, snapshot: Snapshot, rooms: Sequence[TypeRoom], access: Access, timed: Mapping[str, Sequence[_Timed]]
    ) -> None:
        self._names = [room.name for room in rooms]
        self._access = access
        self._position = access.windows.node_index
        self._timed = timed
        self._usable: dict[str, dict[str, int]] = {name: {} for name in self._names}
        for node in snapshot.cluster.nodes:
            if node.state is NodeState.UP:
                self._usable[node.gpu_type][node.id] = node.num_gpus - len(node.gpus_in_use)

    def start_s(self, job: Job, shape: Shape, key: Key | None) -> float:
        """When the shape fits at first, beside those ahead of `key` (None: all); infinite where that is not known."""
        whole, room = _Openings(), _Openings()
        ends = self._ends(shape, key)
        for node, usable in self._usable[self._names[shape.gpu_type]].items():
            closed = self._access.windows.closed_starts(job, self._position[node])
            if usable == shape.node_size:
                whole.add(max((left_s for left_s, _ in ends[node]), default=0.0), closed)
            if shape.rest and usable >= shape.rest:
                room.add(_room_s(usable, ends[node], shape.rest), closed)
        times_s = np.array(sorted({*whole.from_s, *room.from_s}))
        enough = (whole.num_at(times_s) >= shape.num_whole) & (
            room.num_at(times_s) >= (shape.num_nodes if shape.rest else 0)
        )
        return float(times_s[enough][0]) if enough.any() else math.inf

    def fits_now(self, job: Job, shape: Shape) -> bool:
        """Whether the shape fits beside all allocations."""
        ends = self._ends(shape, None)
        may_use = self._access.usable(job)
        free = [
            usable - sum(num_gpus for _, num_gpus in ends[node])
            for node, usable in self._usable[self._names[shape.gpu_type]].items()
            if may_use[self._position[node]]
        ]
        num_whole = sum(count == shape.node_size for count in free)
        num_roomy = sum(count >= shape.rest for count in free)
        return num_whole >= shape.num_whole and num_roomy >= shape.num_nodes

    def _ends(self, shape: Shape, key: Key | None) -> Mapping[str, list[tuple[float, int]]]:
        ends: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for timed in self._timed.get(self._names[shape.gpu_type], ()):
            if key is None or timed.is_ahead(key):
                for part in timed.item.gpus:
                    ends[part.node].append((timed.left_s, len(part.gpus)))
        return ends


class _Openings:
    """Intervals in which nodes are there for a job; `from_s` and `until_s` of all of them."""

    def __init__(self) -> None:
        self.from_s: list[float] = []
        self.until_s: list[float] = []

    def add(self, ready_s: float, closed: Sequence[tuple[float, float]]) -> None:
        """Add those of a node that is free from `ready_s` on and closed at times."""
        for close_s, open_s in [*closed, (math.inf, math.inf)]:
            if ready_s < close_s:
                self.from_s.append(ready_s)
                self.until_s.append(close_s)
            ready_s = max(ready_s, open_s)

    def num_at(self, times_s: FloatVector) -> IntVector:
        """(n,) how many there are at the times (n,)."""
        begun = np.searchsorted(np.sort(self.from_s), times_s, side="right")
        over = np.searchsorted(np.sort(self.until_s), times_s, side="right")
        return begun - over


def _room_s(usable: int, ends: Iterable[tuple[float, int]], size: int) -> float:
    """When a node has `size` free GPUs, of `usable` when all jobs on it have ended."""
    free = usable
    for left_s, num_gpus in sorted(ends, reverse=True):
        free -= num_gpus
        if free < size:
            return left_s
    return 0.0

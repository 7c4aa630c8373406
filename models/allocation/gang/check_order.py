"""Does a plan keep the order of the queue, and what it promises to those who are next? Knows no solver.

The queue is gone through once more with the plan in hand, by the rules of `models.allocation.gang.admission`: who
started on a GPU type that nobody before it waited for has started in order, everybody else behind the next job of the
type. Of each next job the earliest start is computed twice on concrete nodes: beside those who run or come before it,
and beside all of the plan. Both must be the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from models.allocation.gang.parameters import Backfill, GangParameters
from models.allocation.gang.queue_order import Key, queue_key, seconds_left
from models.allocation.gang.shapes import Shape, Shapes, TypeRoom
from models.plan import JobAllocation, Plan
from models.workload import Job, Snapshot
from stowplan.errors import Issue
from topology.cluster import NodeState

# Seconds and sums of them are compared as they were given.
_SAME_S = 1e-6


def order_violations(
    snapshot: Snapshot, parameters: GangParameters, plan: Plan, running: frozenset[str], keeping: frozenset[str]
) -> list[Issue]:
    """Every job that starts out of order or in the way of one that is next; `running` now, `keeping` their GPUs."""
    walk = _Walk(snapshot, parameters, plan, running, keeping)
    found = list(walk.violations())
    nexts = {first.job.id for first in walk.nexts}
    return [
        *found,
        *_promise_violations(snapshot, parameters, plan, walk.nexts, running, keeping),
        *_idle_violations(snapshot, plan, running - keeping - nexts),
    ]


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
        running: frozenset[str],
        keeping: frozenset[str],
    ) -> None:
        self._parameters = parameters
        self._running = running
        self._started = {
            item.job_id: (k, item) for k, item in enumerate(plan.allocations) if item.job_id not in keeping
        }
        self._shapes = Shapes(snapshot.cluster)
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


def _promise_violations(
    snapshot: Snapshot,
    parameters: GangParameters,
    plan: Plan,
    nexts: Sequence[_Next],
    running: frozenset[str],
    keeping: frozenset[str],
) -> Iterator[Issue]:
    if not nexts:
        return
    jobs = {job.id: (k, job) for k, job in enumerate(snapshot.jobs)}
    nodes = _Nodes(snapshot)
    for first in nexts:
        ahead, behind = [], []
        for item in plan.allocations:
            k, job = jobs[item.job_id]
            key = queue_key(k, job, parameters, runs=job.id in running)
            (ahead if item.job_id in keeping or key < first.key else behind).append(
                (item, seconds_left(job, parameters))
            )
        before_s = min(nodes.start_s(shape, ahead) for shape in first.shapes)
        after_s = min(nodes.start_s(shape, [*ahead, *behind]) for shape in first.shapes)
        if after_s > before_s + _SAME_S * max(1.0, before_s):
            yield Issue(
                code="next_job_delayed",
                pointer="/allocations",
                detail=f"job {first.job.id!r} is next and could start in {before_s:g} s; with the jobs behind it that "
                f"start it could not before {after_s:g} s",
            )
        if any(nodes.fits_now(shape, [*ahead, *behind]) for shape in first.shapes):
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


_Timed = tuple[JobAllocation, float]


class _Nodes:
    """Nodes that take work, by GPU type, and when they have room beside allocations."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rooms: tuple[TypeRoom, ...] = Shapes(snapshot.cluster).rooms
        self._usable: dict[str, dict[str, int]] = {room.name: {} for room in self._rooms}
        for node in snapshot.cluster.nodes:
            if node.state is NodeState.UP:
                self._usable[node.gpu_type][node.id] = node.num_gpus - len(node.gpus_in_use)

    def start_s(self, shape: Shape, taken: Iterable[_Timed]) -> float:
        """When the shape fits at first, beside allocations that end; infinite where that is not known."""
        whole_s, room_s = [], []
        ends = self._ends(shape, taken)
        for node, usable in self._usable[self._rooms[shape.gpu_type].name].items():
            if usable == shape.node_size:
                whole_s.append(max((left_s for left_s, _ in ends[node]), default=0.0))
            if shape.rest and usable >= shape.rest:
                room_s.append(_room_s(usable, ends[node], shape.rest))
        needed = [(whole_s, shape.num_whole), (room_s, shape.num_nodes if shape.rest else 0)]
        return max(sorted(times_s)[count - 1] if count else 0.0 for times_s, count in needed)

    def fits_now(self, shape: Shape, taken: Iterable[_Timed]) -> bool:
        """Whether the shape fits beside the allocations."""
        free = dict(self._usable[self._rooms[shape.gpu_type].name])
        for node, ends in self._ends(shape, taken).items():
            if node in free:
                free[node] -= sum(num_gpus for _, num_gpus in ends)
        num_whole = sum(count == shape.node_size for count in free.values())
        num_roomy = sum(count >= shape.rest for count in free.values())
        return num_whole >= shape.num_whole and num_roomy >= shape.num_nodes

    def _ends(self, shape: Shape, taken: Iterable[_Timed]) -> Mapping[str, list[tuple[float, int]]]:
        ends: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for item, left_s in taken:
            if item.gpu_type == self._rooms[shape.gpu_type].name:
                for part in item.gpus:
                    ends[part.node].append((left_s, len(part.gpus)))
        return ends


def _room_s(usable: int, ends: Iterable[tuple[float, int]], size: int) -> float:
    """When a node has `size` free GPUs, of `usable` when all jobs on it have ended."""
    free = usable
    for left_s, num_gpus in sorted(ends, reverse=True):
        free -= num_gpus
        if free < size:
            return left_s
    return 0.0

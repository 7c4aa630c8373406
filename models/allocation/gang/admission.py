"""Who starts in the order of the queue, who waits for which reason, and what is kept for those who wait.

The queue is served in order. A job

  never fits     where even without other jobs there is no room for it; it holds nobody up
  reserved       where that is because the calendar keeps nodes from it now; it holds nobody up until these are open
  quota          starts only within what its queue has left; then no later job of the queue starts either
  starts         on the first of its GPU types, fewest nodes first, where room is found; under preemption, room that
                 later jobs make. These jobs may start again elsewhere, in their turn
  is next        else: it closes its GPU types for those behind it. It gets a reservation (`promise`) if none of these
                 was closed before: so every GPU type has one at most, and in a cluster of one type it is that of EASY
  waits behind   where one of its types is closed. Under `backfill: none` it closes the others; under EASY it may be
                 backfilled on those that are closed

What a queue has left counts its running jobs, those that are preempted now included, and the one that is next.
Jobs that start are laid out on nodes before reservations are made. Running jobs stay where they are, also on drained
nodes. Those that the calendar bids leave (preemptible, on nodes that are closed now) come into the queue like those
that are preempted, and start again where they may. All room is sought on the nodes that the job may use (`groups`).
"""

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from models.access import Access
from models.allocation.gang.groups import GroupedPacking, Groups, Items
from models.allocation.gang.parameters import Backfill, GangParameters
from models.allocation.gang.placing import Demand, Layout
from models.allocation.gang.preemption import Preemption
from models.allocation.gang.promise import NodeRoom, Promise, Use, promise
from models.allocation.gang.queue_order import Key, queue_key, seconds_left
from models.allocation.gang.shapes import Shape, Shapes, TypeRoom
from models.placement.occupancy import Occupancy, Slices, mask_of, occupancy
from models.workload import Job, Snapshot
from topology.arrays import cluster_arrays
from topology.cluster import NodeState


class Reason(StrEnum):
    """Why a job does not start in the order of the queue."""

    NEVER_FITS = "never_fits"
    RESERVED = "reserved"
    QUOTA = "quota"
    NEXT = "next"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job (its position in the snapshot) that does not start in order.

    behind: the job that holds it up, if another. shapes: what it may be backfilled as.
    """

    position: int
    reason: Reason
    behind: int | None = None
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Admission:
    """What the order decides.

    started: position -> shape, in order. waiting: in order. running: jobs that stay, by id. promises: position ->
    reservation, where the calendar lets a job that is next start at all once others have ended. quota_left: by queue,
    for backfill. members: nodes that take work, by GPU type; groups: of them, by who may use them. layout: free GPUs,
    and those of started jobs.
    """

    snapshot: Snapshot
    parameters: GangParameters
    rooms: tuple[TypeRoom, ...]
    taken: Occupancy
    started: Mapping[int, Shape]
    waiting: tuple[Waiting, ...]
    running: Mapping[str, Slices]
    promises: Mapping[int, Promise]
    quota_left: Mapping[str, int]
    members: tuple[tuple[int, ...], ...]
    groups: Groups
    access: Access
    shapes: Shapes
    layout: Layout

    @property
    def jobs(self) -> Sequence[Job]:
        """All jobs of the snapshot."""
        return self.snapshot.jobs

    def runs(self, job: Job) -> bool:
        """Whether the job runs now, whatever becomes of it."""
        return job.id in self.taken.running


def admit(snapshot: Snapshot, parameters: GangParameters) -> Admission:
    """Serve the queue of a snapshot that passed `policy_issues`."""
    return _Admitting(snapshot, parameters).run()


class _Admitting:
    def __init__(self, snapshot: Snapshot, parameters: GangParameters) -> None:
        self._snapshot = snapshot
        self._parameters = parameters
        self._taken = occupancy(snapshot, all_stay=True)
        self._access = Access(snapshot, parameters.epsilon)
        self._shapes = Shapes(snapshot.cluster, self._access)
        self._groups = Groups(snapshot, self._shapes.rooms, self._access)
        arrays = cluster_arrays(snapshot.cluster)
        self._units, self._type_of = arrays.units, arrays.gpu_type.tolist()
        nodes = snapshot.cluster.nodes
        self._usable = [
            (1 << node.num_gpus) - 1 & ~mask_of(node.gpus_in_use) if node.state is NodeState.UP else 0 for node in nodes
        ]
        self._free = list(self._taken.free_masks)
        self._evicted = {job.id for job in snapshot.jobs if self._runs(job) and self._access.must_leave(job)}
        for name in self._evicted:
            for k, mask in self._taken.running[name]:
                self._free[k] |= mask & self._usable[k]
        members: list[list[int]] = [[] for _ in self._shapes.rooms]
        for k, node in enumerate(nodes):
            if node.state is NodeState.UP:
                members[self._type_of[k]].append(k)
        self._members = tuple(map(tuple, members))
        self._packings: list[GroupedPacking] = [
            self._groups.packing(room.index, self._free, room.node_size) for room in self._shapes.rooms
        ]
        self._preemption = (
            Preemption(snapshot, parameters, self._staying(()), self._free, self._usable, self._groups)
            if parameters.preemption
            else None
        )
        self._queue: list[tuple[Key, int]] = []
        self._position = {job.id: k for k, job in enumerate(snapshot.jobs)}
        self._left = dict(parameters.quotas)
        self._over_quota: dict[str, int] = {}
        self._closed: dict[int, int] = {}
        self._started: dict[int, Shape] = {}
        self._items: dict[int, Mapping[int, Items]] = {}
        self._waiting: list[Waiting] = []
        self._next: list[tuple[int, tuple[Shape, ...]]] = []

    def run(self) -> Admission:
        for k, job in enumerate(self._snapshot.jobs):
            if self._runs(job):
                self._charge(job, sum(mask.bit_count() for _, mask in self._taken.running[job.id]))
            if not self._runs(job) or job.id in self._evicted:
                self._queue.append(self._place(k))
        heapq.heapify(self._queue)
        while self._queue:
            _, k = heapq.heappop(self._queue)
            waiting = self._serve(k, self._snapshot.jobs[k])
            if waiting is not None:
                self._waiting.append(waiting)
        return self._laid_out()

    def _runs(self, job: Job) -> bool:
        return job.id in self._taken.running

    def _staying(self, preempted: Container[str]) -> dict[str, Slices]:
        """Running jobs that nobody bids leave."""
        return {
            name: slices
            for name, slices in self._taken.running.items()
            if name not in self._evicted and name not in preempted
        }

    def _place(self, position: int) -> tuple[Key, int]:
        """Place of a job in the queue, to which it is added with it."""
        job = self._snapshot.jobs[position]
        return queue_key(position, job, self._parameters, runs=self._runs(job)), position

    def _charge(self, job: Job, num_gpus: int) -> None:
        if job.queue in self._left:
            self._left[job.queue] -= num_gpus

    def _serve(self, k: int, job: Job) -> Waiting | None:
        """Start the job, or say why not."""
        shapes = self._shapes.of(job)
        # A job that was preempted is within its quota already.
        is_charged = self._runs(job)
        if not shapes:
            return Waiting(position=k, reason=Reason.RESERVED if self._shapes.ever(job) else Reason.NEVER_FITS)
        if job.queue in self._left and not is_charged:
            if job.queue in self._over_quota:
                return Waiting(position=k, reason=Reason.QUOTA, behind=self._over_quota[job.queue])
            if job.min_gpus > self._left[job.queue]:
                self._over_quota[job.queue] = k
                return Waiting(position=k, reason=Reason.QUOTA)
        shape = self._room(k, job, [shape for shape in shapes if shape.gpu_type not in self._closed])
        if shape is not None:
            self._started[k] = shape
        elif any(shape.gpu_type in self._closed for shape in shapes):
            return self._behind(k, job, shapes)
        else:
            self._next.append((k, shapes))
            self._closed |= {shape.gpu_type: k for shape in shapes}
        if not is_charged:
            self._charge(job, job.min_gpus)
        return None if shape is not None else Waiting(position=k, reason=Reason.NEXT)

    def _behind(self, k: int, job: Job, shapes: Sequence[Shape]) -> Waiting:
        closed = tuple(shape for shape in shapes if shape.gpu_type in self._closed)
        first = self._closed[closed[0].gpu_type]
        if self._parameters.backfill is Backfill.EASY:
            grouped = [replace(shape, group=g) for shape in closed for g in self._groups.open_to(job, shape.gpu_type)]
            return Waiting(position=k, reason=Reason.BEHIND, behind=first, shapes=tuple(grouped))
        self._closed = {shape.gpu_type: first for shape in shapes} | self._closed
        return Waiting(position=k, reason=Reason.BEHIND, behind=first)

    def _room(self, k: int, job: Job, shapes: Sequence[Shape]) -> Shape | None:
        """The shape for which room is found, or made."""
        for shape in shapes:
            items = self._packings[shape.gpu_type].put(shape, self._groups.open_to(job, shape.gpu_type))
            if items is not None:
                self._items[k] = items
                return shape
        if self._preemption is None:
            return None
        for shape in shapes:
            made = self._preemption.make_room(job, shape, self._packings[shape.gpu_type])
            if made is not None:
                self._packings[shape.gpu_type], self._items[k], victims = made
                for victim in victims:
                    heapq.heappush(self._queue, self._place(self._position[victim]))
                return shape
        return None

    def _laid_out(self) -> Admission:
        """Put the started jobs on nodes, let those stay who made way for nothing, and make reservations."""
        jobs = self._snapshot.jobs
        layout = Layout(free=self._free, units=self._units)
        whole: list[list[Demand]] = [[] for _ in self._groups.all]
        items: list[list[Demand]] = [[] for _ in self._groups.all]
        for k in self._started:
            for g, parts in self._items[k].items():
                for size, count in parts.items():
                    is_whole = size == self._started[k].node_size
                    (whole if is_whole else items)[g].append((jobs[k].id, count if is_whole else size))
        for g, group in enumerate(self._groups.all):
            size, flows = self._shapes.rooms[group.gpu_type].node_size, self._packings[group.gpu_type].packings[g].flows
            layout.lay_out(group.nodes, size, flows, whole[g], items[g])
        self._let_stay()
        running = self._staying(self._preemption.preempted if self._preemption is not None else ())
        return Admission(
            snapshot=self._snapshot,
            parameters=self._parameters,
            rooms=self._shapes.rooms,
            taken=self._taken,
            started=self._started,
            waiting=tuple(self._waiting),
            running=running,
            promises=self._promises(layout, running),
            quota_left=self._left,
            members=self._members,
            groups=self._groups,
            access=self._access,
            shapes=self._shapes,
            layout=layout,
        )

    def _let_stay(self) -> None:
        """Those who made way, found no other room, and whose GPUs nobody took."""
        if self._preemption is None:
            return
        served = {k for k, _ in self._next} | self._started.keys()
        idle = [name for name in self._preemption.preempted if self._position[name] not in served]
        staying = {self._position[name] for name in sorted(idle) if self._preemption.take_back(name)}
        self._waiting = [waiting for waiting in self._waiting if waiting.position not in staying]

    def _promises(self, layout: Layout, running: Mapping[str, Slices]) -> dict[int, Promise]:
        """Reservations, each on the type where the job starts first."""
        if not self._next:
            return {}
        left_s = {job.id: seconds_left(job, self._parameters) for job in self._snapshot.jobs}
        uses: list[list[Use]] = [[] for _ in self._packings]
        for name, parts in (*running.items(), *((name, layout.slices(name)) for name in layout.given)):
            for node, mask in parts:
                num_gpus = (mask & self._usable[node]).bit_count()
                uses[self._type_of[node]].append((node, num_gpus, left_s[name]))
        promises = {}
        for k, shapes in self._next:
            found = [
                promise(
                    shape,
                    self._states(self._snapshot.jobs[k], shape, layout),
                    uses[shape.gpu_type],
                    layout.units,
                    self._parameters.nearness_s,
                )
                for shape in shapes
            ]
            made = min((made for made in found if made is not None), key=lambda made: made.start_s, default=None)
            if made is not None:
                promises[k] = made
        return promises

    def _states(self, job: Job, shape: Shape, layout: Layout) -> list[NodeRoom]:
        return [
            NodeRoom(
                node=node,
                free=layout.free[node].bit_count(),
                is_clean=self._usable[node].bit_count() == shape.node_size,
                closed=self._access.windows.closed_starts(job, node),
            )
            for node in self._members[shape.gpu_type]
        ]

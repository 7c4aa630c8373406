"""From counts and flows to a plan: which jobs of a class start, GPUs, who waits and why, and the score."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from models.allocation.changes import change_of, gpu_type_of, num_gpus_of
from models.allocation.gang.assembly import HELD, OPEN, SHARED_IN_TIME, SHARED_LATE, Columns, FlowKey, arcs
from models.allocation.gang.instance import GangInstance, Ground
from models.allocation.gang.placing import Demand, Layout
from models.allocation.gang.shapes import Shape
from models.allocation.gang.unplaced import unplaced_jobs
from models.placement.nodes import aligned_block
from models.placement.occupancy import Slices, node_gpus
from models.plan import JobAllocation, Plan
from stowplan.arrays import IntVector


def extract_plan(columns: Columns, point: IntVector) -> Plan:
    """Build the plan of a point (n,) of the program."""
    it = columns.instance
    layout = replace(
        it.admission.layout,
        free=list(it.admission.layout.free),
        given={name: list(parts) for name, parts in it.admission.layout.given.items()},
    )
    flows = {flow: int(point[column]) for flow, column in columns.of_flow.items() if point[column]}
    chosen = chosen_jobs(it, point)
    for g, ground in it.grounds.items():
        _lay_out(it, layout, ground, [found for found in chosen if found[1].group == g], flows)
    slices = dict(it.admission.running) | {name: layout.slices(name) for name in layout.given}
    allocations = [_allocation(it, k, slices) for k, job in enumerate(it.admission.jobs) if job.id in slices]
    return Plan(
        allocations=tuple(allocations),
        unplaced=unplaced_jobs(it, {position for position, _, _ in chosen}, layout),
        score=tuple(it.score(found.job_id, found.num_gpus) for found in allocations),
    )


def chosen_jobs(instance: GangInstance, point: IntVector) -> list[tuple[int, Shape, bool]]:
    """Jobs that are backfilled, by position, with their shape and whether they end in time: of every class the first
    ones in the queue."""
    chosen: list[tuple[int, Shape, bool]] = []
    left = {c: deque(found.positions) for c, found in enumerate(instance.classes)}
    for (c, k), count in zip(instance.pairs, point[: len(instance.pairs)].tolist(), strict=True):
        found = instance.classes[c]
        chosen += [(left[c].popleft(), found.shapes[k], found.in_time[k]) for _ in range(count)]
    return chosen


def _lay_out(
    instance: GangInstance,
    layout: Layout,
    ground: Ground,
    chosen: list[tuple[int, Shape, bool]],
    flows: Mapping[FlowKey, int],
) -> None:
    """Put the backfilled jobs of a group on its held, shared and open nodes."""
    # Largest first, so that they find whole nodes close to each other.
    jobs = [(instance.admission.jobs[k].id, shape, in_time) for k, shape, in_time in chosen]
    jobs.sort(key=lambda found: -found[1].num_whole)
    pieces = _Pieces(jobs, ground.node_size)
    g, size = ground.group, ground.node_size
    held, opened = arcs(flows, HELD, g), arcs(flows, OPEN, g)
    layout.lay_out(ground.held_nodes, size, held, *pieces.taken(held, in_time=True))
    if ground.shared is not None:
        for kind, in_time in ((SHARED_IN_TIME, True), (SHARED_LATE, False)):
            for job_id, count in pieces.shared(arcs(flows, kind, g), in_time=in_time):
                layout.give(job_id, ground.shared, aligned_block(layout.free[ground.shared], count, 0))
    layout.lay_out(ground.open_nodes, size, opened, *pieces.rest())


class _Pieces:
    """Whole nodes and items of jobs that have no place yet."""

    def __init__(self, jobs: list[tuple[str, Shape, bool]], node_size: int) -> None:
        self._node_size = node_size
        self._in_time = {job_id: in_time for job_id, _, in_time in jobs}
        self._whole = {job_id: shape.num_whole for job_id, shape, _ in jobs if shape.num_whole}
        self._items: dict[int, list[str]] = {}
        for job_id, shape, _ in jobs:
            if shape.rest:
                self._items.setdefault(shape.rest, []).append(job_id)

    def taken(self, flows: Mapping[tuple[int, int], int], *, in_time: bool) -> tuple[list[Demand], list[Demand]]:
        """As many whole nodes and items as flowed, of jobs that end in time or of those that do not."""
        counts: dict[int, int] = {}
        for (_, size), count in flows.items():
            counts[size] = counts.get(size, 0) + count
        return self._take_whole(counts.pop(self._node_size, 0), in_time=in_time), [
            (job_id, size) for size, count in counts.items() for job_id in self._take(size, count, in_time=in_time)
        ]

    def shared(self, flows: Mapping[tuple[int, int], int], *, in_time: bool) -> Iterator[Demand]:
        """The items that flowed to a single node, a whole one among them."""
        whole, items = self.taken(flows, in_time=in_time)
        yield from ((job_id, count * self._node_size) for job_id, count in whole)
        yield from items

    def rest(self) -> tuple[list[Demand], list[Demand]]:
        """All that is left."""
        items = [(job_id, size) for size, jobs in self._items.items() for job_id in jobs]
        return [(job_id, count) for job_id, count in self._whole.items() if count], items

    def _take_whole(self, count: int, *, in_time: bool) -> list[Demand]:
        taken = []
        for job_id, wanted in self._whole.items():
            given = min(wanted, count) if self._in_time[job_id] == in_time else 0
            if given:
                self._whole[job_id] -= given
                count -= given
                taken.append((job_id, given))
        return taken

    def _take(self, size: int, count: int, *, in_time: bool) -> list[str]:
        of_kind = [job_id for job_id in self._items.get(size, ()) if self._in_time[job_id] == in_time][:count]
        gone = set(of_kind)
        self._items[size] = [job_id for job_id in self._items.get(size, ()) if job_id not in gone]
        return of_kind


def _allocation(instance: GangInstance, position: int, slices: Mapping[str, Slices]) -> JobAllocation:
    it = instance.admission
    job = it.jobs[position]
    given = slices[job.id]
    return JobAllocation(
        job_id=job.id,
        gpu_type=gpu_type_of(it.snapshot.cluster, given),
        num_gpus=num_gpus_of(given),
        gpus=node_gpus(given, it.snapshot),
        change=change_of(it.snapshot.cluster, it.taken.running.get(job.id), given),
    )

"""The data of the backfill program: classes of jobs that are alike, and the nodes they may use.

Jobs are alike when size, GPU types, quota, worth, and on every type whether they end in time are the same. Which of
them start is settled by the queue, so the program counts them. See `models.allocation.gang.formulation`.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from models.allocation.gang.admission import Admission, Waiting
from models.allocation.gang.packing import Packing
from models.allocation.gang.queue_order import seconds_left, worth_of_gpu
from models.allocation.gang.shapes import Shape
from models.plan import ScoreTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """Waiting jobs that are alike: `positions` in the snapshot, in the order of the queue.

    shapes: where they may start, in the order of their liking. in_time: whether they end before the job that is next
    on that type starts, False where there is none. quota: queue whose quota they count against, or None. worth: of each
    job that starts. size: GPUs.
    """

    positions: tuple[int, ...]
    shapes: tuple[Shape, ...]
    in_time: tuple[bool, ...]
    quota: str | None
    worth: float
    size: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ground:
    """Nodes of a group behind the next job of its type: packings of the open and held ones without backfilled jobs.

    shared: the node that the item of the next job waits for; its free GPUs now (`shared_now`) and those left over when
    that job starts (`shared_over`), 0 where there is none.
    """

    group: int
    node_size: int
    open_nodes: tuple[int, ...]
    held_nodes: tuple[int, ...]
    shared: int | None
    shared_now: int
    shared_over: int
    open: Packing
    held: Packing


@dataclass(frozen=True, kw_only=True, eq=False)
class GangInstance:
    """What the order has decided, and what is left to decide. pairs: (class, position of its shape) of every column.

    constant: worth of the jobs that run whatever is decided.
    """

    admission: Admission
    classes: tuple[JobClass, ...]
    grounds: Mapping[int, Ground]
    constant: float

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Every class with every one of its shapes."""
        return tuple((c, k) for c, found in enumerate(self.classes) for k in range(len(found.shapes)))

    def score(self, job_id: str, num_gpus: int) -> ScoreTerm:
        """What a job that has so many GPUs adds to the objective."""
        return ScoreTerm(term=self._term(job_id), job_id=job_id, value=num_gpus * self._worth[job_id])

    def _term(self, job_id: str) -> str:
        return "running" if job_id in self.admission.running else "started"

    @cached_property
    def _worth(self) -> Mapping[str, float]:
        it = self.admission
        return {job.id: worth_of_gpu(job, it.parameters, runs=it.runs(job)) for job in it.jobs}


def gang_instance(admission: Admission) -> GangInstance:
    """Make the data of the program."""
    grounds = _grounds(admission)
    classes = _classes(admission)
    jobs, parameters = admission.jobs, admission.parameters
    held = Counter({name: sum(mask.bit_count() for _, mask in parts) for name, parts in admission.running.items()})
    held.update({jobs[k].id: jobs[k].min_gpus for k in admission.started})
    constant = math.fsum(
        held[job.id] * worth_of_gpu(job, parameters, runs=admission.runs(job)) for job in jobs if job.id in held
    )
    return GangInstance(admission=admission, classes=classes, grounds=grounds, constant=constant)


def _classes(admission: Admission) -> tuple[JobClass, ...]:
    """Classes of the jobs that may be backfilled, in the order of their first job."""
    start_s = {made.shape.gpu_type: made.start_s for made in admission.promises.values() if made.start_s != math.inf}
    alike: dict[tuple[tuple[Shape, ...], tuple[bool, ...], str | None, float, int], list[int]] = {}
    for waiting in admission.waiting:
        if waiting.shapes:
            alike.setdefault(_traits(admission, waiting, start_s), []).append(waiting.position)
    return tuple(
        JobClass(positions=tuple(positions), shapes=shapes, in_time=in_time, quota=quota, worth=worth, size=size)
        for (shapes, in_time, quota, worth, size), positions in alike.items()
    )


def _traits(
    admission: Admission, waiting: Waiting, start_s: Mapping[int, float]
) -> tuple[tuple[Shape, ...], tuple[bool, ...], str | None, float, int]:
    job = admission.jobs[waiting.position]
    left_s = seconds_left(job, admission.parameters)
    in_time = tuple(left_s <= start_s.get(shape.gpu_type, -math.inf) for shape in waiting.shapes)
    # A job that was preempted is within its quota already.
    quota = job.queue if job.queue in admission.quota_left and not admission.runs(job) else None
    worth = job.min_gpus * worth_of_gpu(job, admission.parameters, runs=admission.runs(job))
    return waiting.shapes, in_time, quota, worth, job.min_gpus


def _grounds(admission: Admission) -> dict[int, Ground]:
    """The nodes on which something may be backfilled, by the number of their group."""
    promises = {made.shape.gpu_type: made for made in admission.promises.values()}
    groups = sorted({shape.group for waiting in admission.waiting for shape in waiting.shapes})
    free = admission.layout.free
    grounds = {}
    for g in groups:
        group = admission.groups.all[g]
        made, members = promises.get(group.gpu_type), set(group.nodes)
        held = () if made is None else tuple(node for node in made.held if node in members)
        shared = None if made is None or made.shared not in members else made.shared
        kept = {*held, shared}
        open_nodes = tuple(node for node in group.nodes if node not in kept)
        size = admission.rooms[group.gpu_type].node_size
        grounds[g] = Ground(
            group=g,
            node_size=size,
            open_nodes=open_nodes,
            held_nodes=held,
            shared=shared,
            shared_now=0 if shared is None else free[shared].bit_count(),
            shared_over=0 if made is None or shared is None else made.num_over,
            open=Packing((free[node].bit_count() for node in open_nodes), size),
            held=Packing((free[node].bit_count() for node in held), size),
        )
    return grounds

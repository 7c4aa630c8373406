"""Does a plan keep the rules of gang, and is its objective what it claims? Knows no solver, no packing, no reservation.

Beside the placement itself:

shape      a job that starts has exactly min_gpus GPUs, on as few nodes as possible, all but one of them whole
calendar   nobody has nodes that the calendar keeps from it (`models.calendar_check`)
running    a running job keeps its GPUs, unless the calendar bids it leave; under preemption a preemptible one may lose
           them where a job that comes before it starts on its GPU type, and keeps them where nobody takes any
quotas     no queue in which a job starts has more than its quota
order      the queue is gone through once more (`check_order`): nobody starts in order behind a job that waits for its
           quota, or without backfill for its GPUs; and the next job of a GPU type does not fit what is left
promise    the next job starts no later than it would if nobody behind it had started, by the times that jobs are
           expected to run on their nodes
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from models.access import Access
from models.allocation.gang.check_order import order_violations
from models.allocation.gang.parameters import GangParameters
from models.allocation.gang.queue_order import lateness, worth_of_gpu
from models.allocation.gang.shapes import Shapes, TypeRoom
from models.allocation.plan_check import coverage_violations, running_jobs, score_violations
from models.calendar_check import calendar_violations
from models.placement.check import placement_violations
from models.plan import JobAllocation, Plan
from models.wording import counted
from models.workload import Job, NodeGpus, Snapshot
from stowplan.errors import Issue


def gang_violations(snapshot: Snapshot, parameters: GangParameters, plan: Plan, objective: float) -> list[Issue]:
    """Every rule that the plan breaks; pointers as in `placement_violations`."""
    jobs = {job.id: job for job in snapshot.jobs}
    running = running_jobs(snapshot)
    keeping = {
        item.job_id
        for item in plan.allocations
        if item.job_id in running and _gpus(item.gpus) == _gpus(running[item.job_id].current or ())
    }
    access = Access(snapshot, parameters.epsilon)
    shapes = Shapes(snapshot.cluster, access)
    leaving = {name for name, job in running.items() if access.must_leave(job)}
    staying = keeping if parameters.preemption else running.keys() - leaving
    legal = [
        *placement_violations(snapshot, plan.allocations, whole_nodes=False, staying=staying),
        *calendar_violations(snapshot, plan.allocations, parameters.epsilon),
        *coverage_violations(snapshot, plan),
        *_shape_violations(shapes.rooms, jobs, plan, keeping),
    ]
    if legal:
        return legal
    expected = {
        item.job_id: item.num_gpus * worth_of_gpu(jobs[item.job_id], parameters, runs=item.job_id in running)
        for item in plan.allocations
    }
    return [
        *_preemption_violations(snapshot, parameters, plan, running.keys() - leaving, keeping),
        *_quota_violations(snapshot, parameters, plan, running),
        *order_violations(snapshot, parameters, plan, shapes, access, running.keys(), keeping),
        *score_violations(
            plan.score, [term.job_id or "" for term in plan.score], expected, objective, wanted="job with GPUs"
        ),
    ]


def _gpus(parts: tuple[NodeGpus, ...]) -> frozenset[tuple[str, int]]:
    return frozenset((part.node, gpu) for part in parts for gpu in part.gpus)


def _shape_violations(
    all_rooms: Sequence[TypeRoom], jobs: Mapping[str, Job], plan: Plan, keeping: Set[str]
) -> Iterator[Issue]:
    """Jobs that start have their size, on whole nodes and at most one other."""
    rooms = {room.name: room for room in all_rooms}
    for k, item in enumerate(plan.allocations):
        job = jobs.get(item.job_id)
        if job is None or item.job_id in keeping:
            continue
        if item.num_gpus != job.min_gpus:
            yield Issue(
                code="wrong_size",
                pointer=f"/allocations/{k}/num_gpus",
                detail=f"job {job.id!r} needs exactly {counted(job.min_gpus, 'GPU')}, not {item.num_gpus}",
            )
        elif not _is_compact(item, rooms.get(item.gpu_type)):
            yield Issue(
                code="not_compact",
                pointer=f"/allocations/{k}/gpus",
                detail=f"job {job.id!r} has its {counted(item.num_gpus, 'GPU')} on "
                f"{[len(part.gpus) for part in item.gpus]} of {counted(len(item.gpus), 'node')}; it must have whole "
                "nodes, and what is left of its size on one more",
            )


def _is_compact(item: JobAllocation, room: TypeRoom | None) -> bool:
    if room is None or not room.node_size:
        return False
    num_whole, rest = divmod(item.num_gpus, room.node_size)
    wanted = [room.node_size] * num_whole + [rest] * (rest > 0)
    return sorted((len(part.gpus) for part in item.gpus), reverse=True) == wanted


def _preemption_violations(
    snapshot: Snapshot, parameters: GangParameters, plan: Plan, running: Set[str], keeping: Set[str]
) -> Iterator[Issue]:
    """Whoever loses GPUs makes way for somebody who comes first."""
    jobs = {job.id: job for job in snapshot.jobs}
    type_of = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    first: dict[str, float] = {}
    for item in plan.allocations:
        # One that has made way itself may start again on another type.
        if item.job_id not in keeping:
            own = lateness(jobs[item.job_id], parameters)
            first[item.gpu_type] = min(own, first.get(item.gpu_type, own))
    for name in sorted(running - keeping):
        job = jobs[name]
        gpu_type = type_of[(job.current or ())[0].node]
        own = lateness(job, parameters)
        if first.get(gpu_type, own) >= own:
            yield Issue(
                code="preempted_for_nobody",
                pointer="/allocations",
                detail=f"job {name!r} runs and loses its GPUs, but nobody who comes before it starts on type "
                f"{gpu_type!r}",
            )


def _quota_violations(
    snapshot: Snapshot, parameters: GangParameters, plan: Plan, running: dict[str, Job]
) -> Iterator[Issue]:
    """No queue in which something starts has more than its quota."""
    used: Counter[str] = Counter()
    for job in running.values():
        if job.queue is not None:
            used[job.queue] += sum(len(part.gpus) for part in job.current or ())
    started: set[str] = set()
    jobs = {job.id: job for job in snapshot.jobs}
    for item in plan.allocations:
        queue = jobs[item.job_id].queue
        if queue is not None and item.job_id not in running:
            used[queue] += item.num_gpus
            started.add(queue)
    for queue in sorted(started & parameters.quotas.keys()):
        if used[queue] > parameters.quotas[queue]:
            yield Issue(
                code="quota_exceeded",
                pointer="/allocations",
                detail=f"queue {queue!r} gets {counted(used[queue], 'GPU')} and has a quota of "
                f"{parameters.quotas[queue]}",
            )

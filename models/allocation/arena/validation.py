"""What can be wrong with a snapshot under the Arena policies. Light: imports no solver and no modelling layer.

More forced demand than there are GPUs is no fault of the input: the problem is then infeasible, and the solver says
which rows exclude each other.
"""

from collections.abc import Iterator, Sequence

from models.allocation.admission import weight_issues
from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.allocation.bounds import bound_issues
from models.allocation.buddy_blocks import buddy_blocks
from models.allocation.work_left import work_issues
from models.configurations import ConfigurationSet
from models.performance.goodput.check import performance_issues
from models.performance.goodput.spec import ThroughputTable
from models.placement.occupancy import occupancy
from models.wording import counted
from models.workload import Adaptivity, Job, Reservation, Snapshot
from stowplan.errors import Issue


def policy_issues(snapshot: Snapshot, parameters: ArenaParameters) -> list[Issue]:
    """Every error and warning of this snapshot under these parameters; pointers as in `snapshot_issues`."""
    taken = occupancy(snapshot)
    blocks = buddy_blocks(snapshot.cluster)
    gpu_types = {kind.name for kind in snapshot.cluster.gpu_types}
    issues: list[Issue] = []
    for k, job in enumerate(snapshot.jobs):
        pointer = f"/jobs/{k}"
        issues += _priority_issues(pointer, job, parameters)
        issues += bound_issues(pointer, job)
        if job.performance is not None:
            issues += performance_issues(job.performance, f"{pointer}/performance", gpu_types)
        if job.id not in taken.pinned:
            issues += _performance_issues(pointer, job)
            issues += _work_issues(pointer, job, parameters)
            if job.reservation is not None:
                issues += _reservation_issues(pointer, job, job.reservation, blocks)
    return [*issues, *_weight_issues(snapshot.jobs, parameters)]


def _weight_issues(jobs: Sequence[Job], parameters: ArenaParameters) -> Iterator[Issue]:
    """Jobs that may earn points, and whose weights are too far apart."""
    weights = {
        k: job.weight * parameters.priority_ratio ** (1.0 - job.priority)
        for k, job in enumerate(jobs)
        if _may_earn(job, parameters) and job.weight > 0
    }
    what = "deadline" if parameters.objective is ArenaObjective.DEADLINES else "wait"
    yield from weight_issues(jobs, weights, what, ", priorities included")


def _may_earn(job: Job, parameters: ArenaParameters) -> bool:
    """Whether the objective may have points for the job."""
    if parameters.objective is ArenaObjective.DEADLINES:
        return job.deadline_s is not None
    longest_s = parameters.longest_wait_s
    is_asked = parameters.objective is ArenaObjective.COMPLETION_TIME and longest_s is not None
    return is_asked and job.current is None and job.age_s >= (longest_s or 0.0)


def _priority_issues(pointer: str, job: Job, parameters: ArenaParameters) -> Iterator[Issue]:
    if not 1 <= job.priority <= parameters.num_queues:
        yield Issue(
            code="priority_out_of_range",
            pointer=f"{pointer}/priority",
            detail=f"job {job.id!r} has priority {job.priority}; with num_queues = {parameters.num_queues} it must be "
            f"from 1 (launched first) to {parameters.num_queues}",
        )


def _performance_issues(pointer: str, job: Job) -> Iterator[Issue]:
    if job.performance is None and job.model is None:
        yield Issue(
            code="missing_performance",
            pointer=f"{pointer}/performance",
            detail=f"job {job.id!r} says nothing of its speed; give a throughput table, a transformer or operators",
        )
    elif job.performance is not None and not isinstance(job.performance, ThroughputTable):
        yield Issue(
            code="throughput_table_required",
            pointer=f"{pointer}/performance",
            detail=f"Arena compares samples/s at a fixed batch: job {job.id!r} needs a throughput table, or a "
            "transformer or operators without any performance",
        )


def _work_issues(pointer: str, job: Job, parameters: ArenaParameters) -> Iterator[Issue]:
    """Remaining iterations and batch, where the objective needs them."""
    objective = parameters.objective
    needs_work = objective in (ArenaObjective.FINISH_TIME_FAIRNESS, ArenaObjective.COMPLETION_TIME) or (
        objective is ArenaObjective.DEADLINES and job.deadline_s is not None
    )
    if needs_work:
        yield from work_issues(pointer, job, f"the objective {objective.value}")


def _reservation_issues(pointer: str, job: Job, reservation: Reservation, blocks: ConfigurationSet) -> Iterator[Issue]:
    """A reservation must be a buddy block within the bounds of the job."""
    where = f"{pointer}/reservation"
    upper = job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus
    typed = job.gpu_types is None or reservation.gpu_type in job.gpu_types
    if not typed or reservation.num_gpus < job.min_gpus or (upper is not None and reservation.num_gpus > upper):
        yield Issue(
            code="reservation_outside_bounds",
            pointer=where,
            detail=f"job {job.id!r} reserves {counted(reservation.num_gpus, 'GPU')} of type {reservation.gpu_type!r}, "
            "but its own min_gpus, max_gpus or gpu_types do not allow that",
        )
    if reservation.gpu_type not in blocks.gpu_types:
        return
    valid = blocks.num_gpus[blocks.type_index == blocks.gpu_types.index(reservation.gpu_type)]
    if reservation.num_gpus not in valid:
        yield Issue(
            code="reservation_is_no_configuration",
            pointer=f"{where}/num_gpus",
            detail=f"job {job.id!r} reserves {counted(reservation.num_gpus, 'GPU')} of type {reservation.gpu_type!r}, "
            f"which is no buddy block; these are {valid.tolist() or 'none, as all its nodes are down'}",
        )

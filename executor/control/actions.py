"""What a plan changes against what runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from models.plan import Change, JobAllocation, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A job gets these GPUs in place of those that it has: `allocation.change` says whether it starts (none before),
    moves, or is rescaled or retyped; `kept` is another 3D plan on the same GPUs."""

    allocation: JobAllocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A job gives its GPUs back, and waits."""

    job_id: str


Action = Place | Stop


def difference(running: Mapping[str, JobAllocation], plan: Plan) -> tuple[Action, ...]:
    """Actions that lead from the allocations of running jobs to a plan: those that give GPUs back first, then in the
    order of the plan. What a job keeps needs no action, and neither does waiting on."""
    planned = {item.job_id for item in plan.allocations}
    stops = [Stop(job_id=job_id) for job_id in running if job_id not in planned]
    places = []
    for item in plan.allocations:
        before = running.get(item.job_id)
        if before is None or before.gpus != item.gpus or before.parallel_plan != item.parallel_plan:
            places.append(Place(allocation=replace(item, change=_change(before, item))))
    return (*stops, *places)


def _change(before: JobAllocation | None, after: JobAllocation) -> Change:
    if before is None:
        return Change.STARTED
    if before.gpu_type != after.gpu_type:
        return Change.RETYPED
    if before.num_gpus != after.num_gpus:
        return Change.RESCALED
    return Change.KEPT if before.gpus == after.gpus else Change.MOVED

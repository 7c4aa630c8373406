"""Are the 3D plans of an allocation legal, on exactly the GPUs that were given, and as fast there as is said? Knows no
solver and no planner."""

import math
from collections.abc import Iterator

from models.allocation.plan_check import TOLERANCE
from models.parallel_plan import ParallelPlan
from models.parallelism.legality import plan_violations
from models.parallelism.training import trained
from models.performance.iteration.fabric import Fabric, fabric_of
from models.performance.iteration.modelling import performance_model
from models.plan import JobAllocation, Plan
from models.workload import Job, Snapshot
from stowplan.errors import Issue


def parallel_plan_violations(snapshot: Snapshot, plan: Plan) -> list[Issue]:
    """Every rule that a 3D plan breaks; a plan that runs already, on the same GPUs, needs no proof that it can."""
    if all(allocation.parallel_plan is None for allocation in plan.allocations):
        return []
    jobs = {job.id: job for job in snapshot.jobs}
    fabric = fabric_of(snapshot.cluster)
    known = [(k, jobs.get(allocation.job_id), allocation) for k, allocation in enumerate(plan.allocations)]
    return [
        issue
        for k, job, allocation in known
        if job is not None and allocation.parallel_plan not in (None, job.parallel_plan)
        for issue in _violations(snapshot, fabric, f"/allocations/{k}", job, allocation)
    ]


def training_violations(job: Job, plan: ParallelPlan) -> Iterator[Issue]:
    """A plan says how it trains where the job leaves that open, and trains in no other way than the job allows."""
    if job.model is not None and not job.choices.admits(job.model, plan.training):
        said = "not said" if plan.training is None else plan.training.words
        yield Issue(
            code="training",
            pointer="/training",
            detail=f"how the plan trains is {said}; job {job.id!r} allows no such way",
        )


def _violations(
    snapshot: Snapshot, fabric: Fabric, pointer: str, job: Job, allocation: JobAllocation
) -> Iterator[Issue]:
    chosen = allocation.parallel_plan
    if chosen is None or job.model is None:
        yield Issue(
            code="plan_without_model",
            pointer=f"{pointer}/parallel_plan",
            detail=f"job {job.id!r} gets a plan, but says nothing of what it trains",
        )
        return
    given = {part.node: (allocation.gpu_type, frozenset(part.gpus)) for part in allocation.gpus}
    if set(chosen.gpus) != {(node, gpu) for node, (_, gpus) in given.items() for gpu in gpus}:
        yield Issue(
            code="plan_not_on_gpus",
            pointer=f"{pointer}/parallel_plan",
            detail=f"the plan of job {job.id!r} does not use exactly its GPUs",
        )
    model = performance_model(trained(job.model, chosen.training), snapshot.cluster, job.calibration, fabric)
    illegal = [*training_violations(job, chosen), *plan_violations(chosen, model, given)]
    for issue in illegal:
        yield Issue(code=issue.code, pointer=f"{pointer}/parallel_plan{issue.pointer}", detail=issue.detail)
    # A throughput table rules over the model.
    if illegal or job.performance is not None:
        return
    right, claimed = model.throughput(chosen), allocation.expected_goodput
    if claimed is None or not math.isclose(claimed, right, rel_tol=TOLERANCE):
        yield Issue(
            code="wrong_goodput",
            pointer=f"{pointer}/expected_goodput",
            detail=f"job {job.id!r} is said to reach {claimed} samples/s; where its plan is it reaches {right}",
        )

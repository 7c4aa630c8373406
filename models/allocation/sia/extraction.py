"""From chosen configurations to a plan: GPUs, batch sizes, what changes, who waits and why, and the score."""

import numpy as np

from models.allocation.sia.instance import SiaInstance
from models.allocation.sia.parameters import SiaObjective
from models.allocation.sia.unplaced import unplaced_jobs
from models.configurations import IntVector
from models.placement.nodes import assign_gpus
from models.placement.occupancy import Slices, node_gpus
from models.plan import Change, JobAllocation, Plan, ScoreTerm


def extract_plan(instance: SiaInstance, chosen: IntVector) -> Plan:
    """Build the plan in which planned job i runs in configuration `chosen[i]` (J,), -1 for none."""
    running = [int(i) for i in instance.planned if chosen[i] >= 0]
    choice = {instance.jobs[i].id: int(chosen[i]) for i in running}
    slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken)
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    settled = chosen.copy()
    settled[instance.pinned] = instance.worth.current[instance.pinned]
    placed = sorted([*running, *instance.pinned.tolist()])
    waiting = np.array([i for i in instance.planned if chosen[i] < 0], dtype=np.int64)
    counts = np.bincount(chosen[running], minlength=len(instance.configurations))
    return Plan(
        allocations=tuple(_allocation(instance, i, int(settled[i]), slices[instance.jobs[i].id]) for i in placed),
        unplaced=unplaced_jobs(instance, waiting, counts),
        score=tuple(_score(instance, i, int(settled[i])) for i in range(len(instance.jobs))),
    )


def _allocation(instance: SiaInstance, i: int, c: int, slices: Slices) -> JobAllocation:
    """Allocation of job i in configuration c, -1 for a pinned job whose shape is no configuration."""
    job = instance.jobs[i]
    known = c >= 0 and instance.matrix.goodput[i, c] > 0
    as_goodput = known and instance.parameters.objective is SiaObjective.GOODPUT
    batch_size = int(instance.matrix.batch_size[i, c]) if known else 0
    local_batch_size = int(instance.matrix.local_batch_size[i, c]) if known else 0
    return JobAllocation(
        job_id=job.id,
        gpu_type=_gpu_type(instance, slices),
        num_gpus=_num_gpus(slices),
        gpus=node_gpus(slices, instance.snapshot),
        change=_change(instance, job.id, slices),
        batch_size=batch_size or None,
        local_batch_size=local_batch_size or None,
        accumulation_steps=int(instance.matrix.accumulation_steps[i, c]) if local_batch_size else None,
        expected_goodput=float(instance.matrix.goodput[i, c]) if as_goodput else None,
    )


def _change(instance: SiaInstance, job_id: str, slices: Slices) -> Change:
    before = instance.taken.running.get(job_id)
    if before is None:
        return Change.STARTED
    if _gpu_type(instance, before) != _gpu_type(instance, slices):
        return Change.RETYPED
    if _num_gpus(before) != _num_gpus(slices):
        return Change.RESCALED
    return Change.KEPT if sorted(before) == sorted(slices) else Change.MOVED


def _score(instance: SiaInstance, i: int, c: int) -> ScoreTerm:
    """The job's summand of the objective: its utility (or cost) in configuration c, or the penalty for waiting."""
    job = instance.jobs[i]
    term = "utility" if instance.parameters.objective is SiaObjective.GOODPUT else "cost"
    if job.id in instance.taken.pinned:
        return ScoreTerm(term=term, job_id=job.id, value=instance.pinned_score(i))
    if c < 0:
        return ScoreTerm(term="queue_penalty", job_id=job.id, value=instance.sense.sign * float(instance.penalty[i]))
    return ScoreTerm(term=term, job_id=job.id, value=float(instance.worth.value[i, c]))


def _gpu_type(instance: SiaInstance, slices: Slices) -> str:
    return instance.snapshot.cluster.nodes[slices[0][0]].gpu_type


def _num_gpus(slices: Slices) -> int:
    return sum(mask.bit_count() for _, mask in slices)

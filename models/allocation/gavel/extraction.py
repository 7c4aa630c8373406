"""From the jobs of a round to a plan: GPUs, what changes, who waits and why, and the score."""

from collections.abc import Mapping

import numpy as np

from models.allocation.changes import change_of, gpu_type_of, num_gpus_of
from models.allocation.gavel.instance import GavelInstance
from models.allocation.gavel.shares import Shares
from models.allocation.gavel.unplaced import unplaced_jobs
from models.performance.goodput.spec import ThroughputTable
from models.placement.nodes import aligned_block, assign_gpus
from models.placement.occupancy import Slices, node_gpus
from models.plan import JobAllocation, Plan, ScoreTerm
from stowplan.arrays import FloatMatrix, IntVector


def extract_plan(instance: GavelInstance, known: Shares, chosen: IntVector, priorities: FloatMatrix) -> Plan:
    """Build the plan in which planned job i runs on GPU type `chosen[i]` (J,), -1 for none; `priorities` (J, T)."""
    jobs = instance.jobs
    running = np.flatnonzero(chosen >= 0)
    choice = {jobs[i].id: int(instance.configuration[i, chosen[i]]) for i in running.tolist()}
    slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken)
    slices = {
        jobs[i].id: _needed(slices[jobs[i].id], jobs[i].min_gpus, instance.taken.running.get(jobs[i].id, ()))
        for i in running.tolist()
    }
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    counts = np.bincount(list(choice.values()), minlength=len(instance.configurations))
    waiting = np.flatnonzero((chosen < 0) & ~instance.pinned)
    return Plan(
        allocations=tuple(_allocation(instance, i, slices) for i, job in enumerate(jobs) if job.id in slices),
        unplaced=unplaced_jobs(instance, known, waiting, counts),
        score=tuple(
            ScoreTerm(term="priority", job_id=jobs[i].id, value=float(jobs[i].min_gpus * priorities[i, chosen[i]]))
            for i in running.tolist()
        ),
    )


def _needed(block: Slices, num_gpus: int, held: Slices) -> Slices:
    """So many GPUs of a block, on as few nodes as possible: those that the job has now, as far as they are there."""
    before = dict(held)
    needed = []
    for node, mask in sorted(block, key=lambda part: (-(before.get(part[0], 0) & part[1]).bit_count(), part[0])):
        own, count = before.get(node, 0) & mask, min(num_gpus, mask.bit_count())
        num_gpus -= count
        if count < mask.bit_count():
            mask = own if own.bit_count() == count else aligned_block(mask, count, own)
        needed.append((node, mask))
    return tuple(sorted(needed))


def _allocation(instance: GavelInstance, i: int, slices: Mapping[str, Slices]) -> JobAllocation:
    job, cluster = instance.jobs[i], instance.snapshot.cluster
    given = slices[job.id]
    table = job.performance if isinstance(job.performance, ThroughputTable) else None
    gpu_type, num_gpus = gpu_type_of(cluster, given), num_gpus_of(given)
    # A pinned job may have another size than that of which the speed was looked up.
    is_known = table is not None and num_gpus == job.min_gpus
    speed = float(instance.speed[i, instance.configurations.gpu_types.index(gpu_type)]) if is_known else 0.0
    return JobAllocation(
        job_id=job.id,
        gpu_type=gpu_type,
        num_gpus=num_gpus,
        gpus=node_gpus(given, instance.snapshot),
        change=change_of(cluster, instance.taken.running.get(job.id), given),
        batch_size=None if table is None else table.batch_size,
        expected_goodput=speed or None,
    )

"""From what is reserved to a plan of the present slot: GPUs, what changes, who waits and why, and the score."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from models.allocation.changes import change_of, gpu_type_of, num_gpus_of
from models.allocation.elasticflow.check import Reserved
from models.allocation.elasticflow.instance import ElasticInstance
from models.allocation.elasticflow.unplaced import unplaced_jobs
from models.performance.goodput.spec import ThroughputTable
from models.placement.nodes import assign_gpus
from models.placement.occupancy import Slices, node_gpus
from models.plan import JobAllocation, Plan, ScoreTerm
from stowplan.arrays import FloatArray, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """admitted: bool (J,), whose deadline is guaranteed. now: int64 (J,), configuration in the present slot, -1 for
    none. later: float64 (J, C, K), for which part of later slots admitted jobs have which block."""

    admitted: Mask
    now: IntVector
    later: FloatArray

    def reserved(self, instance: ElasticInstance) -> Reserved:
        """The same in the words of the check."""
        configurations = instance.configurations
        later: dict[str, list[tuple[int, str, int, float]]] = {}
        for i, c, k in zip(*(axis.tolist() for axis in np.nonzero(self.later)), strict=True):
            kind = configurations.gpu_types[configurations.type_index[c]]
            part = (k, kind, int(configurations.num_gpus[c]), float(self.later[i, c, k]))
            later.setdefault(instance.jobs[i].id, []).append(part)
        admitted = frozenset(instance.jobs[i].id for i in np.flatnonzero(self.admitted).tolist())
        return Reserved(admitted=admitted, later=later, ends=tuple(instance.ends.tolist()))


def extract_plan(instance: ElasticInstance, schedule: Schedule) -> Plan:
    """Build the plan of the present slot."""
    jobs, now = instance.jobs, schedule.now
    running = np.flatnonzero(now >= 0)
    choice = {jobs[i].id: int(now[i]) for i in running.tolist()}
    slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken)
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    counts = np.bincount(now[running], minlength=len(instance.configurations))
    return Plan(
        allocations=tuple(_allocation(instance, i, schedule, slices) for i, job in enumerate(jobs) if job.id in slices),
        unplaced=unplaced_jobs(instance, now, schedule.admitted, counts),
        score=tuple(_scores(instance, schedule)),
    )


def _allocation(instance: ElasticInstance, i: int, schedule: Schedule, slices: Mapping[str, Slices]) -> JobAllocation:
    job, cluster = instance.jobs[i], instance.snapshot.cluster
    given = slices[job.id]
    c = int(instance.current[i] if instance.pinned[i] else schedule.now[i])
    return JobAllocation(
        job_id=job.id,
        gpu_type=gpu_type_of(cluster, given),
        num_gpus=num_gpus_of(given),
        gpus=node_gpus(given, instance.snapshot),
        change=change_of(cluster, instance.taken.running.get(job.id), given),
        batch_size=job.performance.batch_size if isinstance(job.performance, ThroughputTable) else None,
        expected_goodput=float(instance.samples_per_s[i, c]) or None if c >= 0 else None,
    )


def _scores(instance: ElasticInstance, schedule: Schedule) -> Iterator[ScoreTerm]:
    for i, job in enumerate(instance.jobs):
        if schedule.now[i] >= 0:
            yield ScoreTerm(term="throughput", job_id=job.id, value=float(instance.gain[i, schedule.now[i]]))
        if schedule.admitted[i]:
            yield ScoreTerm(term="deadline_met", job_id=job.id, value=float(instance.reward[i]))

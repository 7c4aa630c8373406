"""From chosen buddy blocks to a plan: GPUs, 3D plans, what changes, who waits and why, and the score."""

from collections.abc import Iterator, Mapping

import numpy as np

from models.allocation.adaptive import PlacedPlans
from models.allocation.arena.assembly import has_theta
from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.parameters import ArenaObjective
from models.allocation.arena.unplaced import unplaced_jobs
from models.allocation.changes import change_of, gpu_type_of, num_gpus_of
from models.allocation.work_left import batch_size
from models.placement.nodes import assign_gpus
from models.placement.occupancy import Slices, node_gpus
from models.plan import Change, JobAllocation, Plan, ScoreTerm
from stowplan.arrays import IntVector, Mask

# Of the points that a job earns, by objective.
POINT_TERMS = {ArenaObjective.DEADLINES: "deadline_met", ArenaObjective.COMPLETION_TIME: "wait_ended"}


def extract_plan(instance: ArenaInstance, chosen: IntVector, untried: Mask | None) -> Plan:
    """Build the plan in which planned job i runs in configuration `chosen[i]` (J,), -1 for none.

    `untried` (J,): jobs that Algorithm 1 came to no more; None for an answer of the integer program.
    """
    running = np.flatnonzero(chosen >= 0)
    choice = {instance.jobs[i].id: int(chosen[i]) for i in running.tolist()}
    slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken)
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    settled = settled_configurations(instance, chosen)
    placed = np.flatnonzero((chosen >= 0) | instance.pinned)
    waiting = np.flatnonzero((chosen < 0) & ~instance.pinned)
    counts = np.bincount(chosen[running], minlength=len(instance.configurations))
    plans = PlacedPlans(instance.snapshot.cluster)
    return Plan(
        allocations=tuple(_allocation(instance, i, int(settled[i]), slices, plans) for i in placed.tolist()),
        unplaced=unplaced_jobs(instance, waiting, counts, untried),
        score=tuple(_scores(instance, settled)),
    )


def settled_configurations(instance: ArenaInstance, chosen: IntVector) -> IntVector:
    """Configuration (J,) of every job, pinned ones included, -1 for none or none that is known."""
    return np.asarray(np.where(instance.pinned, instance.utility.current, chosen))


def _allocation(
    instance: ArenaInstance, i: int, c: int, slices: Mapping[str, Slices], plans: PlacedPlans
) -> JobAllocation:
    """Allocation of job i in configuration c; -1 stands for a pinned job whose shape is no configuration."""
    job = instance.jobs[i]
    taken = slices[job.id]
    gpus = node_gpus(taken, instance.snapshot)
    samples_per_s = float(instance.throughputs.samples_per_s[i, c]) if c >= 0 else 0.0
    change = change_of(instance.snapshot.cluster, instance.taken.running.get(job.id), taken)
    estimate = instance.throughputs.plans.get((i, c))
    share = float(instance.configurations.bandwidth_fraction[c]) if c >= 0 else 1.0
    plan, samples_per_s = plans.on(job, estimate, gpus, samples_per_s, share=share, stays=change is Change.KEPT)
    return JobAllocation(
        job_id=job.id,
        gpu_type=gpu_type_of(instance.snapshot.cluster, taken),
        num_gpus=num_gpus_of(taken),
        gpus=gpus,
        change=change,
        batch_size=batch_size(job),
        expected_goodput=samples_per_s or None,
        parallel_plan=plan,
    )


def _scores(instance: ArenaInstance, chosen: IntVector) -> Iterator[ScoreTerm]:
    """Every job's summand of the objective in configuration `chosen` (J,), and theta of Eq. 7."""
    utility = instance.utility
    runs = chosen >= 0
    values = utility.waiting.copy()
    values[runs] = utility.value[runs, chosen[runs]]
    if not instance.is_min_max:
        for i, job in enumerate(instance.jobs):
            term = "waiting" if not runs[i] else "throughput" if utility.in_time[i, chosen[i]] else "late"
            reward = float(utility.reward[i]) if term == "throughput" and utility.runnable[i, chosen[i]] else 0.0
            yield ScoreTerm(term=term, job_id=job.id, value=float(values[i]) - reward)
            if reward:
                yield ScoreTerm(term=POINT_TERMS[instance.parameters.objective], job_id=job.id, value=reward)
        return
    values = np.where(instance.counted, values, 0.0)
    shares = instance.mean_share * values
    for job, share, is_running in zip(instance.jobs, shares.tolist(), runs.tolist(), strict=True):
        yield ScoreTerm(term="finish_time" if is_running else "waiting", job_id=job.id, value=share)
    if has_theta(instance):
        yield ScoreTerm(term="worst_finish_time", job_id=None, value=float(values.max()))

"""From chosen configurations to a plan: GPUs, batch sizes, what changes, who waits and why, and the score.

The objective is that of configurations; what jobs are predicted to reach, and the batch for it, is that of where they
were placed.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from models.allocation.adaptive import PlacedPlans
from models.allocation.changes import change_of, gpu_type_of, num_gpus_of
from models.allocation.long_waits import wait_warnings
from models.allocation.sia.instance import SiaInstance
from models.allocation.sia.parameters import SiaObjective
from models.allocation.sia.unplaced import unplaced_jobs
from models.allocation.sia.utility import is_too_old
from models.allocation.spread import placement_warnings
from models.performance.goodput.matrix import placed as placed_goodputs
from models.placement.nodes import assign_gpus
from models.placement.occupancy import Slices, node_gpus
from models.placement.units import Homes
from models.plan import Change, JobAllocation, Plan, ScoreTerm
from models.workload import Job
from stowplan.arrays import FloatVector, IntVector
from stowplan.errors import Issue
from stowplan.living import OfUnchanged
from topology.bandwidth import fractions_of, group_fraction
from topology.cluster import Cluster

# Of jobs on a cluster, with their GPUs and goodput: in rounds that follow one another most are the same.
_made: OfUnchanged[Job, JobAllocation] = OfUnchanged()


def extract_plan(instance: SiaInstance, chosen: IntVector, homes: Homes | None = None) -> Plan:
    """Build the plan in which planned job i runs in configuration `chosen[i]` (J,), -1 for none; `homes`: where some
    are wanted."""
    running = instance.planned[chosen[instance.planned] >= 0].tolist()
    choice = {instance.jobs[i].id: c for i, c in zip(running, chosen[running].tolist(), strict=True)}
    slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken, homes=homes)
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    settled = settled_configurations(instance, chosen)
    placed = np.array(sorted([*running, *instance.pinned.tolist()]), dtype=np.int64)
    waiting = instance.planned[chosen[instance.planned] < 0]
    counts = np.bincount(chosen[running], minlength=len(instance.configurations))
    return Plan(
        allocations=tuple(_allocations(instance, placed, settled[placed], slices)),
        unplaced=unplaced_jobs(instance, waiting, counts),
        score=tuple(_scores(instance, settled)),
    )


def settled_configurations(instance: SiaInstance, chosen: IntVector) -> IntVector:
    """Configuration (J,) of every job, pinned ones included, -1 for none or none that is known."""
    settled = chosen.copy()
    settled[instance.pinned] = instance.utility.current[instance.pinned]
    return settled


def slower_jobs(instance: SiaInstance, chosen: IntVector, plan: Plan) -> Iterator[Issue]:
    """Warn of jobs that the plan has placed so that they are slower than their configurations `chosen` (J,)."""
    if instance.parameters.objective is SiaObjective.GIVEN_COSTS:
        return
    settled = settled_configurations(instance, chosen)
    promised = {
        instance.jobs[i].id: (int(settled[i]), float(instance.matrix.goodput[i, settled[i]]))
        for i in np.flatnonzero(settled >= 0).tolist()
    }
    yield from placement_warnings(instance.snapshot, instance.configurations, plan.allocations, promised)


def long_waits(instance: SiaInstance, chosen: IntVector) -> Iterator[Issue]:
    """Warn of jobs that may wait no more, and to which the plan gives nothing in configuration `chosen` (J,)."""
    longest_s = instance.parameters.longest_wait_s
    left_out = [int(i) for i in instance.planned if chosen[i] < 0 and is_too_old(instance.jobs[i], instance.parameters)]
    if left_out and longest_s is not None:
        yield from wait_warnings(instance.jobs, left_out, longest_s)


def _allocations(
    instance: SiaInstance, placed: IntVector, chosen: IntVector, slices: Mapping[str, Slices]
) -> Iterator[JobAllocation]:
    """Allocations of the jobs `placed` (n,) in the configurations `chosen` (n,).

    -1 stands for a pinned job whose shape is no configuration: what is not known of a job is 0 in the matrix.
    """
    cluster = instance.snapshot.cluster
    shares = _shares(cluster, [slices[instance.jobs[i].id] for i in placed.tolist()])
    known_shape = chosen >= 0
    where = placed[known_shape], chosen[known_shape]
    matrix = placed_goodputs(instance.matrix, instance.jobs, instance.configurations, where, shares[known_shape])
    plans = PlacedPlans(cluster)
    as_goodput = instance.parameters.objective is not SiaObjective.GIVEN_COSTS
    # One gathering for all: looking up single elements takes longer than everything else here.
    fields = (matrix.goodput, matrix.batch_size, matrix.local_batch_size, matrix.accumulation_steps)
    known = [np.where(chosen >= 0, field[placed, chosen], 0).tolist() for field in fields]
    rows = zip(placed.tolist(), chosen.tolist(), *known, strict=True)
    jobs, before = instance.jobs, instance.taken.running
    for i, c, goodput, batch_size, local_batch_size, accumulation_steps in rows:
        job = jobs[i]
        taken = slices[job.id]
        numbers = goodput, batch_size, local_batch_size, accumulation_steps, as_goodput, taken
        made = None if (i, c) in instance.plans else _made.get(job, (cluster,), numbers)
        if made is not None:
            yield made
            continue
        gpus = node_gpus(taken, instance.snapshot)
        change = change_of(cluster, before.get(job.id), taken)
        estimate = instance.plans.get((i, c))
        plan, goodput = plans.on(job, estimate, gpus, goodput, stays=change is Change.KEPT)
        allocation = JobAllocation(
            job_id=job.id,
            gpu_type=gpu_type_of(cluster, taken),
            num_gpus=num_gpus_of(taken),
            gpus=gpus,
            change=change,
            batch_size=batch_size or None,
            local_batch_size=local_batch_size or None,
            # Sia counts those before the last one.
            accumulation_steps=accumulation_steps + 1 if local_batch_size else None,
            expected_goodput=goodput if as_goodput and goodput > 0 else None,
            parallel_plan=plan,
        )
        if estimate is None:
            _made.put(job, (cluster,), numbers, allocation)
        yield allocation


def _shares(cluster: Cluster, placed: Sequence[Slices]) -> FloatVector:
    """Share of the inter-node bandwidth (n,) of each group of slices. Most are on one node, which needs none."""
    nodes, fractions = cluster.nodes, fractions_of(cluster)
    shares = np.ones(len(placed))
    for k, slices in enumerate(placed):
        if len(slices) > 1:
            shares[k] = group_fraction(fractions, [nodes[node].path for node, _ in slices])
    return shares


def _scores(instance: SiaInstance, chosen: IntVector) -> Iterator[ScoreTerm]:
    """Every job's summand of the objective: its utility (or cost) in configuration `chosen` (J,), or the penalty for
    waiting where that is -1."""
    running = "cost" if instance.parameters.objective is SiaObjective.GIVEN_COSTS else "utility"
    values = instance.sense.sign * instance.penalty
    runs = np.flatnonzero(chosen >= 0)
    values[runs] = instance.utility.value[runs, chosen[runs]]
    for i in instance.pinned.tolist():
        values[i] = instance.pinned_score(i)
    waits = chosen < 0
    waits[instance.pinned] = False
    for job, value, is_waiting in zip(instance.jobs, values.tolist(), waits.tolist(), strict=True):
        yield ScoreTerm(term="queue_penalty" if is_waiting else running, job_id=job.id, value=value)

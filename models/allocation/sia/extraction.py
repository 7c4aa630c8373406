"""From chosen configurations to a plan: GPUs, batch sizes, what changes, who waits and why, and the score.

The objective is that of configurations; what jobs are predicted to reach, and the batch for it, is that of where they
were placed.
"""

from collections.abc import Iterable, Iterator, Mapping

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
from models.roll import roll_of, row_of
from stowplan.arrays import IntVector
from stowplan.errors import Issue
from stowplan.rolls import objects
from topology.bandwidth import fractions_of, group_fraction
from topology.cluster import Cluster


def extract_plan(instance: SiaInstance, chosen: IntVector, homes: Homes | None = None) -> Plan:
    """Build the plan in which planned job i runs in configuration `chosen[i]` (J,), -1 for none; `homes`: where some
    are wanted."""
    running = instance.planned[chosen[instance.planned] >= 0].tolist()
    ids = list(row_of(instance.snapshot))
    choice = dict(zip(map(ids.__getitem__, running), chosen[running].tolist(), strict=True))
    slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken, homes=homes)
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    settled = settled_configurations(instance, chosen)
    waiting = instance.planned[chosen[instance.planned] < 0]
    counts = np.bincount(chosen[running], minlength=len(instance.configurations))
    return Plan(
        allocations=_allocations(instance, settled, slices),
        unplaced=unplaced_jobs(instance, waiting, counts),
        score=_scores(instance, settled),
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
    apart = [allocation for allocation in plan.allocations if len(allocation.gpus) > 1]
    if not apart:
        return
    settled = settled_configurations(instance, chosen)
    rows = map(row_of(instance.snapshot).__getitem__, [allocation.job_id for allocation in apart])
    promised = {
        instance.jobs[i].id: (int(settled[i]), float(instance.matrix.goodput[i, settled[i]]))
        for i in rows
        if settled[i] >= 0
    }
    yield from placement_warnings(instance.snapshot, instance.configurations, apart, promised)


def long_waits(instance: SiaInstance, chosen: IntVector) -> Iterator[Issue]:
    """Warn of jobs that may wait no more, and to which the plan gives nothing in configuration `chosen` (J,)."""
    longest_s = instance.parameters.longest_wait_s
    waiting = instance.planned[chosen[instance.planned] < 0].tolist()
    left_out = [i for i in waiting if is_too_old(instance.jobs[i], instance.parameters)]
    if left_out and longest_s is not None:
        yield from wait_warnings(instance.jobs, left_out, longest_s)


def _allocations(instance: SiaInstance, chosen: IntVector, slices: Mapping[str, Slices]) -> tuple[JobAllocation, ...]:
    """Allocations of the jobs that have `slices`, in the configurations `chosen` (J,).

    -1 stands for a pinned job whose shape is no configuration: what is not known of a job is 0 in the matrix.
    """
    snapshot, jobs, before = instance.snapshot, instance.jobs, instance.taken.running
    cluster, roll = snapshot.cluster, roll_of(snapshot)
    given = objects(map(slices.get, row_of(snapshot)), len(jobs))
    shares = roll.each(
        "shares", np.float64, lambda rows: _shares(cluster, given[rows]), same=(cluster,), beside=(given,)
    )
    placed = np.flatnonzero(given)  # no slices are none
    known = placed[chosen[placed] >= 0]
    matrix = placed_goodputs(instance.matrix, jobs, instance.configurations, (known, chosen[known]), shares[known])
    plans = PlacedPlans(cluster)
    as_goodput = instance.parameters.objective is not SiaObjective.GIVEN_COSTS
    # One gathering for all: looking up single elements takes longer than everything else here.
    every = np.arange(len(jobs)), np.maximum(chosen, 0)
    fields = (matrix.goodput, matrix.batch_size, matrix.local_batch_size, matrix.accumulation_steps)
    if len(instance.configurations):
        numbers = tuple(np.where(chosen >= 0, field[every], 0) for field in fields)
    else:
        numbers = tuple(np.zeros(len(jobs), dtype=field.dtype) for field in fields)
    current, promised = instance.utility.current, instance.configurations.bandwidth_fraction.tolist()
    as_it_runs = matrix.goodput[every[0], current] if len(instance.configurations) else numbers[0]
    beside = (given, chosen, current, as_it_runs, *numbers)

    def made(rows: list[int]) -> Iterator[JobAllocation | None]:
        """What jobs get; nothing where they have no GPUs."""
        columns = [array[rows].tolist() for array in beside]
        for i, taken, c, now, goodput_now, goodput, batch_size, local_batch_size, accumulation_steps in zip(
            rows, *columns, strict=True
        ):
            if taken is None:
                yield None
                continue
            job = jobs[i]
            gpus = node_gpus(taken, snapshot)
            change = change_of(cluster, before.get(job.id), taken)
            stays = change is Change.KEPT
            if stays and c != now and job.parallel_plan is not None:
                # It was chosen in another class, and goes on as it runs.
                goodput = goodput_now
            estimate, share = instance.plans.get((i, c)), promised[c] if c >= 0 else 1.0
            plan, reached = None, goodput
            if estimate is not None or job.parallel_plan is not None:
                plan, reached = plans.on(job, estimate, gpus, goodput, share=share, stays=stays)
            yield JobAllocation(
                job_id=job.id,
                gpu_type=gpu_type_of(cluster, taken),
                num_gpus=num_gpus_of(taken),
                gpus=gpus,
                change=change,
                batch_size=batch_size or None,
                local_batch_size=local_batch_size or None,
                # Sia counts those before the last one.
                accumulation_steps=accumulation_steps + 1 if local_batch_size else None,
                expected_goodput=reached if as_goodput and reached > 0 else None,
                parallel_plan=plan,
            )

    if instance.plans:
        # Each plan may have an estimate of its own.
        return tuple(allocation for allocation in made(placed.tolist()) if allocation is not None)
    found = roll.each(
        "allocation", np.object_, made, same=(cluster, instance.configurations), equal=as_goodput, beside=beside
    )
    return tuple(found[placed].tolist())


def _shares(cluster: Cluster, placed: Iterable[Slices | None]) -> Iterator[float]:
    """Share of the inter-node bandwidth of each group of slices. Most are on one node, which needs none."""
    nodes, fractions = cluster.nodes, fractions_of(cluster)
    for slices in placed:
        if slices is None or len(slices) < 2:
            yield 1.0
        else:
            yield group_fraction(fractions, [nodes[node].path for node, _ in slices])


def _scores(instance: SiaInstance, chosen: IntVector) -> tuple[ScoreTerm, ...]:
    """Every job's summand of the objective: its utility (or cost) in configuration `chosen` (J,), or the penalty for
    waiting where that is -1."""
    jobs = instance.jobs
    running = "cost" if instance.parameters.objective is SiaObjective.GIVEN_COSTS else "utility"
    values = instance.sense.sign * instance.penalty
    runs = np.flatnonzero(chosen >= 0)
    values[runs] = instance.utility.value[runs, chosen[runs]]
    for i in instance.pinned.tolist():
        values[i] = instance.pinned_score(i)
    waits = chosen < 0
    waits[instance.pinned] = False

    def terms(rows: list[int]) -> Iterator[ScoreTerm]:
        for i, value, is_waiting in zip(rows, values[rows].tolist(), waits[rows].tolist(), strict=True):
            yield ScoreTerm(term="queue_penalty" if is_waiting else running, job_id=jobs[i].id, value=value)

    found = roll_of(instance.snapshot).each("score", np.object_, terms, equal=running, beside=(values, waits))
    return tuple(found.tolist())

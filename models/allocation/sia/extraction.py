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
from models.performance.goodput.matrix import GoodputMatrix
from models.performance.goodput.matrix import placed as placed_goodputs
from models.placement.nodes import assign_gpus
from models.placement.occupancy import Slices, node_gpus
from models.placement.units import Homes
from models.plan import Change, JobAllocation, Plan, ScoreTerm
from models.roll import roll_of, row_of
from stowplan.arrays import FloatMatrix, IntMatrix, IntVector
from stowplan.errors import Issue
from stowplan.rolls import objects
from topology.bandwidth import fractions_of, group_fraction, has_all_bandwidth
from topology.cluster import Cluster

# Jobs of which all may well stay where they are.
_FEW = 64


def extract_plan(instance: SiaInstance, chosen: IntVector, homes: Homes | None = None) -> Plan:
    """Build the plan in which planned job i runs in configuration `chosen[i]` (J,), -1 for none; `homes`: where some
    are wanted."""
    runs = chosen[instance.planned] >= 0
    running, waiting = instance.planned[runs], instance.planned[~runs]
    ids, given = list(row_of(instance.snapshot)), chosen[running]
    choice = dict(zip(map(ids.__getitem__, running.tolist()), given.tolist(), strict=True))
    if homes is None and running.size <= _FEW and (given == instance.utility.current[running]).all():
        # Nobody moves, which of many jobs is rare.
        slices = {job_id: instance.taken.running[job_id] for job_id in choice}
    else:
        slices = assign_gpus(instance.snapshot, instance.configurations, choice, instance.taken, homes=homes)
    slices |= {job_id: instance.taken.running[job_id] for job_id in sorted(instance.taken.pinned)}
    settled = settled_configurations(instance, chosen)
    return Plan(
        allocations=_allocations(instance, settled, slices),
        unplaced=unplaced_jobs(instance, waiting, np.bincount(given, minlength=len(instance.configurations))),
        score=_scores(instance, settled),
    )


def settled_configurations(instance: SiaInstance, chosen: IntVector) -> IntVector:
    """Configuration (J,) of every job, pinned ones included, -1 for none or none that is known."""
    if not instance.pinned.size:
        return chosen
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
    if longest_s is None:
        return
    waiting = instance.planned[chosen[instance.planned] < 0].tolist()
    left_out = [i for i in waiting if is_too_old(instance.jobs[i], instance.parameters)]
    if left_out:
        yield from wait_warnings(instance.jobs, left_out, longest_s)


def _allocations(instance: SiaInstance, chosen: IntVector, slices: Mapping[str, Slices]) -> tuple[JobAllocation, ...]:
    """Allocations of the jobs that have `slices`, in the configurations `chosen` (J,).

    -1 stands for a pinned job whose shape is no configuration: what is not known of a job is 0 in the matrix.
    """
    snapshot, jobs, before = instance.snapshot, instance.jobs, instance.taken.running
    cluster, roll = snapshot.cluster, roll_of(snapshot)
    given = objects(map(slices.get, row_of(snapshot)), len(jobs))
    shares = np.ones(len(jobs))
    if not has_all_bandwidth(cluster):
        shares = roll.each(
            "shares", np.float64, lambda rows: _shares(cluster, given[rows]), same=(cluster,), beside=(given,)
        )
    placed = given.nonzero()[0]  # no slices are none
    known = placed[chosen[placed] >= 0]
    matrix = placed_goodputs(instance.matrix, jobs, instance.configurations, (known, chosen[known]), shares[known])
    plans = PlacedPlans(cluster)
    as_goodput = instance.parameters.objective is not SiaObjective.GIVEN_COSTS
    promised = instance.configurations.bandwidth_fraction.tolist()
    beside = (given, *_numbers(instance, chosen, matrix))

    def made(rows: list[int]) -> Iterator[JobAllocation | None]:
        """What jobs get; nothing where they have no GPUs."""
        asked = np.array(rows, dtype=np.int64)
        columns = [array[asked].tolist() for array in beside]
        for i, taken, (c, now, batch_size, local_batch_size, accumulation_steps), (goodput, goodput_now) in zip(
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


def _numbers(instance: SiaInstance, chosen: IntVector, matrix: GoodputMatrix) -> tuple[IntMatrix, FloatMatrix]:
    """Of each job the configuration `chosen` (J,) and that in which it runs, batch size, local batch size and steps of
    accumulation (J, 5); goodput, and that as it runs (J, 2). 0 where nothing is chosen.

    Few arrays, which are sooner told from those of the round before, by one gathering: single elements take longer than
    all else here.
    """
    current, num_configurations = instance.utility.current, len(instance.configurations)
    counts = np.zeros((chosen.size, 5), dtype=np.int64)
    goodputs = np.zeros((chosen.size, 2))
    counts[:, 0], counts[:, 1] = chosen, current
    if num_configurations:
        first = np.arange(chosen.size) * num_configurations
        every = first + chosen
        goodputs[:, 0] = matrix.goodput.take(every)
        goodputs[:, 1] = matrix.goodput.take(first + current % num_configurations)
        for k, field in enumerate((matrix.batch_size, matrix.local_batch_size, matrix.accumulation_steps)):
            counts[:, 2 + k] = field.take(every)
        waits = chosen < 0
        counts[waits, 2:], goodputs[waits, 0] = 0, 0.0
    return counts, goodputs


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
    waits = chosen < 0
    runs = (~waits).nonzero()[0]
    values[runs] = instance.utility.value[runs, chosen[runs]]
    for i in instance.pinned.tolist():
        values[i] = instance.pinned_score(i)
        waits[i] = False

    def terms(rows: list[int]) -> Iterator[ScoreTerm]:
        for i, value, is_waiting in zip(rows, values[rows].tolist(), waits[rows].tolist(), strict=True):
            yield ScoreTerm(term="queue_penalty" if is_waiting else running, job_id=jobs[i].id, value=value)

    found = roll_of(instance.snapshot).each("score", np.object_, terms, equal=running, beside=(values, waits))
    return tuple(found.tolist())

"""From whole nodes per group and minipod to a plan: cells, rank order, spreads, score, and the other jobs."""

from models.placement.arnold.assignment import arrange, pick_nodes
from models.placement.arnold.instance import IntMatrix, affinity_weights
from models.placement.arnold.matrix import stage_major
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.selection import Affinity, Selection
from models.placement.arnold.spread import Spreads, measure
from models.placement.arnold.volumes import num_microbatches
from models.placement.occupancy import occupancy
from models.plan import Change, JobAllocation, Plan, PretrainingPlacement, ScoreTerm, UnplacedJob
from models.workload import Job, NodeGpus, Snapshot


def arnold_plan(
    snapshot: Snapshot, selection: Selection, unit: SchedulingUnit, affinity: Affinity, counts: IntMatrix
) -> Plan:
    """Plan from `counts` (G, M): the job placed, running jobs kept, other waiting jobs left out."""
    minipods = arrange(counts, unit)
    cells = pick_nodes(minipods, selection.pool, unit)
    spreads = measure(minipods)
    labels = selection.pool.minipods
    placement = PretrainingPlacement(
        job_id=selection.job.id,
        scheduling_unit=unit.value,
        alpha=affinity.alpha,
        beta=1 - affinity.alpha,
        affinity_source=affinity.source,
        cells=cells,
        minipods=tuple(tuple(labels[j] for j in row) for row in minipods.tolist()),
        hosts=stage_major(cells),
        minipod_spread=spreads.minipods,
        distance=spreads.distance,
        num_minipods_used=spreads.num_used,
        max_unit_spread=spreads.of_unit(unit),
        objective_eq4=spreads.objective_eq4(affinity.alpha, unit),
        objective_eq2=spreads.objective_eq2(affinity.alpha),
    )
    running = occupancy(snapshot).running
    kept = [job for job in snapshot.jobs if job.id in running]
    waiting = [job for job in snapshot.jobs if job.id not in running and job.id != selection.job.id]
    return Plan(
        allocations=(_planned(selection, placement.hosts), *(_kept(snapshot, job) for job in kept)),
        unplaced=tuple(_unplaced(job) for job in waiting),
        score=_score(spreads, selection.job.id, unit, affinity.alpha),
        pretraining=placement,
    )


def _planned(selection: Selection, hosts: tuple[str, ...]) -> JobAllocation:
    """Allocation of the planned job, hosts in rank order."""
    job, gpus_per_node = selection.job, selection.pool.gpus_per_node
    batch = _batch(selection)
    return JobAllocation(
        job_id=job.id,
        gpu_type=selection.pool.gpu_type,
        num_gpus=selection.parallelism.num_gpus,
        gpus=tuple(NodeGpus(node=node, gpus=tuple(range(gpus_per_node))) for node in hosts),
        change=Change.STARTED,
        batch_size=batch[0],
        local_batch_size=batch[1],
        accumulation_steps=batch[2],
    )


def _batch(selection: Selection) -> tuple[int, int, int] | tuple[None, None, None]:
    """Global batch, micro-batch and accumulation steps (m - 1 of Eq. 11), where the job says them and they divide."""
    transformer = selection.job.transformer
    if transformer is None:
        return None, None, None
    num_micro = num_microbatches(transformer, selection.parallelism)
    if not num_micro.is_integer():
        return None, None, None
    return transformer.global_batch, transformer.micro_batch, int(num_micro) - 1


def _kept(snapshot: Snapshot, job: Job) -> JobAllocation:
    """Allocation of a running job: this policy moves nobody."""
    gpus = job.current or ()
    types = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    return JobAllocation(
        job_id=job.id,
        gpu_type=types[gpus[0].node],
        num_gpus=sum(len(part.gpus) for part in gpus),
        gpus=gpus if job.parallelism is not None else tuple(sorted(gpus, key=lambda part: part.node)),
        change=Change.KEPT,
    )


def _unplaced(job: Job) -> UnplacedJob:
    return UnplacedJob(
        job_id=job.id,
        reason="not_pretraining",
        detail=f"job {job.id!r} waits and has no parallelism (tp, pp, dp); Arnold places one pre-training job",
        counts={"min_gpus": job.min_gpus},
        remedy="plan it with an allocation policy such as sia, or give its parallelism and plan it on its own",
        preempted=False,
    )


def _score(spreads: Spreads, job_id: str, unit: SchedulingUnit, alpha: float) -> tuple[ScoreTerm, ...]:
    """Summands of Eq. 4: minipods used weigh on the groups that are not the unit, T on those that are."""
    minipod_weight, spread_weight = affinity_weights(alpha, unit)
    other = "dp" if unit is SchedulingUnit.PP else "pp"
    return (
        ScoreTerm(term=f"{other}_minipods", job_id=job_id, value=minipod_weight * spreads.num_used),
        ScoreTerm(term=f"{unit.value}_spread", job_id=job_id, value=spread_weight * spreads.of_unit(unit)),
    )

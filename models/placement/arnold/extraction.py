"""From the node in every cell to a plan: rank order, spreads, score, spare nodes, and the other jobs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from models.placement.arnold.instance import affinity_weights
from models.placement.arnold.matrix import stage_major
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit, SpreadObjective
from models.placement.arnold.selection import Affinity, Selection
from models.placement.arnold.spread import Spreads, measure, units_of
from models.placement.arnold.volumes import num_microbatches
from models.placement.occupancy import running_jobs
from models.plan import Change, JobAllocation, Plan, PretrainingPlacement, ScoreTerm, UnplacedJob
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from stowplan.arrays import IntMatrix


def arnold_plan(
    snapshot: Snapshot,
    selection: Selection,
    parameters: ArnoldParameters,
    affinity: Affinity,
    minipods: IntMatrix,
    cells: tuple[tuple[str, ...], ...],
) -> Plan:
    """Plan from minipods and nodes (rows, columns): the job placed, running jobs kept, other waiting jobs left out."""
    placement = pretraining_placement(
        selection.job.id,
        selection.parallelism,
        parameters.scheduling_unit,
        affinity,
        selection.pool.minipods,
        minipods,
        cells,
        spares=_spares(selection, minipods, cells),
    )
    running = running_jobs(snapshot)
    kept = [job for job in snapshot.jobs if job.id in running]
    waiting = [job for job in snapshot.jobs if job.id not in running and job.id != selection.job.id]
    return Plan(
        allocations=(_planned(selection, placement.hosts), *kept_where_they_are(snapshot, kept)),
        unplaced=tuple(_unplaced(job) for job in waiting),
        score=_score(snapshot, parameters, affinity.alpha, placement),
        pretraining=placement,
    )


def pretraining_placement(
    job_id: str,
    parallelism: Parallelism,
    unit: SchedulingUnit,
    affinity: Affinity,
    labels: Sequence[str],
    minipods: IntMatrix,
    cells: tuple[tuple[str, ...], ...],
    *,
    spares: tuple[str, ...],
) -> PretrainingPlacement:
    """Placement of a job from minipods, positions among `labels`, and nodes (rows, columns)."""
    spreads = measure(minipods)
    return PretrainingPlacement(
        job_id=job_id,
        scheduling_unit=unit.value,
        alpha=affinity.alpha,
        beta=1 - affinity.alpha,
        affinity_source=affinity.source,
        cells=cells,
        minipods=tuple(map(tuple, np.array(labels, dtype=np.object_)[minipods].tolist())),
        hosts=stage_major(cells),
        minipod_spread=spreads.minipods,
        distance=spreads.distance,
        num_minipods_used=spreads.num_used,
        max_unit_spread=spreads.of_unit(unit),
        objective_eq4=spreads.objective_eq4(affinity.alpha, unit),
        objective_eq2=spreads.objective_eq2(affinity.alpha),
        spares=spares,
        parallelism=parallelism,
    )


def _planned(selection: Selection, hosts: tuple[str, ...]) -> JobAllocation:
    """Allocation of the planned job, hosts in rank order."""
    job, gpus_per_node = selection.job, selection.pool.gpus_per_node
    batch, every_gpu = _batch(selection), tuple(range(gpus_per_node))
    return JobAllocation(
        job_id=job.id,
        gpu_type=selection.pool.gpu_type,
        num_gpus=selection.parallelism.num_gpus,
        gpus=tuple(NodeGpus(node=node, gpus=every_gpu) for node in hosts),
        change=Change.STARTED,
        batch_size=batch[0],
        local_batch_size=batch[1],
        accumulation_steps=batch[2],
    )


def _batch(selection: Selection) -> tuple[int, int, int] | tuple[None, None, None]:
    """Global batch, micro-batch and accumulation steps (m of Eq. 11), where the job says them and they divide."""
    transformer = selection.job.transformer
    if transformer is None:
        return None, None, None
    num_micro = num_microbatches(transformer, selection.parallelism)
    if not num_micro.is_integer():
        return None, None, None
    return transformer.global_batch, transformer.micro_batch_or_one, int(num_micro)


def kept_where_they_are(snapshot: Snapshot, jobs: Iterable[Job]) -> Iterator[JobAllocation]:
    """Allocations of running jobs that nobody moves."""
    jobs = list(jobs)
    # Built once: a map of all nodes per job would make the cost grow with jobs x nodes.
    types = {node.id: node.gpu_type for node in snapshot.cluster.nodes} if jobs else {}
    return (_kept(types, job) for job in jobs)


def _kept(types: Mapping[str, str], job: Job) -> JobAllocation:
    gpus = job.current or ()
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


def _spares(selection: Selection, minipods: IntMatrix, cells: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Nodes kept back in every minipod used: those that would be handed out next."""
    if not selection.num_spares:
        return ()
    taken = {node for row in cells for node in row}
    free = ([node for node in selection.pool.nodes[j] if node not in taken] for j in np.unique(minipods).tolist())
    return tuple(node for left in free for node in left[: selection.num_spares])


def _score(
    snapshot: Snapshot, parameters: ArnoldParameters, alpha: float, placement: PretrainingPlacement
) -> tuple[ScoreTerm, ...]:
    """Summands of the objective: of Eq. 2, or of Eq. 4 on the minipods or on the units of every weighted tier."""
    job_id, unit = placement.job_id, parameters.scheduling_unit
    if parameters.spread_objective is SpreadObjective.EQ2:
        return (
            ScoreTerm(term="dp_distance", job_id=job_id, value=alpha * placement.distance.dp),
            ScoreTerm(term="pp_distance", job_id=job_id, value=(1 - alpha) * placement.distance.pp),
        )
    if parameters.tier_weights is None:
        spreads = Spreads(
            minipods=placement.minipod_spread, distance=placement.distance, num_used=placement.num_minipods_used
        )
        return _eq4_terms(spreads, job_id, unit, alpha, "minipods", 1.0)
    tiers = [tier.name for tier in snapshot.cluster.tiers]
    return tuple(
        term
        for name, weight in parameters.tier_weights.items()
        for term in _eq4_terms(
            measure(units_of(snapshot, placement.cells, tiers.index(name))), job_id, unit, alpha, name, weight
        )
    )


def _eq4_terms(
    spreads: Spreads, job_id: str, unit: SchedulingUnit, alpha: float, units: str, weight: float
) -> tuple[ScoreTerm, ...]:
    """Summands of Eq. 4: units used weigh on the groups that are not the scheduling unit, T on those that are."""
    minipod_weight, spread_weight = affinity_weights(alpha, unit)
    other = "dp" if unit is SchedulingUnit.PP else "pp"
    mark = "" if units == "minipods" else f"_{units}"
    return (
        ScoreTerm(term=f"{other}_{units}", job_id=job_id, value=weight * minipod_weight * spreads.num_used),
        ScoreTerm(
            term=f"{unit.value}_spread{mark}", job_id=job_id, value=weight * spread_weight * spreads.of_unit(unit)
        ),
    )

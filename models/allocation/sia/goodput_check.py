"""Is the goodput of a job what its model says, of its configuration and of where it was placed? Knows no solver.

Computed again from the model, the plan's batch and the nodes' paths, one number at a time (Pollux section 3, see
`models.performance.goodput.throughput`, with which it shares no code). That a batch is the best one is not checked.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from models.allocation.plan_check import TOLERANCE
from models.allocation.spread_check import SpreadAudit
from models.configurations import ConfigurationSet
from models.performance.goodput.bootstrap import scaling_parameters
from models.performance.goodput.matrix import GoodputMatrix
from models.performance.goodput.spec import GoodputModel
from models.plan import JobAllocation, Plan
from models.workload import Job, Snapshot
from stowplan.errors import Issue
from stowplan.living import OfUnchanged

# Jobs of which goodput and promise were found right, as computed here of the same model, on the same GPUs.
_right: OfUnchanged[Job, bool] = OfUnchanged()


def goodput_violations(
    snapshot: Snapshot,
    configurations: ConfigurationSet,
    matrix: GoodputMatrix,
    plan: Plan,
    audit: SpreadAudit,
    promised: Mapping[str, float] | None = None,
) -> Iterator[Issue]:
    """Allocations of jobs with a model whose goodput is wrong: in the objective, or as the plan predicts it.

    Parameters
    ----------
    promised
        Job id -> share of the bandwidth with which it is planned, of which each configuration is there once; None: each
        is there once in all, with what so many nodes have at best.
    """
    types = [configurations.gpu_types[t] for t in configurations.type_index.tolist()]
    fields_of = configurations.num_nodes.tolist(), configurations.num_gpus.tolist()
    fractions = configurations.bandwidth_fraction.tolist()
    shapes = zip(types, *fields_of, fractions if promised is not None else [None] * len(types), strict=True)
    index = {shape: c for c, shape in enumerate(shapes)}
    rows = {job.id: i for i, job in enumerate(snapshot.jobs)}
    where = [
        (k, allocation.expected_goodput, rows[allocation.job_id], index[shape])
        for k, allocation in enumerate(plan.allocations)
        if rows.get(allocation.job_id) in matrix.models
        and (
            shape := (
                allocation.gpu_type,
                len(allocation.gpus),
                allocation.num_gpus,
                None if promised is None else promised.get(allocation.job_id),
            )
        )
        in index
        and allocation.expected_goodput is not None
    ]
    pairs = tuple(np.array([(i, c) for _, _, i, c in where], dtype=np.int64).reshape(-1, 2).T)
    fields = (matrix.goodput, matrix.batch_size, matrix.local_batch_size, matrix.accumulation_steps)
    planned = zip(*(field[pairs].tolist() for field in fields), strict=True)
    for (k, claimed, i, _), (goodput, *steps) in zip(where, planned, strict=True):
        allocation, model, job = plan.allocations[k], matrix.models[i], snapshot.jobs[i]
        same = snapshot.cluster, model, allocation
        numbers = (goodput, *steps, None if promised is None else promised[allocation.job_id])
        if _right.get(job, same, numbers):
            continue
        is_right = True
        share = audit.at_best(allocation.gpu_type, len(allocation.gpus))
        if promised is not None:
            share = promised[allocation.job_id]
        counted = _goodput(model, allocation, share, *steps)
        if not math.isclose(counted, goodput, rel_tol=TOLERANCE):
            is_right = False
            yield Issue(
                code="wrong_goodput",
                pointer=f"/allocations/{k}",
                detail=f"the objective counts a goodput of {goodput} for job {allocation.job_id!r}; that of its "
                f"configuration is {counted}",
            )
        given = allocation.batch_size or 0, allocation.local_batch_size or 0, (allocation.accumulation_steps or 1) - 1
        right = _goodput(model, allocation, audit.here(allocation), *given)
        if not math.isclose(right, claimed, rel_tol=TOLERANCE):
            is_right = False
            yield Issue(
                code="wrong_goodput",
                pointer=f"/allocations/{k}/expected_goodput",
                detail=f"job {allocation.job_id!r} is said to reach {claimed}; where it is it reaches {right}",
            )
        if is_right:
            _right.put(job, same, numbers, True)


def _goodput(
    model: GoodputModel, allocation: JobAllocation, share: float, batch: int, local_batch: int, accumulation: int
) -> float:
    """Throughput x efficiency with these steps before the one that synchronises; nan without a batch."""
    if not batch:
        return math.nan
    profile = model.profiles[allocation.gpu_type]
    own, p = profile.parameters, scaling_parameters(model, allocation.gpu_type)
    replicas = allocation.num_gpus // profile.gpus_per_replica
    further = max(replicas - 2, 0)
    if replicas == 1:
        sync_s = 0.0
    elif len(allocation.gpus) == 1:
        sync_s = p.alpha_r + p.beta_r * further
    else:
        sync_s = (p.alpha_n + p.beta_n * further) / share
    gradient_s = p.alpha_c + p.beta_c * local_batch
    longer, shorter = max(gradient_s, sync_s), min(gradient_s, sync_s)
    step_s = longer * math.pow(1.0 + math.pow(shorter / longer, p.gamma), 1.0 / p.gamma)
    throughput = batch / ((own.alpha_c + own.beta_c * local_batch) * (accumulation + step_s / gradient_s))
    noise, scale = model.gradient, batch / model.batch.initial
    return throughput / (1.0 + noise.squared_norm / (noise.squared_norm + noise.variance) * (scale - 1.0))

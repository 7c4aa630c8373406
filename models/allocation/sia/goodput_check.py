"""Is the goodput of a job what its model says, of its configuration and of where it was placed, or what its table
says? Knows no solver.

Computed again from the job's own model, the plan's batch and the nodes' paths, one number at a time (Pollux section 3,
see `models.performance.goodput.throughput`, with which it shares no code); looked up again in its own table. Not
checked is that a batch is the best one, nor the model that was fitted to observations.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.allocation.plan_check import TOLERANCE
from models.allocation.spread_check import SpreadAudit
from models.configurations import ConfigurationSet
from models.performance.goodput.bootstrap import scaling_parameters
from models.performance.goodput.matrix import GoodputMatrix
from models.performance.goodput.spec import GoodputModel, GoodputObservations, GoodputTable, ThroughputTable
from models.placement.check import given_to
from models.plan import JobAllocation, Plan
from models.roll import roll_of
from models.workload import Snapshot
from stowplan.arrays import FloatMatrix, IntVector
from stowplan.errors import Issue
from stowplan.living import found_once

# Of a job that is promised none; others are above 0.
_NO_SHARE = -1.0

_Fault = tuple[str, str]
"""At which field of the allocation, and what is wrong there."""
_Shape = tuple[str, int, int, float | None]
"""GPU type, nodes and GPUs, and the share of the bandwidth between nodes, where that tells configurations apart."""


def goodput_violations(
    snapshot: Snapshot,
    configurations: ConfigurationSet,
    matrix: GoodputMatrix,
    plan: Plan,
    audit: SpreadAudit,
    promised: Mapping[str, float] | None = None,
) -> Iterator[Issue]:
    """Allocations of jobs with a performance whose goodput is wrong: in the objective, or as the plan predicts it.

    Parameters
    ----------
    promised
        Job id -> share of the bandwidth with which it is planned, of which each configuration is there once; None: each
        is there once in all, with what so many nodes have at best.
    """
    given = given_to(snapshot, plan.allocations)
    if given is None:
        # What `models.placement.check` says is wrong.
        return
    jobs, roll, cluster = snapshot.jobs, roll_of(snapshot), snapshot.cluster
    share_of = {} if promised is None else promised

    models = matrix.models
    of_allocation: tuple[NDArray[Any], ...] = (given,)
    if promised is not None:
        of_allocation = given, np.array([share_of.get(job.id, _NO_SHARE) for job in jobs])
    c = roll.each(
        "goodput shape",
        np.int64,
        lambda rows: _columns(configurations, given[rows].tolist(), promised),
        same=(configurations,),
        equal=promised is None,
        beside=of_allocation,
    )
    numbers = _numbers(matrix, c)

    def faults(rows: list[int]) -> Iterator[list[_Fault]]:
        """What is wrong with the allocation of each job."""
        # As lists: single elements of arrays take longer.
        asked = np.array(rows, dtype=np.int64)
        of_each = [array[asked].tolist() for array in (given, c, models, numbers)]
        for i, allocation, column, model, (goodput, *steps) in zip(rows, *of_each, strict=True):
            own = jobs[i].performance
            known = model if isinstance(own, GoodputObservations) else own
            # A job may keep GPUs on which nothing is known of it.
            if column < 0 or known is None or (goodput == 0 and allocation.expected_goodput is None):
                yield []
            else:
                reached = _reached(known, allocation, audit, share_of.get(jobs[i].id), steps)
                yield _faults(allocation, goodput, reached)

    # What was found right of the very job and model on the very GPUs, with the same numbers, is not computed again.
    is_right = roll.each(
        "goodput is right",
        np.bool_,
        lambda rows: (not found for found in faults(rows)),
        same=(cluster, configurations),
        equal=promised is None,
        beside=(*of_allocation, models, numbers),
    )
    if not is_right.all():
        place = {allocation.job_id: k for k, allocation in enumerate(plan.allocations)}
        wrong = sorted((place[jobs[i].id], i) for i in (~is_right).nonzero()[0].tolist())
        for (k, _), found in zip(wrong, faults([i for _, i in wrong]), strict=True):
            for field, detail in found:
                yield Issue(code="wrong_goodput", pointer=f"/allocations/{k}{field}", detail=detail)


def _numbers(matrix: GoodputMatrix, c: IntVector) -> FloatMatrix:
    """Goodput, batch size, local batch size and steps of accumulation (J, 4) of jobs in the configurations `c` (J,), of
    no meaning where that is -1. Counts are exact in float64; one array is sooner told from another than four."""
    num_jobs, num_configurations = matrix.goodput.shape
    numbers = np.zeros((num_jobs, 4))
    if num_configurations:
        place = np.arange(num_jobs) * num_configurations + c
        for k, field in enumerate(
            (matrix.goodput, matrix.batch_size, matrix.local_batch_size, matrix.accumulation_steps)
        ):
            numbers[:, k] = field.take(place)
    return numbers


@found_once
def _by_shape(configurations: ConfigurationSet) -> Mapping[_Shape, int]:
    return _indexed(configurations, [None] * len(configurations))


@found_once
def _by_shape_and_share(configurations: ConfigurationSet) -> Mapping[_Shape, int]:
    return _indexed(configurations, configurations.bandwidth_fraction.tolist())


def _indexed(configurations: ConfigurationSet, shares: Sequence[float | None]) -> Mapping[_Shape, int]:
    types = [configurations.gpu_types[t] for t in configurations.type_index.tolist()]
    fields_of = configurations.num_nodes.tolist(), configurations.num_gpus.tolist()
    return {shape: c for c, shape in enumerate(zip(types, *fields_of, shares, strict=True))}


def _columns(
    configurations: ConfigurationSet, allocations: Sequence[JobAllocation | None], promised: Mapping[str, float] | None
) -> Iterator[int]:
    """The configuration of each allocation, of several with other shares of the bandwidth that which was promised; -1
    for none."""
    index = _by_shape(configurations) if promised is None else _by_shape_and_share(configurations)
    share_of = {} if promised is None else promised
    for item in allocations:
        if item is None:
            yield -1
        else:
            yield index.get((item.gpu_type, len(item.gpus), item.num_gpus, share_of.get(item.job_id)), -1)


def _faults(allocation: JobAllocation, goodput: float, reached: tuple[float, float]) -> list[_Fault]:
    """What is wrong where the objective counts `goodput`, and the job reaches what `_reached` says."""
    (counted, right), expected = reached, allocation.expected_goodput
    found: list[_Fault] = []
    if not math.isclose(counted, goodput, rel_tol=TOLERANCE):
        detail = f"the objective counts a goodput of {goodput} for job {allocation.job_id!r}; that of its configuration"
        found.append(("", f"{detail} is {counted}"))
    if expected is not None and not math.isclose(right, expected, rel_tol=TOLERANCE):
        detail = f"job {allocation.job_id!r} is said to reach {expected}; where it is it reaches {right}"
        found.append(("/expected_goodput", detail))
    return found


def _reached(
    known: GoodputModel | GoodputTable | ThroughputTable,
    allocation: JobAllocation,
    audit: SpreadAudit,
    promised: float | None,
    steps: list[float],
) -> tuple[float, float]:
    """What a job reaches in its configuration, with these steps, and where it is, with those that it is told."""
    if not isinstance(known, GoodputModel):
        value = _in_table(known, allocation)
        return value, value
    share = audit.at_best(allocation.gpu_type, len(allocation.gpus)) if promised is None else promised
    said = allocation.batch_size or 0, allocation.local_batch_size or 0, (allocation.accumulation_steps or 1) - 1
    return _goodput(known, allocation, share, *steps), _goodput(known, allocation, audit.here(allocation), *said)


def _in_table(table: GoodputTable | ThroughputTable, allocation: JobAllocation) -> float:
    """What the table says of these GPUs on so many nodes, or else on any; nan for nothing."""
    kind, count = allocation.gpu_type, allocation.num_gpus
    # Tables have dozens of entries, and most differ in the count.
    values = {item.num_nodes: item.value for item in table.entries if item.num_gpus == count and item.gpu_type == kind}
    return values.get(len(allocation.gpus), values.get(None, math.nan))


def _goodput(
    model: GoodputModel,
    allocation: JobAllocation,
    share: float,
    batch: float,
    local_batch: float,
    accumulation: float,
) -> float:
    """Throughput x efficiency with these steps before the one that synchronises; nan without a batch, and on a type
    that the model does not know."""
    profile = model.profiles.get(allocation.gpu_type)
    if not batch or profile is None:
        return math.nan
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

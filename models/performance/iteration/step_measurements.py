r"""What the ranks of a launch show in their settled steps: one `Measurement` each, medians over the steps.

Times are wall-clock, so a rank that waits for others sees the wait in the gradient reduction (slower replicas) or in
the optimiser (the norm for clipping goes over all ranks, and the first stage ends last). Waiting only adds, hence

    reduction   of a stage: per step the least of its ranks, who all leave it at the same time; what it takes beyond the
                formula without any overlap is no transfer but the handling of gradients, and goes to the optimiser
    optimiser   k_optim of a GPU type: the least over its ranks of time over what they update

Tensor-parallel all-reduces are not measured apart from the passes that they are in: the formula's time stands for
them, at most `MOST_COMMUNICATION` of the pass, since stated bandwidths may be wrong.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.parallel_plan import ParallelPlan
from models.performance.iteration.measurement import Measurement
from models.performance.iteration.memory import optimizer_shard
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.step_table import MeasuredRun, StepTable
from stowplan.arrays import FloatArray

MOST_COMMUNICATION = 0.5


def measurements_of(run: MeasuredRun, steps: StepTable) -> tuple[Measurement, ...]:
    """What every rank shows in the settled steps (T, R)."""
    model, plan = run.white_box, run.plan
    places = rank_places(plan)
    communication = _communication_s(model, plan)
    reduction, transfer = _stage_reductions(plan, steps), model.reductions_s(plan).tolist()
    handling = {i: max(0.0, measured - transfer[i]) for i, measured in reduction.items()}
    optimizer = dict(zip(steps.rank.tolist(), _least_optimizer(model, plan, steps, handling).tolist(), strict=True))
    medians = [
        np.median(values, axis=0).tolist() for values in (steps.forward_s, steps.backward_s, steps.peak_memory_bytes)
    ]
    found = []
    for rank, forward, backward, peak in zip(steps.rank.tolist(), *medians, strict=True):
        stage, replica, shard = places[rank]
        forward_s, backward_s = forward / plan.num_micro_batches, backward / plan.num_micro_batches
        most = MOST_COMMUNICATION * min(forward_s, backward_s / model.profile.backward_all_reduces)
        found.append(
            Measurement(
                stage=stage,
                replica=replica,
                shard=shard,
                forward_s=forward_s,
                forward_communication_s=min(communication[stage][replica], most),
                backward_s=backward_s,
                optimizer_s=optimizer[rank],
                exposed_reduction_s=min(reduction[stage], transfer[stage]) if plan.stages[stage].dp > 1 else None,
                peak_bytes=peak if run.tensor_memory else None,
            )
        )
    return tuple(found)


def rank_places(plan: ParallelPlan) -> list[tuple[int, int, int]]:
    """Stage, replica and shard of every rank: pipe slowest, then data, tensor fastest."""
    return [(i, j, k) for i, stage in enumerate(plan.stages) for j in range(stage.dp) for k in range(stage.tp)]


def step_time_s(steps: StepTable) -> float:
    """Median time of a step; ranks move in step, so their mean is that of the job."""
    return float(np.median(steps.step_s.mean(axis=1)))


def _communication_s(model: PerformanceModel, plan: ParallelPlan) -> list[list[float]]:
    """Tensor-parallel communication of one forward pass by the formula, per stage and replica."""
    groups = [
        (i, replica.gpu_type, model.fabric.intra_bytes_per_s(replica.node), replica.local_batch)
        for i, stage in enumerate(plan.stages)
        for replica in stage.replicas
    ]
    times = iter(model.group_times(plan, groups).communication_s.tolist())
    return [[next(times) for _ in stage.replicas] for stage in plan.stages]


def _stage_reductions(plan: ParallelPlan, steps: StepTable) -> dict[int, float]:
    """Exposed reduction of the stages that have reported."""
    stage_of = _columns(plan, steps, lambda place: place[0])
    return {i: float(np.median(steps.reduction_s[:, stage_of == i].min(axis=1))) for i in set(stage_of.tolist())}


def _held(model: PerformanceModel, plan: ParallelPlan) -> FloatArray:
    """What a GPU of each stage updates, in mean layers, (S,)."""
    zero = model.profile.zero_stage
    return np.array(
        [
            float(optimizer_shard(shares.parameters, stage.tp, stage.dp, zero))
            for stage, shares in zip(plan.stages, model.shares(plan), strict=True)
        ]
    )


def _least_optimizer(
    model: PerformanceModel, plan: ParallelPlan, steps: StepTable, handling: Mapping[int, float]
) -> FloatArray:
    """Optimiser time of every rank (R,) without waiting: what it updates at the pace of the fastest of its type.

    Parameters
    ----------
    handling
        Time of each stage for handling gradients.
    """
    stage_of = _columns(plan, steps, lambda place: place[0])
    type_of = _columns(plan, steps, lambda place: plan.stages[place[0]].replicas[place[1]].gpu_type)
    share: FloatArray = _held(model, plan)[stage_of]
    handled = np.array([handling[i] for i in stage_of.tolist()])
    pace = (np.median(steps.optimizer_s, axis=0) + handled) / share
    least = {name: float(pace[type_of == name].min()) for name in set(type_of.tolist())}
    return np.array([least[name] for name in type_of.tolist()]) * share


def _columns(plan: ParallelPlan, steps: StepTable, key: Callable[[tuple[int, int, int]], object]) -> npt.NDArray[Any]:
    places = rank_places(plan)
    return np.array([key(places[rank]) for rank in steps.rank.tolist()])

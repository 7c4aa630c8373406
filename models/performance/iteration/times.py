"""Times of an iteration and what they are made of; the makespan of interleaved pipelines."""

from dataclasses import dataclass

import numpy as np

from models.parallel_plan import ParallelPlan
from models.performance.pipeline.exact import exact_makespan_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray

# Of the times of interleaved pipelines: far below what predictions are off by.
MAKESPAN_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Times of one stage in seconds: per micro-batch, the slowest replica; the last three once per iteration.

    `forward_s` and `backward_s` include the tensor-parallel communication, what attention waits for keys and values
    (`ring_s`, both passes), and what goes to experts and back (`all_to_all_s`, both passes). `send_s`: the activation
    to the next stage, there and its gradient back; 0 where the model neglects it, as the paper does.
    """

    forward_s: float
    backward_s: float
    tensor_communication_s: float
    send_s: float
    reduction_s: float
    exposed_reduction_s: float
    optimizer_s: float
    ring_s: float = 0.0
    all_to_all_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTime:
    """Iteration time in seconds and what it is made of: `total_s` = warm_up_s + steady_s + extra_s + straggling_s.

    `straggling_s`: what GPUs wait for others in so large a plan (`scaling`).
    """

    total_s: float
    warm_up_s: float
    steady_s: float
    extra_s: float
    stages: tuple[StageTime, ...]
    straggling_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """Times of tensor-parallel groups in seconds, (R,) each; `communication_s` is part of `forward_s`, `both_ways_s`
    of both passes."""

    forward_s: FloatArray
    backward_s: FloatArray
    communication_s: FloatArray
    both_ways_s: FloatArray
    optimizer_s: FloatArray


def interleaved_s(
    plan: ParallelPlan, forward_s: FloatArray, backward_s: FloatArray, sends_s: FloatArray, *, blocking: bool
) -> float:
    """Time of all passes of an interleaved pipeline, within 1 %; every stage is cut into parts of equal time."""
    schedule = Schedule(
        kind=ScheduleKind.INTERLEAVED,
        num_devices=plan.pp,
        num_chunks=plan.virtual_stages,
        num_micro_batches=plan.num_micro_batches,
    )
    # Parts of the last stage hand on to the first one, over links like the slowest ones between others.
    one_way = 0.5 * np.where(np.arange(plan.pp) < plan.pp - 1, sends_s, sends_s.max())
    parts = np.full(plan.virtual_stages, 1.0 / plan.virtual_stages)
    times = StageTimes(
        forward_s=np.outer(parts, forward_s).ravel(),
        backward_s=np.outer(parts, backward_s).ravel(),
        there_s=np.tile(one_way, plan.virtual_stages),
        back_s=np.tile(one_way, plan.virtual_stages),
        blocking=blocking,
    )
    return float(exact_makespan_s(schedule, times, tolerance=MAKESPAN_TOLERANCE))

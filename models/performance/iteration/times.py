"""Times of an iteration and what they are made of; the makespan of pipelines whose stages are cut into parts."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from models.performance.pipeline.exact import exact_makespan_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes
from models.pipeline_schedule import PipelineSchedule
from stowplan.arrays import FloatArray

# Of the times of pipelines whose stages are cut into parts: far below what predictions are off by.
MAKESPAN_TOLERANCE = 0.02
_KINDS = MappingProxyType(
    {
        PipelineSchedule.ONE_F_ONE_B: ScheduleKind.INTERLEAVED,
        PipelineSchedule.ZERO_BUBBLE: ScheduleKind.INTERLEAVED_ZERO_BUBBLE,
        PipelineSchedule.ZBV: ScheduleKind.ZBV,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Times of one stage in seconds: per micro-batch, the slowest replica; the last three once per iteration.

    `forward_s` and `backward_s` include the tensor-parallel communication, what attention waits for keys and values
    (`ring_s`, both passes), and what goes to experts and back (`all_to_all_s`, both passes). `send_s`: the activation
    to the next stage, there and its gradient back; 0 where the model neglects it, as the paper does. `weight_s`: part
    of `backward_s` that the schedule has as passes of their own.
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
    weight_s: float = 0.0


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
    of both passes; `weight_s` is part of `backward_s`: gradients of weights."""

    forward_s: FloatArray
    backward_s: FloatArray
    communication_s: FloatArray
    both_ways_s: FloatArray
    weight_s: FloatArray
    optimizer_s: FloatArray


def schedule_of(kind: PipelineSchedule, pp: int, parts: int, num_micro_batches: int) -> Schedule:
    """The schedule of pipelines whose stages are cut into parts."""
    return Schedule(kind=_KINDS[kind], num_devices=pp, num_chunks=parts, num_micro_batches=num_micro_batches)


def of_parts(schedule: Schedule, stages_s: FloatArray, parts: FloatArray) -> FloatArray:
    """Times of virtual stages (..., V) from those of stages (..., p); `parts`: which part of it each takes (v, p)."""
    chunks = stages_s[..., None, :] * parts
    if schedule.kind is ScheduleKind.ZBV:
        chunks[..., 1, :] = chunks[..., 1, ::-1].copy()
    return np.asarray(chunks.reshape(*stages_s.shape[:-1], -1))


def sends_of_parts(schedule: Schedule, one_way_s: FloatArray) -> FloatArray:
    """What virtual stages (V,) send on, where stages (p,) send to the next one; the last one's is not looked at."""
    if schedule.kind is ScheduleKind.ZBV:
        between = one_way_s[:-1]
        return np.concatenate([between, [0.0], between[::-1], [0.0]])
    # Parts of the last stage hand on to the first one, over links like the slowest ones between others.
    whole = np.where(np.arange(len(one_way_s)) < len(one_way_s) - 1, one_way_s, one_way_s.max())
    return np.tile(whole, schedule.num_chunks)


def parts_makespan_s(
    schedule: Schedule, passes_s: FloatArray, parts: FloatArray, sends_s: FloatArray, *, blocking: bool
) -> float:
    """Time of all passes of a pipeline whose stages are cut into parts, within 1 %.

    Parameters
    ----------
    passes_s
        (3, p) forward and backward pass of a micro-batch, and the part of the latter that is of weights.
    parts
        Which part of these each part of a stage takes (v, p).
    sends_s
        (p,) there and back.
    """
    forward, backward, weight = of_parts(schedule, passes_s, parts)
    one_way = sends_of_parts(schedule, 0.5 * sends_s)
    times = StageTimes(
        forward_s=forward, backward_s=backward, weight_s=weight, there_s=one_way, back_s=one_way, blocking=blocking
    )
    return float(exact_makespan_s(schedule, times, tolerance=MAKESPAN_TOLERANCE))

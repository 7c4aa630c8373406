"""Which schedule a pipeline runs, and what its stages hold then; `models.performance.pipeline` has who works when."""

from enum import StrEnum


class PipelineSchedule(StrEnum):
    """Who works on which micro-batch when (`models.performance.pipeline.schedule`). 1f1b: interleaved where stages are
    cut into parts. zero-bubble: interleaved with passes of their own for the gradients of weights. zbv: likewise with
    two parts a stage, of which the second comes back from the last stage to the first."""

    ONE_F_ONE_B = "1f1b"
    ZERO_BUBBLE = "zero-bubble"
    ZBV = "zbv"

    @property
    def splits_backward(self) -> bool:
        """Whether weights have passes of their own."""
        return self is not PipelineSchedule.ONE_F_ONE_B


def part_words(virtual_stages: int, schedule: PipelineSchedule) -> str:
    """What stands behind the number of stages: `x3`, `x3ZB`, `ZBV`, or nothing."""
    if schedule is PipelineSchedule.ZBV:
        return "ZBV"
    return (f"x{virtual_stages}" if virtual_stages > 1 else "") + ("ZB" if schedule.splits_backward else "")


def in_flight(
    pp: int, stage: int, virtual_stages: int, schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
) -> float:
    """Micro-batches whose activations a stage keeps at most, in whole stages, if there are as many: those that have
    passed it and not come back. More where parts of stages take turns (Korthikanti et al. 2022, section 4.2.3). Where
    weights have passes of their own, all stages keep as much until then (`models.performance.pipeline.activations`)."""
    if schedule.splits_backward:
        return float(pp)
    behind, parts = pp - stage, virtual_stages
    return float(behind) if parts == 1 else ((parts - 1) * pp + 2 * behind - 1) / parts

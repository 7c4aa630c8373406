"""Which schedule a pipeline runs, and what its stages hold then; `models.performance.pipeline` has who works when."""

from enum import StrEnum

# Of what a layer of a transformer keeps without recomputation, in PyTorch 2.13: 0.55 to 0.61, by the sizes of its
# products. Nothing that it keeps is given back before, as the passes for weights begin in the same graph.
_GRADIENTS = 0.6


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


def waiting(pp: int, stage: int, virtual_stages: int, schedule: PipelineSchedule) -> float:
    """What a stage keeps beyond `in_flight` for passes of weights, in micro-batches: gradients of what every product
    gives, from the passes before until then."""
    if schedule is PipelineSchedule.ZBV:
        # When the last gradients come back both parts wait, and fewer micro-batches are in flight.
        return max(0.0, 0.5 * (pp + stage) + _GRADIENTS * stage - pp)
    return _GRADIENTS * stage / virtual_stages if schedule.splits_backward else 0.0

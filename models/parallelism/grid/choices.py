"""Intra-stage parallelism (Arena section 3.3): for every stage the option of least cost that fits into memory.

Arena's cost is communication: the tensor-parallel all-reduces of all micro-batches and the gradient reduction as far as
the backward pass does not hide it. For the refined plan it is all time of the stage, B (forward + backward) + the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from models.parallelism.grid.stage_table import StageCosts
from stowplan.arrays import FloatArray, IntArray, Mask


class Criterion(Enum):
    """What the choice minimises."""

    COMMUNICATION = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choices:
    """Chosen options of Q stages in their places, by size: arrays (..., Q, G).

    fits: whether any option fits; where none does, the others mean nothing. option: index into the degrees.
    communication_s: per micro-batch; once_s: the reduction, per iteration. forward_s, backward_s: per micro-batch;
    extra_s: reduction and optimiser, per iteration.
    """

    fits: Mask
    option: IntArray
    communication_s: FloatArray
    once_s: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    extra_s: FloatArray

    @classmethod
    def stacked(cls, parts: Sequence["Choices"]) -> "Choices":
        """Choices for several numbers of micro-batches, along a new first axis."""
        return cls(**{name: np.stack([getattr(part, name) for part in parts]) for name in cls.__slots__})


def choose(costs: StageCosts, interval: IntArray, fits: Mask, num_micro_batches: int, criterion: Criterion) -> Choices:
    """Choose among the options that fit (Q, G, T), for stages of the intervals (Q,)."""
    cost = _cost(costs, criterion, num_micro_batches)
    option = np.where(fits, cost[interval], np.inf).argmin(axis=-1)
    first = np.arange(0, cost.size, cost.shape[-1]).reshape(cost.shape[:-1])
    at = first[interval] + option
    once_s = costs.once_s.reshape(-1).take(at)
    return Choices(
        fits=np.asarray(fits.any(axis=-1)),
        option=option,
        communication_s=costs.communication_s.reshape(-1).take(at),
        once_s=once_s,
        forward_s=costs.forward_s.reshape(-1).take(at),
        backward_s=costs.backward_s.reshape(-1).take(at),
        extra_s=once_s + costs.optimizer_s.reshape(-1).take(at),
    )


def _cost(costs: StageCosts, criterion: Criterion, num_micro_batches: int) -> FloatArray:
    if criterion is Criterion.COMMUNICATION:
        return num_micro_batches * costs.communication_s + costs.once_s
    return num_micro_batches * (costs.forward_s + costs.backward_s) + costs.once_s + costs.optimizer_s

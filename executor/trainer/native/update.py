"""From the gradients of a rank's micro-batches to the weights of the next step."""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.adamw import adamw

from executor.trainer.clock import StepClock
from executor.trainer.native.flat import FlatParameters
from executor.trainer.native.ties import Ties
from executor.training_job import Schedule
from models.transformer import Optimizer

# That of torch's `clip_grad_norm_`.
_CLIPPING_EPSILON = 1e-6
# Elements whose squares are added in fp32.
_BLOCK = 4096


class Update:
    """Sums gradients over tensor ranks, replicas of a stage and ties, clips by the norm over all stages, applies AdamW
    (or SGD with momentum).

    Gradients are sums over samples of shares of the mean loss, so that uneven shares need no weights here.

    Parameters
    ----------
    group
        Ranks with the same part of the stage in its replicas, None for one replica.
    tensor_group
        Ranks of one replica, which have parts of the gradients of some parameters; None: one, or none has.
    ties
        None where no stages share parameters.
    """

    def __init__(
        self,
        flat: FlatParameters,
        schedule: Schedule,
        *,
        group: Any,
        ties: Ties | None,
        clock: StepClock,
        optimizer: Optimizer = Optimizer.ADAM,
        tensor_group: Any = None,
    ) -> None:
        self._flat, self._schedule, self._group, self._ties, self._clock = flat, schedule, group, ties, clock
        self._tensor_group = tensor_group
        self.masters = flat.masters()
        self.first_moments = torch.zeros_like(self.masters)
        # SGD has no second ones: checkpoints hold the first ones twice.
        self._is_sgd = optimizer is Optimizer.SGD
        self.second_moments = self.first_moments if self._is_sgd else torch.zeros_like(self.masters)
        self._num_steps = torch.zeros((), device=self.masters.device)
        # Views, of matrices alone: norms and biases do not decay.
        self._decaying = [
            self.masters[entry.start + first - flat.shard.start : entry.start + last - flat.shard.start]
            for entry, first, last in flat.held()
            if len(entry.shape) > 1
        ]

    @property
    def step(self) -> int:
        """Updates done."""
        return int(self._num_steps)

    def resume(self, step: int) -> None:
        """Go on behind a step, with masters and moments that have been loaded."""
        self._num_steps.fill_(step)
        self._publish()

    def apply(self, loss: torch.Tensor, learning_rate: float) -> tuple[float, float, float, float]:
        """Apply the gradients of a step.

        Parameters
        ----------
        loss
            This rank's share of the loss, a scalar in fp64.

        Returns
        -------
            Loss and gradient norm of the whole model; squared norms of this rank's gradient before it was summed, and
            of its part of the sum, both over the parameters that no other stage has.
        """
        flat, gradients = self._flat, self._flat.summed
        self._sum_partial()
        alone = _square(flat.gradients[: flat.num_untied])
        if self._group is not None:
            dist.reduce_scatter_single(flat.summed, flat.gradients, group=self._group)
        if self._ties is not None:
            self._ties.sum_gradients()
        self._clock.lap("reduction")
        ends = [max(0, count - flat.shard.start) for count in (flat.num_untied, flat.num_counted)]
        untied = _square(gradients[: ends[0]])
        totals = torch.stack([loss, untied + _square(gradients[ends[0] : ends[1]])])
        dist.all_reduce(totals)
        norm = totals[1].sqrt()
        if limit := self._schedule.gradient_clipping:
            gradients *= (limit / (norm + _CLIPPING_EPSILON)).clamp(max=1.0).float()
        self._descend(gradients, learning_rate)
        self._publish()
        self._clock.lap("optimizer")
        # One wait for the device, where all is under way.
        mean, square, small, large = torch.stack([*totals, alone, untied]).tolist()
        return mean, math.sqrt(square) if square >= 0 else math.nan, small, large

    def _sum_partial(self) -> None:
        """Sum over the tensor ranks what each has computed of its part of the sequences alone."""
        parts = [self._flat.gradients[part] for part in self._flat.partial]
        if parts:
            summed = torch.cat(parts)
            dist.all_reduce(summed, group=self._tensor_group)
            torch._foreach_copy_(parts, list(summed.split([len(part) for part in parts])))

    def _descend(self, gradients: torch.Tensor, learning_rate: float) -> None:
        schedule = self._schedule
        if schedule.weight_decay and self._decaying:
            torch._foreach_mul_(self._decaying, 1.0 - learning_rate * schedule.weight_decay)
        if self._is_sgd:
            self.first_moments.mul_(schedule.beta1).add_(gradients)
            self.masters.add_(self.first_moments, alpha=-learning_rate)
            self._num_steps += 1
            return
        adamw(
            [self.masters],
            [gradients],
            [self.first_moments],
            [self.second_moments],
            [],
            [self._num_steps],
            fused=True,
            amsgrad=False,
            beta1=schedule.beta1,
            beta2=schedule.beta2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=schedule.epsilon,
            maximize=False,
        )

    def _publish(self) -> None:
        """Give this shard's weights to the other replicas."""
        own = self._flat.weights[self._flat.shard]
        if own.dtype != self.masters.dtype:
            own.copy_(self.masters)
        if self._group is not None:
            dist.all_gather_single(self._flat.weights, own, group=self._group)


def _square(values: torch.Tensor) -> torch.Tensor:
    """Squared norm, a scalar in fp64; summed in fp32 over short blocks only, which on CPU takes a tenth of the time."""
    end = len(values) - len(values) % _BLOCK
    norms = torch.linalg.vector_norm(values[:end].view(-1, _BLOCK), dim=1)
    rest = torch.linalg.vector_norm(values[end:]).view(1)
    return torch.cat([norms, rest]).double().square().sum()

"""From the gradients of a rank's micro-batches to the weights of the next step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.adamw import adamw

from executor.trainer.clock import StepClock
from executor.trainer.native.flat import FlatParameters, sum_parts
from executor.trainer.native.ties import Ties
from executor.training_options import Schedule
from models.transformer import Optimizer

# That of torch's `clip_grad_norm_`.
_CLIPPING_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimised:
    """A set of parameters with optimiser states of this rank's shard of it, in fp32."""

    flat: FlatParameters
    first_moments: torch.Tensor
    second_moments: torch.Tensor
    num_steps: torch.Tensor

    def decaying(self) -> Iterator[torch.Tensor]:
        """Views, of matrices alone: norms and biases do not decay."""
        for entry, first, last in self.flat.held():
            if len(entry.shape) > 1:
                before = entry.start - self.flat.shard.start
                yield self.flat.masters[before + first : before + last]


class Update:
    """Sums gradients over tensor ranks, replicas and ties, clips by the norm over all stages, applies AdamW (or SGD
    with momentum).

    Gradients are sums over samples of shares of the mean loss, so that uneven shares need no weights here.

    Parameters
    ----------
    flats
        All parameters of the rank, each in one set.
    tensor_group
        Ranks of one replica, which have parts of the gradients of some parameters; None: one, or none has.
    ties
        None where no stages share parameters.
    """

    def __init__(
        self,
        flats: Sequence[FlatParameters],
        schedule: Schedule,
        *,
        ties: Ties | None,
        clock: StepClock,
        optimizer: Optimizer = Optimizer.ADAM,
        tensor_group: Any = None,
    ) -> None:
        self._flats, self._schedule, self._ties, self._clock = tuple(flats), schedule, ties, clock
        self._tensor_group = tensor_group
        # SGD has no second moments: checkpoints hold the first ones twice.
        self._is_sgd = optimizer is Optimizer.SGD
        self.optimised = tuple(self._optimised(flat) for flat in self._flats)
        self._decaying = [values for each in self.optimised for values in each.decaying()]
        # Noise is what replicas differ by: of experts that fewer of them have it would be another.
        most = max(flat.num_replicas for flat in self._flats)
        self._is_measured = [flat.num_replicas == most for flat in self._flats]

    def _optimised(self, flat: FlatParameters) -> Optimised:
        first = torch.zeros_like(flat.masters)
        return Optimised(
            flat=flat,
            first_moments=first,
            second_moments=first if self._is_sgd else torch.zeros_like(first),
            num_steps=torch.zeros((), device=first.device),
        )

    @property
    def step(self) -> int:
        """Updates done."""
        return int(self.optimised[0].num_steps)

    def resume(self, step: int) -> None:
        """Go on behind a step, with masters and moments that have been loaded."""
        for each in self.optimised:
            each.num_steps.fill_(step)
        self._publish()

    def apply(self, loss: torch.Tensor, learning_rate: float) -> tuple[float, float, float, float]:
        """Apply the gradients of a step.

        Parameters
        ----------
        loss
            This rank's share of the loss, a scalar in fp64.

        Returns
        -------
            Loss and gradient norm of the whole model; squared norms of this rank's gradient before it was summed (at
            ZeRO stages 2 and 3 of each micro-batch, added up), and of its part of the sum, both over the parameters
            that no other stage has, and all replicas of this one.
        """
        sum_parts([part for flat in self._flats for part in flat.partial_gradients()], self._tensor_group)
        alone = torch.stack([flat.square() for flat in compress(self._flats, self._is_measured)]).sum()
        for flat in self._flats:
            flat.sum_replicas()
        if self._ties is not None:
            self._ties.sum_gradients()
        self._clock.lap("reduction")
        squares = [flat.summed_squares() for flat in self._flats]
        untied = torch.stack([of_set[0] for of_set in compress(squares, self._is_measured)]).sum()
        totals = torch.stack([loss, torch.stack(squares).sum()])
        dist.all_reduce(totals)
        norm = totals[1].sqrt()
        gradients = [flat.summed for flat in self._flats]
        if limit := self._schedule.gradient_clipping:
            torch._foreach_mul_(gradients, (limit / (norm + _CLIPPING_EPSILON)).clamp(max=1.0).float())
        self._descend(gradients, learning_rate)
        self._publish()
        self._clock.lap("optimizer")
        # One wait for the device, where all is under way.
        mean, square, small, large = torch.stack([*totals, alone, untied]).tolist()
        return mean, math.sqrt(square) if square >= 0 else math.nan, small, large

    def _descend(self, gradients: list[torch.Tensor], learning_rate: float) -> None:
        schedule = self._schedule
        masters = [flat.masters for flat in self._flats]
        first, second, num_steps = (
            [getattr(each, name) for each in self.optimised]
            for name in ("first_moments", "second_moments", "num_steps")
        )
        if schedule.weight_decay and self._decaying:
            torch._foreach_mul_(self._decaying, 1.0 - learning_rate * schedule.weight_decay)
        if self._is_sgd:
            torch._foreach_mul_(first, schedule.beta1)
            torch._foreach_add_(first, gradients)
            torch._foreach_add_(masters, first, alpha=-learning_rate)
            torch._foreach_add_(num_steps, 1)
            return
        adamw(
            masters,
            gradients,
            first,
            second,
            [],
            num_steps,
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
        for flat in self._flats:
            flat.publish()

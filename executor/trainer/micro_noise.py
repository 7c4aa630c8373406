"""Gradient noise of one rank that accumulates: its micro-batches tell what replicas tell elsewhere."""

from collections.abc import Iterable

import torch
from torch import nn


class MicroBatchSquares:
    """Adds up squared norms of the gradients of single micro-batches.

    What a backward pass gives a parameter is seen before it is added to what earlier ones gave.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self._sum = torch.zeros((), dtype=torch.float64, device=trained[0].device)
        for parameter in trained:
            parameter.register_hook(self._add)

    def take(self, num_micro_batches: int) -> float:
        """Squared norm of the mean gradient over a micro-batch, averaged over those since the last call, of whose
        losses each counted as its share of the mean over all."""
        square = float(self._sum) * num_micro_batches
        self._sum.zero_()
        return square

    def _add(self, gradient: torch.Tensor) -> None:
        self._sum += torch.linalg.vector_norm(gradient, dtype=torch.float32).double().square()

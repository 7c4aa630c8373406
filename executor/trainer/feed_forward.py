"""The feed-forward part of a block: two matrices, or three with a gate."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from executor.trainer.context import WEIGHT_STD, LayerContext
from executor.trainer.tensor_parallel import ColumnParallelLinear, RowParallelLinear, entered
from models.dimensions import Dimensions
from models.numerics import Activation
from models.transformer import Biases, Checkpointing, Transformer

ACTIVATIONS: Mapping[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    Activation.SILU: functional.silu,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: partial(functional.gelu, approximate="tanh"),
}


def last_std(model: Transformer) -> float:
    """Of the weights of a matrix whose outputs are added to those of all layers before."""
    return WEIGHT_STD / math.sqrt(2 * model.num_layers)


class FeedForward(nn.Module):
    """Columns of the first matrices, and rows of the last one, are spread over the tensor ranks; `size` None: the inner
    size of the model.
    """

    def __init__(self, context: LayerContext, model: Transformer, name: str, size: int | None = None) -> None:
        super().__init__()
        sizes = Dimensions.of(model)
        inner = size or sizes.feed_forward
        self._context = context
        bias = model.biases is Biases.ALL
        self._gather_again = model.checkpointing is not Checkpointing.FULL
        self._activation = ACTIVATIONS[context.numerics.activation_of(gated=model.gated)]

        def column(part: str) -> ColumnParallelLinear:
            return ColumnParallelLinear(context, f"{name}.{part}", sizes.hidden, inner, std=WEIGHT_STD, bias=bias)

        self.up = column("up")
        self.gate = column("gate") if model.gated else None
        self.down = RowParallelLinear(context, f"{name}.down", inner, sizes.hidden, std=last_std(model), bias=bias)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same."""
        with entered(values, self._context, gather_again=self._gather_again) as whole:
            inner = self.inner(whole)
        return self.down(inner)

    def inner(self, whole: torch.Tensor) -> torch.Tensor:
        """What comes between the matrices, of values that have been `entered`."""
        up = self.up(whole)
        return self._activation(up) if self.gate is None else self._activation(self.gate(whole)) * up

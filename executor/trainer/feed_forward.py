"""The feed-forward part of a block: two matrices, or three with a gate."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from executor.trainer.context import WEIGHT_STD, LayerContext
from executor.trainer.recomputation import Again, recomputed
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


def activated(
    activation: Callable[[torch.Tensor], torch.Tensor], up: torch.Tensor, gate: torch.Tensor | None, *, recompute: bool
) -> tuple[torch.Tensor, Again | None]:
    """What comes between the matrices: activation(up), with a gate activation(gate) * up; and, with `recompute`, how it
    is computed again from what these gave.
    """
    given = up if gate is None else gate
    turned, source = activation(given), given.detach()
    again = Again(lambda: activation(source)) if recompute else None
    if gate is None:
        return turned, again
    factor = up.detach()
    with recomputed((turned, again)):
        product = turned * up
    return product, None if again is None else again.then(lambda each: each * factor)


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

    def forward(self, values: torch.Tensor, again: Again | None = None) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same.

        `again`: how values are computed again; then what comes between the matrices is so, too. None: both are kept.
        """
        with entered(values, self._context, gather_again=self._gather_again, again=again) as whole:
            up, gate = self.columns(whole)
        inner, inner_again = self.activated(up, gate, recompute=again is not None)
        with recomputed((inner, inner_again)):
            return self.down(inner)

    def columns(self, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the first matrices make of values that have been `entered`: up, and gate where there is one."""
        return self.up(whole), None if self.gate is None else self.gate(whole)

    def activated(
        self, up: torch.Tensor, gate: torch.Tensor | None, *, recompute: bool
    ) -> tuple[torch.Tensor, Again | None]:
        """What the last matrix takes of these, and with `recompute` how it is computed again."""
        return activated(self._activation, up, gate, recompute=recompute)

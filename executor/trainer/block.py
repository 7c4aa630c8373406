"""One transformer block: x + attention(norm(x)), then x + feed-forward(norm(x)).

GPT: LayerNorm, biases, GELU between two matrices, learned positions. LLaMA: RMSNorm, no biases, SiLU gate between
three matrices, rotary positions, grouped-query attention. Any mixture of these.
"""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from executor.trainer.context import LayerContext, constant_parameter
from executor.trainer.tensor_parallel import ColumnParallelLinear, RowParallelLinear, enter
from models.dimensions import Dimensions
from models.transformer import Biases, Checkpointing, Normalisation, Positions, Transformer

WEIGHT_STD = 0.02
NORM_EPSILON = 1e-5
ROTARY_BASE = 10_000.0


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the hidden dimension, whole on every tensor rank."""

    def __init__(self, context: LayerContext, model: Transformer) -> None:
        super().__init__()
        self._shape = (model.hidden_size,)
        self.weight = constant_parameter(context, 1.0, model.hidden_size)
        has_bias = model.normalisation is Normalisation.LAYERNORM
        self.bias = constant_parameter(context, 0.0, model.hidden_size) if has_bias else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension."""
        if self.bias is None:
            return functional.rms_norm(values, self._shape, self.weight, NORM_EPSILON)
        return functional.layer_norm(values, self._shape, self.weight, self.bias, NORM_EPSILON)


class Attention(nn.Module):
    """Causal self-attention; heads are spread over the tensor ranks, with their key-value heads."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        sizes = Dimensions.of(model)
        self._context = context
        self._head = sizes.head
        self._rotary = model.positions is Positions.ROTARY
        self._recompute = model.checkpointing is Checkpointing.SELECTIVE
        bias = model.biases is not Biases.NONE
        queries, keys = sizes.heads * sizes.head, sizes.kv_heads * sizes.head
        context.share(sizes.kv_heads, name)

        def column(part: str, outputs: int) -> ColumnParallelLinear:
            return ColumnParallelLinear(context, f"{name}.{part}", sizes.hidden, outputs, std=WEIGHT_STD, bias=bias)

        self.query, self.key, self.value = column("query", queries), column("key", keys), column("value", keys)
        self.output = RowParallelLinear(
            context,
            f"{name}.output",
            queries,
            sizes.hidden,
            std=WEIGHT_STD / math.sqrt(2 * model.num_layers),
            bias=model.biases is Biases.ALL,
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same."""
        values = enter(values, self._context)
        heads = [
            layer(values).unflatten(-1, (-1, self._head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        mixed = _recomputed(self._mix, *heads) if self._recompute else self._mix(*heads)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _mix(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Attention proper, (batch, heads, sequence, head size)."""
        if self._rotary:
            query, key = rotate(query), rotate(key)
        grouped = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


class FeedForward(nn.Module):
    """Two matrices with GELU, or three with a SiLU gate."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        sizes = Dimensions.of(model)
        self._context = context
        bias = model.biases is Biases.ALL

        def column(part: str) -> ColumnParallelLinear:
            return ColumnParallelLinear(
                context, f"{name}.{part}", sizes.hidden, sizes.feed_forward, std=WEIGHT_STD, bias=bias
            )

        self.up = column("up")
        self.gate = column("gate") if model.gated else None
        self.down = RowParallelLinear(
            context,
            f"{name}.down",
            sizes.feed_forward,
            sizes.hidden,
            std=WEIGHT_STD / math.sqrt(2 * model.num_layers),
            bias=bias,
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same."""
        values = enter(values, self._context)
        if self.gate is None:
            return self.down(functional.gelu(self.up(values)))
        return self.down(functional.silu(self.gate(values)) * self.up(values))


class Block(nn.Module):
    """One layer of the model, recomputed in the backward pass when the model says so."""

    def __init__(self, context: LayerContext, model: Transformer, index: int) -> None:
        super().__init__()
        name = f"block.{index}"
        self._recompute = model.checkpointing is Checkpointing.FULL
        self.attention_norm = Norm(context, model)
        self.attention = Attention(context, model, f"{name}.attention")
        self.feed_forward_norm = Norm(context, model)
        self.feed_forward = FeedForward(context, model, f"{name}.feed_forward")

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same."""
        return _recomputed(self._block, values) if self._recompute else self._block(values)

    def _block(self, values: torch.Tensor) -> torch.Tensor:
        values = values + self.attention(self.attention_norm(values))
        return values + self.feed_forward(self.feed_forward_norm(values))


def rotate(values: torch.Tensor) -> torch.Tensor:
    """Rotary positions (Su et al. 2021): turn halves of every head against each other, in fp32.

    Parameters
    ----------
    values
        (batch, heads, sequence, head size)
    """
    half = values.shape[-1] // 2
    steps = torch.arange(half, device=values.device, dtype=torch.float32)
    positions = torch.arange(values.shape[-2], device=values.device, dtype=torch.float32)
    angles = torch.outer(positions, ROTARY_BASE ** (-steps / half))
    sine, cosine = angles.sin(), angles.cos()
    first, second = values[..., :half].float(), values[..., half:].float()
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(values.dtype)


def _recomputed(function: object, *values: torch.Tensor) -> torch.Tensor:
    """Run without keeping activations; there is no dropout, so no random state to keep either."""
    return checkpoint(function, *values, use_reentrant=False, preserve_rng_state=False)

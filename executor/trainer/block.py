"""One transformer block: x + attention(norm(x)), then x + feed-forward(norm(x)).

GPT: LayerNorm, biases, GELU between two matrices, learned positions. LLaMA: RMSNorm, no biases, SiLU gate between
three matrices, rotary positions, grouped-query attention. Any mixture of these; of several layers the feed-forward
part may be a mixture of experts.
"""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from executor.trainer.context import WEIGHT_STD, LayerContext, constant_parameter
from executor.trainer.documents import Documents, attend_within
from executor.trainer.experts import MixtureOfExperts
from executor.trainer.feed_forward import FeedForward
from executor.trainer.rotary import frequencies, rotate
from executor.trainer.tensor_parallel import ColumnParallelLinear, RowParallelLinear, entered, entered_parameter
from models.dimensions import Dimensions
from models.performance.iteration.layer_sizes import LayerKind
from models.transformer import Biases, Checkpointing, Normalisation, Positions, Transformer


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the hidden dimension, whole on every tensor rank."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        self._shape = (model.hidden_size,)
        self._epsilon = context.numerics.norm_epsilon
        self.weight = constant_parameter(context, 1.0, model.hidden_size, name=name)
        has_bias = model.normalisation is Normalisation.LAYERNORM
        self.bias = constant_parameter(context, 0.0, model.hidden_size, name=f"{name}.bias") if has_bias else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension."""
        if self.bias is None:
            return functional.rms_norm(values, self._shape, self.weight, self._epsilon)
        return functional.layer_norm(values, self._shape, self.weight, self.bias, self._epsilon)


class HeadNorm(nn.Module):
    """RMSNorm of every head's queries or keys, with the same weights for all heads (Qwen3)."""

    def __init__(self, context: LayerContext, head: int, name: str) -> None:
        super().__init__()
        self._context = context
        self.weight = constant_parameter(context, 1.0, head, name=name)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension. Each tensor rank has other heads."""
        weight = entered_parameter(self.weight, self._context)
        return functional.rms_norm(values, weight.shape, weight, self._context.numerics.norm_epsilon)


class Attention(nn.Module):
    """Causal self-attention; heads are spread over the tensor ranks, with their key-value heads."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        sizes = Dimensions.of(model)
        self._context = context
        self._head = sizes.head
        rotary = model.positions is Positions.ROTARY
        # No buffer: what casts the parameters leaves it in fp32.
        self._frequencies = frequencies(context.numerics, sizes.head, context.device) if rotary else None
        self._recompute = model.checkpointing is Checkpointing.SELECTIVE
        self._gather_again = model.checkpointing is not Checkpointing.FULL
        bias = model.biases is not Biases.NONE
        queries, keys = sizes.heads * sizes.head, sizes.kv_heads * sizes.head
        context.share(sizes.kv_heads, name)
        norms = model.query_key_norms
        self.query_norm = HeadNorm(context, sizes.head, f"{name}.query_norm") if norms else None
        self.key_norm = HeadNorm(context, sizes.head, f"{name}.key_norm") if norms else None

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

    def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same; within `documents`, where they are given."""
        with entered(values, self._context, gather_again=self._gather_again) as whole:
            columns = [layer(whole) for layer in (self.query, self.key, self.value)]
        query, key, value = (each.unflatten(-1, (-1, self._head)).transpose(1, 2) for each in columns)
        if self._recompute:
            mixed = _recomputed(self._mix, query, key, value, documents)
        else:
            mixed = self._mix(query, key, value, documents)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _mix(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, documents: Documents | None
    ) -> torch.Tensor:
        """Attention proper, (batch, heads, sequence, head size)."""
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self._frequencies is not None:
            positions = None if documents is None else documents.positions
            query, key = (rotate(each, self._frequencies, positions) for each in (query, key))
        grouped = query.shape[1] != key.shape[1]
        if documents is not None:
            return attend_within(documents, query, key, value, grouped=grouped)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


class Block(nn.Module):
    """One layer of the model, recomputed in the backward pass when the model says so."""

    takes_documents = True

    def __init__(self, context: LayerContext, model: Transformer, index: int) -> None:
        super().__init__()
        name = f"block.{index}"
        self._recompute = model.checkpointing is Checkpointing.FULL
        self.attention_norm = Norm(context, model, f"{name}.attention_norm")
        self.attention = Attention(context, model, f"{name}.attention")
        self.feed_forward_norm = Norm(context, model, f"{name}.feed_forward_norm")
        part = MixtureOfExperts if LayerKind.of(model, index).experts else FeedForward
        self.feed_forward = part(context, model, f"{name}.feed_forward")

    def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same; no token attends to other documents, where they are given."""
        return _recomputed(self._block, values, documents) if self._recompute else self._block(values, documents)

    def _block(self, values: torch.Tensor, documents: Documents | None) -> torch.Tensor:
        values = values + self.attention(self.attention_norm(values), documents)
        return values + self.feed_forward(self.feed_forward_norm(values))


def _recomputed(function: object, *values: torch.Tensor | Documents | None) -> torch.Tensor:
    """Run without keeping activations; there is no dropout, so no random state to keep either."""
    return checkpoint(function, *values, use_reentrant=False, preserve_rng_state=False)

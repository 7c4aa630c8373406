"""One transformer block: x + attention(norm(x)), then x + feed-forward(norm(x)).

GPT: LayerNorm, biases, GELU between two matrices, learned positions. LLaMA: RMSNorm, no biases, SiLU gate between
three matrices, rotary positions, grouped-query attention. Any mixture of these; of several layers the feed-forward
part may be a mixture of experts.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from executor.trainer.context import WEIGHT_STD, LayerContext, constant_parameter
from executor.trainer.documents import Documents, attend_within
from executor.trainer.experts import MixtureOfExperts
from executor.trainer.feed_forward import FeedForward
from executor.trainer.recomputation import Again, recomputed
from executor.trainer.rotary import frequencies, rotate
from executor.trainer.tensor_parallel import ColumnParallelLinear, RowParallelLinear, entered, entered_parameter
from models.dimensions import Dimensions
from models.performance.iteration.layer_sizes import LayerKind
from models.transformer import Biases, Checkpointing, Normalisation, Positions, Transformer

_ATEN = torch.ops.aten
# Matrix products, and attention as GPUs and CPUs compute it.
_PRODUCTS = frozenset(
    {
        _ATEN.mm.default,
        _ATEN.addmm.default,
        _ATEN.bmm.default,
        _ATEN._scaled_dot_product_cudnn_attention.default,
        _ATEN._scaled_dot_product_efficient_attention.default,
        _ATEN._scaled_dot_product_flash_attention.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
        _ATEN._scaled_dot_product_fused_attention_overrideable.default,
    }
)


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

    def forward(
        self, values: torch.Tensor, documents: Documents | None = None, again: Again | None = None
    ) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same; within `documents`, where they are given.

        `again`: how values are computed again; then heads that have norms are so, too. None: both are kept.
        """
        with entered(values, self._context, gather_again=self._gather_again, again=again) as whole:
            columns = [layer(whole) for layer in (self.query, self.key, self.value)]
        query, key, value = (each.unflatten(-1, (-1, self._head)) for each in columns)
        # Norms keep their inputs. Without them nothing else needs these: what is rotated is kept in their place.
        recompute = again is not None
        query_again = self._turned_again(query, self.query_norm, documents) if recompute else None
        key_again = self._turned_again(key, self.key_norm, documents) if recompute else None
        query = self._turned(query, self.query_norm, documents)
        key = self._turned(key, self.key_norm, documents)
        with recomputed((query, query_again), (key, key_again)):
            mixed = self._mix(query, key, value, documents)
        return self.output(mixed.flatten(2))

    def _turned(self, heads: torch.Tensor, norm: HeadNorm | None, documents: Documents | None) -> torch.Tensor:
        """Queries or keys as attention takes them, (batch, sequence, heads, head size)."""
        if norm is not None:
            heads = norm(heads)
        if self._frequencies is None:
            return heads
        return rotate(heads, self._frequencies, None if documents is None else documents.positions)

    def _turned_again(self, heads: torch.Tensor, norm: HeadNorm | None, documents: Documents | None) -> Again | None:
        if norm is None:
            return None
        given = heads.detach()
        return Again(lambda: self._turned(given, norm, documents))

    def _mix(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, documents: Documents | None
    ) -> torch.Tensor:
        """Attention proper, (batch, sequence, heads, head size)."""
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        grouped = query.shape[1] != key.shape[1]
        if documents is None:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        else:
            mixed = attend_within(documents, query, key, value, grouped=grouped)
        return mixed.transpose(1, 2)


class Block(nn.Module):
    """One layer of the model, recomputed in the backward pass as the model says: wholly, or all of it but products and
    attention (`recomputation`).
    """

    takes_documents = True

    def __init__(self, context: LayerContext, model: Transformer, index: int) -> None:
        super().__init__()
        name = f"block.{index}"
        self._checkpointing = model.checkpointing
        # Collectives, and experts that no compiler sees, stay out of what a compiler takes apart.
        self._is_plain = context.tensor_degree == 1 and not LayerKind.of(model, index).experts
        self.attention_norm = Norm(context, model, f"{name}.attention_norm")
        self.attention = Attention(context, model, f"{name}.attention")
        self.feed_forward_norm = Norm(context, model, f"{name}.feed_forward_norm")
        part = MixtureOfExperts if LayerKind.of(model, index).experts else FeedForward
        self.feed_forward = part(context, model, f"{name}.feed_forward")

    def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same; no token attends to other documents, where they are given."""
        if self._checkpointing is Checkpointing.FULL:
            return _recomputed(self._block, values, documents)
        recompute = self._checkpointing is Checkpointing.SELECTIVE
        if recompute and self._is_plain and documents is None and torch.compiler.is_compiling():
            return _recomputed(self._block, values, documents, context_fn=_but_products)
        return self._block(values, documents, recompute=recompute)

    def _block(self, values: torch.Tensor, documents: Documents | None, *, recompute: bool = False) -> torch.Tensor:
        """The layer, of which with `recompute` all but products and attention is computed again."""
        normed, again = _normed(self.attention_norm, values, recompute=recompute)
        values = values + self.attention(normed, documents, again)
        normed, again = _normed(self.feed_forward_norm, values, recompute=recompute)
        return values + self.feed_forward(normed, again)


def _normed(norm: Norm, values: torch.Tensor, *, recompute: bool) -> tuple[torch.Tensor, Again | None]:
    """What a norm makes of values, and with `recompute` how that is computed again."""
    # What the norm keeps itself.
    given = values.detach()
    return norm(values), Again(lambda: norm(given)) if recompute else None


def _recomputed(function: object, *values: torch.Tensor | Documents | None, **more: Any) -> torch.Tensor:
    """Run without keeping activations; there is no dropout, so no random state to keep either."""
    return checkpoint(function, *values, use_reentrant=False, preserve_rng_state=False, **more)


def _but_products() -> Any:
    """For a compiler, which sees a layer as one graph: all but what products and attention give is computed again."""
    return create_selective_checkpoint_contexts(_policy)


def _policy(_: object, operation: object, *__: object, **___: object) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in _PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE

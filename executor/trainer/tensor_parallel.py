"""Column- and row-parallel layers: a column-parallel one, anything per column, a row-parallel one.

    y = x A^T B^T,  A = [A_1; A_2] by rows of the weight (outputs), B = [B_1, B_2] by columns (inputs)
      = sum over ranks of (x A_r^T) B_r^T

One all-reduce forward where the sum ends (`leave`), one backward where x enters (`enter`); Megatron-LM's f and g.
With sequence parallelism each rank has a part of the sequence on both sides, and either is an all-gather one way and a
reduce-scatter the other (Korthikanti et al. 2022, section 4.2.2); of x the part alone is kept for the backward pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from executor.trainer.context import LayerContext, constant_parameter, seeded_parameter
from executor.trainer.documents import IGNORED
from executor.trainer.recomputation import Again, recomputed


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.mark_dirty(values)
        dist.all_reduce(values, group=group)
        return values

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, context: LayerContext) -> torch.Tensor:
        ctx.context = context
        return _gathered(part, context)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _scattered(gradient, ctx.context), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, context: LayerContext) -> torch.Tensor:
        ctx.context = context
        return _scattered(values, context)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _gathered(gradient, ctx.context), None


def _gathered(part: torch.Tensor, context: LayerContext) -> torch.Tensor:
    """(batch, part of the sequence, ...) of every rank -> (batch, sequence, ...)."""
    parts = part.new_empty((context.tensor_degree, *part.shape))
    dist.all_gather_single(parts.view(-1), part.contiguous().view(-1), group=context.tensor_group)
    return parts.transpose(0, 1).flatten(1, 2)


def _scattered(values: torch.Tensor, context: LayerContext) -> torch.Tensor:
    """(batch, sequence, ...), to be summed over the ranks -> (batch, part of the sequence, ...)."""
    parts = values.unflatten(1, (context.tensor_degree, -1)).transpose(0, 1).contiguous()
    part = torch.empty_like(parts[0])
    dist.reduce_scatter_single(part.view(-1), parts.view(-1), group=context.tensor_group)
    return part


def enter(values: torch.Tensor, context: LayerContext) -> torch.Tensor:
    """Pass replicated values to column-parallel layers; their gradients are summed over the tensor ranks."""
    return values if context.tensor_degree == 1 else _Enter.apply(values, context.tensor_group)


def entered_parameter(parameter: nn.Parameter, context: LayerContext) -> torch.Tensor:
    """A parameter that all tensor ranks hold whole and each computes a part of the gradient of: these are summed, where
    ranks have parts of sequences with those of all such parameters, once a step.
    """
    return parameter if context.splits_sequences else enter(parameter, context)


def entering(
    values: torch.Tensor, context: LayerContext, *, gather_again: bool = True, again: Again | None = None
) -> tuple[torch.Tensor, Again | None]:
    """What column-parallel layers get of what other layers hand on: the same, or, where each rank has a part of the
    sequence, all of it; and how it is computed again, for `recomputed`, None: it is kept.

    Parameters
    ----------
    gather_again
        Whether of a sequence the part is kept, and the rest gathered again in the backward pass. False where all is
        recomputed then anyway.
    again
        How `values` are computed again; None: they are kept.
    """
    if not context.splits_sequences:
        return enter(values, context), again
    whole = _Gather.apply(values, context)
    if not gather_again:
        return whole, None
    part = values.detach()
    return whole, (again or Again(lambda: part)).then(lambda each: _gathered(each, context))


@contextmanager
def entered(
    values: torch.Tensor, context: LayerContext, *, gather_again: bool = True, again: Again | None = None
) -> Iterator[torch.Tensor]:
    """The same (`entering`), and nothing within keeps what is computed again."""
    whole, known = entering(values, context, gather_again=gather_again, again=again)
    with recomputed((whole, known)):
        yield whole


def leave(values: torch.Tensor, context: LayerContext) -> torch.Tensor:
    """Sum what the tensor ranks have; the result is replicated, or each rank has its part of the sequence."""
    if context.splits_sequences:
        return _Scatter.apply(values, context)
    return values if context.tensor_degree == 1 else _Leave.apply(values.contiguous(), context.tensor_group)


class ColumnParallelLinear(nn.Module):
    """Each rank computes a part of the outputs; the inputs must have come through `entered`."""

    def __init__(self, context: LayerContext, name: str, inputs: int, outputs: int, *, std: float, bias: bool) -> None:
        super().__init__()
        context.share(outputs, name)
        self.weight = seeded_parameter(context, name, (outputs, inputs), std=std, axis=0)
        self.bias = constant_parameter(context, 0.0, outputs, axis=0, name=f"{name}.bias") if bias else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs / degree)."""
        return functional.linear(values, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """Each rank has a part of the inputs; the outputs are whole on all of them, of a part of the sequence where that is
    split.
    """

    def __init__(self, context: LayerContext, name: str, inputs: int, outputs: int, *, std: float, bias: bool) -> None:
        super().__init__()
        self._context = context
        context.share(inputs, name)
        self.weight = seeded_parameter(context, name, (outputs, inputs), std=std, axis=1)
        self.bias = constant_parameter(context, 0.0, outputs, name=f"{name}.bias") if bias else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(..., inputs / degree) -> (..., outputs)."""
        outputs = leave(functional.linear(values, self.weight), self._context)
        return outputs if self.bias is None else outputs + self.bias


class Vocabulary(nn.Module):
    """Embedding of tokens, rows shared by the tensor ranks, and, tied or alone, the projection back to logits.

    Rows beyond the vocabulary pad it to a multiple of the degree; they are zero and stay zero.
    """

    def __init__(self, context: LayerContext, name: str, vocabulary_size: int, hidden: int, *, std: float) -> None:
        super().__init__()
        self._context = context
        self.weight = seeded_parameter(context, name, (vocabulary_size, hidden), std=std, axis=0)
        self.weight.vocabulary_size = vocabulary_size

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, sequence) ids -> (batch, sequence, hidden), of this rank's part of the sequence where it is split."""
        if self._context.tensor_degree == 1:
            return functional.embedding(tokens, self.weight)
        rows = tokens - self._context.tensor_rank * self.weight.shape[0]
        elsewhere = (rows < 0) | (rows >= self.weight.shape[0])
        held = functional.embedding(rows.masked_fill(elsewhere, 0), self.weight)
        return leave(held.masked_fill(elsewhere.unsqueeze(-1), 0.0), self._context)

    def logits(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) -> (batch, sequence, rows of this rank)."""
        with entered(values, self._context) as whole:
            return functional.linear(whole, self.weight)


class _SharedCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy, over labels that count, of logits whose columns are spread over the tensor ranks; `group`
    None: one rank has all.

    Of logits, the largest tensors of a pass, one copy in fp32 is kept, which becomes their gradient in place: a loss
    has one backward pass.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, first: int, group: Any) -> torch.Tensor:
        ignored, columns = labels == IGNORED, labels - first
        elsewhere = (columns < 0) | (columns >= logits.shape[-1])
        columns = columns.masked_fill(elsewhere, 0).unsqueeze(-1)
        hit = logits.gather(-1, columns).squeeze(-1).float().masked_fill(elsewhere, 0.0)
        largest = logits.amax(dim=-1).float()
        if group is None:
            shares = logits.softmax(dim=-1, dtype=torch.float32)
            # Of the largest logit the share is 1 / total.
            total = shares.amax(dim=-1).reciprocal_()
        else:
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
            shares = torch.sub(logits, largest.unsqueeze(-1)).exp_()
            total = shares.sum(dim=-1)
            dist.all_reduce(total, group=group)
            dist.all_reduce(hit, group=group)
            shares /= total.unsqueeze(-1)
        losses = total.log() + largest - hit
        num_counted = (~ignored).sum().clamp(min=1)
        ctx.save_for_backward(shares, columns, elsewhere, ~ignored / num_counted)
        ctx.dtype = logits.dtype
        # Not times zero, which infinity makes NaN.
        return losses.masked_fill(ignored, 0.0).sum() / num_counted

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError("the gradient of this loss has no graph (create_graph)")
        shares, columns, elsewhere, counts = ctx.saved_tensors
        ones = torch.ones_like(columns, dtype=shares.dtype).masked_fill_(elsewhere.unsqueeze(-1), 0.0)
        shares.scatter_add_(-1, columns, -ones)
        return shares.mul_((gradient * counts).unsqueeze(-1)).to(ctx.dtype), None, None, None


class CrossEntropy:
    """Mean cross-entropy of next tokens, in fp32, for the logits of `Vocabulary.logits`; labels that are IGNORED count
    for nothing.
    """

    def __init__(self, context: LayerContext, vocabulary_size: int) -> None:
        self._context = context
        self._vocabulary_size = vocabulary_size

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logits (batch, sequence, columns of this rank), labels (batch, sequence) -> mean loss, a scalar.

        Raises
        ------
        RuntimeError
            When a label is neither IGNORED nor a token of the vocabulary, or the ranks have fewer columns than that: a
            GPU says so of labels later, as no step waits for it.
        """
        columns = logits.shape[-1]
        if columns * self._context.tensor_degree < self._vocabulary_size:
            raise RuntimeError(
                f"logits of {columns * self._context.tensor_degree} tokens; the vocabulary has {self._vocabulary_size}"
            )
        known = (labels == IGNORED) | ((labels >= 0) & (labels < self._vocabulary_size))
        torch._assert_async(known.all(), f"a label is no token of the {self._vocabulary_size} of the vocabulary")
        first = self._context.tensor_rank * columns
        padded = columns - max(0, min(columns, self._vocabulary_size - first))
        if padded:
            logits = functional.pad(logits[..., : columns - padded], (0, padded), value=float("-inf"))
        return _SharedCrossEntropy.apply(logits, labels, first, self._context.tensor_group)

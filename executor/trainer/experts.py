"""A mixture of experts in place of a feed-forward part: a router chooses for every token who works on it.

    y = sum over the k experts i that x chose of w_i expert_i(x), plus the shared expert of x where there is one

Experts are divided over replicas (Lepikhin et al. 2020, GShard): rows, one for each choice of a token, go to the
replica that has the expert, and come back. Of each expert tensor ranks have a part, as of any feed-forward part: all of
them choose alike, and everything between `entered` and `leave` is a part of a sum over them, also the gradients of what
they hold whole.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from executor.trainer.context import WEIGHT_STD, LayerContext, expert_parameter, seeded_parameter
from executor.trainer.feed_forward import ACTIVATIONS, FeedForward, activated, last_std
from executor.trainer.recomputation import Again, recomputed
from executor.trainer.tensor_parallel import entered_parameter, entering, leave
from models.dimensions import Dimensions
from models.transformer import Checkpointing, Transformer

# Of rows of matrices, for torch's grouped product.
_ALIGNMENT_BYTES = 16


class MixtureOfExperts(nn.Module):
    """Router, experts, and the shared expert."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        self._context = context
        self._gather_again = model.checkpointing is not Checkpointing.FULL
        self.router = Router(context, model, f"{name}.router")
        self.experts = Experts(context, model, f"{name}.experts")
        shared = model.shared_expert_size
        self.shared = None if shared is None else FeedForward(context, model, f"{name}.shared", shared)
        has_gate = shared is not None and context.numerics.gated_shared_expert
        self.shared_gate = (
            seeded_parameter(context, f"{name}.shared_gate", (1, model.hidden_size), std=WEIGHT_STD)
            if has_gate
            else None
        )

    def forward(self, values: torch.Tensor, again: Again | None = None) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same.

        `again`: how values are computed again; then what comes between the matrices is so, too. None: both are kept.
        """
        whole, known = entering(values, self._context, gather_again=self._gather_again, again=again)
        with recomputed((whole, known)):
            part = self._routed(whole, None if again is None else known)
            if self.shared is not None:
                part = part + self._shared(self.shared, whole, recompute=again is not None)
        return leave(part, self._context)

    # Tokens per expert are known when they are chosen only: no compiler has their number.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _routed(self, whole: torch.Tensor, again: Again | None) -> torch.Tensor:
        chosen = self.router(whole, again)
        count = chosen.weights.shape[-1]
        tokens = chosen.order // count
        rows = whole.flatten(0, 1).index_select(0, tokens)
        # Rows of other replicas are kept: they are sent once.
        again = None if self._context.expert_degree > 1 else again
        rows_again = None if again is None else again.then(lambda each: each.flatten(0, 1).index_select(0, tokens))
        outputs = self._worked_on(rows, chosen.counts, rows_again)
        # index_copy would keep the outputs a second time.
        back = outputs.new_zeros((chosen.weights.numel(), outputs.shape[-1])).index_put((chosen.order,), outputs)
        weights = chosen.weights.to(back.dtype).unsqueeze(-1)
        return (back.unflatten(0, (-1, count)) * weights).sum(dim=1).view_as(whole)

    def _worked_on(self, rows: torch.Tensor, counts: torch.Tensor, again: Again | None) -> torch.Tensor:
        """What experts make of rows that are sorted by expert, `counts` of each; `again`: how rows come about again."""
        context = self._context
        if context.expert_degree == 1:
            return self.experts(rows, counts, again)
        # Of every replica of the group, and every expert here.
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=context.expert_group)
        sizes = torch.stack([each.view(context.expert_degree, -1).sum(dim=1) for each in (counts, arriving)])
        sent, received = sizes.tolist()
        rows = _Exchange.apply(rows, sent, received, context.expert_group)
        own = torch.arange(len(arriving), device=rows.device) % (len(arriving) // context.expert_degree)
        order = own.repeat_interleave(arriving, output_size=len(rows)).argsort(stable=True)
        outputs = self.experts(rows.index_select(0, order), arriving.view(context.expert_degree, -1).sum(dim=0))
        outputs = outputs.index_select(0, order.argsort())
        return _Exchange.apply(outputs, received, sent, context.expert_group)

    def _shared(self, shared: FeedForward, whole: torch.Tensor, *, recompute: bool) -> torch.Tensor:
        inner, again = shared.activated(*shared.columns(whole), recompute=recompute)
        with recomputed((inner, again)):
            outputs = functional.linear(inner, shared.down.weight)
        if self.shared_gate is None:
            return outputs
        return functional.linear(whole, entered_parameter(self.shared_gate, self._context)).sigmoid() * outputs


class Chosen(NamedTuple):
    """`weights` (tokens, choices) of the experts that tokens have chosen; `order`: the choices that are kept, numbered
    token by token, sorted by expert; `counts`: how many those of each expert are."""

    weights: torch.Tensor
    order: torch.Tensor
    counts: torch.Tensor


class Router(nn.Module):
    """Computes in fp32, also in a training in bf16: small differences choose other experts (Fedus et al. 2021)."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        self._context = context
        self._num_choices = model.experts_per_token
        self.weight = seeded_parameter(context, name, (model.num_experts, model.hidden_size), std=WEIGHT_STD)

    def forward(self, whole: torch.Tensor, again: Again | None = None) -> Chosen:
        """(batch, sequence, hidden) -> choices of batch x sequence tokens.

        `again`: how values are computed again, None: they are kept.
        """
        exact = whole.float()
        with recomputed((exact, None if again is None else again.then(torch.Tensor.float))):
            logits = functional.linear(exact, entered_parameter(self.weight, self._context).float())
        shares = logits.softmax(dim=-1)
        weights, experts = shares.topk(self._num_choices, dim=-1)
        if self._context.numerics.normalised_routing:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        num_experts = logits.shape[-1]
        chosen = functional.one_hot(experts, num_experts)
        if torch.is_grad_enabled():
            weights = _WithLoss.apply(weights, self._loss(logits, shares, chosen.sum(dim=(1, 2))))
        wanted = experts.flatten()
        kept = self._kept(experts, chosen)
        if kept is not None:
            wanted = wanted.masked_fill(~kept.flatten(), num_experts)
        counts = torch.bincount(wanted, minlength=num_experts)[:num_experts]
        order = wanted.argsort(stable=True)
        return Chosen(weights.flatten(0, 1), order if kept is None else order[: int(counts.sum())], counts)

    def _loss(self, logits: torch.Tensor, shares: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """What this rank's sequences add to the loss of a step; `counts` (batch, experts) of choices."""
        routing, (_, length, num_experts) = self._context.routing, logits.shape
        balance = num_experts * (counts / (length * self._num_choices) * shares.mean(dim=1)).sum()
        square = logits.logsumexp(dim=-1).square().mean(dim=1).sum()
        loss = routing.balance_loss * balance + routing.router_loss * square
        # Every tensor rank has all of it, and their gradients are summed.
        return loss * (self._context.sequence_share / self._context.tensor_degree)

    def _kept(self, experts: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor | None:
        """Which choices (batch, sequence, choices) find room; None: all."""
        capacity = self._context.routing.capacity
        if capacity is None:
            return None
        length, num_experts = chosen.shape[1], chosen.shape[-1]
        limit = math.ceil(capacity * length * self._num_choices / num_experts)
        # First choices of all tokens, then second ones.
        waiting = chosen.transpose(1, 2).flatten(1, 2).cumsum(dim=1).unflatten(1, (-1, length)).transpose(1, 2)
        return waiting.gather(-1, experts.unsqueeze(-1)).squeeze(-1) <= limit


class Experts(nn.Module):
    """The feed-forward parts that this rank has, of each this tensor rank's part of the inner size."""

    def __init__(self, context: LayerContext, model: Transformer, name: str) -> None:
        super().__init__()
        sizes = Dimensions.of(model)
        self._activation = ACTIVATIONS[context.numerics.activation_of(gated=model.gated)]
        self._recompute = model.checkpointing is Checkpointing.SELECTIVE

        def matrices(part: str, std: float) -> nn.Parameter:
            shape = (sizes.expert, sizes.hidden)
            return expert_parameter(context, f"{name}.{part}", shape, num_experts=model.num_experts, std=std)

        self.up = matrices("up", WEIGHT_STD)
        self.gate = matrices("gate", WEIGHT_STD) if model.gated else None
        self.down = matrices("down", last_std(model))

    def forward(self, rows: torch.Tensor, counts: torch.Tensor, again: Again | None = None) -> torch.Tensor:
        """(rows, hidden), sorted by expert -> the same; `counts` of rows of each expert; `again`: how rows are computed
        again, None: they are kept.
        """
        ends = counts.cumsum(dim=0, dtype=torch.int32)
        with recomputed((rows, again)):
            up = _products(rows, self.up.transpose(1, 2), ends)
            gate = None if self.gate is None else _products(rows, self.gate.transpose(1, 2), ends)
        inner, inner_again = activated(self._activation, up, gate, recompute=self._recompute)
        with recomputed((inner, inner_again)):
            return _products(inner, self.down, ends)


def _products(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows that end at `ends` times the matrix of their expert, (experts, inputs, outputs); in one kernel where all
    lies as it needs it.
    """
    size = rows.element_size()
    steps = [matrices.shape[-1], *rows.stride(), *matrices.stride()]
    aligned = all(step == 1 or step * size % _ALIGNMENT_BYTES == 0 for step in steps)
    if aligned and matrices.data_ptr() % _ALIGNMENT_BYTES == 0:
        return functional.grouped_mm(rows, matrices, offs=ends)
    parts = rows.tensor_split(ends[:-1].tolist())
    return torch.cat([part @ matrix for part, matrix in zip(parts, matrices, strict=True)])


class _Exchange(torch.autograd.Function):
    """Rows to those whom they are for: `sent` to and `received` from each rank of a group, in its order."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: Any) -> torch.Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _exchanged(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _exchanged(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def _exchanged(rows: torch.Tensor, sent: list[int], received: list[int], group: Any) -> torch.Tensor:
    arrived = rows.new_empty((sum(received), rows.shape[1]))
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
    return arrived


class _WithLoss(torch.autograd.Function):
    """Values as they are; whoever goes back through them goes back through a loss, too, which nobody has to carry to
    the end of the model.
    """

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(loss)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (loss,) = ctx.saved_tensors
        return gradient, torch.ones_like(loss)

"""What a layer must know about the rank it is built on, and parameters that are the same in every layout."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from executor.routing import Routing
from models.numerics import Numerics

# Of weights that are drawn.
WEIGHT_STD = 0.02


class Weights(Protocol):
    """Numbers that parameters start with."""

    def read(self, name: str, shape: tuple[int, ...], axis: int, start: int, count: int) -> torch.Tensor:
        """Rows (`axis` 0) or columns (1) start .. start + count - 1 of the parameter `name`, whole of `shape`, fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContext:
    """Passed to every layer.

    `tensor_group`: torch process group of the ranks that share a layer, None for one rank; `tensor_rank` of
    `tensor_degree` is the place in it. `splits_sequences`: what is not shared otherwise is computed on this rank's part
    of every sequence (sequence parallelism), not on all ranks alike. `device`: where to build. `seed`: of the whole
    run. `numerics`: what layers compute with. `weights`: what parameters start with, None: they are drawn.
    """

    tensor_rank: int = 0
    tensor_degree: int = 1
    tensor_group: Any = None
    splits_sequences: bool = False
    expert_rank: int = 0
    expert_degree: int = 1
    expert_group: Any = None
    device: str = "cpu"
    seed: int = 0
    numerics: Numerics = field(default_factory=Numerics)
    weights: Weights | None = None
    routing: Routing = field(default_factory=Routing)
    sequence_share: float = 1.0

    def share(self, count: int, what: str) -> int:
        """This rank's part of `count`; ValueError when the degree does not divide it."""
        if count % self.tensor_degree:
            raise ValueError(f"{what}: {count} does not divide by the tensor-parallel degree {self.tensor_degree}")
        return count // self.tensor_degree

    def part(self, count: int) -> slice:
        """Of a sequence of `count` tokens those that this rank has between layers."""
        if not self.splits_sequences:
            return slice(0, count)
        length = self.share(count, "tokens of a sequence")
        return slice(self.tensor_rank * length, (self.tensor_rank + 1) * length)


def seeded_parameter(
    context: LayerContext, name: str, shape: tuple[int, ...], *, std: float, axis: int | None = None
) -> nn.Parameter:
    """Draw a parameter from a normal distribution, the same numbers whatever the layout; or read it.

    Parameters
    ----------
    name
        Unique in the model (`"3.attention.query"`): decides, with the seed, the numbers.
    shape
        Of the whole parameter, over all tensor ranks.
    axis
        Along which the tensor ranks share it; None: all have the whole. A size that the degree does not divide is
        padded with zeros at the end.
    """
    return _parameter(context, _drawn(context, name, shape, std=std, axis=axis), name, axis)


def expert_parameter(
    context: LayerContext, name: str, shape: tuple[int, int], *, num_experts: int, std: float
) -> nn.Parameter:
    """A matrix of every expert that this rank has, (experts, rows or a part of them, columns): the experts are divided
    over `expert_group`, the rows of each over the tensor ranks.

    Parameters
    ----------
    name
        That of expert k is `name.k`.
    shape
        Of one matrix, over all tensor ranks.
    """
    if num_experts % context.expert_degree:
        raise ValueError(f"{name}: {num_experts} experts do not divide by the degree {context.expert_degree}")
    count = num_experts // context.expert_degree
    context.share(shape[0], name)
    first = context.expert_rank * count
    drawn = [_drawn(context, f"{name}.{k}", shape, std=std, axis=0) for k in range(first, first + count)]
    parameter = _parameter(context, torch.stack(drawn), name, 1)
    parameter.first_expert, parameter.num_experts = first, num_experts
    return parameter


def _drawn(context: LayerContext, name: str, shape: tuple[int, ...], *, std: float, axis: int | None) -> torch.Tensor:
    """This rank's part of a parameter, as it is drawn or read."""
    cut, degree, rank = (0, 1, 0) if axis is None else (axis, context.tensor_degree, context.tensor_rank)
    part = -(-shape[cut] // degree)
    start = min(part * rank, shape[cut])
    count = min(part, shape[cut] - start)
    if context.weights is None:
        digest = hashlib.sha256(f"{context.seed}/{name}".encode()).digest()
        generator = torch.Generator(context.device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        whole = torch.normal(0.0, std, shape, generator=generator, device=context.device)
        held = whole.narrow(cut, start, count)
    else:
        held = context.weights.read(name, shape, cut, start, count).to(context.device)
    padding = [0, 0] * (len(shape) - 1 - cut) + [0, part - count]
    return nn.functional.pad(held, padding).clone()


def constant_parameter(
    context: LayerContext, value: float, size: int, *, name: str, axis: int | None = None
) -> nn.Parameter:
    """A vector of equal numbers, or one that is read; `axis` 0: `size` is shared by the tensor ranks."""
    count, rank = (size, 0) if axis is None else (context.share(size, name), context.tensor_rank)
    if context.weights is None:
        return _parameter(context, torch.full((count,), value, device=context.device), name, axis)
    held = context.weights.read(name, (size,), 0, rank * count, count).to(context.device)
    return _parameter(context, held, name, axis)


def _parameter(context: LayerContext, part: torch.Tensor, name: str, axis: int | None) -> nn.Parameter:
    """A parameter that says by `stored_name` which it is of the model, and by `tensor_partial` whether a tensor rank
    has no more of its gradient than that of its part of the sequences.
    """
    parameter = nn.Parameter(part) if axis is None else shared_parameter(part, axis)
    parameter.tensor_partial = axis is None and context.splits_sequences
    parameter.stored_name = name
    return parameter


def shared_parameter(part: torch.Tensor, axis: int) -> nn.Parameter:
    """A parameter whose tensor ranks hold parts along `axis`.

    The marks are read by DeepSpeed's gradient norm (`model_parallel`: counted on all tensor ranks, not on the first
    alone) and by the conversion of checkpoints (`tensor_axis`).
    """
    parameter = nn.Parameter(part)
    parameter.model_parallel = True
    parameter.tensor_axis = axis
    return parameter

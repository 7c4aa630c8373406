"""What a layer must know about the rank it is built on, and parameters that are the same in every layout."""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContext:
    """Passed to every layer.

    `tensor_group`: torch process group of the ranks that share a layer, None for one rank; `tensor_rank` of
    `tensor_degree` is the place in it. `device`: where to build. `seed`: of the whole run.
    """

    tensor_rank: int = 0
    tensor_degree: int = 1
    tensor_group: Any = None
    device: str = "cpu"
    seed: int = 0

    def share(self, count: int, what: str) -> int:
        """This rank's part of `count`; ValueError when the degree does not divide it."""
        if count % self.tensor_degree:
            raise ValueError(f"{what}: {count} does not divide by the tensor-parallel degree {self.tensor_degree}")
        return count // self.tensor_degree


def seeded_parameter(
    context: LayerContext, name: str, shape: tuple[int, ...], *, std: float, axis: int | None = None
) -> nn.Parameter:
    """Draw a parameter from a normal distribution, the same numbers whatever the layout.

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
    digest = hashlib.sha256(f"{context.seed}/{name}".encode()).digest()
    generator = torch.Generator(context.device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    whole = torch.normal(0.0, std, shape, generator=generator, device=context.device)
    if axis is None:
        return nn.Parameter(whole)
    part = -(-shape[axis] // context.tensor_degree)
    start = min(part * context.tensor_rank, shape[axis])
    held = whole.narrow(axis, start, min(part, shape[axis] - start))
    padding = [0, 0] * (len(shape) - 1 - axis) + [0, part - held.shape[axis]]
    return shared_parameter(nn.functional.pad(held, padding).clone(), axis)


def constant_parameter(
    context: LayerContext, value: float, size: int, *, axis: int | None = None, what: str = ""
) -> nn.Parameter:
    """A vector of equal numbers; `axis` 0: `size` is shared by the tensor ranks."""
    if axis is None:
        return nn.Parameter(torch.full((size,), value, device=context.device))
    return shared_parameter(torch.full((context.share(size, what),), value, device=context.device), axis)


def shared_parameter(part: torch.Tensor, axis: int) -> nn.Parameter:
    """A parameter whose tensor ranks hold parts along `axis`.

    The marks are read by DeepSpeed's gradient norm (`model_parallel`: counted on all tensor ranks, not on the first
    alone) and by the conversion of checkpoints (`tensor_axis`).
    """
    parameter = nn.Parameter(part)
    parameter.model_parallel = True
    parameter.tensor_axis = axis
    return parameter

"""A set of parameters of a rank in one buffer and their gradients in another, in shards of equal size, one per replica.

Parameters come in this order, so that what a rank counts in norms over the model is one interval:

    [those of this rank | shared with a later stage | with an earlier one | held whole by other tensor ranks, too]

It counts the first two.

ZeRO-1 (Rajbhandari et al. 2020): replica d keeps optimiser states of shard d only. A gradient is reduced once for all
parameters of the set, and weights are gathered once. A rank may have several sets, each with replicas of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

# Elements whose squares are added in fp32.
_BLOCK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Ranks that have the same parameters, `count` of them, of which this is number `index`; `group` is None for one
    alone.
    """

    group: Any = None
    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A parameter from `start` on in the buffers.

    `axis`: along which the tensor ranks share it, None where each holds it whole. `rows`: of the whole parameter where
    parts are padded, None where they are not.
    """

    name: str
    start: int
    shape: tuple[int, ...]
    axis: int | None
    rows: int | None
    is_tied: bool

    @property
    def end(self) -> int:
        """Behind its last element."""
        return self.start + self.size

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(torch.Size(self.shape).numel())


class FlatParameters:
    """Moves parameters into the buffers; `weights` in the precision of the passes, `gradients` in fp32.

    Parameters
    ----------
    tied
        Names of parameters that another stage has, too, and whether this stage counts them.
    replicas
        Each keeps the shard of its number.
    tensor_rank
        The first counts what every tensor rank holds whole.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        tied: Mapping[str, bool],
        *,
        replicas: Replicas,
        tensor_rank: int,
        dtype: torch.dtype,
    ) -> None:
        def group(item: tuple[str, nn.Parameter]) -> int:
            name, parameter = item
            if tensor_rank > 0 and not hasattr(parameter, "tensor_axis"):
                return 3
            return {None: 0, True: 1, False: 2}[tied.get(name)]

        ordered = sorted(parameters, key=group)
        entries, start = [], 0
        for name, parameter in ordered:
            axis: int | None = getattr(parameter, "tensor_axis", None)
            rows: int | None = getattr(parameter, "vocabulary_size", None)
            entry = Entry(
                name=name, start=start, shape=tuple(parameter.shape), axis=axis, rows=rows, is_tied=name in tied
            )
            entries.append(entry)
            start = entry.end
        self.entries = tuple(entries)
        self._replicas = replicas
        size = -(-start // replicas.count)
        # Of the elements of this rank's shard.
        self.shard = slice(replicas.index * size, (replicas.index + 1) * size)
        self._initial = torch.zeros(size * replicas.count, device=ordered[0][1].device)
        for entry, (_, parameter) in zip(entries, ordered, strict=True):
            self._initial[entry.start : entry.end] = parameter.detach().flatten()
        self.weights = self._initial.to(dtype)
        self.gradients = torch.zeros_like(self._initial)
        # Of the shard, over all replicas.
        self.summed = torch.empty_like(self.gradients[self.shard]) if replicas.count > 1 else self.gradients
        for entry, (_, parameter) in zip(entries, ordered, strict=True):
            self._move(entry, parameter, dtype)
        # Of which a tensor rank has a part.
        self.partial = tuple(
            self.gradients[entry.start : entry.end]
            for entry, (_, parameter) in zip(entries, ordered, strict=True)
            if getattr(parameter, "tensor_partial", False)
        )
        # Elements of the first part, and of the first two.
        self.num_untied, self.num_counted = (
            sum(entry.size for entry, item in zip(entries, ordered, strict=True) if group(item) <= last)
            for last in (0, 1)
        )

    def _move(self, entry: Entry, parameter: nn.Parameter, dtype: torch.dtype) -> None:
        interval = slice(entry.start, entry.end)
        gradient = self.gradients[interval].view(entry.shape)
        parameter.data = self.weights[interval].view(entry.shape)
        if dtype == torch.float32:
            # Autograd adds in place to a gradient that is there.
            parameter.grad = gradient
            return

        def add(_: torch.Tensor) -> None:
            gradient.add_(parameter.grad)
            parameter.grad = None

        parameter.register_post_accumulate_grad_hook(add)
        # What is not accumulated by autograd is told (`UnevenStage.backward_weight_one_chunk`).
        parameter.add_gradient = add

    def masters(self) -> torch.Tensor:
        """The weights of the shard in fp32, as they were drawn; to be called once.

        In fp32 they are the weights themselves.
        """
        if self.weights is self._initial:
            return self.weights[self.shard]
        masters = self._initial[self.shard].clone()
        del self._initial
        return masters

    def square(self) -> torch.Tensor:
        """Squared norm of this rank's gradient of what no other stage has, a scalar in fp64."""
        return _square(self.gradients[: self.num_untied])

    def summed_squares(self) -> torch.Tensor:
        """Of this shard of the sum over replicas: squared norms of what no other stage has, and of what else counts."""
        untied, counted = (max(0, count - self.shard.start) for count in (self.num_untied, self.num_counted))
        return torch.stack([_square(self.summed[:untied]), _square(self.summed[untied:counted])])

    def reduce(self) -> None:
        """Sum gradients over the replicas."""
        if self._replicas.group is not None:
            dist.reduce_scatter_single(self.summed, self.gradients, group=self._replicas.group)

    def publish(self, masters: torch.Tensor) -> None:
        """Give this shard's weights to the other replicas."""
        own = self.weights[self.shard]
        if own.dtype != masters.dtype:
            own.copy_(masters)
        if self._replicas.group is not None:
            dist.all_gather_single(self.weights, own, group=self._replicas.group)

    def held(self) -> Iterator[tuple[Entry, int, int]]:
        """Entries with the interval of their elements that the shard has."""
        for entry in self.entries:
            start, end = max(self.shard.start, entry.start), min(self.shard.stop, entry.end)
            if start < end:
                yield entry, start - entry.start, end - entry.start


def _square(values: torch.Tensor) -> torch.Tensor:
    """Squared norm, a scalar in fp64; summed in fp32 over short blocks only, which on CPU takes a tenth of the time."""
    end = len(values) - len(values) % _BLOCK
    norms = torch.linalg.vector_norm(values[:end].view(-1, _BLOCK), dim=1)
    rest = torch.linalg.vector_norm(values[end:]).view(1)
    return torch.cat([norms, rest]).double().square().sum()

"""A set of parameters of a rank in one buffer and their gradients in another, in shards of equal size, one per replica.

Parameters come in this order, so that what a rank counts in norms over the model is one interval:

    [those of this rank | shared with a later stage | with an earlier one | held whole by other tensor ranks, too]

It counts the first two.

ZeRO-1 (Rajbhandari et al. 2020): replica d keeps optimiser states of shard d only. A gradient is reduced once for all
parameters of the set, and weights are gathered once. A rank may have several sets, each with replicas of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    parts are padded or ranks have other experts, None where they are not; then its first row is `first_row`, beside
    what tensor ranks share. `is_partial`: a tensor rank has a part of its gradient, to be summed.
    """

    name: str
    start: int
    shape: tuple[int, ...]
    axis: int | None
    rows: int | None
    is_tied: bool
    is_partial: bool = False
    first_row: int = 0

    @property
    def end(self) -> int:
        """Behind its last element."""
        return self.start + self.size

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(torch.Size(self.shape).numel())

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """The parameter in a buffer."""
        return buffer[self.start : self.end].view(self.shape)


class FlatParameters:
    """Moves parameters into the buffers: weights in the precision of the passes, gradients in fp32.

    `masters`: weights of the shard in fp32; where the passes are in fp32, the weights themselves. `summed`: gradient of
    the shard over all replicas, behind `sum_replicas`.

    Parameters
    ----------
    tied
        Names of parameters that another stage has, too, and whether this stage counts them.
    replicas
        Each keeps the shard of its number.
    tensor_rank
        The first counts what every tensor rank holds whole.
    """

    summed: torch.Tensor

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
        self.entries = tuple(_entries(ordered, tied))
        # Elements of the first part, and of the first two.
        self.num_untied, self.num_counted = (
            sum(item[1].numel() for item in ordered if group(item) <= last) for last in (0, 1)
        )
        self._replicas = replicas
        size = -(-self.entries[-1].end // replicas.count)
        # Of the elements of this rank's shard.
        self.shard = slice(replicas.index * size, (replicas.index + 1) * size)
        drawn = torch.zeros(size * replicas.count, device=ordered[0][1].device)
        for entry, (_, parameter) in zip(self.entries, ordered, strict=True):
            entry.of(drawn).copy_(parameter.detach())
        self._weights = drawn.to(dtype)
        for entry, (_, parameter) in zip(self.entries, ordered, strict=True):
            parameter.data = entry.of(self._weights)
        self._own = self._weights[self.shard]
        self.masters = self._own if dtype == torch.float32 else drawn[self.shard].clone()
        self._take_gradients([parameter for _, parameter in ordered])

    def _take_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        self._gradients = torch.zeros(self._weights.shape, device=self._weights.device)
        alone = self._replicas.count == 1
        self.summed = self._gradients if alone else torch.empty_like(self._gradients[self.shard])
        for entry, parameter in zip(self.entries, parameters, strict=True):
            gradient = entry.of(self._gradients)
            if parameter.dtype == torch.float32:
                # Autograd adds in place to a gradient that is there.
                parameter.grad = gradient
            else:
                take(parameter, gradient.add_)

    @property
    def num_replicas(self) -> int:
        """How many have these parameters."""
        return self._replicas.count

    def zero_gradients(self) -> None:
        """Forget those of the step before."""
        self._gradients.zero_()

    def partial_gradients(self) -> list[torch.Tensor]:
        """Gradients that are to be summed over the tensor ranks, before all else."""
        return [self._gradients[entry.start : entry.end] for entry in self.entries if entry.is_partial]

    def square(self) -> torch.Tensor:
        """Squared norm of this rank's gradient of what no other stage has, a scalar in fp64."""
        return square_of(self._gradients[: self.num_untied])

    def summed_squares(self) -> torch.Tensor:
        """Of this shard of the sum over replicas: squared norms of what no other stage has, and of what else counts."""
        untied, counted = (max(0, count - self.shard.start) for count in (self.num_untied, self.num_counted))
        return torch.stack([square_of(self.summed[:untied]), square_of(self.summed[untied:counted])])

    def sum_replicas(self) -> None:
        """Sum gradients over the replicas."""
        if self._replicas.group is not None:
            dist.reduce_scatter_single(self.summed, self._gradients, group=self._replicas.group)

    def publish(self) -> None:
        """Give this shard's weights, which have changed, to the other replicas."""
        if self._own.dtype != self.masters.dtype:
            self._own.copy_(self.masters)
        if self._replicas.group is not None:
            dist.all_gather_single(self._weights, self._own, group=self._replicas.group)

    def held(self) -> Iterator[tuple[Entry, int, int]]:
        """Entries with the interval of their elements that the shard has."""
        for entry in self.entries:
            start, end = max(self.shard.start, entry.start), min(self.shard.stop, entry.end)
            if start < end:
                yield entry, start - entry.start, end - entry.start


def square_of(values: torch.Tensor) -> torch.Tensor:
    """Squared norm, a scalar in fp64; summed in fp32 over short blocks only, which on CPU takes a tenth of the time."""
    end = len(values) - len(values) % _BLOCK
    norms = torch.linalg.vector_norm(values[:end].view(-1, _BLOCK), dim=1)
    rest = torch.linalg.vector_norm(values[end:]).view(1)
    return torch.cat([norms, rest]).double().square().sum()


def sum_parts(parts: Sequence[torch.Tensor], tensor_group: Any) -> None:
    """Sum over the tensor ranks what each has computed of its part of the sequences alone."""
    if parts:
        summed = torch.cat(list(parts))
        dist.all_reduce(summed, group=tensor_group)
        torch._foreach_copy_(list(parts), list(summed.split([len(part) for part in parts])))


def take(parameter: nn.Parameter, add: Callable[[torch.Tensor], object]) -> None:
    """Hand every gradient of a parameter to `add`, and keep none."""

    # Of its argument: a hook that knew the parameter would keep it, and with it the memory of all, for ever.
    def hand_on(owner: torch.Tensor) -> None:
        gradient, owner.grad = owner.grad, None
        add(gradient)

    parameter.register_post_accumulate_grad_hook(hand_on)
    # What is not accumulated by autograd is told (`UnevenStage.backward_weight_one_chunk`).
    parameter.add_gradient = hand_on


def _entries(ordered: Sequence[tuple[str, nn.Parameter]], tied: Mapping[str, bool]) -> Iterator[Entry]:
    start = 0
    for name, parameter in ordered:
        entry = Entry(
            name=name,
            start=start,
            shape=tuple(parameter.shape),
            axis=getattr(parameter, "tensor_axis", None),
            rows=getattr(parameter, "vocabulary_size", getattr(parameter, "num_experts", None)),
            first_row=getattr(parameter, "first_expert", 0),
            is_tied=name in tied,
            is_partial=getattr(parameter, "tensor_partial", False),
        )
        yield entry
        start = entry.end

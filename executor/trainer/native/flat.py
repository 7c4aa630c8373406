"""All parameters of a rank in one buffer and their gradients in another, in shards of equal size, one per replica.

Parameters come in this order, so that what a rank counts in norms over the model is one interval:

    [those of this rank | shared with a later stage | with an earlier one | held whole by other tensor ranks, too]

It counts the first two.

ZeRO-1 (Rajbhandari et al. 2020): replica d of a stage keeps optimiser states of shard d only. A gradient is reduced
once for all parameters, and weights are gathered once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from executor.training_job import Coordinates


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
    place
        Of the rank: its replica keeps the shard of that number, and tensor rank 0 counts what every tensor rank holds
        whole.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        tied: Mapping[str, bool],
        *,
        place: Coordinates,
        num_shards: int,
        dtype: torch.dtype,
    ) -> None:
        def group(item: tuple[str, nn.Parameter]) -> int:
            name, parameter = item
            if place.tensor > 0 and not hasattr(parameter, "tensor_axis"):
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
        # Elements of which a tensor rank has a part of the gradient.
        self.partial = tuple(
            slice(entry.start, entry.end)
            for entry, (_, parameter) in zip(entries, ordered, strict=True)
            if getattr(parameter, "tensor_partial", False)
        )
        size = -(-start // num_shards)
        # Of the elements of this rank's shard.
        self.shard = slice(place.data * size, (place.data + 1) * size)
        self._initial = torch.zeros(size * num_shards, device=ordered[0][1].device)
        for entry, (_, parameter) in zip(entries, ordered, strict=True):
            self._initial[entry.start : entry.end] = parameter.detach().flatten()
        self.weights = self._initial.to(dtype)
        self.gradients = torch.zeros_like(self._initial)
        # Of the shard, over all replicas.
        self.summed = torch.empty_like(self.gradients[self.shard]) if num_shards > 1 else self.gradients
        for entry, (_, parameter) in zip(entries, ordered, strict=True):
            self._move(entry, parameter, dtype)
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

    def held(self) -> Iterator[tuple[Entry, int, int]]:
        """Entries with the interval of their elements that the shard has."""
        for entry in self.entries:
            start, end = max(self.shard.start, entry.start), min(self.shard.stop, entry.end)
            if start < end:
                yield entry, start - entry.start, end - entry.start

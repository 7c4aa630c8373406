"""Sets of parameters whose gradients are whole for no longer than a pass through their layers, nor weights, if wanted.

ZeRO-2: as soon as the backward pass of a micro-batch has all gradients of a set, they are summed over the replicas, and
each adds its shard to what earlier micro-batches gave; the next layers are computed meanwhile. ZeRO-3: between steps a
replica has its shard of the weights alone. They are gathered before layers need them, once for the forward pass and
once for the backward pass of each micro-batch, while the layers before are computed, and given up behind that.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from executor.trainer.clock import StepClock
from executor.trainer.native.flat import Entry, FlatParameters, Replicas, square_of, sum_parts, take


class Traffic:
    """What this rank exchanges with other replicas while it computes; of sums of gradients one at most is under way.

    What is not hidden behind computation counts as reduction.
    """

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self._sum: tuple[Any, Callable[[], None]] | None = None

    def wait(self, work: Any, *, within: str) -> None:
        """Wait for the end of an exchange, within a part of the step."""
        self._clock.lap(within)
        work.wait()
        self._clock.lap("reduction")

    def follow(self, begin: Callable[[], tuple[Any, Callable[[], None]]]) -> None:
        """End the sum that is under way and begin the next one: `begin` gives it, and what is done behind it."""
        self.end_sum(within="backward")
        self._sum = begin()

    def end_sum(self, *, within: str) -> None:
        """Wait for the sum that is under way."""
        if self._sum is not None:
            (work, done), self._sum = self._sum, None
            self.wait(work, within=within)
            done()


class ShardedParameters(FlatParameters):
    """A set of parameters at ZeRO stage 2 or 3, with several replicas.

    Parameters
    ----------
    shards_weights
        Stage 3.
    traffic
        Of all sets of the rank.
    tensor_group
        Ranks of one replica, which have parts of the gradients of some parameters; None: one, or none has.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        tied: Mapping[str, bool],
        *,
        replicas: Replicas,
        tensor_rank: int,
        dtype: torch.dtype,
        shards_weights: bool,
        traffic: Traffic,
        tensor_group: Any,
    ) -> None:
        self._traffic, self._tensor_group = traffic, tensor_group
        super().__init__(parameters, tied, replicas=replicas, tensor_rank=tensor_rank, dtype=dtype)
        self.shards_weights = shards_weights
        self._gathering: Any = None
        if shards_weights:
            storage = self._weights.untyped_storage()
            self._num_bytes = storage.nbytes()
            is_exact = self.masters is self._own
            self._own = self._own.clone()
            if is_exact:
                self.masters = self._own
            storage.resize_(0)

    def _take_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        self.summed = torch.zeros_like(self.masters)
        self._square = torch.zeros((), dtype=torch.float64, device=self.masters.device)
        # Of the pass that is under way.
        self._whole: torch.Tensor | None = None
        self._num_missing = 0
        for entry, parameter in zip(self.entries, parameters, strict=True):
            take(parameter, partial(self._add, entry))

    def _add(self, entry: Entry, gradient: torch.Tensor) -> None:
        if self._whole is None:
            self._whole = torch.zeros(self._weights.shape, device=gradient.device)
            self._num_missing = len(self.entries)
        entry.of(self._whole).add_(gradient)
        self._num_missing -= 1
        if not self._num_missing:
            self.end_pass()

    def end_pass(self) -> None:
        """Sum what a pass gave over the replicas, unless that is done already; some layers may have had no part."""
        if self._whole is not None:
            whole, self._whole = self._whole, None
            self._traffic.follow(partial(self._begin_sum, whole))

    def _begin_sum(self, whole: torch.Tensor) -> tuple[Any, Callable[[], None]]:
        parts = [whole[entry.start : entry.end] for entry in self.entries if entry.is_partial]
        sum_parts(parts, self._tensor_group)
        self._square += square_of(whole[: self.num_untied])
        shard = torch.empty_like(self.summed)
        work = dist.reduce_scatter_single(shard, whole, group=self._replicas.group, async_op=True)
        return work, partial(self._take_sum, shard, whole)

    def _take_sum(self, shard: torch.Tensor, _: torch.Tensor) -> None:
        """Add what was summed, of which the parts are kept until here."""
        self.summed.add_(shard)

    def zero_gradients(self) -> None:
        """Forget those of the step before."""
        self.summed.zero_()
        self._square.zero_()

    def partial_gradients(self) -> list[torch.Tensor]:
        """None: these are summed at the end of each pass."""
        return []

    def square(self) -> torch.Tensor:
        """Squared norms of this rank's gradients of single micro-batches, added up; likewise."""
        return self._square

    def sum_replicas(self) -> None:
        """Wait for the last sum."""
        self._traffic.end_sum(within="reduction")

    def publish(self) -> None:
        """Give this shard's weights to the other replicas, unless they gather them in the next step."""
        if not self.shards_weights:
            super().publish()
        elif self._own is not self.masters:
            self._own.copy_(self.masters)

    @property
    def has_weights(self) -> bool:
        """Whether all weights are there, or on their way."""
        return self._weights.untyped_storage().nbytes() > 0

    def gather(self) -> None:
        """Begin to gather the weights, unless that was begun already."""
        if not self.has_weights:
            self._weights.untyped_storage().resize_(self._num_bytes)
            group = self._replicas.group
            self._gathering = dist.all_gather_single(self._weights, self._own, group=group, async_op=True)

    def await_weights(self, *, within: str) -> None:
        """Wait until all weights are there, within a part of the step."""
        if self._gathering is not None:
            self._traffic.wait(self._gathering, within=within)
            self._gathering = None

    def release(self) -> None:
        """Give up all weights but the shard."""
        if self.shards_weights:
            self.await_weights(within="reduction")
            # What autograd has saved of parameters is in this storage, too, and there again when it is gathered again.
            self._weights.untyped_storage().resize_(0)


class Turns:
    """Sees to it that of layers in a row those at work have their weights, and the next ones get them meanwhile.

    Parameters
    ----------
    flats
        Parameters of each layer in pipeline order.
    """

    def __init__(self, flats: Sequence[Collection[ShardedParameters]]) -> None:
        self._flats = flats
        self._held: list[ShardedParameters] = []

    def come_to(self, place: int, step: int) -> None:
        """Layer `place` is next, and `place` + `step` behind it."""
        at_work = list(self._flats[place])
        following = list(self._flats[place + step]) if 0 <= place + step < len(self._flats) else []
        wanted = [*at_work, *following]
        for flat in self._held:
            if flat not in wanted:
                flat.release()
        self._held = wanted
        for flat in wanted:
            flat.gather()
        for flat in at_work:
            flat.await_weights(within="forward" if step > 0 else "backward")

    def end(self) -> None:
        """No layer is next."""
        for flat in self._held:
            flat.release()
        self._held = []

"""Which parameters of a rank make a set: those that all replicas of its stage have, and experts of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from executor.trainer.native.flat import FlatParameters, Replicas
from executor.trainer.native.sharded import ShardedParameters, Traffic

Named = Sequence[tuple[str, nn.Parameter]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sets:
    """Makes sets of parameters.

    `everywhere`: replicas of the stage. `experts`: those of them that have the same experts, where these are divided
    over replicas. `alone`: sets of single replicas that `shard` has made, of which there is nothing to shard.
    """

    everywhere: Replicas
    experts: Replicas
    tensor_rank: int
    dtype: torch.dtype
    alone: list[FlatParameters] = field(default_factory=list)

    def whole(self, parameters: Named, tied: Mapping[str, bool]) -> list[FlatParameters]:
        """Sets of ZeRO stage 1."""
        return [self._whole(part, tied, replicas) for part, replicas in self._split(parameters)]

    def shard(
        self, parameters: Named, tied: Mapping[str, bool], *, shards_weights: bool, traffic: Traffic, tensor_group: Any
    ) -> list[ShardedParameters]:
        """Sets of ZeRO stages 2 and 3."""
        found = []
        for part, replicas in self._split(parameters):
            if replicas.count == 1:
                self.alone.append(self._whole(part, tied, replicas))
                continue
            sharded = ShardedParameters(
                part,
                tied,
                replicas=replicas,
                tensor_rank=self.tensor_rank,
                dtype=self.dtype,
                shards_weights=shards_weights,
                traffic=traffic,
                tensor_group=tensor_group,
            )
            found.append(sharded)
        return found

    def _whole(self, parameters: Named, tied: Mapping[str, bool], replicas: Replicas) -> FlatParameters:
        return FlatParameters(parameters, tied, replicas=replicas, tensor_rank=self.tensor_rank, dtype=self.dtype)

    def _split(self, parameters: Named) -> Iterator[tuple[Named, Replicas]]:
        own = [item for item in parameters if self._is_divided(item[1])]
        shared = [item for item in parameters if not self._is_divided(item[1])]
        for part, replicas in ((shared, self.everywhere), (own, self.experts)):
            if part:
                yield part, replicas

    def _is_divided(self, parameter: nn.Parameter) -> bool:
        return self.experts != self.everywhere and hasattr(parameter, "first_expert")

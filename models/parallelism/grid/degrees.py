"""Which tensor-parallel degrees a stage can have, by its number of GPUs, and where its replicas then sit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.performance.iteration.profile import ModelProfile
from stowplan.arrays import IntArray, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DegreeTable:
    """Choices of a stage: G sizes x T options.

    sizes: GPUs, ascending (G,). tp, dp: degrees (T,), (G, T). possible: tensor groups of that degree fit the model and
    the nodes (G, T). inside: some node holds several replicas; across: the replicas are on several nodes (G, T).
    """

    sizes: IntArray
    tp: IntArray
    dp: IntArray
    possible: Mask
    inside: Mask
    across: Mask

    def index_of(self, sizes: IntArray) -> IntArray:
        """Index of every size, which the table must have."""
        return np.asarray(np.searchsorted(self.sizes, sizes))

    def degrees(self, size_index: int, option: int) -> tuple[int, int]:
        """(dp, tp) of an option."""
        return int(self.dp[size_index, option]), int(self.tp[option])


def compact_degrees(profile: ModelProfile, sizes: Sequence[int], gpus_per_node: int) -> DegreeTable:
    """Choices of stages that are laid out as in `layout`: whole nodes, and the rest in one node."""
    size = np.array(sizes, dtype=np.int64)[:, None]
    tp = np.array(tensor_degrees(profile, min(gpus_per_node, max(sizes))), dtype=np.int64)
    whole, rest = np.divmod(size, gpus_per_node)
    # Without whole nodes, any degree divides 0 of them.
    possible = (size % tp == 0) & (rest % tp == 0) & ((whole == 0) | (gpus_per_node % tp == 0))
    dp = size // tp
    groups = np.where(whole > 0, gpus_per_node // tp, 0)
    return DegreeTable(
        sizes=size[:, 0],
        tp=tp,
        dp=np.maximum(dp, 1),
        possible=possible,
        inside=np.maximum(groups, rest // tp) > 1,
        across=np.broadcast_to(size > gpus_per_node, possible.shape),
    )


def tensor_degrees(profile: ModelProfile, largest: int) -> tuple[int, ...]:
    """Degrees up to `largest` that divide everything that tensor parallelism divides."""
    return tuple(tp for tp in range(1, largest + 1) if profile.admits_tensor_degree(tp))

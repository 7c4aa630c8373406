"""Data of a placement that weighs several tiers, free of any modelling layer.

    minimise  sum_t w_t (a Y_t + b T_t)

over the weighted tiers t: Y_t units of the tier are used, and one group touches at most T_t of them; a and b as in
Eq. 4. One weighted tier, the minipods with weight 1, is the paper's case. Bins are the units of the finest weighted
tier, or minipods where these are finer; every unit is a set of bins. A solution is an int64 matrix `counts` (G, B):
nodes of each group per bin.
"""

from dataclasses import dataclass

import numpy as np

from models.placement.arnold.instance import ArnoldInstance
from stowplan.arrays import IntMatrix, IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedTier:
    """A tier with weight `weight`; unit: int64 (B,), the unit of each bin, numbered from 0 and each with a bin."""

    name: str
    weight: float
    unit: IntVector

    @property
    def num_units(self) -> int:
        """Number of units."""
        return int(self.unit.max()) + 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierInstance:
    """G groups of `group_size` nodes on B bins.

    free_nodes: int64 (B,); tiers: coarsest first. a and b of Eq. 4 are `minipod_weight` and `spread_weight`.

    Raises
    ------
    ValueError
        When there is no group, bin or tier, or shapes disagree: a bug of whoever built it.
    """

    num_groups: int
    group_size: int
    free_nodes: IntVector
    tiers: tuple[WeightedTier, ...]
    minipod_weight: float
    spread_weight: float

    def __post_init__(self) -> None:
        if self.num_groups < 1 or self.group_size < 1 or not self.free_nodes.size or not self.tiers:
            raise ValueError("an instance needs at least one group, one node per group, one bin and one tier")
        if any(tier.unit.shape != self.free_nodes.shape for tier in self.tiers) or (self.free_nodes < 0).any():
            raise ValueError("every tier must name the unit of each bin, and free_nodes be at least 0")

    @property
    def num_bins(self) -> int:
        """Number of bins B."""
        return int(self.free_nodes.size)

    @property
    def num_nodes(self) -> int:
        """Nodes that the job needs."""
        return self.num_groups * self.group_size

    @property
    def has_room(self) -> bool:
        """Whether enough nodes are free: exactly then there is a solution."""
        return int(self.free_nodes.sum()) >= self.num_nodes

    def alone(self, tier: WeightedTier) -> ArnoldInstance:
        """Eq. 4 on the units of one tier."""
        free = np.bincount(tier.unit, weights=self.free_nodes, minlength=tier.num_units).astype(np.int64)
        return ArnoldInstance(
            num_groups=self.num_groups,
            group_size=self.group_size,
            minipods=tuple(f"{tier.name} {k}" for k in range(tier.num_units)),
            free_nodes=free,
            minipod_weight=self.minipod_weight,
            spread_weight=self.spread_weight,
        )

    def holds(self, counts: IntMatrix) -> bool:
        """Whether `counts` (G, B) is a solution: whole groups on free nodes."""
        legal = (counts.sum(axis=1) == self.group_size).all() and (counts.sum(axis=0) <= self.free_nodes).all()
        return bool(legal and counts.shape == (self.num_groups, self.num_bins) and (counts >= 0).all())

    def objective(self, counts: IntMatrix) -> float:
        """Weighted sum over the tiers for the solution `counts` (G, B)."""
        groups, bins = np.nonzero(counts)
        total = 0.0
        for tier in self.tiers:
            # Nearly all pairs of a group and a unit are empty, and a matrix of them is large.
            touched = np.unique(groups * tier.num_units + tier.unit[bins])
            used = np.unique(touched % tier.num_units).size
            spread = int(np.bincount(touched // tier.num_units).max())
            total += tier.weight * (self.minipod_weight * used + self.spread_weight * spread)
        return total


def on_units(counts: IntMatrix, tier: WeightedTier) -> IntMatrix:
    """Nodes per group and unit of the tier (G, U) from nodes per group and bin."""
    groups, bins = np.nonzero(counts)
    units = np.zeros((counts.shape[0], tier.num_units), dtype=np.int64)
    np.add.at(units, (groups, tier.unit[bins]), counts[groups, bins])
    return units


def max_spread(counts: IntMatrix) -> int:
    """The most units that one group touches."""
    return int(np.count_nonzero(counts, axis=1).max())

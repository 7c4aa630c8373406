"""Data of one Arnold instance, free of any modelling layer, and the measures of a solution in whole nodes.

A solution is an int64 matrix `labels` (G, g): the minipod of each of the g nodes of group i (`labels`).
"""

from dataclasses import dataclass

from models.placement.arnold.labels import max_spread, num_used
from models.placement.arnold.matrix import CommunicationMatrix
from models.placement.arnold.parameters import SchedulingUnit
from stowplan.arrays import IntMatrix, IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArnoldInstance:
    """G groups of `group_size` nodes to be placed on M minipods.

    minipods: M labels; free_nodes: int64 (M,), wholly free nodes of each. The objective is
    minipod_weight * (minipods used) + spread_weight * (most minipods touched by one group), Eq. 4.

    Raises
    ------
    ValueError
        When there is no group or minipod, or shapes disagree: a bug of whoever built it.
    """

    num_groups: int
    group_size: int
    minipods: tuple[str, ...]
    free_nodes: IntVector
    minipod_weight: float
    spread_weight: float

    def __post_init__(self) -> None:
        if self.num_groups < 1 or self.group_size < 1 or not self.minipods:
            raise ValueError("an instance needs at least one group, one node per group and one minipod")
        if self.free_nodes.shape != (len(self.minipods),) or (self.free_nodes < 0).any():
            raise ValueError("free_nodes must hold one count, at least 0, per minipod")

    @property
    def num_minipods(self) -> int:
        """Number of minipods M."""
        return len(self.minipods)

    @property
    def num_nodes(self) -> int:
        """Nodes that the job needs."""
        return self.num_groups * self.group_size

    @property
    def has_room(self) -> bool:
        """Whether enough nodes are free: exactly then the model is feasible."""
        return int(self.free_nodes.sum()) >= self.num_nodes

    @property
    def least_spread(self) -> int:
        """Minipods that a group touches at least: its size over the largest minipod's free nodes, rounded up."""
        return -(-self.group_size // max(1, int(self.free_nodes.max())))

    def objective(self, labels: IntMatrix) -> float:
        """Eq. 4 of the solution `labels` (G, g)."""
        return self.minipod_weight * num_used(labels) + self.spread_weight * max_spread(labels)


def affinity_weights(alpha: float, unit: SchedulingUnit) -> tuple[float, float]:
    """Weights of (minipods used, largest spread of a unit) in Eq. 4.

    The number of used minipods bounds the spread of the groups that are *not* the unit. With PP groups as units
    these are the DP groups, so alpha multiplies the minipods and beta T, as printed. With DP groups as units T is
    the spread of a DP group and takes alpha, and the minipods bound the PP groups and take beta.
    """
    return (alpha, 1 - alpha) if unit is SchedulingUnit.PP else (1 - alpha, alpha)


def arnold_instance(
    matrix: CommunicationMatrix, unit: SchedulingUnit, alpha: float, minipods: tuple[str, ...], free_nodes: IntVector
) -> ArnoldInstance:
    """Numbers of the MIP: groups of the scheduling unit, free nodes (M,) per minipod, weights."""
    num_groups, group_size = matrix.groups(unit)
    minipod_weight, spread_weight = affinity_weights(alpha, unit)
    return ArnoldInstance(
        num_groups=num_groups,
        group_size=group_size,
        minipods=minipods,
        free_nodes=free_nodes,
        minipod_weight=minipod_weight,
        spread_weight=spread_weight,
    )

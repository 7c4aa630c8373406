"""How far communication groups reach over minipods, in the paper's two measures.

Input is the communication matrix as an int64 array (rows, columns) of minipod indices.
- Minipods: a group that sits in k minipods counts k = 1, 2, ... (the measure of Eq. 4).
- Distance D (Eq. 3): positions in which two one-hot vectors of the group differ; one minipod counts 0, k >= 2 count k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.placement.arnold.instance import affinity_weights
from models.placement.arnold.labels import minipods_per_row, num_used
from models.placement.arnold.parameters import SchedulingUnit
from models.plan import SpreadPair
from models.workload import Snapshot
from stowplan.arrays import IntMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Largest spreads of DP groups (columns) and PP groups (rows) in both measures, and the minipods in use."""

    minipods: SpreadPair
    distance: SpreadPair
    num_used: int

    def of_unit(self, unit: SchedulingUnit) -> int:
        """Most minipods that one scheduling unit touches, T."""
        return self.minipods.pp if unit is SchedulingUnit.PP else self.minipods.dp

    def objective_eq4(self, alpha: float, unit: SchedulingUnit) -> float:
        """Weighted sum of minipods used and T, weights as `affinity_weights` has them."""
        minipod_weight, spread_weight = affinity_weights(alpha, unit)
        return minipod_weight * self.num_used + spread_weight * self.of_unit(unit)

    def objective_eq2(self, alpha: float) -> float:
        """alpha * largest D of a DP group + (1 - alpha) * largest D of a PP group."""
        return alpha * self.distance.dp + (1 - alpha) * self.distance.pp


def units_of(snapshot: Snapshot, cells: Sequence[Sequence[str]], tier: int) -> IntMatrix:
    """Unit of the tier at position `tier` in which each cell (rows, columns) sits, numbered in the order of names."""
    paths = {node.id: node.path[: tier + 1] for node in snapshot.cluster.nodes}
    of_cell = [[paths[node] for node in row] for row in cells]
    number = {path: k for k, path in enumerate(sorted({path for row in of_cell for path in row}))}
    return np.array([[number[path] for path in row] for row in of_cell], dtype=np.int64)


def distance(num_minipods: int) -> int:
    """D of a group that touches `num_minipods` minipods (Eq. 3)."""
    return 0 if num_minipods == 1 else num_minipods


def measure(minipods: IntMatrix) -> Spreads:
    """Measure a filled communication matrix (rows, columns)."""
    dp = int(minipods_per_row(minipods.T).max())
    pp = int(minipods_per_row(minipods).max())
    return Spreads(
        minipods=SpreadPair(dp=dp, pp=pp),
        distance=SpreadPair(dp=distance(dp), pp=distance(pp)),
        num_used=num_used(minipods),
    )

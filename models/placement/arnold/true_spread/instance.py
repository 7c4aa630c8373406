"""Data of the placement by Eq. 2 itself, free of any modelling layer.

    minimise  alpha max_c D(column c) + beta max_r D(row r),    D = 0 for one minipod, k for k >= 2        (Eqs. 2, 3)

over all ways to put the R x C cells of the communication matrix on minipods, at most f_j on minipod j. Rows are PP
groups, columns DP groups; which weight is which: `instance.affinity_weights`. A solution is an int64 matrix `labels`
(R, C) of minipod indices.

The objective depends on two numbers only, the most minipods a of a row and the most minipods b of a column. So the
problem is to find, for every a, the least b.
"""

from dataclasses import dataclass

import numpy as np

from models.placement.arnold.instance import ArnoldInstance, affinity_weights
from models.placement.arnold.labels import minipods_per_row
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.spread import distance
from stowplan.arrays import IntMatrix, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrueSpreadInstance:
    """R x C cells on M minipods; minipods: M labels; free_nodes: int64 (M,).

    alpha is the affinity of the columns (DP groups), 1 - alpha that of the rows (PP groups).

    Raises
    ------
    ValueError
        When a dimension is 0 or shapes disagree: a bug of whoever built it.
    """

    num_rows: int
    num_columns: int
    minipods: tuple[str, ...]
    free_nodes: IntVector
    alpha: float

    def __post_init__(self) -> None:
        if self.num_rows < 1 or self.num_columns < 1 or not self.minipods:
            raise ValueError("an instance needs at least one row, one column and one minipod")
        if self.free_nodes.shape != (len(self.minipods),) or (self.free_nodes < 0).any():
            raise ValueError("free_nodes must hold one count, at least 0, per minipod")

    @property
    def num_minipods(self) -> int:
        """Number of minipods M."""
        return len(self.minipods)

    @property
    def num_cells(self) -> int:
        """Nodes that the job needs."""
        return self.num_rows * self.num_columns

    @property
    def has_room(self) -> bool:
        """Whether enough nodes are free: exactly then there is a solution."""
        return int(self.free_nodes.sum()) >= self.num_cells

    def value(self, row_spread: int, column_spread: int) -> float:
        """Eq. 2 when rows touch at most `row_spread` minipods and columns `column_spread`."""
        return self.alpha * distance(column_spread) + (1 - self.alpha) * distance(row_spread)

    def objective(self, labels: IntMatrix) -> float:
        """Eq. 2 of the solution `labels` (R, C)."""
        return self.value(*spreads(labels))

    def groups(self, unit: SchedulingUnit, *, weighted: bool) -> ArnoldInstance:
        """The instance of Eq. 4 for the same job; unless `weighted`, only the largest spread of a unit counts."""
        shape = (self.num_rows, self.num_columns)
        minipod_weight, spread_weight = affinity_weights(self.alpha, unit) if weighted else (0.0, 1.0)
        return ArnoldInstance(
            num_groups=shape[0] if unit is SchedulingUnit.PP else shape[1],
            group_size=shape[1] if unit is SchedulingUnit.PP else shape[0],
            minipods=self.minipods,
            free_nodes=self.free_nodes,
            minipod_weight=minipod_weight,
            spread_weight=spread_weight,
        )

    def cells(self) -> ArnoldInstance:
        """Every cell as a group of its own: the transportation problem that fixed supports leave."""
        return ArnoldInstance(
            num_groups=self.num_cells,
            group_size=1,
            minipods=self.minipods,
            free_nodes=self.free_nodes,
            minipod_weight=1.0,
            spread_weight=1.0,
        )


def spreads(labels: IntMatrix) -> tuple[int, int]:
    """The most minipods that a row and that a column touches."""
    return int(minipods_per_row(labels).max()), int(minipods_per_row(labels.T).max())


def supports(labels: IntMatrix, num_minipods: int) -> tuple[Mask, Mask]:
    """Which minipods each row (R, M) and each column (C, M) touches."""
    hits = labels[:, :, None] == np.arange(num_minipods)
    return hits.any(axis=1), hits.any(axis=0)

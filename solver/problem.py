"""The matrix form: what every declared model is compiled to and every backend solves.

min / max  objective @ x + offset
s.t.       row_lower <= matrix @ x <= row_upper
           lower <= x <= upper,   x_j integer where integrality_j
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from solver.sense import Sense
from stowplan.arrays import FloatVector, Mask, all_of
from stowplan.slots import copier

if TYPE_CHECKING:
    from solver.decomposition.structure import ChoiceProblem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatrixProblem:
    """A mixed-integer linear program of n columns and m rows.

    objective, lower, upper: float64 (n,); integrality: bool (n,); row_lower, row_upper: float64 (m,);
    matrix: CSC (m, n) without explicit zeros. Infinite bounds are +-inf. Names are unique or empty. choice: its choice
    form, where whoever made the problem has told it. point (n,): one that keeps all rows and bounds, where whoever has
    checked it has told it.

    Raises
    ------
    ValueError
        When shapes disagree or a coefficient is NaN: a bug of the compiler that built it.
    """

    name: str
    sense: Sense
    objective: FloatVector
    matrix: "sparse.csc_array"
    row_lower: FloatVector
    row_upper: FloatVector
    lower: FloatVector
    upper: FloatVector
    integrality: Mask
    offset: float = 0.0
    column_names: tuple[str, ...] = ()
    row_names: tuple[str, ...] = field(default=())
    # Not of what is made of the problem by `replace`, of which it need not be true.
    choice: "ChoiceProblem | None" = field(init=False, default=None)
    point: FloatVector | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        m, n = self.matrix.shape
        columns = (self.objective, self.lower, self.upper, self.integrality)
        if any(a.shape != (n,) for a in columns) or any(a.shape != (m,) for a in (self.row_lower, self.row_upper)):
            raise ValueError(f"{self.name}: shapes do not match the {m} x {n} matrix")
        named = ((self.column_names, n), (self.row_names, m))
        if any(names and len(names) != count for names, count in named):
            raise ValueError(f"{self.name}: names do not match the {m} x {n} matrix")
        bounds = (self.row_lower, self.row_upper, self.lower, self.upper)
        if not all_of(np.isfinite(self.matrix.data)) or any(np.isnan(a).any() for a in bounds):
            raise ValueError(f"{self.name}: a coefficient is NaN or infinite")
        self._check_costs()

    def _check_costs(self) -> None:
        if not all_of(np.isfinite(self.objective)) or not math.isfinite(self.offset):
            raise ValueError(f"{self.name}: a coefficient is NaN or infinite")

    def with_costs(self, sense: Sense, objective: FloatVector, offset: float) -> "MatrixProblem":
        """The very same rows and bounds, which have been checked, with an objective (n,).

        Raises
        ------
        ValueError
            When that has another shape, or a coefficient is NaN or infinite.
        """
        if objective.shape != self.objective.shape:
            raise ValueError(f"{self.name}: {objective.shape} costs for {self.num_columns} columns")
        other = _with_costs(self, sense, objective, offset, None, None)
        other._check_costs()
        return other

    def tell(self, choice: "ChoiceProblem | None") -> None:
        """Say what the choice form is, by whoever made the problem: what it takes longest to find."""
        object.__setattr__(self, "choice", choice)

    def tell_point(self, point: FloatVector) -> None:
        """Say that `point` (n,) keeps all rows and bounds: backends do not look at it again."""
        object.__setattr__(self, "point", point)

    @property
    def num_columns(self) -> int:
        """Number of variables n."""
        return int(self.matrix.shape[1])

    @property
    def num_rows(self) -> int:
        """Number of constraints m."""
        return int(self.matrix.shape[0])

    def value(self, x: FloatVector) -> float:
        """Objective of the point `x` (n,), offset included."""
        # Not by BLAS, which begins threads for long vectors and takes a hundred times as long.
        return float((self.objective * x).sum()) + self.offset


_with_costs = copier(MatrixProblem, "sense", "objective", "offset", "choice", "point")

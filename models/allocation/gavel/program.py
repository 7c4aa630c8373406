"""Rows that shares and rounds have in common, and a linear program as arrays on its way to the matrix form."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.gavel.instance import GavelInstance, Pairs
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """max gain x over 0 <= x <= upper under the rows of `groups`: n columns, all integer or none."""

    name: str
    gain: FloatVector
    upper: FloatVector
    is_integer: bool
    groups: tuple[ConstraintGroup, ...]
    column_names: Callable[[], tuple[str, ...]]

    def assemble(self) -> MatrixProblem:
        """The matrix form, without names: what CVXPY would compile of `declaration`, in a fraction of the time."""
        num_columns = self.gain.size
        matrix, row_lower, row_upper = stacked(self.groups, num_columns)
        return MatrixProblem(
            name=self.name,
            sense=Sense.MAXIMIZE,
            objective=self.gain,
            offset=0.0,
            matrix=matrix,
            row_lower=row_lower,
            row_upper=row_upper,
            lower=np.zeros(num_columns),
            upper=self.upper,
            integrality=np.full(num_columns, self.is_integer),
        )


def common_rows(
    instance: GavelInstance, pairs: Pairs, name: Callable[[int], str], num_more: int = 0
) -> Iterator[ConstraintGroup]:
    """Every owner, of this `name`, is on one type at a time, and all fit: groups that are not empty, over the columns
    of the pairs and `num_more` behind them."""
    several = np.flatnonzero(np.bincount(pairs.owner, minlength=pairs.size.size) > 1)
    if several.size:
        columns = np.flatnonzero(np.isin(pairs.owner, several))
        rows = np.searchsorted(several, pairs.owner[columns])
        names = [name(k) for k in several.tolist()]
        yield group("time", rows, columns, np.ones(columns.size), np.ones(several.size), pairs, names, num_more)
    needs = instance.rows.coefficients[:, pairs.configuration] * pairs.size[pairs.owner]
    used = np.flatnonzero(needs.any(axis=1))
    if used.size:
        rows, columns = np.nonzero(needs[used])
        limits = instance.rows.limits[used].astype(np.float64)
        labels = [instance.rows.names[k] for k in used]
        values = needs[used][rows, columns].astype(np.float64)
        yield group("placeable", rows, columns, values, limits, pairs, labels, num_more)


def group(
    label: str,
    rows: IntVector,
    columns: IntVector,
    values: FloatVector,
    limits: FloatVector,
    pairs: Pairs,
    names: list[str],
    num_more: int = 0,
) -> ConstraintGroup:
    """Rows over the columns of the pairs, and `num_more` behind them."""
    shape = (limits.size, pairs.owner.size + num_more)
    return ConstraintGroup(
        label=label,
        matrix=sparse.csr_array((values, (rows, columns)), shape=shape),
        limits=limits,
        is_equality=False,
        row_names=tuple(name if label == "placeable" else f"{label}[{name}]" for name in names),
    )

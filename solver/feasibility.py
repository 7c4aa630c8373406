"""Is this point feasible? Pure NumPy on the matrix form; knows no solver.

A row is violated when it exceeds a limit b by more than tolerance * max(|b|, min(1, max |a_ij|)): absolute for
ordinary rows, relative for large limits and for rows whose coefficients are all tiny.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from solver.names import column_name, row_name
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, all_of

# Ten times what the solvers allow themselves: exact integers move rows a little.
FEASIBILITY_TOLERANCE = 1e-5


class ViolationKind(StrEnum):
    """What is violated."""

    ROW = "row"
    BOUND = "bound"
    INTEGRALITY = "integrality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violated row, bound or integrality; `amount` is the absolute excess (nan where the point is not finite)."""

    kind: ViolationKind
    name: str
    amount: float

    def __str__(self) -> str:
        return f"{self.kind} {self.name} is violated by {self.amount:g}"


def row_scale(problem: MatrixProblem) -> FloatVector:
    """Largest absolute coefficient of each row (m,), 1 for empty rows."""
    largest = np.zeros(problem.num_rows)
    np.maximum.at(largest, problem.matrix.indices, np.abs(problem.matrix.data))
    return np.where(largest == 0.0, 1.0, largest)


def violations(
    problem: MatrixProblem, x: FloatVector, tolerance: float = FEASIBILITY_TOLERANCE
) -> tuple[Violation, ...]:
    """Return every violation of the point `x` (n,), worst (relative to its scale) first; empty when feasible.

    A point that is not finite is never feasible.
    """
    # Comparisons are written as "not within tolerance" so that nan counts as violated.
    with np.errstate(invalid="ignore"):
        rows = problem.matrix @ x
        # Most points are, and to say how far the others are from it takes several times as long.
        if _keeps_all_exactly(problem, x, rows):
            return ()
        excess, limit = _excess(rows, problem.row_lower, problem.row_upper)
        # A scale is at least the limit: most points keep all rows even so, and what else counts need not be known.
        if not (excess <= tolerance * limit).all():
            limit = np.maximum(limit, np.minimum(1.0, row_scale(problem)))
        beyond, bound = _excess(x, problem.lower, problem.upper)
        fraction = np.where(problem.integrality, np.abs(x - np.rint(x)), 0.0)
        checks = (
            (ViolationKind.ROW, row_name, excess, limit),
            (ViolationKind.BOUND, column_name, beyond, np.maximum(bound, 1.0)),
            (ViolationKind.INTEGRALITY, column_name, fraction, np.ones(problem.num_columns)),
        )
        found = [
            (amount[i] / scale[i], Violation(kind=kind, name=name(problem, int(i)), amount=float(amount[i])))
            for kind, name, amount, scale in checks
            for i in np.flatnonzero(~(amount <= tolerance * scale))
        ]
    found.sort(key=lambda entry: -np.inf if np.isnan(entry[0]) else -entry[0])
    return tuple(violation for _, violation in found)


def _keeps_all_exactly(problem: MatrixProblem, x: FloatVector, rows: FloatVector) -> bool:
    """Whether `x` (n,) with its `rows` (m,) keeps everything without any tolerance."""
    return (
        _lies_within(x, problem.lower, problem.upper)
        and _lies_within(rows, problem.row_lower, problem.row_upper)
        and all_of(problem.integrality <= (x == np.rint(x)))
    )


def _lies_within(value: FloatVector, lower: FloatVector, upper: FloatVector) -> bool:
    return all_of(np.isfinite(value)) and all_of(lower <= value) and all_of(value <= upper)


def _excess(value: FloatVector, lower: FloatVector, upper: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Excess over the nearer violated limit, and that limit's size, 0 where there is none."""
    below, above = lower - value, value - upper
    limit = np.abs(np.where(below > above, lower, upper))
    return np.maximum(below, above), np.where(np.isfinite(limit), limit, 0.0)

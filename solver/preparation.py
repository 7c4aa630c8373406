"""What happens to a problem between its compiler and a backend.

Solvers have absolute tolerances: an objective of 1e-8 is "optimal" everywhere for HiGHS and SCIP alike, and a row
with coefficients of 1e-7 is never violated. Objective and rows are therefore scaled, by powers of two, which
changes no mantissa: a point, its objective and the bound mean exactly the same before and after.
Contradictions that need no search are found here and named.
"""

import math
from dataclasses import dataclass, replace
from operator import is_

import numpy as np
from scipy import sparse

from solver.feasibility import row_scale
from solver.names import column_name, row_name
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import BackendError
from stowplan.living import OfUnchanged

# Range wanted for the largest objective coefficient: tolerances of 1e-6 are then at most 1e-9 relative to it.
_OBJECTIVE_SCALE = (2.0**10, 2.0**20)
# Beyond this costs come near what solvers take for infinite, and what is 1 is beyond the digits of double precision.
_LARGEST_OBJECTIVE = 2.0**50
# Factors beyond come near the end of double precision.
_LARGEST_FACTOR = 2.0**1000
# What is less after scaling down is within the tolerances of solvers.
_SMALLEST_OBJECTIVE = 1e-6
# What both solvers treat as zero or refuse.
_SMALLEST_COEFFICIENT, _LARGEST_COEFFICIENT = 1e-9, 1e15
_ROUNDING = 1e-9
_INTEGRALITY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A problem with the same feasible points and `factor` (a power of two) times the objective.

    `row_factors` (m,), also powers of two, are what the rows were multiplied with. `unseen`: what terms of the
    objective that solvers do not see beside the largest are worth, as declared; infinite where they have no bounds.
    `is_given`: whether rows and bounds are the very ones that were given. `conflicts` names rows and bounds each of
    which alone makes the problem infeasible.
    """

    problem: MatrixProblem
    factor: float
    unseen: float
    row_factors: FloatVector
    is_given: bool
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Frame:
    """Rows and bounds as a backend gets them, and what the rows were multiplied with; matrix: None for the given.
    is_given: whether rows and bounds are the very ones that were given."""

    matrix: "sparse.csc_array | None"
    row_lower: FloatVector
    row_upper: FloatVector
    lower: FloatVector
    upper: FloatVector
    row_factors: FloatVector
    is_given: bool


# Problems that follow one another may have the very same rows and bounds, and other objectives.
_frames: OfUnchanged["sparse.csc_array", _Frame] = OfUnchanged()


def prepare(problem: MatrixProblem) -> Prepared:
    """Scale, tighten the bounds of integer columns, and find contradictions.

    Raises
    ------
    BackendError
        When a coefficient is so small or so large that solvers would drop or refuse it.
    """
    same = (problem.row_lower, problem.row_upper, problem.lower, problem.upper, problem.integrality)
    frame = _frames.get(problem.matrix, same)
    if frame is None:
        _refuse_unrepresentable(problem)
        lower, upper = integer_bounds(problem)
        conflicts = _contradictions(problem, lower, upper)
        if conflicts:
            ones = np.ones(problem.num_rows)
            return Prepared(
                problem=problem, factor=1.0, unseen=0.0, row_factors=ones, is_given=False, conflicts=conflicts
            )
        frame = _framed(problem, lower, upper)
        _frames.put(problem.matrix, same, None, frame)
    largest = float(np.abs(problem.objective).max(initial=0.0))
    factor, rows = _factor(problem.objective, largest), frame.row_factors
    scaled = problem.with_costs(problem.sense, problem.objective * factor, problem.offset * factor)
    if not frame.is_given:
        scaled = replace(
            scaled,
            matrix=problem.matrix if frame.matrix is None else frame.matrix,
            row_lower=frame.row_lower,
            row_upper=frame.row_upper,
            lower=frame.lower,
            upper=frame.upper,
        )
    choice = problem.choice
    if choice is not None and frame.matrix is None:
        scaled.tell(replace(choice, cost=choice.cost * factor, offset=choice.offset * factor))
    unseen = _unseen(scaled) / factor if largest * factor >= _LARGEST_OBJECTIVE / 2 else 0.0
    return Prepared(
        problem=scaled, factor=factor, unseen=unseen, row_factors=rows, is_given=frame.is_given, conflicts=()
    )


def _framed(problem: MatrixProblem, lower: FloatVector, upper: FloatVector) -> _Frame:
    """The rows, and the bounds (n,) of `integer_bounds`, of a problem without contradictions."""
    rows = np.ones(problem.num_rows)
    if np.abs(problem.matrix.data).min(initial=1.0) < 1.0:
        rows = 2.0 ** -np.floor(np.log2(np.minimum(1.0, row_scale(problem))))
    is_scaled = bool((rows != 1.0).any())
    # Limits may cross by rounding alone; contradictions() has seen all others.
    row_lower, row_upper = problem.row_lower, _not_below(problem.row_lower, problem.row_upper)
    given = (problem.row_upper, problem.lower, problem.upper)
    highest = _not_below(lower, upper)
    return _Frame(
        matrix=sparse.csc_array(sparse.diags_array(rows) @ problem.matrix) if is_scaled else None,
        row_lower=row_lower * rows if is_scaled else row_lower,
        row_upper=row_upper * rows if is_scaled else row_upper,
        lower=lower,
        upper=highest,
        row_factors=rows,
        is_given=not is_scaled and all(map(is_, (row_upper, lower, highest), given)),
    )


def _not_below(lower: FloatVector, upper: FloatVector) -> FloatVector:
    """Upper limits that are at least the lower ones: nearly always the very array, which tells that rows and bounds
    are those of an earlier problem."""
    return upper if (lower <= upper).all() else np.maximum(upper, lower)


def contradictions(problem: MatrixProblem) -> tuple[str, ...]:
    """Names of the rows and bounds that no point can satisfy, whatever the others are."""
    return _contradictions(problem, *integer_bounds(problem))


def _contradictions(problem: MatrixProblem, lower: FloatVector, upper: FloatVector) -> tuple[str, ...]:
    """The same, with the bounds (n,) of `integer_bounds`."""
    rows = _crossed(problem.row_lower, problem.row_upper)
    not_nothing = (problem.row_lower > _ROUNDING) | (problem.row_upper < -_ROUNDING)
    if not_nothing.any():
        rows |= not_nothing & (np.bincount(problem.matrix.indices, minlength=problem.num_rows) == 0)
    columns = _crossed(lower, upper)
    return (
        *(row_name(problem, int(i)) for i in np.flatnonzero(rows)),
        *(f"bounds of {column_name(problem, int(j))}" for j in np.flatnonzero(columns)),
    )


def _crossed(lower: FloatVector, upper: FloatVector) -> Mask:
    if (lower <= upper).all() and lower.max(initial=-np.inf) < np.inf and upper.min(initial=np.inf) > -np.inf:
        return np.zeros(lower.size, dtype=np.bool_)
    slack = _ROUNDING * np.maximum(1.0, np.where(np.isfinite(upper), np.abs(upper), 1.0))
    crossed: Mask = (lower > upper + slack) | (lower == np.inf) | (upper == -np.inf)
    return crossed


def integer_bounds(problem: MatrixProblem) -> tuple[FloatVector, FloatVector]:
    """Bounds with those of integer columns moved inwards to integers."""
    if ((problem.lower == 0.0) & (problem.upper == 1.0)).all():
        return problem.lower, problem.upper
    lower = np.where(problem.integrality, np.ceil(problem.lower - _INTEGRALITY), problem.lower)
    upper = np.where(problem.integrality, np.floor(problem.upper + _INTEGRALITY), problem.upper)
    return lower + 0.0, upper + 0.0


def objective_factor(objective: FloatVector) -> float:
    """Power of two that brings the largest coefficient to the scale that backends are given.

    Scaling down stops where the smallest coefficient would fall below one, and so towards the tolerances, unless the
    largest is beyond all digits of that.
    """
    return _factor(objective, float(np.abs(objective).max(initial=0.0)))


def _factor(objective: FloatVector, largest: float) -> float:
    """The same, of the `largest` absolute coefficient."""
    if largest == 0.0:
        return 1.0
    low, high = _OBJECTIVE_SCALE
    if largest <= high:
        factor = max(low / largest, 1.0)
    else:
        smallest = float(np.abs(objective[objective != 0.0]).min())
        factor = max(high / largest, min(1.0, 1.0 / smallest))
    return 2.0 ** round(math.log2(min(factor, _LARGEST_OBJECTIVE / largest, _LARGEST_FACTOR)))


def _unseen(scaled: MatrixProblem) -> float:
    """What terms within the tolerances are worth together, of a problem whose largest cost could not be any larger."""
    sizes = np.abs(scaled.objective)
    small = (sizes > 0) & (sizes < _SMALLEST_OBJECTIVE)
    return float(sizes[small] @ np.maximum(np.abs(scaled.lower), np.abs(scaled.upper))[small])


def _refuse_unrepresentable(problem: MatrixProblem) -> None:
    """Refuse coefficients that would be dropped although they can matter, and those that are refused."""
    matrix = problem.matrix
    size = np.abs(matrix.data)
    if size.min(initial=1.0) > _SMALLEST_COEFFICIENT and size.max(initial=1.0) < _LARGEST_COEFFICIENT:
        return
    suspects = np.flatnonzero((size <= _SMALLEST_COEFFICIENT) | (size >= _LARGEST_COEFFICIENT))
    columns = np.searchsorted(matrix.indptr, suspects, side="right") - 1
    reach = np.maximum(np.abs(problem.lower), np.abs(problem.upper))[columns]
    bad = suspects[(size[suspects] * reach > _SMALLEST_COEFFICIENT)]
    if bad.size:
        column = int(columns[np.searchsorted(suspects, bad[0])])
        raise BackendError(
            f"{problem.name}: coefficient {matrix.data[bad[0]]:g} of {column_name(problem, column)} in "
            f"{row_name(problem, int(matrix.indices[bad[0]]))} is outside [{_SMALLEST_COEFFICIENT:g}, "
            f"{_LARGEST_COEFFICIENT:g}], the range that solvers represent; choose other units"
        )

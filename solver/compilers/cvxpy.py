"""CVXPY -> matrix form, through CVXPY's own canonicalisation for HiGHS.

CVXPY gives min c @ x + d, s.t. the first rows of A x = b, the others A x <= b. Rows are named by the label of
their constraint (`Constraint.set_label`), else by its position, with an index where a constraint has several
rows; columns by the name of their variable and index. Rows and columns that CVXPY adds for atoms such as `abs`
and `max` are called auxiliary.

Elementwise `multiply(Parameter, Variable)` takes gigabytes here: declare one vector variable, constant sparse
matrices and `parameter @ x`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cvxpy
import numpy as np
from cvxpy.error import DCPError, DPPError, ParameterError, SolverError
from cvxpy.reductions.solution import Solution
from cvxpy.reductions.solvers.constant_solver import ConstantSolver
from scipy import sparse

from solver.names import unique
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector
from stowplan.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CvxpyCompilation:
    """A compiled problem, and the way back through CVXPY's reductions."""

    problem: MatrixProblem
    declared: cvxpy.Problem
    _stuffed_id: int
    _way_back: tuple[tuple[Any, Any], ...]

    def load(self, x: FloatVector) -> None:
        """Give the declared variables the values `x` (n,). Claims no status for the problem."""
        if x.shape != (self.problem.num_columns,):
            raise ValueError(f"a point of shape {x.shape} for {self.problem.num_columns} columns")
        solution = Solution(cvxpy.OPTIMAL, self.problem.value(x), {self._stuffed_id: x}, {}, {})
        for reduction, inverse_data in self._way_back:
            solution = reduction.invert(solution, inverse_data)
        for variable in self.declared.variables():
            variable.save_value(solution.primal_vars[variable.id])


def compile_cvxpy(problem: cvxpy.Problem, name: str) -> CvxpyCompilation:
    """Compile a linear or mixed-integer linear problem with the current values of its parameters.

    Raises
    ------
    BackendError
        When the problem is not linear or a parameter has no value.
    """
    # CVXPY would go on with None as the value of a parameter.
    unset = [parameter.name() for parameter in problem.parameters() if parameter.value is None]
    if unset:
        raise BackendError(f"problem {name}: no value for parameter {', '.join(unset)}")
    try:
        data, chain, inverse_data = problem.get_problem_data(cvxpy.HIGHS, canon_backend="COO")
    except (DCPError, DPPError, ParameterError, SolverError) as error:
        raise BackendError(f"problem {name} cannot be compiled to a linear matrix form: {error}") from error
    if isinstance(chain.reductions[-1], ConstantSolver):
        return _without_variables(problem, name)
    if cvxpy.settings.P in data:
        raise BackendError(f"problem {name} cannot be compiled to a linear matrix form: its objective is quadratic")
    # The last reduction is the solver itself, which we replace.
    way_back = tuple(reversed(list(zip(chain.reductions, inverse_data, strict=True))[:-1]))
    stuffed = data["param_prob"]
    return CvxpyCompilation(
        problem=_matrix_problem(problem, name, data, float(inverse_data[-1]["offset"])),
        declared=problem,
        _stuffed_id=stuffed.x.id,
        _way_back=way_back,
    )


def _matrix_problem(problem: cvxpy.Problem, name: str, data: dict[str, Any], offset: float) -> MatrixProblem:
    stuffed = data["param_prob"]
    n = int(stuffed.x.size)
    maximizing = isinstance(problem.objective, cvxpy.Maximize)
    sign = -1.0 if maximizing else 1.0
    boolean, integer = data["bool_vars_idx"], data["int_vars_idx"]
    lower = np.full(n, -np.inf) if data["lower_bounds"] is None else np.array(data["lower_bounds"], dtype=np.float64)
    upper = np.full(n, np.inf) if data["upper_bounds"] is None else np.array(data["upper_bounds"], dtype=np.float64)
    lower[boolean] = np.maximum(lower[boolean], 0.0)
    upper[boolean] = np.minimum(upper[boolean], 1.0)
    integrality = np.zeros(n, dtype=np.bool_)
    integrality[boolean] = integrality[integer] = True
    row_upper = np.array(data["b"], dtype=np.float64)
    equal = np.arange(row_upper.size) < data["dims"].zero
    matrix = sparse.csc_array(data["A"])
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return MatrixProblem(
        name=name,
        sense=Sense.MAXIMIZE if maximizing else Sense.MINIMIZE,
        # Adding zero turns -0.0 into 0.0.
        objective=sign * np.array(data["c"], dtype=np.float64) + 0.0,
        offset=sign * offset + 0.0,
        matrix=matrix,
        row_lower=np.where(equal, row_upper, -np.inf),
        row_upper=row_upper,
        lower=lower,
        upper=upper,
        integrality=integrality,
        column_names=unique(_column_names(problem, stuffed)),
        row_names=unique(_row_names(problem, stuffed)),
    )


def _without_variables(problem: cvxpy.Problem, name: str) -> CvxpyCompilation:
    """A problem of constants alone: one empty row a constraint, 0 <= -violation."""
    rows = [-float(np.max(constraint.violation(), initial=0.0)) for constraint in problem.constraints]
    matrix = MatrixProblem(
        name=name,
        sense=Sense.MAXIMIZE if isinstance(problem.objective, cvxpy.Maximize) else Sense.MINIMIZE,
        objective=np.zeros(0),
        offset=float(problem.objective.value),
        matrix=sparse.csc_array((len(rows), 0)),
        row_lower=np.full(len(rows), -np.inf),
        row_upper=np.array(rows, dtype=np.float64),
        lower=np.zeros(0),
        upper=np.zeros(0),
        integrality=np.zeros(0, dtype=np.bool_),
        row_names=unique(constraint.label or f"constraint{k}" for k, constraint in enumerate(problem.constraints)),
    )
    return CvxpyCompilation(problem=matrix, declared=problem, _stuffed_id=0, _way_back=())


def _row_names(problem: cvxpy.Problem, stuffed: Any) -> Iterator[str]:
    # Constraints keep their id through the reductions.
    declared = {c.id: c.label or f"constraint{k}" for k, c in enumerate(problem.constraints)}
    auxiliary = itertools.count()
    for constraint in stuffed.constraints:
        base = declared.get(constraint.id) or f"auxiliary{next(auxiliary)}"
        yield from _indexed(base, constraint.shape)


def _column_names(problem: cvxpy.Problem, stuffed: Any) -> Iterator[str]:
    """Names in the order of the columns. CVXPY's default names count per process and would differ every time."""
    declared = {v.id: k for k, v in enumerate(problem.variables())}
    auxiliary = itertools.count()
    for variable in sorted(stuffed.variables, key=lambda variable: stuffed.var_id_to_col[variable.id]):
        base = variable.name()
        if base == f"var{variable.id}":
            position = declared.get(variable.id)
            base = f"auxiliary{next(auxiliary)}" if position is None else f"variable{position}"
        yield from _indexed(base, variable.shape)


def _indexed(base: str, shape: tuple[int, ...]) -> Iterator[str]:
    """`base` for a scalar, else `base[i,j]` in column-major order, which is CVXPY's."""
    if shape == ():
        yield base
        return
    for reversed_index in np.ndindex(*reversed(shape)):
        yield f"{base}[{','.join(map(str, reversed(reversed_index)))}]"

"""Pyomo -> matrix form, through Pyomo's own standard-form compiler.

Columns are the declared, active, unfixed variables in declaration order, also those that nothing mentions.
Rows are the active constraints that mention a variable; fixed variables and constants move into the limits. A
constraint without variables that does not hold becomes an empty row, so that the model is infeasible rather than
an exception.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyomo.common.errors import InfeasibleConstraintException, PyomoException
from pyomo.core.base import Constraint, Objective, Var, maximize, value
from pyomo.environ import ConcreteModel
from pyomo.repn import generate_standard_repn
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler
from scipy import sparse

from solver.names import unique
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PyomoCompilation:
    """A compiled model; `variables` are Pyomo's, in column order."""

    problem: MatrixProblem
    variables: tuple[Any, ...]

    def load(self, x: FloatVector) -> None:
        """Give the declared variables the values `x` (n,); integer variables get integers."""
        if x.shape != (len(self.variables),):
            raise ValueError(f"a point of shape {x.shape} for {len(self.variables)} variables")
        for variable, number, integral in zip(
            self.variables, x.tolist(), self.problem.integrality.tolist(), strict=True
        ):
            variable.set_value(round(number) if integral else number, skip_validation=True)
            variable.stale = False


def compile_pyomo(model: ConcreteModel) -> PyomoCompilation:
    """Compile a model with linear objective and constraints.

    Raises
    ------
    BackendError
        When the model is not linear, has several active objectives, or uses what a matrix cannot express.
    """
    objectives = list(model.component_data_objects(Objective, active=True))
    if len(objectives) > 1:
        raise BackendError(f"model {model.name}: {len(objectives)} active objectives; there must be one or none")
    try:
        return _compile(model, maximizing=bool(objectives) and objectives[0].sense == maximize)
    except (PyomoException, ValueError, TypeError) as error:
        raise BackendError(f"model {model.name} cannot be compiled to a linear matrix form: {error}") from error


def _compile(model: ConcreteModel, *, maximizing: bool) -> PyomoCompilation:
    form, broken = _standard_form(model)
    variables = _variables(model, form.columns)
    objective, offset = _objective(form, variables)
    matrix, row_lower, row_upper, names = _rows(form, variables, broken)
    lower, upper, integrality = _domains(variables)
    problem = MatrixProblem(
        name=model.name,
        sense=Sense.MAXIMIZE if maximizing else Sense.MINIMIZE,
        objective=objective,
        offset=offset,
        matrix=matrix,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=lower,
        upper=upper,
        integrality=integrality,
        column_names=unique(variable.name for variable in variables),
        row_names=unique(names),
    )
    return PyomoCompilation(problem=problem, variables=tuple(variables))


def _standard_form(model: ConcreteModel) -> tuple[Any, list[Any]]:
    """Standard form, and the constraints without variables that do not hold (Pyomo raises at the first)."""
    writer = LinearStandardFormCompiler()
    try:
        return writer.write(model, mixed_form=True, set_sense=None), []
    except InfeasibleConstraintException:
        constraints = model.component_data_objects(Constraint, active=True)
        broken = [constraint for constraint in constraints if _is_broken(constraint)]
    with _deactivated(broken):
        return writer.write(model, mixed_form=True, set_sense=None), broken


def _is_broken(constraint: Any) -> bool:
    body = generate_standard_repn(constraint.body)
    return bool(body.is_constant()) and not _lower(constraint) <= value(body.constant) <= _upper(constraint)


@contextmanager
def _deactivated(constraints: list[Any]) -> Iterator[None]:
    for constraint in constraints:
        constraint.deactivate()
    try:
        yield
    finally:
        for constraint in constraints:
            constraint.activate()


def _lower(constraint: Any) -> float:
    return -np.inf if constraint.lb is None else float(constraint.lb)


def _upper(constraint: Any) -> float:
    return np.inf if constraint.ub is None else float(constraint.ub)


def _variables(model: ConcreteModel, mentioned: list[Any]) -> list[Any]:
    """Declared variables first; mentioned ones may be declared elsewhere, as in an inactive block."""
    declared = [v for v in model.component_data_objects(Var, active=True) if not v.fixed]
    known = {id(variable) for variable in declared}
    return declared + [variable for variable in mentioned if id(variable) not in known]


def _positions(form: Any, variables: list[Any]) -> npt.NDArray[np.intp]:
    """Column of each column of the standard form."""
    position = {id(variable): j for j, variable in enumerate(variables)}
    return np.array([position[id(variable)] for variable in form.columns], dtype=np.intp)


def _objective(form: Any, variables: list[Any]) -> tuple[FloatVector, float]:
    objective = np.zeros(len(variables))
    if not form.objectives:
        return objective, 0.0
    objective[_positions(form, variables)] = form.c.toarray()[0]
    return objective, float(form.c_offset[0])


def _rows(
    form: Any, variables: list[Any], broken: list[Any]
) -> tuple["sparse.csc_array", FloatVector, FloatVector, list[str]]:
    """One row a constraint: the standard form splits ranged constraints into an upper and a lower row."""
    names: list[str] = []
    lower: list[float] = []
    upper: list[float] = []
    row_of = np.full(len(form.rows), -1)
    previous = None
    for i, ((constraint, side), limit) in enumerate(zip(form.rows, form.rhs, strict=True)):
        if constraint is previous:
            lower[-1] = float(limit)
            continue
        previous = constraint
        row_of[i] = len(names)
        names.append(constraint.name)
        lower.append(-np.inf if side > 0 else float(limit))
        upper.append(np.inf if side < 0 else float(limit))
    for constraint in broken:
        constant = value(constraint.body)
        names.append(constraint.name)
        lower.append(_lower(constraint) - constant)
        upper.append(_upper(constraint) - constant)
    entries = form.A.tocoo()
    kept = row_of[entries.row] >= 0
    matrix = sparse.csc_array(
        (entries.data[kept], (row_of[entries.row[kept]], _positions(form, variables)[entries.col[kept]])),
        shape=(len(names), len(variables)),
    )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix, np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64), names


def _domains(variables: list[Any]) -> tuple[FloatVector, FloatVector, Mask]:
    for variable in variables:
        if not (variable.is_integer() or variable.is_continuous()):
            raise BackendError(f"variable {variable.name}: domain {variable.domain} is neither an interval nor integer")
    bounds = [variable.bounds for variable in variables]
    lower = np.array([-np.inf if low is None else low for low, _ in bounds], dtype=np.float64)
    upper = np.array([np.inf if high is None else high for _, high in bounds], dtype=np.float64)
    return lower, upper, np.array([variable.is_integer() for variable in variables], dtype=np.bool_)

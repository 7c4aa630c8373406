"""The program of `models.allocation.gang.formulation`, declared in CVXPY."""

import cvxpy as cp

from models.allocation.declaration import declared_rows, named_problem
from models.allocation.gang.assembly import Columns, column_names, constraint_groups, gains
from solver.problem import MatrixProblem


def compiled(columns: Columns) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs, nodes and queues."""
    return named_problem(*declare(columns), "gang", lambda: column_names(columns))


def declare(columns: Columns) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    constant = columns.instance.constant
    if not columns.instance.pairs:
        return cp.Problem(cp.Maximize(cp.Constant(constant))), {}
    x = cp.Variable(columns.num_columns, integer=True, bounds=[0.0, columns.upper], name="x")
    constraints, names = declared_rows(constraint_groups(columns), x)
    return cp.Problem(cp.Maximize(gains(columns) @ x + constant), constraints), names

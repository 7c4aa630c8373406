"""The programs of shares and rounds, declared in CVXPY."""

import cvxpy as cp

from models.allocation.declaration import declared_rows, named_problem
from models.allocation.gavel.program import Program
from solver.problem import MatrixProblem


def compiled(program: Program) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs and GPU types."""
    return named_problem(*declare(program), program.name, program.column_names)


def declare(program: Program) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    if not program.gain.size:
        return cp.Problem(cp.Maximize(cp.Constant(0.0))), {}
    x = cp.Variable(program.gain.size, integer=program.is_integer, bounds=[0.0, program.upper], name="x")
    constraints, names = declared_rows(program.groups, x)
    return cp.Problem(cp.Maximize(program.gain @ x), constraints), names

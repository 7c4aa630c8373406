"""The program declared in CVXPY."""

import cvxpy as cp
import numpy as np

from models.allocation.declaration import declared_rows, named_problem
from models.allocation.elasticflow.program import Program
from solver.problem import MatrixProblem


def compiled(program: Program) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs, blocks and slots."""
    return named_problem(*declare(program), "elasticflow", program.column_names)


def declare(program: Program) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    if not program.num_columns:
        return cp.Problem(cp.Maximize(cp.Constant(0.0))), {}
    integer = (np.flatnonzero(program.integrality),)
    bounds = [program.lower, np.ones(program.num_columns)]
    z = cp.Variable(program.num_columns, integer=integer, bounds=bounds, name="z")
    constraints, names = declared_rows(program.groups(), z)
    return cp.Problem(cp.Maximize(program.gain @ z), constraints), names

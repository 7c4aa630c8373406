"""The program of `models.allocation.suika.ilp`, declared in CVXPY."""

from dataclasses import replace
from typing import Any

import cvxpy as cp

from models.allocation.suika.ilp import ScaleOutProgram
from solver.compilers.cvxpy import compile_cvxpy
from solver.problem import MatrixProblem


def compiled(program: ScaleOutProgram) -> MatrixProblem:
    """The declared program in matrix form, rows and columns named after nodes, jobs and GPU counts."""
    problem = compile_cvxpy(declare(program), "suika").problem
    if not program.columns:
        return problem
    names = tuple(f"x[{column.job_id},{c}:+{len(column.added)}]" for c, column in enumerate(program.columns))
    return replace(problem, column_names=names, row_names=program.rows.names)


def declare(program: ScaleOutProgram) -> cp.Problem:
    """The CVXPY problem."""
    if not program.columns:
        return cp.Problem(cp.Maximize(cp.Constant(program.constant)))
    x = cp.Variable(len(program.columns), boolean=True, name="x")
    constraints: list[Any] = []
    if program.rows.limits.size:
        constraints.append(program.rows.matrix @ x <= program.rows.limits)
    return cp.Problem(cp.Maximize(program.gain @ x + program.constant), constraints)

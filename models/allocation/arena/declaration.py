"""The program of `models.allocation.arena.formulation`, declared in CVXPY."""

from typing import Any

import cvxpy as cp

from models.allocation.arena.assembly import column_names, constraint_groups, has_theta, objective
from models.allocation.arena.instance import ArenaInstance
from models.allocation.declaration import declared_rows, impossible_rows, named_problem
from solver.problem import MatrixProblem
from solver.sense import Sense


def compiled(instance: ArenaInstance) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs and blocks."""
    return named_problem(*declare(instance), "arena", lambda: column_names(instance))


def declare(instance: ArenaInstance) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    goal = cp.Minimize if instance.sense is Sense.MINIMIZE else cp.Maximize
    gain, constant = objective(instance)
    if not instance.pair_jobs.size:
        impossible = impossible_rows(name for group in constraint_groups(instance) for name in group.row_names)
        return cp.Problem(goal(cp.Constant(constant)), impossible), {}

    x = cp.Variable(instance.pair_jobs.size, boolean=True, name="x")
    columns: Any = x
    if has_theta(instance):
        columns = cp.hstack([x, cp.Variable(1, nonneg=True, name="theta")])
    constraints, names = declared_rows(constraint_groups(instance), columns)
    return cp.Problem(goal(gain @ columns + constant), constraints), names

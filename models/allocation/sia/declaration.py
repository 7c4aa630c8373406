"""The program of `models.allocation.sia.formulation`, declared in CVXPY."""

import cvxpy as cp

from models.allocation.declaration import declared_rows, impossible_rows, named_problem
from models.allocation.sia.assembly import column_names, constraint_groups
from models.allocation.sia.instance import SiaInstance
from solver.problem import MatrixProblem
from solver.sense import Sense


def compiled(instance: SiaInstance) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs and configurations."""
    return named_problem(*declare(instance), "sia", lambda: column_names(instance))


def declare(instance: SiaInstance) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    goal = cp.Minimize if instance.sense is Sense.MINIMIZE else cp.Maximize
    if not instance.pair_jobs.size:
        impossible = impossible_rows(f"reserved[{instance.jobs[i].id}]" for i in instance.reserved)
        return cp.Problem(goal(cp.Constant(instance.constant)), impossible), {}

    x = cp.Variable(instance.pair_jobs.size, boolean=True, name="x")
    constraints, names = declared_rows(constraint_groups(instance), x)
    return cp.Problem(goal(instance.gain @ x + instance.constant), constraints), names

"""The program of `models.allocation.horizon.formulation`, declared in CVXPY."""

import cvxpy as cp

from models.allocation.declaration import declared_rows, impossible_rows, named_problem
from models.allocation.horizon.assembly import column_names, constraint_groups
from models.allocation.horizon.instance import HorizonInstance
from solver.problem import MatrixProblem
from solver.sense import Sense


def compiled(instance: HorizonInstance) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs and configurations."""
    return named_problem(*declare(instance), "horizon", lambda: column_names(instance))


def declare(instance: HorizonInstance) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    goal = cp.Minimize if instance.sense is Sense.MINIMIZE else cp.Maximize
    if not len(instance.schedules):
        impossible = impossible_rows(f"one_schedule[{instance.jobs[i].id}]" for i in instance.sia.planned)
        return cp.Problem(goal(cp.Constant(instance.offset)), impossible), {}

    share = cp.Variable(len(instance.schedules), name="y", bounds=[0.0, 1.0])
    runs = cp.Variable(instance.pair_jobs.size, boolean=True, name="x") if instance.pair_jobs.size else None
    columns = share if runs is None else cp.hstack([share, runs])
    constraints, names = declared_rows(constraint_groups(instance), columns)
    return cp.Problem(goal(instance.cost @ share + instance.offset), constraints), names

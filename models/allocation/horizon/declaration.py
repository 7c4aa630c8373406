"""The program of `models.allocation.horizon.formulation`, declared in CVXPY."""

import cvxpy as cp
import numpy as np

from models.allocation.declaration import declared_rows, impossible_rows, named_problem
from models.allocation.horizon.assembly import (
    column_costs,
    column_names,
    constraint_groups,
    packing_most,
)
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
    parts = [share]
    if instance.pair_jobs.size:
        parts.append(cp.Variable(instance.pair_jobs.size, boolean=True, name="x"))
    if instance.num_packing:
        bounds = [np.zeros(instance.num_packing), packing_most(instance)]
        parts.append(cp.Variable(instance.num_packing, integer=True, name="g", bounds=bounds))
    if instance.num_tail:
        parts.append(cp.Variable(name="z", bounds=[0.0, 1.0]))
        parts.append(cp.Variable(len(instance.jobs), name="u", bounds=[0.0, 1.0]))
    columns = cp.hstack(parts)
    constraints, names = declared_rows(constraint_groups(instance), columns)
    return cp.Problem(goal(column_costs(instance) @ columns + instance.offset), constraints), names

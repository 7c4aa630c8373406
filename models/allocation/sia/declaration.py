"""The program of `models.allocation.sia.formulation`, declared in CVXPY."""

from dataclasses import replace
from typing import Any

import cvxpy as cp

from models.allocation.sia.assembly import column_names, constraint_groups
from models.allocation.sia.instance import SiaInstance
from solver.compilers.cvxpy import compile_cvxpy
from solver.problem import MatrixProblem, Sense


def compiled(instance: SiaInstance) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs and configurations."""
    declared, row_names = declare(instance)
    problem = compile_cvxpy(declared, "sia").problem
    if problem.num_columns == 0:
        return problem
    names = tuple(row_names[name] for name in problem.row_names)
    return replace(problem, row_names=names, column_names=column_names(instance))


def declare(instance: SiaInstance) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    goal = cp.Minimize if instance.sense is Sense.MINIMIZE else cp.Maximize
    if not instance.pair_jobs.size:
        reserved = [f"reserved[{instance.jobs[i].id}]" for i in instance.reserved]
        impossible = [_labelled(cp.Constant(0.0) == 1.0, name) for name in reserved]
        return cp.Problem(goal(cp.Constant(instance.constant)), impossible), {}

    x = cp.Variable(instance.pair_jobs.size, boolean=True, name="x")
    objective = goal(instance.gain @ x + instance.constant)
    constraints: list[Any] = []
    names: dict[str, str] = {}
    for group in constraint_groups(instance):
        left = group.matrix @ x
        constraints.append(_labelled(left == group.limits if group.is_equality else left <= group.limits, group.label))
        names |= {f"{group.label}[{k}]": name for k, name in enumerate(group.row_names)}
    return cp.Problem(objective, constraints), names


def _labelled(constraint: Any, label: str) -> Any:
    constraint.set_label(label)
    return constraint

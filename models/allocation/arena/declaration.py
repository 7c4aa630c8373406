"""The program of `models.allocation.arena.formulation`, declared in CVXPY."""

from dataclasses import replace
from typing import Any

import cvxpy as cp

from models.allocation.arena.assembly import column_names, constraint_groups, has_theta, objective
from models.allocation.arena.instance import ArenaInstance
from solver.compilers.cvxpy import compile_cvxpy
from solver.problem import MatrixProblem, Sense


def compiled(instance: ArenaInstance) -> MatrixProblem:
    """The declared program in matrix form, with rows and columns named after jobs and blocks."""
    declared, names = declare(instance)
    problem = compile_cvxpy(declared, "arena").problem
    if problem.num_columns == 0:
        return problem
    return replace(
        problem, row_names=tuple(names[name] for name in problem.row_names), column_names=column_names(instance)
    )


def declare(instance: ArenaInstance) -> tuple[cp.Problem, dict[str, str]]:
    """The CVXPY problem, and a name for each row that its vector constraints become (`label[k]` -> name)."""
    goal = cp.Minimize if instance.sense is Sense.MINIMIZE else cp.Maximize
    gain, constant = objective(instance)
    if not instance.pair_jobs.size:
        names = [name for group in constraint_groups(instance) for name in group.row_names]
        impossible = [_labelled(cp.Constant(0.0) == 1.0, name) for name in names]
        return cp.Problem(goal(cp.Constant(constant)), impossible), {}

    x = cp.Variable(instance.pair_jobs.size, boolean=True, name="x")
    columns: Any = x
    if has_theta(instance):
        columns = cp.hstack([x, cp.Variable(1, nonneg=True, name="theta")])
    constraints: list[Any] = []
    named: dict[str, str] = {}
    for group in constraint_groups(instance):
        left = group.matrix @ columns
        constraints.append(_labelled(left == group.limits if group.is_equality else left <= group.limits, group.label))
        named |= {f"{group.label}[{k}]": name for k, name in enumerate(group.row_names)}
    return cp.Problem(goal(gain @ columns + constant), constraints), named


def _labelled(constraint: Any, label: str) -> Any:
    constraint.set_label(label)
    return constraint

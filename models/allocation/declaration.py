"""What the declarations of several policies' programs have in common, in CVXPY."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import cvxpy as cp

from models.allocation.constraint_group import ConstraintGroup
from solver.compilers.cvxpy import compile_cvxpy
from solver.problem import MatrixProblem


def declared_rows(groups: Iterable[ConstraintGroup], columns: Any) -> tuple[list[Any], dict[str, str]]:
    """The constraints on `columns` (P,), a vector per group, and a name for each row that these become
    (`label[k]` -> name)."""
    constraints: list[Any] = []
    names: dict[str, str] = {}
    for group in groups:
        left = group.matrix @ columns
        constraints.append(_labelled(left == group.limits if group.is_equality else left <= group.limits, group.label))
        names |= {f"{group.label}[{k}]": name for k, name in enumerate(group.row_names)}
    return constraints, names


def impossible_rows(names: Iterable[str]) -> list[Any]:
    """Constraints that nothing meets: the rows of a program without columns that ask for one."""
    return [_labelled(cp.Constant(0.0) == 1.0, name) for name in names]


def named_problem(
    declared: cp.Problem, row_names: dict[str, str], name: str, column_names: Callable[[], tuple[str, ...]]
) -> MatrixProblem:
    """The program in matrix form, called `name`; `column_names` are asked for where there are columns."""
    problem = compile_cvxpy(declared, name).problem
    if problem.num_columns == 0:
        return problem
    return replace(problem, row_names=tuple(row_names[row] for row in problem.row_names), column_names=column_names())


def _labelled(constraint: Any, label: str) -> Any:
    constraint.set_label(label)
    return constraint

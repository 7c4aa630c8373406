"""A lower bound on theta of Eq. 7 that the linear relaxation does not see.

With theta at most T, no pair may be chosen that costs more than T, and a job that costs more while it waits must be
launched. If the linear relaxation of that has no solution, theta is above T in every plan. Theta is one of the costs,
so the least T that is not refuted, found by bisection, bounds it from below. Rows of jobs that cost less than that
whatever they get then drop out, and with them most of what makes min-max problems slow.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from models.allocation.arena.assembly import baseline
from models.allocation.arena.instance import ArenaInstance
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from solver.solve import solve

_LEAST_TIME_S = 1e-3


def with_theta_bound(
    instance: ArenaInstance, problem: MatrixProblem, remaining_s: Callable[[], float]
) -> MatrixProblem:
    """The same problem with the lower bound of theta; its integer solutions are the same.

    Parameters
    ----------
    problem
        What `assemble` made of the instance; theta is its last column.
    remaining_s
        Seconds that may still be spent; when none are left, the bound stays where the bisection stands.
    """
    values = np.unique(np.concatenate([instance.pair_values, baseline(instance)[instance.counted], [0.0]]))
    refuted, known = -1, values.size - 1
    while known - refuted > 1 and remaining_s() > _LEAST_TIME_S:
        middle = (refuted + known) // 2
        if _is_refuted(instance, problem, float(values[middle]), remaining_s()):
            refuted = middle
        else:
            known = middle
    lower = problem.lower.copy()
    lower[-1] = values[refuted + 1]
    return replace(problem, lower=lower)


def _is_refuted(instance: ArenaInstance, problem: MatrixProblem, most: float, time_limit_s: float) -> bool:
    """Whether no plan has theta at most `most`."""
    upper = problem.upper.copy()
    upper[:-1][instance.pair_values > most] = 0.0
    upper[-1] = most
    relaxed = replace(
        problem,
        objective=np.zeros(problem.num_columns),
        offset=0.0,
        upper=upper,
        integrality=np.zeros(problem.num_columns, dtype=np.bool_),
    )
    result = solve(relaxed, SolveOptions(time_limit_s=max(_LEAST_TIME_S, time_limit_s)))
    return result.termination is TerminationReason.INFEASIBLE

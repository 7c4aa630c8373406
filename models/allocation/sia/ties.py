"""Ties among optimal plans: the one that changes least is taken.

Ties are common when costs are rounded (the released policy rounds to 0.01): then every objective is a multiple of a
step h. Each pair that keeps a job in its present configuration is made e = h / (4 (J + 1)) better. All of these
together are worth less than h / 4, so the optima of the changed problem are optimal for the declared one, and among
those keep the most jobs. A bound b of the changed problem proves b +- h / 4 for the declared one, whose optimum is a
multiple of h: so the next multiple is a bound as well. Without a step exact ties are rare, and nothing is changed.
"""

from dataclasses import replace

import numpy as np

from models.allocation.sia.instance import SiaInstance
from solver.problem import MatrixProblem, Sense
from solver.result import SolveResult
from stowplan.arrays import FloatVector

_STEPS = (1.0, 0.1, 0.01, 0.001)
_TOLERANCE = 1e-9


def objective_step(gain: FloatVector) -> float | None:
    """Largest of 1, 0.1, 0.01, 0.001 of which every gain (P,) is a multiple; None when there is none."""
    for step in _STEPS:
        multiple = gain / step
        if (np.abs(multiple - np.rint(multiple)) <= _TOLERANCE * np.maximum(1.0, np.abs(multiple))).all():
            return step
    return None


def toward_present(problem: MatrixProblem, instance: SiaInstance, step: float) -> MatrixProblem:
    """The problem in which keeping a job's present configuration is slightly better."""
    keeps = instance.utility.current[instance.pair_jobs] == instance.pair_configurations
    bonus = step / (4 * (len(instance.jobs) + 1))
    return replace(problem, objective=problem.objective - problem.sense.sign * bonus * keeps)


def for_declared(result: SolveResult, problem: MatrixProblem, step: float) -> SolveResult:
    """What the result of the changed problem says about the declared one."""
    if result.bound is None:
        return result
    sign = 1 if problem.sense is Sense.MINIMIZE else -1
    steps = sign * (result.bound - problem.offset) / step
    bound = problem.offset + sign * float(np.ceil(steps - _TOLERANCE * max(1.0, abs(steps)))) * step
    objective = None if result.incumbent is None else problem.value(result.incumbent)
    if objective is not None:
        # A bound that rounding puts beyond the incumbent is the incumbent's own value.
        bound = sign * min(sign * bound, sign * objective)
    return replace(result, objective=objective, bound=bound)

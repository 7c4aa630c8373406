"""Ties among optimal plans: the one that changes least is taken.

Ties are common when costs are rounded (the released policy rounds to 0.01, and stores float32): then every gain is a
multiple of a step h, but for a deviation. A plan takes at most one pair of each job, so that its objective is within
D, the sum over jobs of their largest deviation, of a multiple of h; only h with D <= h / 8 are used. Each pair that
keeps a job in its present configuration is made e = h / (4 (J + 1)) better. All of these together are worth less than
h / 4, and 2 D + h / 4 < h: so an optimum of the changed problem has the multiple of an optimum of the declared one,
from which it is at most 2 D away, and among those keeps the most jobs. Without a step ties are rare, and nothing is
changed.

A bound b of the changed problem is one of the declared one, z >= b (minimising), since the bonus only lowers values.
With M h the multiple of z, M h >= z - D >= b - D: so z >= M h - D >= h ceil((b - D) / h) - D is a bound as well.
"""

from dataclasses import dataclass, replace

import numpy as np

from models.allocation.sia.instance import SiaInstance
from solver.problem import MatrixProblem
from solver.result import SolveResult, TerminationReason
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector

_STEPS = (1.0, 0.1, 0.01, 0.001)
_FIRST = 16
# Numbers in double precision from here on have no digits behind the point.
_ALL_WHOLE = 2.0**52
_ROUNDING = 1e-9
# What costs in float32 deviate by at most, after a few operations.
_DEVIATION = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Every objective is at most `slack` (D) away from a multiple of `size` (h)."""

    size: float
    slack: float


def objective_step(gain: FloatVector, jobs: IntVector, relative_gap: float) -> Step | None:
    """Largest of 1, 0.1, 0.01, 0.001 of which every gain (P,) of the jobs (P,) is a multiple; None when there is none.

    Gains may deviate by the gap that is asked for, and by rounding.
    """
    tolerance = max(_ROUNDING, min(_DEVIATION, relative_gap))

    for size in _STEPS:
        # The first few tell of nearly all problems that they have no step.
        if not all(_is_multiple(each, size, tolerance) for each in gain[:_FIRST].tolist()):
            continue
        multiple = gain / size
        missed = np.abs(multiple - np.rint(multiple))
        if (missed > tolerance * np.maximum(1.0, np.abs(multiple))).any():
            continue
        worst = np.zeros(jobs.max(initial=-1) + 1)
        np.maximum.at(worst, jobs, missed)
        if worst.sum() <= 1 / 8:
            return Step(size=size, slack=size * float(worst.sum()))
    return None


def _is_multiple(gain: float, size: float, tolerance: float) -> bool:
    multiple = gain / size
    if abs(multiple) >= _ALL_WHOLE:
        return True
    return abs(multiple - round(multiple)) <= tolerance * max(1.0, abs(multiple))


def toward_present(problem: MatrixProblem, instance: SiaInstance, step: Step) -> MatrixProblem:
    """The problem in which keeping a job's present configuration is slightly better."""
    keeps = instance.utility.current[instance.pair_jobs] == instance.pair_configurations
    bonus = step.size / (4 * (len(instance.jobs) + 1))
    objective = problem.objective - problem.sense.sign * bonus * keeps
    return problem.with_costs(problem.sense, objective, problem.offset)


def for_declared(result: SolveResult, problem: MatrixProblem, step: Step, relative_gap: float) -> SolveResult:
    """What the result of the changed problem says about the declared one: optimal is what is so within the gap."""
    if result.bound is None:
        return result
    sign = 1 if problem.sense is Sense.MINIMIZE else -1
    known = sign * (result.bound - problem.offset)
    steps = (known - step.slack) / step.size
    multiple = float(np.ceil(steps - _ROUNDING * max(1.0, abs(steps)))) * step.size
    bound = problem.offset + sign * max(known, multiple - step.slack)
    objective = None if result.incumbent is None else problem.value(result.incumbent)
    if objective is not None:
        # A bound that rounding puts beyond the incumbent is the incumbent's own value.
        bound = sign * min(sign * bound, sign * objective)
    told = replace(result, objective=objective, bound=bound)
    too_wide = told.relative_gap is not None and told.relative_gap > max(relative_gap, _ROUNDING)
    if told.termination is TerminationReason.OPTIMAL and too_wide:
        return replace(told, termination=TerminationReason.FEASIBLE)
    return told

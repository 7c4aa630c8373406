"""Lagrangian dual of a choice problem: price the coupling rows and let every block choose alone.

    L(u) = offset + sum_k copies_k min_(j in k) (cost_j + coupling_j u) - limit u,      u >= 0

where the minimum includes 0 (choose nothing) for optional classes. L is concave and piecewise linear in the few
multipliers u (m,), and every L(u) is a lower bound. The minimum is smoothed to -tau log sum exp(-(.)/tau), which is
maximised by a damped Newton method in m dimensions while tau falls; the bound that is returned is always the
unsmoothed L at the best point seen.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import FloatMatrix, FloatVector, Mask

# In units of the mean absolute cost. From a good start the early, blunt stages would only lose it.
_FIRST_TEMPERATURE = 0.3
_WARM_TEMPERATURE = 0.01
_LAST_TEMPERATURE = 1e-5
_COOLING = 0.3
_NEWTON_STEPS = 12
_SHORTEST_MOVE = 0.1
_LEAST_DAMPING = 1e-9
_DAMPING_FACTOR = 10.0
# Relative gain of a step below which the next temperature has more to give.
_SMALL_GAIN = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DualPoint:
    """Multipliers (m,) and the bound L(multipliers)."""

    multipliers: FloatVector
    bound: float
    num_evaluations: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReducedCosts:
    """How much worse than the best choice of its class each option is.

    columns (n,); nothing (K,): choosing no column, inf where required; bound: L at these prices.
    """

    columns: FloatVector
    nothing: FloatVector
    bound: float


def reduced_costs(problem: ChoiceProblem, multipliers: FloatVector) -> ReducedCosts:
    """Price the columns at `multipliers` (m,); the bound is L there."""
    priced = problem.cost + problem.coupling @ multipliers
    best = np.minimum.reduceat(priced, problem.start[:-1])
    best = np.where(problem.required, best, np.minimum(best, 0.0))
    return ReducedCosts(
        columns=priced - best[problem.class_of],
        nothing=np.where(problem.required, np.inf, -best),
        bound=problem.offset + float(problem.copies @ best - problem.limit @ multipliers),
    )


def maximise_dual(
    problem: ChoiceProblem, start: FloatVector | None = None, stop: Callable[[], bool] = lambda: False
) -> DualPoint:
    """Maximise L from `start` (m,), or from 0; `stop` is asked between steps and ends it early."""
    oracle = _SmoothOracle(problem)
    scale = float(np.abs(problem.cost).mean()) or 1.0
    point = np.zeros(problem.limit.size) if start is None else np.maximum(start, 0.0)
    temperature = scale * (_FIRST_TEMPERATURE if start is None else _WARM_TEMPERATURE)
    while temperature > _LAST_TEMPERATURE * scale:
        point = _newton(oracle, point, temperature, stop)
        temperature *= _COOLING
    return DualPoint(multipliers=oracle.best_point, bound=oracle.best_bound, num_evaluations=oracle.num_evaluations)


class _SmoothOracle:
    """Value, gradient and Hessian of the smoothed dual; remembers the best true bound it has seen."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self._problem = problem
        self._class_of = problem.class_of
        self._heads = problem.start[:-1]
        # Without a feasible point the dual has no maximum; prices far beyond all costs have told enough.
        self.largest_multiplier = 1e4 * (1.0 + float(np.abs(problem.cost).max()))
        # Rough curvature (m,) of each row at temperature 1 while all options are equally likely.
        squares = problem.coupling.power(2).T @ (problem.copies / np.diff(problem.start))[self._class_of]
        self.curvature = np.maximum(squares, 1e-12)
        self.best_bound = -np.inf
        self.best_point = np.zeros(problem.limit.size)
        self.num_evaluations = 0

    def value(self, point: FloatVector, temperature: float) -> tuple[float, FloatVector]:
        """Smoothed value and the choice probabilities (n,) at `point` (m,)."""
        problem = self._problem
        self.num_evaluations += 1
        priced = problem.cost + problem.coupling @ point
        best = np.minimum.reduceat(priced, self._heads)
        best = np.where(problem.required, best, np.minimum(best, 0.0))
        weight = np.exp((best[self._class_of] - priced) / temperature)
        total = np.add.reduceat(weight, self._heads)
        total += np.exp(np.where(problem.required, -np.inf, best) / temperature)
        outside = float(problem.limit @ point) - problem.offset
        bound = float(problem.copies @ best) - outside
        if bound > self.best_bound:
            self.best_bound, self.best_point = bound, point.copy()
        smooth = float(problem.copies @ (best - temperature * np.log(total))) - outside
        return smooth, weight / total[self._class_of]

    def largest_move(self, step: FloatVector) -> float:
        """The most that the price of any column changes by `step` (m,)."""
        return float(np.abs(self._problem.coupling @ step).max(initial=0.0))

    def derivatives(self, probability: FloatVector, temperature: float) -> tuple[FloatVector, FloatVector]:
        """Gradient (m,) and Hessian (m, m) of the smoothed dual."""
        problem = self._problem
        copies = problem.copies[self._class_of]
        weighted = problem.coupling * probability[:, None]
        usage = np.add.reduceat(weighted.toarray(), self._heads, axis=0)
        gradient = problem.copies @ usage - problem.limit
        spread = (problem.coupling * (copies * probability)[:, None]).T @ problem.coupling
        hessian = (usage * problem.copies[:, None]).T @ usage - spread.toarray()
        return gradient, hessian / temperature


def _bounded_step(point: FloatVector, gradient: FloatVector, hessian: FloatMatrix, damping: FloatVector) -> FloatVector:
    """Damped Newton step (m,) that stays at or above 0: multipliers that would go below end there, the others are
    solved anew.

    Clipping alone is not enough: rows that are nearly the same pull in opposite directions, and what is left after
    clipping may point downhill.
    """
    step = np.zeros_like(point)
    free: Mask = (point > 0) | (gradient > 0)
    damped = hessian - np.diag(damping)
    while free.any():
        pull = gradient[free] + damped[np.ix_(free, ~free)] @ step[~free]
        step[free] = np.linalg.solve(damped[np.ix_(free, free)], -pull)
        below = free & (point + step < 0)
        if not below.any():
            break
        step[below] = -point[below]
        free &= ~below
    return step


def _newton(oracle: _SmoothOracle, point: FloatVector, temperature: float, stop: Callable[[], bool]) -> FloatVector:
    """A few bounded Newton steps; enough for the next temperature to start from.

    Where choices are settled the smoothed dual is almost linear and Newton's step far too bold. Such a step is not
    shortened, for its direction is worthless too, but damped (Levenberg and Marquardt), down to a gradient step; the
    unit of the damping is the curvature of rows whose choices are open.
    """
    value, probability = oracle.value(point, temperature)
    damping = _LEAST_DAMPING
    for _ in range(_NEWTON_STEPS):
        if stop():
            break
        gradient, hessian = oracle.derivatives(probability, temperature)
        while True:
            step = _bounded_step(point, gradient, hessian, damping * oracle.curvature / temperature)
            trial = np.minimum(point + step, oracle.largest_multiplier)
            trial_value, trial_probability = oracle.value(trial, temperature)
            if trial_value > value:
                break
            if oracle.largest_move(trial - point) < _SHORTEST_MOVE * temperature:
                return point
            damping *= _DAMPING_FACTOR
        damping = max(_LEAST_DAMPING, damping / _DAMPING_FACTOR)
        gain, point, value, probability = trial_value - value, trial, trial_value, trial_probability
        if gain < _SMALL_GAIN * max(1.0, abs(value)):
            break
    return point

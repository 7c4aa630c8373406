"""Lagrangian dual of a choice problem: price the coupling rows and let every block choose alone.

    L(u) = offset + sum_k copies_k min_(j in k) (cost_j + coupling_j u) - limit u,      u >= 0

where the minimum includes 0 (choose nothing) for optional classes. L is concave and piecewise linear in the few
multipliers u (m,), and every L(u) is a lower bound. The minimum is smoothed to -tau log sum exp(-(.)/tau), which is
maximised by a damped Newton method in m dimensions while tau falls; the bound that is returned is always the
unsmoothed L at the best point seen. Of many classes a sample is priced first: its prices are a good start for all.

The choice probabilities at the maximum of the smoothed dual are a solution of the linear relaxation that costs
sum_k copies_k sum_j p_j (how much worse j is than the best choice) more than L. So tau need not fall further once
that is little.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

if TYPE_CHECKING:
    from scipy import sparse

# In units of the mean absolute cost. From a good start the early, blunt stages would only lose it.
_FIRST_TEMPERATURE = 0.3
_WARM_TEMPERATURE = 0.01
_SAMPLED_TEMPERATURE = 0.003
_LAST_TEMPERATURE = 1e-5
# Where nothing is maximised, choices that cost this much more than the best ones are open.
_KNOWN_TEMPERATURE = 1e-4
_COOLING = 0.3
_NEWTON_STEPS = 12
_SHORTEST_MOVE = 0.1
_LEAST_DAMPING = 1e-9
_DAMPING_FACTOR = 10.0
# Relative gain of a step below which the next temperature has more to give.
_SMALL_GAIN = 1e-8
# Fewest classes of a sample, one in how many it has otherwise, and how many more there must be for it to pay.
_SAMPLE = 400
_SAMPLED_SHARE = 16
_WORTH_SAMPLING = 3
_SAMPLE_GAP = 1e-3
# Weight relative to the best choice of its class below which an option does not bend the dual.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DualPoint:
    """Multipliers (m,) and the bound L(multipliers).

    fraction (n,): choice probabilities at the last temperature, nearly a solution of the linear relaxation.
    temperature: the next one, had it gone on.
    """

    multipliers: FloatVector
    bound: float
    fraction: FloatVector
    temperature: float
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
    best = np.minimum(np.minimum.reduceat(priced, problem.start[:-1]), problem.nothing)
    return ReducedCosts(
        columns=priced - best[problem.class_of],
        nothing=problem.nothing - best,
        bound=problem.offset + float(problem.copies @ best - problem.limit @ multipliers),
    )


def best_choice(problem: ChoiceProblem, reduced: ReducedCosts) -> IntVector:
    """Counts (n,) of the first best option of every class, which need not keep the coupling rows."""
    counts = np.zeros(problem.cost.size, dtype=np.int64)
    best = np.flatnonzero((reduced.columns <= 0.0) & (reduced.nothing > 0.0)[problem.class_of])
    classes, first = np.unique(problem.class_of[best], return_index=True)
    counts[best[first]] = problem.copies[classes]
    return counts


def dual_at(problem: ChoiceProblem, multipliers: FloatVector) -> DualPoint:
    """The dual at given `multipliers` (m,), as if they were the best: those of a problem that was nearly the same."""
    oracle = _SmoothOracle(problem)
    scale = float(np.abs(problem.cost).mean()) or 1.0
    here = oracle.at(np.maximum(multipliers, 0.0), _KNOWN_TEMPERATURE * scale)
    return DualPoint(
        multipliers=here.point,
        bound=oracle.best_bound,
        fraction=oracle.fraction(here),
        temperature=_KNOWN_TEMPERATURE * scale,
        num_evaluations=oracle.num_evaluations,
    )


def maximise_dual(
    problem: ChoiceProblem,
    start: FloatVector | None = None,
    stop: Callable[[], bool] = lambda: False,
    relative_gap: float = 0.0,
    temperature: float | None = None,
) -> DualPoint:
    """Maximise L from `start` (m,), or from 0, until it is nearly within `relative_gap` of the linear relaxation, or
    proves that the problem has no solution.

    `stop` is asked between steps and ends it early. `temperature` is that of a start from where it has been before.
    """
    warm = _WARM_TEMPERATURE
    if start is None and problem.copies.size > _WORTH_SAMPLING * _SAMPLE:
        size = max(_SAMPLE, problem.copies.size // _SAMPLED_SHARE)
        classes = np.sort(np.random.default_rng(0).choice(problem.copies.size, size, replace=False))
        start = maximise_dual(problem.sampled(classes), None, stop, _SAMPLE_GAP).multipliers
        warm = _SAMPLED_TEMPERATURE
    oracle = _SmoothOracle(problem)
    scale = float(np.abs(problem.cost).mean()) or 1.0
    point = np.zeros(problem.limit.size) if start is None else np.maximum(start, 0.0)
    if temperature is None:
        temperature = scale * (_FIRST_TEMPERATURE if start is None else warm)
    while True:
        here = _newton(oracle, point, temperature, stop)
        point, temperature = here.point, temperature * _COOLING
        enough = relative_gap > 0 and oracle.excess(here) <= relative_gap * abs(oracle.best_bound)
        if enough or oracle.has_refuted or temperature <= _LAST_TEMPERATURE * scale:
            break
    return DualPoint(
        multipliers=oracle.best_point,
        bound=oracle.best_bound,
        fraction=oracle.fraction(here),
        temperature=temperature,
        num_evaluations=oracle.num_evaluations,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Smoothed:
    """The smoothed dual at one point and temperature.

    value; weight (n,): of every option relative to the best of its class; total (K,): their sum, nothing included;
    excess (n,), nothing (K,): how much worse than the best of its class every option, and choosing none, is.
    """

    point: FloatVector
    value: float
    weight: FloatVector
    total: FloatVector
    excess: FloatVector
    nothing: FloatVector


class _SmoothOracle:
    """Value, gradient and Hessian of the smoothed dual; remembers the best true bound it has seen."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self._problem = problem
        self._heads = problem.start[:-1]
        self._size = problem.size
        # The best choice of an optional class costs 0 at most.
        self._most = np.where(problem.required, np.inf, 0.0)
        # Without a feasible point the dual has no maximum; prices far beyond all costs have told enough.
        self.largest_multiplier = 1e4 * (1.0 + float(np.abs(problem.cost).max()))
        self.best_bound = -np.inf
        self.best_point = np.zeros(problem.limit.size)
        self.num_evaluations = 0
        self._highest = problem.highest
        self.has_refuted = False

    # The next three are asked only where prices are looked for.

    @cached_property
    def curvature(self) -> FloatVector:
        """Rough curvature (m,) of each row at temperature 1 while all options are equally likely."""
        problem = self._problem
        squares = problem.coupling.power(2).T @ (problem.copies / self._size)[problem.class_of]
        return np.asarray(np.maximum(squares, 1e-12))

    @cached_property
    def _copies_of(self) -> IntVector:
        return self._problem.copies[self._problem.class_of]

    @cached_property
    def _usage(self) -> "sparse.csc_array":
        return self._problem.coupling.T

    def at(self, point: FloatVector, temperature: float) -> _Smoothed:
        """Smoothed dual at `point` (m,)."""
        problem = self._problem
        self.num_evaluations += 1
        priced = problem.coupling @ point
        priced += problem.cost
        best = np.minimum(np.minimum.reduceat(priced, self._heads), self._most)
        priced -= np.repeat(best, self._size)
        weight = np.exp(priced * (-1.0 / temperature))
        total = np.add.reduceat(weight, self._heads)
        total += np.where(problem.required, 0.0, np.exp(np.minimum(best, 0.0) / temperature))
        outside = float(problem.limit @ point) - problem.offset
        bound = float(problem.copies @ best) - outside
        if bound > self.best_bound:
            self.best_bound, self.best_point = bound, point.copy()
            self.has_refuted = bound > self._highest and problem.refutes(point, bound)
        value = bound - temperature * float(problem.copies @ np.log(total))
        return _Smoothed(point=point, value=value, weight=weight, total=total, excess=priced, nothing=-best)

    def largest_move(self, step: FloatVector) -> float:
        """The most that the price of any column changes by `step` (m,)."""
        return float(np.abs(self._problem.coupling @ step).max(initial=0.0))

    def fraction(self, smoothed: _Smoothed) -> FloatVector:
        """Choice probabilities (n,)."""
        return np.asarray(smoothed.weight / np.repeat(smoothed.total, self._size))

    def excess(self, smoothed: _Smoothed) -> float:
        """How much more than the bound the choice probabilities cost."""
        probability = self.fraction(smoothed)
        nothing = 1.0 - np.add.reduceat(probability, self._heads)
        worse = np.where(self._problem.required, 0.0, smoothed.nothing)
        return float(self._copies_of @ (probability * smoothed.excess) + self._problem.copies @ (nothing * worse))

    def derivatives(self, smoothed: _Smoothed, temperature: float) -> tuple[FloatVector, FloatMatrix]:
        """Gradient (m,) and Hessian (m, m) of the smoothed dual."""
        problem = self._problem
        probability = self.fraction(smoothed)
        gradient = self._usage @ (self._copies_of * probability) - problem.limit
        # Classes that are settled do not bend the dual.
        is_open = smoothed.total > 1.0 + _NEGLIGIBLE
        columns = np.flatnonzero(np.repeat(is_open, self._size) & (smoothed.weight > _NEGLIGIBLE))
        if not columns.size:
            return gradient, np.zeros((gradient.size, gradient.size))
        coupling = problem.coupling[columns].toarray()
        weighted = coupling * probability[columns, None]
        class_of = problem.class_of[columns]
        heads = np.flatnonzero(np.diff(class_of, prepend=-1))
        usage = np.add.reduceat(weighted, heads, axis=0)
        hessian = (usage * problem.copies[class_of[heads], None]).T @ usage
        hessian -= (weighted * self._copies_of[columns, None]).T @ coupling
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


def _newton(oracle: _SmoothOracle, point: FloatVector, temperature: float, stop: Callable[[], bool]) -> _Smoothed:
    """A few bounded Newton steps; enough for the next temperature to start from.

    Where choices are settled the smoothed dual is almost linear and Newton's step far too bold. Such a step is not
    shortened, for its direction is worthless too, but damped (Levenberg and Marquardt), down to a gradient step; the
    unit of the damping is the curvature of rows whose choices are open.
    """
    here = oracle.at(point, temperature)
    damping = _LEAST_DAMPING
    for _ in range(_NEWTON_STEPS):
        if oracle.has_refuted or stop():
            break
        gradient, hessian = oracle.derivatives(here, temperature)
        while True:
            step = _bounded_step(here.point, gradient, hessian, damping * oracle.curvature / temperature)
            trial = oracle.at(np.minimum(here.point + step, oracle.largest_multiplier), temperature)
            if trial.value > here.value:
                break
            if oracle.largest_move(trial.point - here.point) < _SHORTEST_MOVE * temperature:
                return here
            damping *= _DAMPING_FACTOR
        damping = max(_LEAST_DAMPING, damping / _DAMPING_FACTOR)
        gain, here = trial.value - here.value, trial
        if gain < _SMALL_GAIN * max(1.0, abs(here.value)):
            break
    return here

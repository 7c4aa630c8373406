"""What every backend offers, and what all of them share: from native facts to a result that fails closed."""

import math
import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from stowplan.arrays import FloatVector, all_of

# Beyond this (relative) a bound on the wrong side of the objective is a contradiction, not rounding.
CROSSING_TOLERANCE = 1e-6
# Bounds move often; whoever watches wants them now and then. Incumbents are never held back.
_BOUND_INTERVAL_S = 0.1


class Backend(Protocol):
    """One solver. Instances have no state: one serves any number of solves and threads."""

    @property
    def name(self) -> str:
        """Name under which options ask for it."""

    @property
    def version(self) -> str:
        """Version of the solver itself."""

    def solve(self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve under the limits of `options`.

        Raises
        ------
        BackendError
            When the solver refuses the problem or an option.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativeOutcome:
    """What a solver said, in our words: a proof or failure, or the limit that ended it.

    `point` (n,) only where the solver itself says that it is feasible; `bound` as given, any sign of infinity.
    """

    ending: TerminationReason | Limit
    point: FloatVector | None = None
    bound: float | None = None
    message: str = ""


def rounded(problem: MatrixProblem, x: FloatVector) -> FloatVector:
    """Make integer columns of `x` (n,) integers and pull all columns onto bounds that they miss by rounding."""
    whole = np.rint(x)
    if all_of(whole == x) and all_of(problem.lower <= x) and all_of(x <= problem.upper):
        # Most points are so already, and the rest takes several times as long.
        return whole + 0.0
    exact = np.where(problem.integrality, whole, x)
    clipped = np.minimum(np.maximum(exact, problem.lower), problem.upper)
    near = np.abs(clipped - exact) <= CROSSING_TOLERANCE * np.maximum(1.0, np.abs(exact))
    result: FloatVector = np.where(near, clipped, exact) + 0.0
    return result


def finite(value: float | None) -> float | None:
    """None for what solvers use as unknown: None, nan, infinities and SCIP's 1e20."""
    return value if value is not None and abs(value) < 1e20 else None


def conclude(
    backend: Backend,
    problem: MatrixProblem,
    outcome: NativeOutcome,
    statistics: SolveStatistics,
    prices: FloatVector | None = None,
) -> SolveResult:
    """Build the result; prices (m,) go with it as they are. A limit without a point is no solution, a claimed optimum
    without a point is an error."""
    reason, limit, point, message = _read(outcome)
    objective = bound = None
    if point is not None:
        point = rounded(problem, point)
        objective = problem.value(point) if all_of(np.isfinite(point)) else math.nan
        if not math.isfinite(objective):
            reason, limit, point, objective = TerminationReason.NUMERICAL_ERROR, None, None, None
            message = "the solver returned a point that is not finite"
    if reason.has_incumbent or reason is TerminationReason.NO_SOLUTION_FOUND:
        bound = finite(outcome.bound)
    if reason is TerminationReason.OPTIMAL and bound is None:
        # Only linear programs come without a bound of their own: duality proves the objective.
        bound = objective if not problem.integrality.any() else None
        if bound is None:
            reason, point, objective = TerminationReason.NUMERICAL_ERROR, None, None
            message = "the solver claims an optimum without a bound"
    if objective is not None and bound is not None:
        overlap = problem.sense.sign * (bound - objective)
        if overlap > CROSSING_TOLERANCE * max(1.0, abs(objective)):
            message = f"bound {bound} lies on the wrong side of objective {objective}"
            reason, limit, point, objective, bound = TerminationReason.NUMERICAL_ERROR, None, None, None, None
        elif overlap > 0:
            bound = objective
    return SolveResult(
        termination=reason,
        limit=limit,
        sense=problem.sense,
        incumbent=point,
        objective=objective,
        bound=bound,
        statistics=statistics,
        solver=backend.name,
        solver_version=backend.version,
        message=message,
        prices=prices,
    )


def _read(outcome: NativeOutcome) -> tuple[TerminationReason, Limit | None, FloatVector | None, str]:
    if isinstance(outcome.ending, Limit):
        found = TerminationReason.NO_SOLUTION_FOUND if outcome.point is None else TerminationReason.FEASIBLE
        return found, outcome.ending, outcome.point, outcome.message
    if outcome.ending is not TerminationReason.OPTIMAL:
        return outcome.ending, None, None, outcome.message
    if outcome.point is None:
        return TerminationReason.NUMERICAL_ERROR, None, None, "the solver claims an optimum without a point"
    return outcome.ending, None, outcome.point, outcome.message


@dataclass(slots=True, kw_only=True, eq=False)
class ProgressFeed:
    """Turns callbacks into progress: every incumbent, bounds at most ten times a second."""

    monitor: SolveMonitor
    started: float = field(default_factory=time.perf_counter)
    first_incumbent_s: float | None = None
    _bound: float | None = None
    _told: float = -math.inf

    def elapsed_s(self) -> float:
        """Seconds since the backend was called."""
        return time.perf_counter() - self.started

    def incumbent(self, x: FloatVector, objective: float, bound: float | None, num_nodes: int | None) -> None:
        """Tell of a new incumbent `x` (n,)."""
        elapsed_s = self.elapsed_s()
        if self.first_incumbent_s is None:
            self.first_incumbent_s = elapsed_s
        self._tell(elapsed_s, bound, num_nodes, x, objective)

    def bound(self, bound: float | None, num_nodes: int | None) -> None:
        """Tell of a bound if it is new and the last word is a while ago."""
        elapsed_s = self.elapsed_s()
        if finite(bound) is not None and bound != self._bound and elapsed_s - self._told >= _BOUND_INTERVAL_S:
            self._tell(elapsed_s, bound, num_nodes, None, None)

    def _tell(
        self,
        elapsed_s: float,
        bound: float | None,
        num_nodes: int | None,
        x: FloatVector | None,
        objective: float | None,
    ) -> None:
        self._told = elapsed_s
        self._bound = finite(bound) if finite(bound) is not None else self._bound
        self.monitor.on_progress(
            Progress(elapsed_s=elapsed_s, objective=objective, bound=self._bound, incumbent=x, num_nodes=num_nodes)
        )

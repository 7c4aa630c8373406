"""What several solvers made of one instance, and whether they can all be right.

Every run claims that the optimum z* lies between its bound and its objective:

  minimise   bound_i <= z* <= objective_i         maximise   objective_i <= z* <= bound_i

so that two runs contradict each other when the bound of one lies beyond the objective of the other, and when one
proves that there is no solution where the other has one. For two proven optima this says that they agree within the
gap. Light: imports no solver and no modelling layer.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from models.plan import PlanOutcome
from solver.monitor import Progress
from solver.result import TerminationReason
from solver.sense import Sense
from stowplan.errors import Issue, UnverifiedPlanError

# Enough for a line in a picture, however long the solve.
MAX_POINTS = 512
# Relative; what rounding explains.
_ROUNDING = 1e-6
_PROOFS = (TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE, TerminationReason.UNBOUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """Best objective and bound known `elapsed_s` after the start of the solve; None where nothing was known yet."""

    elapsed_s: float
    objective: float | None
    bound: float | None


class History:
    """Best objective and bound over time, thinned out to `MAX_POINTS` when there are too many. Safe from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: list[HistoryPoint] = []

    @property
    def points(self) -> tuple[HistoryPoint, ...]:
        """What has been seen so far."""
        with self._lock:
            return tuple(self._points)

    def add(self, progress: Progress) -> None:
        """Keep what is new."""
        with self._lock:
            last = self._points[-1] if self._points else None
            objective, bound = progress.objective, progress.bound
            if last is not None:
                objective = last.objective if objective is None else objective
                bound = last.bound if bound is None else bound
            if last is not None and (objective, bound) == (last.objective, last.bound):
                return
            self._points.append(HistoryPoint(elapsed_s=progress.elapsed_s, objective=objective, bound=bound))
            if len(self._points) >= 2 * MAX_POINTS:
                # The last point stays: it is the best.
                del self._points[1:-1:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """Why there is no outcome: a stable code and one sentence."""

    code: str
    detail: str
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRun:
    """One solver on the instance, in a process of its own: an outcome, or the failure in its place."""

    solver: str
    outcome: PlanOutcome | None
    failure: RunFailure | None
    history: tuple[HistoryPoint, ...]

    def __post_init__(self) -> None:
        if (self.outcome is None) == (self.failure is None):
            raise ValueError(f"{self.solver}: either an outcome or a failure, not both and not neither")

    @property
    def proof(self) -> TerminationReason | None:
        """What the run proved; None for nothing."""
        reason = None if self.outcome is None else self.outcome.termination
        return reason if reason in _PROOFS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Whether the runs can all be right.

    `agree` is None when fewer than two of them proved anything, so that there was nothing to compare. `errors` names
    every contradiction and every answer that failed the independent check: errors of ours, never of the input.
    """

    agree: bool | None
    num_proven: int
    statement: str
    errors: tuple[str, ...]


def agreement(runs: Sequence[SolverRun]) -> Agreement:
    """Judge the runs."""
    errors = (*_withheld(runs), *(words for pair in permutations(runs, 2) for words in _contradictions(*pair)))
    proven = [run for run in runs if run.proof is not None]
    names = ", ".join(run.solver for run in proven)
    if errors:
        agree, statement = False, "NOT ALL ANSWERS CAN BE RIGHT: this is an error of ours; please report it"
    elif len(proven) > 1:
        agree, statement = True, f"all {len(proven)} proven answers agree ({names})"
    elif proven:
        agree, statement = None, f"only {names} proved its answer, and no other answer contradicts it"
    else:
        agree, statement = None, "no solver proved its answer; none contradicts another"
    return Agreement(agree=agree, num_proven=len(proven), statement=statement, errors=errors)


def _withheld(runs: Sequence[SolverRun]) -> Iterator[str]:
    for run in runs:
        if run.failure is not None and run.failure.code == UnverifiedPlanError.code:
            yield f"{run.solver}: {run.failure.detail}"


def _contradictions(one: SolverRun, other: SolverRun) -> Iterator[str]:
    """What `one` proved about the optimum, against what `other` found or proved."""
    if one.outcome is None or other.outcome is None:
        return
    bound, objective = one.outcome.bound, other.outcome.objective
    if bound is not None and objective is not None:
        distance = Sense(one.outcome.sense).sign * (bound - objective)
        if distance > _ROUNDING * max(1.0, abs(objective)):
            yield f"{one.solver} proved the bound {bound:.10g}, but {other.solver} has the objective {objective:.10g}"
    if one.proof is TerminationReason.INFEASIBLE and (objective is not None or _unlike(one, other)):
        yield f"{one.solver} proved that there is no plan, but {other.solver} ended as {other.outcome.termination}"
    if one.proof is TerminationReason.UNBOUNDED and other.proof is TerminationReason.OPTIMAL:
        yield f"{one.solver} proved that no plan is best, but {other.solver} proved one"


def _unlike(one: SolverRun, other: SolverRun) -> bool:
    """Whether both proved something, and not the same."""
    return other.proof is not None and one.proof is not other.proof

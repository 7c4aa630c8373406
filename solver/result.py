"""The waist of the hourglass: one result type that fails closed.

No default is optimistic and inconsistent combinations raise. Words follow OR-Tools MathOpt.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from solver.sense import Sense
from stowplan.arrays import FloatVector

# Two sides of a proof may cross by rounding; beyond this (relative) the result is inconsistent.
_CROSSING_TOLERANCE = 1e-6


class TerminationReason(StrEnum):
    """Why the solve ended. Only `optimal` and `feasible` come with an incumbent."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    INFEASIBLE_OR_UNBOUNDED = "infeasible_or_unbounded"
    NO_SOLUTION_FOUND = "no_solution_found"
    NUMERICAL_ERROR = "numerical_error"
    OTHER_ERROR = "other_error"

    @property
    def has_incumbent(self) -> bool:
        """Whether a feasible point exists for this reason."""
        return self in (TerminationReason.OPTIMAL, TerminationReason.FEASIBLE)


class Limit(StrEnum):
    """Which limit ended a solve early. `deadline`: the worker was killed; `interrupted`: somebody canceled."""

    TIME = "time"
    NODE = "node"
    ITERATION = "iteration"
    SOLUTION = "solution"
    OBJECTIVE = "objective"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    DEADLINE = "deadline"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveStatistics:
    """Seconds are wall-clock unless the name says `cpu`. None: not known, never zero."""

    load_s: float | None = None
    solve_s: float | None = None
    solve_cpu_s: float | None = None
    first_incumbent_s: float | None = None
    num_nodes: int | None = None
    num_columns: int | None = None
    num_rows: int | None = None
    num_nonzeros: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveResult:
    """What a solve proved.

    `incumbent` is float64 (n,), integers exact, re-checked against the matrix form; `objective` its value.
    `bound` is a proven bound on the optimum from the other side (None: nothing proven). `prices` (m,) are Lagrange
    multipliers, in objective per unit of a row, where the backend found any. Feasible without a `limit`: a heuristic
    has ended by itself, with a wider gap than was asked for.

    Raises
    ------
    ValueError
        For a combination that cannot be: an incumbent without a feasible reason or the reverse, an objective
        without incumbent, a non-finite objective, optimal without bound, a limit on a proof, a crossed bound.
    """

    termination: TerminationReason
    limit: Limit | None
    sense: Sense
    incumbent: FloatVector | None
    objective: float | None
    bound: float | None
    statistics: SolveStatistics
    solver: str
    solver_version: str
    message: str = ""
    prices: FloatVector | None = None

    def __post_init__(self) -> None:
        reason = self.termination
        if (self.incumbent is not None) != reason.has_incumbent or (self.objective is None) != (self.incumbent is None):
            raise ValueError(f"{reason} with incumbent {self.incumbent is not None}, objective {self.objective}")
        if self.objective is not None and not math.isfinite(self.objective):
            raise ValueError(f"objective {self.objective} is not finite")
        if self.bound is not None and not math.isfinite(self.bound):
            raise ValueError(f"bound {self.bound} is not finite; an unknown bound is None")
        if reason is TerminationReason.OPTIMAL and self.bound is None:
            raise ValueError("optimal without a bound")
        if self.limit is None:
            is_possible = reason is not TerminationReason.NO_SOLUTION_FOUND
        else:
            is_possible = reason in (TerminationReason.FEASIBLE, TerminationReason.NO_SOLUTION_FOUND)
        if not is_possible:
            raise ValueError(f"{reason} with limit {self.limit}")
        if self.objective is not None and self.bound is not None:
            overlap = self.sense.sign * (self.bound - self.objective)
            if overlap > _CROSSING_TOLERANCE * max(1.0, abs(self.objective)):
                raise ValueError(f"bound {self.bound} lies on the wrong side of objective {self.objective}")

    @property
    def relative_gap(self) -> float | None:
        """How far objective and bound are apart (`relative_gap_of`)."""
        return relative_gap_of(self.sense, self.objective, self.bound)


def relative_gap_of(sense: Sense, objective: float | None, bound: float | None) -> float | None:
    """|objective - bound| / max(|objective|, 1e-10); None when either side is missing."""
    if objective is None or bound is None:
        return None
    distance = max(0.0, sense.sign * (objective - bound))
    return 0.0 if distance == 0.0 else distance / max(abs(objective), 1e-10)

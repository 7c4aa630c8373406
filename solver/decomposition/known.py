"""What is known of a problem while it is searched: the best point, the bound, prices, and whether that is enough."""

import numpy as np

from solver.backends.base import ProgressFeed
from solver.decomposition.dual import ReducedCosts
from solver.decomposition.structure import ChoiceProblem
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector

# Relative to a value: sums of the same numbers in another order differ by this.
ROUNDING = 1e-12
_LEAST_TIME_S = 1e-3


class Known:
    """Values are in minimising form. `multipliers` of the structure's coupling rows; None where there are none.
    `is_refuted`: prices prove that there is no solution."""

    def __init__(
        self, problem: MatrixProblem, structure: ChoiceProblem, options: SolveOptions, monitor: SolveMonitor
    ) -> None:
        self.problem = problem
        self.structure = structure
        self.options = options
        self.monitor = monitor
        self.feed = ProgressFeed(monitor=monitor)
        self.num_nodes = 0
        self.bound = -np.inf
        self.is_refuted = False
        self.value = np.inf
        self.point: FloatVector | None = None
        self.multipliers: FloatVector | None = None

    @property
    def left_s(self) -> float:
        """Seconds that are left, some in any case."""
        return max(_LEAST_TIME_S, self.options.time_limit_s - self.feed.elapsed_s())

    @property
    def counts(self) -> IntVector | None:
        """Of the structure's options (n,) at the point; None without one."""
        return None if self.point is None else self.structure.counts_of(self.point)

    @property
    def prices(self) -> FloatVector | None:
        """Multipliers (m,) of the problem's rows; None when nothing was priced."""
        if self.multipliers is None:
            return None
        prices = np.zeros(self.problem.num_rows)
        np.add.at(prices, self.structure.rows, self.multipliers)
        return prices

    def take(self, counts: IntVector) -> None:
        """A point in counts (n,) of the structure."""
        self.offer(self.structure.expand(counts, self.problem.num_columns))

    def offer(self, point: FloatVector) -> bool:
        """A point (n,) of the problem; whether it is better than what was known."""
        sign = self.problem.sense.sign
        value = sign * self.problem.value(point)
        if value >= self.value:
            return False
        self.value, self.point = value, point
        bound = sign * self.bound if np.isfinite(self.bound) else None
        self.feed.incumbent(point, sign * value, bound, self.num_nodes)
        return True

    def target(self) -> float:
        """Values up to here are within the gap of the bound."""
        gap = self.options.relative_gap
        return self.bound / (1.0 - gap if self.bound > 0 else 1.0 + gap) if gap < 1.0 else -np.inf

    def beyond(self, reduced: ReducedCosts) -> float:
        """Options that cost more than this cannot improve on the incumbent."""
        return self.value - reduced.bound + ROUNDING * abs(self.value)

    def gap_is_closed(self) -> bool:
        """Whether a point is known that is good enough."""
        return self.point is not None and self.is_enough(self.value)

    def is_enough(self, value: float) -> bool:
        """Whether a point of this value is within the gap of the bound."""
        return value - self.bound <= (self.options.relative_gap + ROUNDING) * abs(value)

    def must_stop(self) -> bool:
        """Whether the time is over, or somebody has canceled."""
        return self.monitor.canceled.is_set() or self.feed.elapsed_s() > self.options.time_limit_s

    def is_done(self) -> bool:
        """Whether there is nothing to gain, or no time."""
        return self.is_refuted or self.gap_is_closed() or self.must_stop()

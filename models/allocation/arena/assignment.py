"""Where Algorithm 1 stands: who has which block, what is free, and what a change would do to the objective."""

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from models.allocation.arena.assembly import baseline
from models.allocation.arena.instance import ArenaInstance
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector

# Relative: sums of the same numbers in another order differ by less.
_ROUNDING = 1e-12

Moves = Mapping[int, int]
"""Job -> the configuration that it gets."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Way:
    """Moves, with the cost of each job after its move, and how much less that is than before; in the order of moves."""

    moves: Moves
    costs: tuple[float, ...]
    savings: tuple[float, ...]


class Assignment:
    """A choice of blocks that the placeability rows admit.

    chosen: int64 (J,), -1 for none. slack: int64 (m,), what the rows leave. offered: int64 (K,), the configurations
    that some job is offered; offered_costs: float64 (K, J), what they cost, inf for jobs that are not offered them.
    Costs (J,) are to be minimised, whatever the sense of the objective: a max c + b sum c, over the counted jobs for
    Eq. 7 (a = 1), over all jobs else (a = 0).
    """

    def __init__(self, instance: ArenaInstance) -> None:
        self.instance = instance
        self.demand: IntMatrix = instance.rows.coefficients
        self.units: IntVector = instance.rows.gpus_per_unit
        self.slack: IntVector = instance.rows.limits.copy()
        self.chosen: IntVector = np.full(len(instance.jobs), -1, dtype=np.int64)
        offered = instance.utility.offered
        self.offered: IntVector = np.flatnonzero(offered.any(axis=0))
        sign = instance.sense.sign
        self.costs: FloatVector = sign * baseline(instance)
        self.is_min_max = instance.is_min_max
        self._mean = instance.mean_share if self.is_min_max else 1.0
        # Blocks that are not offered cost beyond all: no change to them gains.
        self._block_costs: FloatMatrix = np.where(offered, sign * instance.utility.value, np.inf)
        self.offered_costs: FloatMatrix = np.ascontiguousarray(self._block_costs[:, self.offered].T)
        # The same as numbers of Python's, for what is looked up one by one.
        self._costs_of: list[list[float]] = self._block_costs.tolist()
        self._own: list[float] = self.costs.tolist()
        self._largest_first: list[tuple[float, int]] = sorted(
            zip((-self.costs).tolist(), range(self.costs.size), strict=True)
        )

    def apply(self, moves: Moves) -> set[int]:
        """Give the jobs their new blocks. Returns the configurations that jobs leave and come to."""
        concerned = {int(self.chosen[i]) for i in moves} | set(moves.values())
        for i, c in moves.items():
            self.slack = self.slack_without(i) - self.demand[:, c]
            self._set_cost(i, self._costs_of[i][c])
            self.chosen[i] = c
        return concerned - {-1}

    def slack_without(self, job: int) -> IntVector:
        """Slack (m,) when one job leaves its block."""
        own = self.chosen[job]
        return np.asarray(self.slack + self.demand[:, own]) if own >= 0 else self.slack

    def worst_off(self) -> int:
        """The counted job that costs most."""
        return int(np.where(self.instance.counted, self.costs, -np.inf).argmax())

    def two_largest(self) -> tuple[float, float]:
        """Largest cost, and the largest of the others, at least 0: with two equal ones the same."""
        first, second = (*(max(0.0, -cost) for cost, _ in self._largest_first[:2]), 0.0, 0.0)[:2]
        return first, second

    def gains(self, jobs: IntVector) -> tuple[FloatMatrix, FloatMatrix]:
        """How much better b sum c (K, n) and the objective (K, n) get when one of the jobs (n,) gets one of the offered
        configurations, each by itself; -inf for blocks that it is not offered."""
        own, new = self.costs[jobs], self.offered_costs.take(jobs, axis=1)
        savings = self._mean * (own - new)
        if not self.is_min_max:
            return savings, savings
        worst, others = self.two_largest()
        largest = np.maximum(new, worst)
        alone = (own == worst).nonzero()[0]
        if alone.size:
            largest[:, alone] = np.maximum(new[:, alone], others)
        return savings, savings + (worst - largest)

    def most_gained(self, job: int, blocks: IntVector, saved: FloatVector, num_moves: int) -> FloatVector:
        """What `gain` is at most (b,), of any way to each of the `blocks` (b,) by at most `num_moves` moves, which save
        at most `saved` (b,) together."""
        own, costs = float(self.costs[job]), self._block_costs[job, blocks]
        none = saved == -np.inf
        saved = np.where(none, 0.0, saved)
        gained = self._mean * (own - costs) + saved
        size = self._mean * (abs(own) + np.abs(costs)) + np.abs(saved)
        if self.is_min_max:
            worst, _ = self.two_largest()
            gained += worst - np.maximum(costs, self._least_worst(job, num_moves))
            size += worst + np.abs(costs)
        return np.asarray(np.where(none, -np.inf, gained + _ROUNDING * size))

    def way(self, moves: Moves) -> Way:
        """The moves with what they cost and save as things stand."""
        costs = tuple([self._costs_of[i][c] for i, c in moves.items()])
        savings = tuple([self._own[i] - cost for i, cost in zip(moves, costs, strict=True)])
        return Way(moves=moves, costs=costs, savings=savings)

    def gain(self, way: Way, job: int, c: int) -> float:
        """How much better the objective gets when job `job` gets configuration c, and all moves of the way are made."""
        cost = self._costs_of[job][c]
        gain = self._mean * math.fsum((*way.savings, self._own[job] - cost))
        if self.is_min_max:
            gain += self._worst_without(()) - max(self._worst_without({*way.moves, job}), *way.costs, cost)
        return gain

    def _least_worst(self, job: int, num_moves: int) -> float:
        """What the largest cost of the other jobs is at least, whichever `num_moves` of the launched ones move."""
        first = self._largest_first[: num_moves + 2]
        stays = (max(0.0, -cost) for cost, i in first if i != job and self.chosen[i] < 0)
        return next(stays, max(0.0, -first[-1][0]) if len(first) == num_moves + 2 else 0.0)

    def _worst_without(self, jobs: Collection[int]) -> float:
        """Largest cost of the other jobs, 0 when there are none."""
        for cost, i in self._largest_first:
            if i not in jobs:
                return max(0.0, -cost)
        return 0.0

    def _set_cost(self, job: int, cost: float) -> None:
        del self._largest_first[bisect_left(self._largest_first, (-self._own[job], job))]
        insort(self._largest_first, (-cost, job))
        self.costs[job] = self._own[job] = cost

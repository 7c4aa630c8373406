"""Where Algorithm 1 stands: who has which block, what is free, and what a change would do to the objective."""

from collections.abc import Mapping

import numpy as np

from models.allocation.arena.assembly import baseline
from models.allocation.arena.instance import ArenaInstance
from stowplan.arrays import FloatVector, IntMatrix, IntVector

Moves = Mapping[int, int]
"""Job -> the configuration that it gets."""


class Assignment:
    """A choice of blocks that the placeability rows admit.

    chosen: int64 (J,), -1 for none. slack: int64 (m,), what the rows leave. Costs are to be minimised, whatever the
    sense of the objective: a max c + b sum c, over the counted jobs for Eq. 7 (a = 1), over all jobs else (a = 0).
    """

    def __init__(self, instance: ArenaInstance) -> None:
        self.instance = instance
        self.demand: IntMatrix = instance.rows.coefficients
        self._units: IntVector = instance.rows.gpus_per_unit
        self.slack: IntVector = instance.rows.limits.copy()
        self.chosen: IntVector = np.full(len(instance.jobs), -1, dtype=np.int64)
        self._sign = instance.sense.sign
        self._costs: FloatVector = self._sign * baseline(instance)
        self._mean = instance.mean_share if instance.is_min_max else 1.0
        self.pair_costs: FloatVector = self._sign * instance.pair_values
        self._pair_of = {
            (int(i), int(c)): k
            for k, (i, c) in enumerate(zip(instance.pair_jobs, instance.pair_configurations, strict=True))
        }

    def apply(self, moves: Moves) -> None:
        """Give the jobs their new blocks."""
        for i, c in moves.items():
            self.slack = self.slack_without(i) - self.demand[:, c]
            self._costs[i] = self.pair_costs[self._pair_of[i, c]]
            self.chosen[i] = c

    def slack_without(self, job: int) -> IntVector:
        """Slack (m,) when one job leaves its block."""
        own = self.chosen[job]
        return np.asarray(self.slack + self.demand[:, own]) if own >= 0 else self.slack

    def worst_off(self) -> int:
        """The counted job that costs most."""
        return int(np.where(self.instance.counted, self._costs, -np.inf).argmax())

    def shortage(self, c: int, slack: IntMatrix) -> IntVector:
        """GPUs (n,) that are missing for configuration `c`, summed over the rows, at each slack (m, n)."""
        return np.asarray(self._units @ np.maximum(0, self.demand[:, [c]] - slack))

    def gains(self, pairs: IntVector) -> FloatVector:
        """How much better the objective gets (n,) when the job of a pair gets it, each by itself."""
        jobs, new = self.instance.pair_jobs[pairs], self.pair_costs[pairs]
        gain = self._mean * (self._costs[jobs] - new)
        if self.instance.is_min_max:
            worst, others = self._largest()
            gain += worst - np.maximum(np.where(self._costs[jobs] == worst, others, worst), new)
        return np.asarray(gain)

    def gain(self, moves: Moves) -> float:
        """How much better the objective gets when all moves are made."""
        costs = self._costs.copy()
        for i, c in moves.items():
            costs[i] = self.pair_costs[self._pair_of[i, c]]
        gain = self._mean * float((self._costs - costs).sum())
        if self.instance.is_min_max:
            gain += float(self._costs.max(initial=0.0) - costs.max(initial=0.0))
        return gain

    def _largest(self) -> tuple[float, float]:
        """Largest cost, and the largest of the others: with two equal ones the same."""
        if self._costs.size < 2:
            return float(self._costs.max(initial=0.0)), 0.0
        second, first = np.partition(self._costs, -2)[-2:]
        return float(first), float(second)

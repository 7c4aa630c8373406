"""Where Algorithm 1 stands: who has which block, what is free, and what a change would do to the objective."""

import math
from collections.abc import Collection, Mapping

import numpy as np

from models.allocation.arena.assembly import baseline
from models.allocation.arena.instance import ArenaInstance
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector

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
        self.units: IntVector = instance.rows.gpus_per_unit
        self.slack: IntVector = instance.rows.limits.copy()
        self.chosen: IntVector = np.full(len(instance.jobs), -1, dtype=np.int64)
        sign = instance.sense.sign
        self._costs: FloatVector = sign * baseline(instance)
        self._mean = instance.mean_share if instance.is_min_max else 1.0
        self._block_costs: FloatMatrix = sign * np.where(instance.utility.offered, instance.utility.value, 0.0)
        self._largest_first: IntVector | None = None

    def apply(self, moves: Moves) -> bool:
        """Give the jobs their new blocks. Returns whether gains of jobs that did not move may be others now."""
        worst = self._two_largest() if self.instance.is_min_max else None
        for i, c in moves.items():
            self.slack = self.slack_without(i) - self.demand[:, c]
            self._costs[i] = self._block_costs[i, c]
            self.chosen[i] = c
        self._largest_first = None
        return worst is not None and worst != self._two_largest()

    def slack_without(self, job: int) -> IntVector:
        """Slack (m,) when one job leaves its block."""
        own = self.chosen[job]
        return np.asarray(self.slack + self.demand[:, own]) if own >= 0 else self.slack

    def worst_off(self) -> int:
        """The counted job that costs most."""
        return int(np.where(self.instance.counted, self._costs, -np.inf).argmax())

    def gains(self, jobs: IntVector) -> FloatMatrix:
        """How much better the objective gets (n, C) when one of the jobs (n,) gets a block, each by itself; -inf for
        blocks that it is not offered."""
        own, new = self._costs[jobs, None], self._block_costs[jobs]
        gain = self._mean * (own - new)
        if self.instance.is_min_max:
            worst, others = self._two_largest()
            gain += worst - np.maximum(np.where(own == worst, others, worst), new)
        return np.where(self.instance.utility.offered[jobs], gain, -np.inf)

    def gain(self, moves: Moves) -> float:
        """How much better the objective gets when all moves are made."""
        new = [float(self._block_costs[i, c]) for i, c in moves.items()]
        gain = self._mean * math.fsum(float(self._costs[i]) - cost for i, cost in zip(moves, new, strict=True))
        if self.instance.is_min_max:
            gain += self._worst_without(()) - max(self._worst_without(moves), *new)
        return gain

    def _two_largest(self) -> tuple[float, float]:
        """Largest cost, and the largest of the others: with two equal ones the same."""
        worst = self._ranked()[:1].tolist()
        return self._worst_without(()), self._worst_without(worst)

    def _worst_without(self, jobs: Collection[int]) -> float:
        """Largest cost of the other jobs, 0 when there are none."""
        return next((max(0.0, float(self._costs[i])) for i in self._ranked() if i not in jobs), 0.0)

    def _ranked(self) -> IntVector:
        """Jobs (J,), those that cost most first."""
        if self._largest_first is None:
            self._largest_first = np.argsort(-self._costs)
        return self._largest_first

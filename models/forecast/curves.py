"""How likely jobs were to end by when: cumulative hazards at knots of time, a row for each job.

H(t) = -log P(lasts longer than t). It is linear in log t between two knots, 0 at the first one (a second), and unknown
behind the last one.
"""

from dataclasses import dataclass

import numpy as np

from stowplan.arrays import FloatMatrix, FloatVector, IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curves:
    """`knots_s` (K,), ascending from 1 s; `hazards` (jobs, K), ascending from 0."""

    knots_s: FloatVector
    hazards: FloatMatrix

    def at(self, jobs: IntVector, seconds: FloatVector) -> FloatVector:
        """Cumulative hazard of each of these jobs at its time, (n,); behind the last knot as at it."""
        knots = self.knots_s
        k = np.clip(np.searchsorted(knots, seconds, side="right") - 1, 0, len(knots) - 2)
        share = np.log(np.maximum(seconds, knots[0]) / knots[k]) / np.log(knots[k + 1] / knots[k])
        low, high = self.hazards[jobs, k], self.hazards[jobs, k + 1]
        found: FloatVector = low + np.minimum(share, 1.0) * (high - low)
        return found

    def seconds(self, jobs: IntVector, hazards: FloatVector) -> FloatVector:
        """When the cumulative hazard of each of these jobs is so much, (n,); infinity where it is not until the end."""
        knots, rows = self.knots_s, self.hazards[jobs]
        k = np.clip((rows <= hazards[:, None]).sum(axis=1) - 1, 0, len(knots) - 2)
        own = np.arange(len(rows))
        low, high = rows[own, k], rows[own, k + 1]
        share = np.clip((hazards - low) / np.maximum(high - low, np.finfo(np.float64).tiny), 0.0, 1.0)
        found = knots[k] * (knots[k + 1] / knots[k]) ** share
        return np.where(hazards > rows[:, -1], np.inf, found)

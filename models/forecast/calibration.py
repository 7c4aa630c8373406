"""Forecasts that keep their promises while a site changes: conformal quantiles of what the model got wrong of late.

Held-out jobs are followed in the order of submission. At a moment, each has a score: its cumulative hazard H_j when it
ended or, of one that runs, so far (it is censored). If the model were right they would be exponential with mean 1.

  drift c      (ended + PRIOR) / (sum of H + PRIOR) over the last `DRIFT_JOBS`: how many times faster than the model
               says jobs end of late (what maximises the likelihood of a common factor; shrunk to 1)
  scores       c_j H_j, with the drift as it was when job j was submitted
  map G        the distribution of scores over the last `CONFORMAL_JOBS`: of n scores, with r_k not below the k-th,
                   G = 1 - product over scores of jobs that ended, up to there, of r / (r + 1)
               Without censoring that is k / (n + 1) at the k-th smallest: split conformal prediction. With it, Kaplan
               and Meier's estimate, as cautious.

A job that begins is over within t with probability G(c H(t)). Above the largest score the model's own hazard goes on.
One that has lasted for a is over within t with probability 1 - exp(-c (H(t) - H(a))), by the drift alone: what G says
behind a is what the few longest of the held-out jobs did, most of which still run (measured: `benchmarks forecasts`).
Quantiles of a job are monotone, since G and H are.
"""

from dataclasses import dataclass

import numpy as np

from models.forecast.curves import Curves
from models.forecast.history import LEAST_S, History
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

DRIFT_JOBS = 500
CONFORMAL_JOBS = 4000
PRIOR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Held-out jobs in the order of submission: hazards when they were seen last, those times drift, who had ended."""

    hazards: tuple[float, ...] = ()
    scaled: tuple[float, ...] = ()
    ended: tuple[bool, ...] = ()


_NONE = Scores()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Drift, and the map from scores (n,) to true cumulative hazards (n,) at them; both strictly ascend from 0."""

    drift: float
    scores: FloatVector
    hazards: FloatVector

    def quantiles(
        self, curves: Curves, jobs: IntVector, ages_s: FloatVector, probabilities: FloatVector
    ) -> FloatMatrix:
        """From their starts, how long jobs of these ages last, (jobs, probabilities); infinity where nobody knows."""
        wanted = -np.log1p(-probabilities)
        above = np.maximum(wanted - self.hazards[-1], 0.0)
        begins = np.interp(wanted, self.hazards, self.scores) + above
        runs = self.drift * curves.at(jobs, ages_s)[:, None] + wanted
        found = np.where(ages_s[:, None] > LEAST_S, runs, begins) / self.drift
        columns = [curves.seconds(jobs, column) for column in found.T]
        return np.maximum(np.column_stack(columns), ages_s[:, None])


class Followed:
    """The jobs of a history from `first` on, followed through time, behind those that were scored before.

    Parameters
    ----------
    curves
        Of the jobs from `first` on.
    """

    def __init__(self, history: History, curves: Curves, first: int, before: Scores = _NONE) -> None:
        self._curves = curves
        self._start_s, self._end_s = history.start_s[first:], history.end_s[first:]
        self._submit_s, self._lasted_s = history.submit_s[first:], history.lasted_s[first:]
        self._before = (np.array(before.hazards), np.array(before.scaled), np.array(before.ended, dtype=np.bool_))
        # The drift when each was submitted; jobs look back at those in front.
        self.drifts = np.ones(len(self._start_s))
        for k, at_s in enumerate(self._submit_s.tolist()):
            self.drifts[k] = self._drift(k, at_s)

    def calibration(self, num_jobs: int, at_s: float) -> Calibration:
        """What the first so many of these jobs, and those before them, say at a moment."""
        _, scores, ended = self._scored(num_jobs, at_s)
        return _map(scores, ended, self._drift(num_jobs, at_s))

    def scores(self, at_s: float) -> Scores:
        """All that the next who follows needs of these jobs."""
        hazards, scaled, ended = self._scored(len(self._start_s), at_s)
        return Scores(hazards=tuple(hazards.tolist()), scaled=tuple(scaled.tolist()), ended=tuple(ended.tolist()))

    def _scored(self, num_jobs: int, at_s: float) -> tuple[FloatVector, FloatVector, Mask]:
        """Hazards, scores, and who had ended."""
        hazards, ended = self._seen(num_jobs, at_s, CONFORMAL_JOBS)
        num_own = min(num_jobs, CONFORMAL_JOBS)
        num_before = len(hazards) - num_own
        old = self._before[1][len(self._before[1]) - num_before :]
        new = self.drifts[num_jobs - num_own : num_jobs] * hazards[num_before:]
        return hazards, np.concatenate([old, new]), ended

    def _drift(self, num_jobs: int, at_s: float) -> float:
        hazards, ended = self._seen(num_jobs, at_s, DRIFT_JOBS)
        return float((ended.sum() + PRIOR) / (hazards.sum() + PRIOR))

    def _seen(self, num_jobs: int, at_s: float, most: int) -> tuple[FloatVector, Mask]:
        """Hazards as far as they are known at a moment, and who had ended, of the last jobs of the first so many."""
        low = max(0, num_jobs - most)
        jobs = np.arange(low, num_jobs)
        seen_s = np.clip(at_s - self._start_s[low:num_jobs], self._curves.knots_s[0], self._lasted_s[low:num_jobs])
        hazards, ended = self._curves.at(jobs, seen_s), self._end_s[low:num_jobs] <= at_s
        missing = most - len(jobs)
        if not missing or not self._before[0].size:
            return hazards, ended
        return (
            np.concatenate([self._before[0][-missing:], hazards]),
            np.concatenate([self._before[2][-missing:], ended]),
        )


def _map(scores: FloatVector, ended: Mask, drift: float) -> Calibration:
    """The distribution of scores of which some are censored."""
    order = np.lexsort((~ended, scores))
    left = np.arange(len(scores), 0, -1)
    steps = np.where(ended[order], np.log1p(1.0 / left), 0.0)
    hazards, at = np.cumsum(steps), scores[order]
    # Equal scores are one step; what has no step says nothing.
    last = np.flatnonzero(np.append(np.diff(at) > 0, True)) if len(at) else np.zeros(0, dtype=np.int64)
    values, reached = at[last], hazards[last]
    rises = (np.diff(reached, prepend=0.0) > 0) & (values > 0)
    return Calibration(
        drift=drift,
        scores=np.concatenate([[0.0], values[rises]]),
        hazards=np.concatenate([[0.0], reached[rises]]),
    )

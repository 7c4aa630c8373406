"""How good forecasts of durations are: pinball loss, coverage, and the error in classes of 10 minutes.

pinball      mean over jobs and probabilities p of max(p e, (p - 1) e), e = log(duration / quantile): a quantile that
             is a factor too long or too short costs the same for short jobs and long ones
pinball_min  the same with e = duration - quantile in minutes, which the few longest jobs decide
coverage     share of jobs that were over within the quantile
rmse_classes root of the mean squared difference between the class of the median and that of the duration; the last
             class is open (Arnold, appendix G, has 1.61 and does not say where its classes end)
"""

from dataclasses import dataclass

import numpy as np

from stowplan.arrays import FloatMatrix, FloatVector

PROBABILITIES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
COVERED = 0.9
CLASS_S = 600.0
# The notice that Arnold's scheduler has in appendix H is 4 h: whether a job takes 5 h or 50 is all the same to it.
NUM_CLASSES = 25
_S_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a predictor was; see the module. `observed`: the coverage of each of `PROBABILITIES`."""

    predictor: str
    pinball: float
    pinball_min: float
    coverage_90: float
    rmse_classes: float
    observed: tuple[float, ...]


def score(predictor: str, lasted_s: FloatVector, quantiles_s: FloatMatrix) -> Score:
    """Judge quantiles (jobs, `PROBABILITIES`), all finite, by how long jobs (jobs,) took."""
    levels = np.array(PROBABILITIES)
    observed = (lasted_s[:, None] <= quantiles_s).mean(axis=0)
    relative = np.log(lasted_s)[:, None] - np.log(np.maximum(quantiles_s, 1.0))
    minutes = (lasted_s[:, None] - quantiles_s) / _S_PER_MINUTE
    median = quantiles_s[:, PROBABILITIES.index(0.5)]
    errors = class_of(median) - class_of(lasted_s)
    return Score(
        predictor=predictor,
        pinball=_pinball(relative, levels),
        pinball_min=_pinball(minutes, levels),
        coverage_90=float(observed[PROBABILITIES.index(COVERED)]),
        rmse_classes=float(np.sqrt((errors**2).mean())),
        observed=tuple(observed.tolist()),
    )


def class_of(seconds: FloatVector) -> FloatVector:
    """Class of a time, counted from 0; the last one is open."""
    return np.minimum(seconds // CLASS_S, NUM_CLASSES - 1.0)


def _pinball(errors: FloatMatrix, levels: FloatVector) -> float:
    return float(np.maximum(levels * errors, (levels - 1.0) * errors).mean())

"""Iteration times with bounds."""

import math
from dataclasses import dataclass

from models.performance.iteration.adjustment import deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInterval:
    """Seconds of an iteration: expected, and bounds within which it is 9 times of 10."""

    iteration_s: float
    low_s: float
    high_s: float


def interval_of(iteration_s: float, deviation: float) -> TimeInterval:
    """Interval of a time with a standard deviation of its logarithm."""
    factor = math.exp(deviations().quantile * deviation)
    return TimeInterval(iteration_s=iteration_s, low_s=iteration_s / factor, high_s=iteration_s * factor)

"""What is left of jobs when the last interval ends, and what that costs all of them. Pure NumPy.

Behind the horizon no plan is worth making: jobs that are still to come will change it. What is left then is taken to be
done by all GPUs together, one job after another, the least work by weight first (SRPT), so that a second of work on a
job delays all those behind it. GPUs that work together on one job are slower than each where it helps most:
`backlog_efficiency`.
"""

from dataclasses import dataclass

import numpy as np

from models.allocation.horizon.intervals import Intervals
from models.allocation.horizon.schedules import NOTHING, Schedules, Shapes, Work
from stowplan.arrays import FloatMatrix, FloatVector

# Relative; what is left of jobs is often guessed in proportion to their weights.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backlog:
    """begins_s: when the last interval ends. left: (S,) part of a job's work that is left then. together_s: (J,) how
    long all GPUs take for all of it, 0 for a job that is not planned or cannot run."""

    begins_s: float
    left: FloatVector
    together_s: FloatVector

    def lost_s(self, weight: FloatVector) -> FloatVector:
        """(J,) seconds by `weight` (J,) that all jobs lose with the whole work of each."""
        counts = (self.together_s > 0) & (weight > 0)
        by_weight = np.divide(self.together_s, weight, out=np.full_like(weight, np.inf), where=counts)
        order = np.argsort(by_weight, kind="stable")
        # Added up from behind: of one that is far heavier and goes first, a difference would leave nothing of others.
        behind = np.append(np.cumsum(np.where(counts, weight, 0.0)[order][::-1])[::-1], 0.0)
        # Jobs with as much left wait for each other, however that was rounded.
        first = np.searchsorted(by_weight[order], by_weight * (1.0 - _EQUAL), side="left")
        return np.where(counts, behind[first] * self.together_s, 0.0)


def together_s(seconds: FloatMatrix, shapes: Shapes, num_gpus: FloatVector, efficiency: float) -> FloatVector:
    """(J,) how long all GPUs take for what is left of a job, 0 where it cannot run.

    Parameters
    ----------
    seconds
        (J, C), infinity where a job cannot run.
    num_gpus
        (T,) of the cluster.
    efficiency
        Part of the speed that a GPU has in its best configuration.
    """
    gpu_s = seconds * shapes.num_gpus
    per_s = np.zeros(len(seconds))
    for t in range(shapes.num_types):
        least = gpu_s[:, shapes.type_index == t].min(axis=1, initial=np.inf)
        able = np.isfinite(least) & (least > 0)
        per_s += np.divide(num_gpus[t], least, out=np.zeros_like(least), where=able)
    return np.divide(1.0, efficiency * per_s, out=np.zeros_like(per_s), where=per_s > 0)


def left_at_end(intervals: Intervals, work: Work, found: Schedules) -> FloatVector:
    """(S,) part of what is left of the job now that is left when the last interval ends."""
    job, now, later, at = found.job, found.now, found.later, found.at
    first_s = np.where(work.current[job] == now, 0.0, work.start_s[job])
    works_s = np.maximum(intervals.bounds_s[at] - first_s, 0.0)
    changes = np.where(at > 0, 1.0 - works_s / work.seconds_on(job, now), 1.0)
    last = np.where(at > 0, later, now)
    over_s = np.maximum(found.ends_s - intervals.end_s, 0.0)
    part = np.divide(over_s, work.seconds_on(job, last), out=np.ones(len(found)), where=last != NOTHING)
    # A start or change that is still going on is no work.
    return np.minimum(part, changes)

"""What is left of jobs when the last interval ends, and what that costs all of them. Pure NumPy.

Behind the horizon no plan is worth making: jobs that are still to come will change it. What is left then is taken to be
done by all GPUs together, one job after another, the least work by weight first (SRPT), so that a second of work on a
job delays all those behind it. Work is what it takes of the cluster where it takes the least, with types of GPUs that
are worth what they do of jobs on average: who is fast on slow GPUs takes little. GPUs that work together on one job are
slower than each where it helps most: `backlog_efficiency`.
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

    GPUs of a type count by how fast jobs are on them on average, over how fast each is where its GPUs help most; a job
    is done by those of the type on which that takes the least of the cluster.

    Parameters
    ----------
    seconds
        (J, C), infinity where a job cannot run. Pinned jobs count for what types are worth, too.
    num_gpus
        (T,) that are ever open to planned jobs.
    efficiency
        Part of the speed that a GPU has in its best configuration.
    """
    gpu_s = seconds * shapes.num_gpus
    least = np.full((len(seconds), shapes.num_types), np.inf)
    for t in np.flatnonzero(num_gpus > 0).tolist():
        least[:, t] = gpu_s[:, shapes.type_index == t].min(axis=1, initial=np.inf)
    best = least.min(axis=1, initial=np.inf)
    able = np.isfinite(best) & (best > 0)
    found = np.zeros(len(seconds))
    if not able.any():
        return found
    least = least[able]
    # Sums stand for means: the number of jobs cancels.
    worth = (best[able, None] / least).sum(axis=0)
    counted = np.multiply(least, worth, out=np.full_like(least, np.inf), where=np.isfinite(least))
    found[able] = counted.min(axis=1) / (efficiency * float(num_gpus @ worth))
    return found


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

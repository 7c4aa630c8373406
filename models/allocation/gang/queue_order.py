"""Who comes first, what a job is worth, and when it ends: what heuristic, program and plan agree on.

Light: imports no solver and no modelling layer.
"""

import math

from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.workload import Job

# No priority counts less than this against the first, so that solvers can tell it from nothing.
_LEAST_SHARE = 1e-4

Key = tuple[int, float, int]


def rank(job: Job, parameters: GangParameters, *, runs: bool) -> int:
    """Priority of a job by now, 1 for the first; only waiting raises it, and under FIFO all are alike."""
    if parameters.order is QueueOrder.FIFO:
        return 1
    if runs or parameters.promotion_after_s is None:
        return job.priority
    return max(1, job.priority - int(job.age_s // parameters.promotion_after_s))


def queue_key(position: int, job: Job, parameters: GangParameters, *, runs: bool) -> Key:
    """What the queue is sorted by; `position` of the job in the snapshot."""
    return rank(job, parameters, runs=runs), -job.age_s, position


def worth_of_gpu(job: Job, parameters: GangParameters, *, runs: bool) -> float:
    """What a GPU of the job adds to the objective."""
    share = math.pow(parameters.priority_ratio, 1 - rank(job, parameters, runs=runs))
    return job.weight * max(_LEAST_SHARE, share)


def seconds_left(job: Job, parameters: GangParameters) -> float:
    """How long the job runs from now, or from its start; infinite where nobody knows."""
    known = job.remaining_s if job.remaining_s is not None else parameters.default_remaining_s
    return math.inf if known is None else known

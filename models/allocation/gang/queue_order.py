"""Who comes first, what a job is worth, and when it ends: what heuristic, program and plan agree on.

Light: imports no solver and no modelling layer.
"""

import math
from bisect import bisect_right

from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.workload import Job

# No priority counts less than this against the first, so that solvers can tell it from nothing.
_LEAST_SHARE = 1e-4

Key = tuple[float, float, int]


def rank(job: Job, parameters: GangParameters, *, runs: bool) -> int:
    """Priority of a job by now, 1 for the first; only waiting raises it, and under other orders all are alike."""
    if parameters.order is not QueueOrder.PRIORITY:
        return 1
    if runs or parameters.promotion_after_s is None:
        return job.priority
    return max(1, job.priority - int(job.age_s // parameters.promotion_after_s))


def lateness(job: Job, parameters: GangParameters) -> float:
    """What preemption goes by, 0 or more: only who has strictly less takes GPUs of another. Age promotes nobody here:
    priority, remaining time, or queue of attained service (from 0)."""
    if parameters.order is QueueOrder.SRTF:
        return seconds_left(job, parameters)
    if parameters.order is QueueOrder.LAS:
        return bisect_right(parameters.service_thresholds, job.attained_gpu_s)
    return job.priority


def queue_key(position: int, job: Job, parameters: GangParameters, *, runs: bool) -> Key:
    """What the queue is sorted by; `position` of the job in the snapshot."""
    is_by_priority = parameters.order in (QueueOrder.FIFO, QueueOrder.PRIORITY)
    first = rank(job, parameters, runs=runs) if is_by_priority else lateness(job, parameters)
    return first, -job.age_s, position


def worth_of_gpu(job: Job, parameters: GangParameters, *, runs: bool) -> float:
    """What a GPU of the job adds to the objective."""
    share = math.pow(parameters.priority_ratio, 1 - rank(job, parameters, runs=runs))
    return job.weight * max(_LEAST_SHARE, share)


def seconds_left(job: Job, parameters: GangParameters) -> float:
    """How long the job runs from now, or from its start; infinite where nobody knows."""
    known = job.remaining_s if job.remaining_s is not None else parameters.default_remaining_s
    return math.inf if known is None else known

"""A first point for the solver: a legal plan even when the time limit leaves no time to search."""

import numpy as np

from models.allocation.sia.instance import SiaInstance
from models.roll import reserves
from stowplan.arrays import FloatVector, IntVector, Mask


def greedy_start(instance: SiaInstance) -> FloatVector | None:
    """A point (P,): jobs as reserved, then running jobs as they are, then waiting ones as small as they go.

    Each while it fits; the waiting jobs by what they bring per GPU, and only where that is more than leaving them out.
    None when a reservation does not fit.
    """
    is_reserved = reserves(instance.snapshot)
    forced = is_reserved[instance.pair_jobs]
    stays = instance.utility.current[instance.pair_jobs] == instance.pair_configurations
    first = np.concatenate([np.flatnonzero(forced), np.flatnonzero(stays & ~forced)])
    jobs, configurations = instance.pair_jobs[first], instance.pair_configurations[first]
    slack = instance.rows.limits - instance.rows.coefficients @ np.bincount(
        configurations, minlength=len(instance.configurations)
    )
    is_served = np.zeros(len(instance.jobs), dtype=np.bool_)
    taken: list[int] = []
    if (slack >= 0).all() and np.bincount(jobs).max(initial=0) <= 1:
        # Nearly always all of them fit.
        is_served[jobs] = True
        left, order, taken = slack.tolist(), _smallest_pairs(instance, ~is_served), first.tolist()
    else:
        left, order = instance.rows.limits.tolist(), np.concatenate([first, _smallest_pairs(instance, ~is_served)])
    served: list[bool] = is_served.tolist()
    jobs, configurations = instance.pair_jobs[order].tolist(), instance.pair_configurations[order].tolist()
    needs = {c: instance.rows.needs(c) for c in set(configurations)}
    for pair, job, configuration in zip(order.tolist(), jobs, configurations, strict=True):
        if served[job]:
            continue
        needed = needs[configuration]
        for row, amount in needed:
            if left[row] < amount:
                break
        else:
            for row, amount in needed:
                left[row] -= amount
            taken.append(pair)
            served[job] = True
    start = np.zeros(instance.pair_jobs.size)
    start[taken] = 1.0
    return start if np.array(served, dtype=np.bool_)[is_reserved & ~_pinned(instance)].all() else None


def _smallest_pairs(instance: SiaInstance, waits: Mask) -> IntVector:
    """The pair of each job that `waits` (J,) with the fewest GPUs (of these the best), most gain per GPU first."""
    asked = np.flatnonzero(waits[instance.pair_jobs])
    if not asked.size:
        return asked
    jobs, configurations = instance.pair_jobs[asked], instance.pair_configurations[asked]
    num_gpus = instance.configurations.num_gpus[configurations]
    gain = instance.penalty[jobs] - instance.sense.sign * instance.utility.value[jobs, configurations]
    # Pairs are ordered by job.
    first = np.flatnonzero(np.diff(jobs, prepend=-1))
    size = np.diff(first, append=jobs.size)
    smallest = num_gpus == np.repeat(np.minimum.reduceat(num_gpus, first), size)
    gain_if_smallest = np.where(smallest, gain, -np.inf)
    best = np.flatnonzero(gain_if_smallest == np.repeat(np.maximum.reduceat(gain_if_smallest, first), size))
    pairs = best[np.flatnonzero(np.diff(jobs[best], prepend=-1))]
    pairs = pairs[gain[pairs] > 0]
    return asked[pairs[np.argsort(-gain[pairs] / num_gpus[pairs], kind="stable")]]


def _pinned(instance: SiaInstance) -> Mask:
    mask = np.zeros(len(instance.jobs), dtype=np.bool_)
    mask[instance.pinned] = True
    return mask

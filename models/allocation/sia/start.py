"""A first point for the solver: a legal plan even when the time limit leaves no time to search."""

import numpy as np

from models.allocation.sia.instance import SiaInstance
from stowplan.arrays import FloatVector, IntVector, Mask


def greedy_start(instance: SiaInstance) -> FloatVector | None:
    """A point (P,): jobs as reserved, then running jobs as they are, then waiting ones as small as they go.

    Each while it fits; the waiting jobs by what they bring per GPU, and only where that is more than leaving them out.
    None when a reservation does not fit.
    """
    is_reserved = np.array([job.reservation is not None for job in instance.jobs], dtype=np.bool_)
    forced = is_reserved[instance.pair_jobs]
    stays = instance.utility.current[instance.pair_jobs] == instance.pair_configurations
    order = np.concatenate([np.flatnonzero(forced), np.flatnonzero(stays & ~forced), _smallest_pairs(instance)])
    left = instance.rows.limits.tolist()
    jobs, configurations = instance.pair_jobs[order].tolist(), instance.pair_configurations[order].tolist()
    needs = {c: instance.rows.needs(c) for c in set(configurations)}
    taken: list[int] = []
    served = [False] * len(instance.jobs)
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


def _smallest_pairs(instance: SiaInstance) -> IntVector:
    """The pair of each job with the fewest GPUs (of these the best), most gain per GPU first."""
    if not instance.pair_jobs.size:
        return np.zeros(0, dtype=np.int64)
    num_gpus = instance.configurations.num_gpus[instance.pair_configurations]
    value = instance.utility.value[instance.pair_jobs, instance.pair_configurations]
    gain = instance.penalty[instance.pair_jobs] - instance.sense.sign * value
    # Pairs are ordered by job.
    first = np.flatnonzero(np.diff(instance.pair_jobs, prepend=-1))
    size = np.diff(first, append=instance.pair_jobs.size)
    smallest = num_gpus == np.repeat(np.minimum.reduceat(num_gpus, first), size)
    gain_if_smallest = np.where(smallest, gain, -np.inf)
    best = np.flatnonzero(gain_if_smallest == np.repeat(np.maximum.reduceat(gain_if_smallest, first), size))
    pairs = best[np.flatnonzero(np.diff(instance.pair_jobs[best], prepend=-1))]
    pairs = pairs[gain[pairs] > 0]
    return np.asarray(pairs[np.argsort(-gain[pairs] / num_gpus[pairs], kind="stable")])


def _pinned(instance: SiaInstance) -> Mask:
    mask = np.zeros(len(instance.jobs), dtype=np.bool_)
    mask[instance.pinned] = True
    return mask

"""A first point for the solver: a legal plan even when the time limit leaves no time to search."""

import numpy as np

from models.allocation.sia.instance import SiaInstance
from models.configurations import IntVector
from solver.problem import Vector


def greedy_start(instance: SiaInstance) -> Vector | None:
    """A point (P,): jobs as reserved, then running jobs as they are, then waiting ones as small as they go.

    Each while it fits; the waiting jobs by what they bring per GPU, and only where that is more than leaving them out.
    None when a reservation does not fit.
    """
    start = np.zeros(instance.pair_jobs.size)
    used = np.zeros_like(instance.rows.limits)
    served = np.zeros(len(instance.jobs), dtype=np.bool_)
    is_reserved = np.array([job.reservation is not None for job in instance.jobs], dtype=np.bool_)
    forced = is_reserved[instance.pair_jobs]
    stays = instance.worth.current[instance.pair_jobs] == instance.pair_configurations
    order = [*np.flatnonzero(forced), *np.flatnonzero(stays & ~forced), *_smallest_pairs(instance)]
    for pair in order:
        job = instance.pair_jobs[pair]
        column = instance.rows.coefficients[:, instance.pair_configurations[pair]]
        if not served[job] and (used + column <= instance.rows.limits).all():
            used += column
            start[pair] = 1.0
            served[job] = True
    return start if served[is_reserved & ~_pinned(instance)].all() else None


def _smallest_pairs(instance: SiaInstance) -> IntVector:
    """The pair of each job with the fewest GPUs (of these the best), most gain per GPU first."""
    num_gpus = instance.configurations.num_gpus[instance.pair_configurations]
    value = instance.worth.value[instance.pair_jobs, instance.pair_configurations]
    gain = instance.penalty[instance.pair_jobs] - instance.sense.sign * value
    by_job = np.lexsort([-gain, num_gpus, instance.pair_jobs])
    _, first = np.unique(instance.pair_jobs[by_job], return_index=True)
    pairs = by_job[first]
    pairs = pairs[gain[pairs] > 0]
    return np.asarray(pairs[np.argsort(-gain[pairs] / num_gpus[pairs], kind="stable")])


def _pinned(instance: SiaInstance) -> "np.typing.NDArray[np.bool_]":
    mask = np.zeros(len(instance.jobs), dtype=np.bool_)
    mask[instance.pinned] = True
    return mask

"""The jobs of a round: by descending priority, each while it fits (Gavel section 5.1, Algorithm 1)."""

import numpy as np

from models.allocation.gavel.instance import GavelInstance, Pairs
from stowplan.arrays import FloatVector, IntVector


def turns(instance: GavelInstance, pairs: Pairs, priorities: FloatVector) -> FloatVector:
    """The point (P,) of the pairs with these `priorities` (P,).

    Of equal ones those come first that keep a job where it runs, then the oldest job; a job that finds no room on one
    type may find it on another. Whatever is left fits nobody (`models.placement.placeability` is exact).
    """
    point = np.zeros(pairs.owner.size)
    left = instance.rows.limits.tolist()
    served: set[int] = set()
    needs = {c: instance.rows.needs(c) for c in set(pairs.configuration.tolist())}
    owners, configurations = pairs.owner.tolist(), pairs.configuration.tolist()
    for pair in _order(instance, pairs, priorities).tolist():
        job, needed = owners[pair], needs[configurations[pair]]
        if job not in served and all(left[row] >= amount for row, amount in needed):
            for row, amount in needed:
                left[row] -= amount
            point[pair] = 1.0
            served.add(job)
    return point


def _order(instance: GavelInstance, pairs: Pairs, priorities: FloatVector) -> IntVector:
    age_s = np.array([job.age_s for job in instance.jobs])[pairs.owner]
    moves = _present_types(instance)[pairs.owner] != pairs.gpu_type
    return np.lexsort([pairs.gpu_type, pairs.owner, -age_s, moves, -priorities])


def _present_types(instance: GavelInstance) -> IntVector:
    """GPU type (J,) on which a job runs now, -1 for none."""
    nodes = instance.snapshot.cluster.nodes
    index = {name: t for t, name in enumerate(instance.configurations.gpu_types)}
    running = instance.taken.running
    return np.array(
        [index[nodes[running[job.id][0][0]].gpu_type] if job.id in running else -1 for job in instance.jobs],
        dtype=np.int64,
    )

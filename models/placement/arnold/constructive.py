"""Constructive solutions: start of the MIP, and the answer when a limit comes before the solver's first incumbent.

For every number Y of used minipods, the Y largest are filled in two ways:
- in sequence: group after group takes what the current minipod has left. When every minipod used holds at least a
  group, no group touches more than two minipods.
- whole groups first: each minipod takes as many whole groups as fit; what is left over is cut from the leftovers,
  closing each group with the smallest leftover that suffices and starting with the largest where none does.

When a split-free solution exists, its fewest minipods are found: whole groups fit best into the largest minipods.
"""

from collections.abc import Iterator

import numpy as np

from models.placement.arnold.arrangement import arrange_groups
from models.placement.arnold.instance import ArnoldInstance, max_spread, num_used
from models.placement.arnold.spread import minipods_per_row
from stowplan.arrays import IntMatrix, IntVector


def preference(instance: ArnoldInstance, counts: IntMatrix) -> tuple[float, int, int, int]:
    """Sort key of solutions: Eq. 4, then what it is blind to.

    Both of its spreads with equal weight (one may have weight 0), the real spread of the groups that cross the units,
    and the number of pieces that groups are cut into.
    """
    objective = round(instance.objective(counts), 9)
    crossing = int(minipods_per_row(arrange_groups(counts).T).max())
    return objective, num_used(counts) + max_spread(counts), crossing, int(np.count_nonzero(counts))


def construct(instance: ArnoldInstance) -> IntMatrix | None:
    """Best constructive solution (G, M), None when too few nodes are free."""
    if not instance.has_room:
        return None
    return min(_candidates(instance), key=lambda counts: preference(instance, counts))


def _candidates(instance: ArnoldInstance) -> Iterator[IntMatrix]:
    """Solutions on ever more minipods, until more minipods cannot pay any more."""
    free = instance.free_nodes
    largest_first = np.argsort(-free, kind="stable")
    fewest = int(np.searchsorted(np.cumsum(free[largest_first]), instance.num_nodes)) + 1
    best = np.inf
    for num_minipods in range(fewest, int(np.count_nonzero(free)) + 1):
        if instance.minipod_weight * num_minipods + instance.spread_weight * instance.least_spread > best:
            return
        order = largest_first[:num_minipods]
        for counts in (in_sequence(instance, order), whole_groups_first(instance, order)):
            best = min(best, instance.objective(counts))
            yield counts
            if max_spread(counts) == instance.least_spread:
                return


def in_sequence(instance: ArnoldInstance, order: IntVector) -> IntMatrix:
    """Deal the nodes of the minipods, in `order`, to one group after the other."""
    slots = np.repeat(order, instance.free_nodes[order])[: instance.num_nodes]
    counts = np.zeros((instance.num_groups, instance.num_minipods), dtype=np.int64)
    np.add.at(counts, (np.arange(slots.size) // instance.group_size, slots), 1)
    return counts


def whole_groups_first(instance: ArnoldInstance, order: IntVector) -> IntMatrix:
    """Place whole groups in `order`, then cut the others from what is left."""
    size = instance.group_size
    counts = np.zeros((instance.num_groups, instance.num_minipods), dtype=np.int64)
    whole = np.repeat(order, instance.free_nodes[order] // size)[: instance.num_groups]
    counts[np.arange(whole.size), whole] = size
    left = np.zeros_like(instance.free_nodes)
    left[order] = instance.free_nodes[order]
    left -= counts.sum(axis=0)
    for group in range(whole.size, instance.num_groups):
        need = size
        while need:
            enough = np.flatnonzero(left >= need)
            j = int(enough[np.argmin(left[enough])] if enough.size else np.argmax(left))
            taken = min(need, int(left[j]))
            counts[group, j] += taken
            left[j] -= taken
            need -= taken
    return counts

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
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.labels import max_spread, minipods_per_row, num_used
from stowplan.arrays import IntMatrix, IntVector


def preference(instance: ArnoldInstance, labels: IntMatrix) -> tuple[float, int, int, int]:
    """Sort key of solutions: Eq. 4, then what it is blind to.

    Both of its spreads with equal weight (one may have weight 0), the real spread of the groups that cross the units,
    and the number of pieces that groups are cut into.
    """
    spreads, used = minipods_per_row(labels), num_used(labels)
    widest = int(spreads.max())
    objective = instance.minipod_weight * used + instance.spread_weight * widest
    crossing = int(minipods_per_row(arrange_groups(labels).T).max())
    return round(objective, 9), used + widest, crossing, int(spreads.sum())


def construct(instance: ArnoldInstance) -> IntMatrix | None:
    """Best constructive solution (G, g), None when too few nodes are free."""
    if not instance.has_room:
        return None
    return min(_candidates(instance), key=lambda labels: preference(instance, labels))


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
        for labels in (in_sequence(instance, order), whole_groups_first(instance, order)):
            best = min(best, instance.objective(labels))
            yield labels
            if max_spread(labels) == instance.least_spread:
                return


def in_sequence(instance: ArnoldInstance, order: IntVector) -> IntMatrix:
    """Deal the nodes of the minipods, in `order`, to one group after the other."""
    slots: IntVector = np.repeat(order, instance.free_nodes[order])[: instance.num_nodes]
    return slots.reshape(instance.num_groups, instance.group_size)


def whole_groups_first(instance: ArnoldInstance, order: IntVector) -> IntMatrix:
    """Place whole groups in `order`, then cut the others from what is left."""
    size = instance.group_size
    labels = np.zeros((instance.num_groups, size), dtype=np.int64)
    whole = np.repeat(order, instance.free_nodes[order] // size)[: instance.num_groups]
    labels[: whole.size] = whole[:, None]
    left = np.zeros_like(instance.free_nodes)
    left[order] = instance.free_nodes[order]
    left -= size * np.bincount(whole, minlength=left.size)
    for group in range(whole.size, instance.num_groups):
        need = size
        while need:
            enough = np.flatnonzero(left >= need)
            j = int(enough[np.argmin(left[enough])] if enough.size else np.argmax(left))
            taken = min(need, int(left[j]))
            labels[group, size - need : size - need + taken] = j
            left[j] -= taken
            need -= taken
    return labels

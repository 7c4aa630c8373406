"""Best-fit, random-fit and GPU packing (Arnold section 7.1, items 1 to 3).

None of them knows the communication matrix: nodes are dealt to the cells in the order of the scheduling unit of
Table 1, PP group after PP group. All take a `TrueSpreadInstance` with room and give minipod indices (R, C).
"""

from collections.abc import Iterator

import numpy as np

from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from stowplan.arrays import IntMatrix, IntVector


def best_fit(instance: TrueSpreadInstance) -> IntMatrix:
    """Node after node to the minipod with the least free nodes left: the smallest minipods are filled first."""
    order = np.argsort(instance.free_nodes, kind="stable")
    return _dealt(instance, order, instance.free_nodes[order])


def random_fit(instance: TrueSpreadInstance, rng: np.random.Generator) -> IntMatrix:
    """Node after node to a random minipod among those that have room and got the fewest nodes so far."""
    taken = np.zeros_like(instance.free_nodes)
    labels = np.empty(instance.num_cells, dtype=np.int64)
    for k in range(labels.size):
        rooms = np.flatnonzero(taken < instance.free_nodes)
        labels[k] = rng.choice(rooms[taken[rooms] == taken[rooms].min()])
        taken[labels[k]] += 1
    return labels.reshape(instance.num_rows, instance.num_columns)


def gpu_packing(instance: TrueSpreadInstance) -> IntMatrix:
    """As few minipods as possible: the smallest that holds all the rest, else the largest."""
    chosen = list(_packed(instance.free_nodes, instance.num_cells))
    order = np.array(chosen, dtype=np.int64)
    return _dealt(instance, order, instance.free_nodes[order])


def _packed(free: IntVector, needed: int) -> Iterator[int]:
    left = free.copy()
    while needed > 0:
        enough = np.flatnonzero(left >= needed)
        j = int(enough[np.argmin(left[enough])] if enough.size else np.argmax(left))
        yield j
        needed -= int(left[j])
        left[j] = 0


def _dealt(instance: TrueSpreadInstance, order: IntVector, amounts: IntVector) -> IntMatrix:
    """Fill minipod after minipod."""
    cells: IntMatrix = np.repeat(order, amounts)[: instance.num_cells]
    return cells.reshape(instance.num_rows, instance.num_columns)

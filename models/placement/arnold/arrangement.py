"""Which cell of a group sits in which minipod.

Minipods have one order (most nodes used first), the same in every group; groups are sorted by it. Then groups of the
same minipod are neighbours, a group changes minipod no more often than it must, and groups that straddle the same
minipods break at the same cells where their shares agree, which keeps the spread of the crossing groups low.
"""

import numpy as np

from stowplan.arrays import IntMatrix, IntVector


def arrange_groups(labels: IntMatrix, order: IntVector | None = None) -> IntMatrix:
    """Minipod of every cell (groups, cells of a group) from the minipods of each group in any order.

    order: minipods (M,) in another order than by nodes used.
    """
    if order is None:
        order = np.argsort(-np.bincount(labels.ravel()), kind="stable")
    rank = np.zeros(int(order.max()) + 1, dtype=np.int64)
    rank[order] = np.arange(order.size)
    ranks = np.sort(rank[labels], axis=1)
    # Rows compared as bytes, the most significant first: one sort, where a sort per cell grew with the group.
    rows = np.ascontiguousarray(ranks.astype(">u4")).view(f"S{4 * ranks.shape[1]}").ravel()
    arranged: IntMatrix = order[ranks[np.argsort(rows, kind="stable")]]
    return arranged

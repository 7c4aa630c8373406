"""Which cell of a group sits in which minipod.

Minipods have one order (most nodes used first), the same in every group; groups are sorted by it. Then groups of the
same minipod are neighbours, a group changes minipod no more often than it must, and groups that straddle the same
minipods break at the same cells where their shares agree, which keeps the spread of the crossing groups low.
"""

import numpy as np

from stowplan.arrays import IntMatrix, IntVector


def arrange_groups(counts: IntMatrix, order: IntVector | None = None) -> IntMatrix:
    """Minipod index of every cell (groups, cells of a group) from whole nodes per group and minipod (G, M).

    order: minipods (M,) in another order than by nodes used.
    """
    if order is None:
        order = np.argsort(-counts.sum(axis=0), kind="stable")
    ordered = counts[:, order]
    blocks = ordered[np.lexsort(-ordered.T[::-1])]
    labels: IntMatrix = np.repeat(np.tile(order, len(counts)), blocks.ravel())
    return labels.reshape(len(counts), -1)

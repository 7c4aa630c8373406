"""Whole nodes of groups as labels: an int64 matrix (G, g) that names the minipod of each of the g nodes of a group.

It has an entry per node of the job, however many minipods there are; counts (G, M), nodes per group and minipod, are
the same for programs that know every pair.
"""

import numpy as np

from stowplan.arrays import IntMatrix, IntVector


def minipods_per_row(labels: IntMatrix) -> IntVector:
    """Minipods that each row touches; for the columns, hand in the transpose."""
    ordered = np.sort(labels, axis=1)
    changes: IntVector = (np.diff(ordered, axis=1) != 0).sum(axis=1, dtype=np.int64)
    return changes + 1


def num_used(labels: IntMatrix) -> int:
    """Minipods that hold any node."""
    return int(np.count_nonzero(np.bincount(labels.ravel())))


def max_spread(labels: IntMatrix) -> int:
    """The most minipods that one group touches, T."""
    return int(minipods_per_row(labels).max())


def counts_of(labels: IntMatrix, num_minipods: int) -> IntMatrix:
    """Nodes per group and minipod (G, M)."""
    cells = np.arange(len(labels))[:, None] * num_minipods + labels
    counts: IntMatrix = np.bincount(cells.ravel(), minlength=len(labels) * num_minipods).astype(np.int64, copy=False)
    return counts.reshape(len(labels), num_minipods)


def labels_of(counts: IntMatrix) -> IntMatrix:
    """Labels from nodes per group and minipod (G, M), whose rows have the same sum."""
    labels: IntMatrix = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    return labels.reshape(len(counts), -1)

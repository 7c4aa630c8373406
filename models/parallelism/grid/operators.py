"""Clustering the layers of a model into operators of similar load (Arena sections 3.3 and 4: O = 16)."""

import numpy as np

from stowplan.arrays import FloatArray


def cluster(loads: FloatArray, num_operators: int) -> tuple[int, ...]:
    """Bounds of min(O, L) operators over the layers, from 0 to L; operator k is the layers [bounds[k], bounds[k + 1]).

    Each bound is where the running sum of the loads is nearest to its share k / O of all, with at least one layer
    between bounds. Where layers are equal and O is a multiple of the stages, equal stages are among the partitions.

    Parameters
    ----------
    loads
        (L,), of the layers; embedding and head belong to the outer ones.
    """
    num_layers = len(loads)
    count = min(num_operators, num_layers)
    running = np.concatenate([[0.0], np.cumsum(loads)])
    bounds = [0]
    for k in range(1, count):
        first, last = bounds[-1] + 1, num_layers - (count - k)
        distance = np.abs(running[first : last + 1] - running[-1] * k / count)
        bounds.append(first + int(distance.argmin()))
    return (*bounds, num_layers)

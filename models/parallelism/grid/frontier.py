"""Pareto frontier of computation bias and communication load (Arena section 3.3)."""

import numpy as np

from stowplan.arrays import FloatArray, IntArray


def pareto_frontier(bias: FloatArray, load: FloatArray) -> IntArray:
    """Indices of the plans that no other plan beats in one metric without losing in the other.

    By ascending bias, thus by descending load: the first is the proxy plan. Of plans equal in both, the first stays.
    There must be a plan.
    """
    least = np.flatnonzero(bias == bias.min())
    proxy = least[load[least].argmin()]
    # Only what beats the proxy plan in load can be beside it; that is little, and sorting is not.
    rest = np.flatnonzero(load < load[proxy])
    order = rest[np.lexsort((load[rest], bias[rest]))]
    best_before = np.concatenate([[load[proxy]], np.minimum.accumulate(load[order])[:-1]])
    return np.concatenate([[proxy], order[load[order] < best_before[: len(order)]]])


def reduced(frontier: IntArray, bounds: IntArray, threshold: int) -> IntArray:
    """Thin out a frontier to `threshold` plans.

    From the pair with the most similar stage partition, the plan with the higher communication load goes, until few
    enough are left. Similar: least sum of the distances between bounds of stages, in operators. The proxy plan, which
    has the highest load of all, stays: of its pair, the other one goes.

    Parameters
    ----------
    frontier
        In the order of `pareto_frontier`.
    bounds
        (P, s + 1), of all plans.
    """
    left = frontier
    while left.size > threshold:
        distance = np.abs(bounds[left][:, None, :] - bounds[left][None, :, :]).sum(axis=2).astype(np.float64)
        distance[np.tril_indices(left.size)] = np.inf
        first, second = np.unravel_index(distance.argmin(), distance.shape)
        left = np.delete(left, first or second)
    return left

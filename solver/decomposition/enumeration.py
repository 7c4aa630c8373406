"""Small cores by enumeration: all points that could be better than the one that is known, class by class.

With reduced costs r at prices that prove the bound L, a point costs at least L + the sum of the r of what it chooses.
So a part of a point goes as soon as that is more than the known point costs, or as what it takes of a coupling row,
with the least that the other classes take, is more than there is. What is left is few where the bound is near; HiGHS
takes a millisecond to begin with.
"""

from itertools import pairwise

import numpy as np

from solver.decomposition.core import Core
from solver.decomposition.dual import ReducedCosts
from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import IntVector

# Parts of points at a time; and classes, each of which is a few calls.
_MOST = 20_000
_MOST_CLASSES = 40
_ROUNDING = 1e-9


def best_of_core(
    problem: ChoiceProblem, core: Core, reduced: ReducedCosts, beyond: float
) -> tuple[IntVector, ...] | None:
    """Counts (n,) of the best point of the core whose reduced costs are at most `beyond`, of equal ones the first, or
    nothing where it has no such point; None where there are too many to look at, or a class has copies."""
    columns = core.columns
    class_of = problem.class_of[columns]
    heads = np.flatnonzero(np.diff(class_of, prepend=-1))
    classes = class_of[heads]
    if classes.size > _MOST_CLASSES or (problem.copies[classes] > 1).any():
        return None
    usage, optional = problem.coupling[columns].toarray(), ~problem.required[classes]
    least = np.minimum.reduceat(usage, heads)
    least[optional] = np.minimum(least[optional], 0.0)
    # What is left for each class and those before it, of what those behind it take at least.
    limit = problem.limit + _ROUNDING * np.maximum(1.0, np.abs(problem.limit)) - problem.coupling.T @ core.fixed
    rooms = limit - (least.sum(axis=0) - np.cumsum(least, axis=0))
    # Choosing nothing stands behind the columns.
    usage = np.vstack([usage, np.zeros((1, limit.size))])
    costs = np.append(reduced.columns[columns], 0.0)
    worse, taken = np.zeros(1), np.zeros((1, limit.size))
    chosen = np.zeros((1, 0), dtype=np.int64)
    for k, (first, last) in enumerate(pairwise([*heads.tolist(), columns.size])):
        options = np.arange(first, last)
        if optional[k]:
            options = np.append(options, columns.size)
            costs[-1] = reduced.nothing[classes[k]]
        if worse.size * options.size > _MOST:
            return None
        worse_now = np.add.outer(worse, costs[options])
        taken_now = taken[:, None] + usage[options]
        parent, option = np.nonzero((worse_now <= beyond) & (taken_now <= rooms[k]).all(axis=2))
        worse, taken = worse_now[parent, option], taken_now[parent, option]
        chosen = np.column_stack([chosen[parent], options[option]])
    if not worse.size:
        return ()
    values = np.append(problem.cost[columns], 0.0)[chosen].sum(axis=1)
    best = chosen[int(values.argmin())]
    counts = core.fixed.copy()
    counts[columns[best[best < columns.size]]] += 1
    return (counts,)

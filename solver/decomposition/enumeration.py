"""All choices that can matter, written down block by block: of tens of columns sooner than HiGHS begins to search.

Blocks choose one after another; a state is what they have used together of the coupling rows, and what that costs. A
state goes as soon as it costs more than is asked for even where all later blocks choose their cheapest, or as what it
takes of a row, with the least that they take, is more than there is. Of many states that use the same the cheapest
stays.

Of a core (`solver.decomposition.core`) costs are reduced ones, r, at prices that prove the bound L: a point costs at
least L + the sum of the r of what it chooses, so that few are left where the bound is near.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.decomposition.core import Core
from solver.decomposition.dual import ReducedCosts
from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector

NOTHING = -1
# States of a core times options of a block; and classes, each of which is a few calls.
_MOST = 20_000
_MOST_CLASSES = 40
# States that use the same are looked for from here on.
_MANY_STATES = 256
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """What blocks may choose, one option of each, by `block` (o,), ascending. column (o,): `NOTHING` for none; cost
    (o,); use (o, m): of the rows."""

    column: IntVector
    block: IntVector
    cost: FloatVector
    use: FloatMatrix


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """What all blocks together may come to. cost (s,); use (s, m); made: of each block the state before it and the
    option, by the state behind it."""

    options: Options
    cost: FloatVector
    use: FloatMatrix
    made: list[tuple[IntVector, IntVector]]

    def chosen(self, state: IntVector) -> IntMatrix:
        """Columns (t, K) of the states (t,), one of each block, `NOTHING` for none."""
        chosen = np.empty((state.size, len(self.made)), dtype=np.int64)
        for k in reversed(range(len(self.made))):
            before, option = self.made[k]
            chosen[:, k] = self.options.column[option[state]]
            state = before[state]
        return chosen


def states_of(options: Options, limit: FloatVector, beyond: float, most: int) -> States | None:
    """Choices that keep `limit` (m,) and cost at most `beyond`; None where there are more than `most` states times
    options at any block."""
    heads = np.flatnonzero(np.diff(options.block, prepend=-1, append=options.block[-1] + 1))
    least_cost, least_use = np.minimum.reduceat(options.cost, heads[:-1]), np.minimum.reduceat(options.use, heads[:-1])
    # What is left for each block and those before it, of what those behind it cost and take at least.
    left = beyond - (least_cost.sum() - np.cumsum(least_cost))
    rooms = limit - (least_use.sum(axis=0) - np.cumsum(least_use, axis=0))
    cost, use = np.zeros(1), np.zeros((1, limit.size))
    made = []
    for k, (first, last) in enumerate(pairwise(heads.tolist())):
        num_options = last - first
        if cost.size * num_options > most:
            return None
        cost = (cost[:, None] + options.cost[first:last]).reshape(-1)
        use = (use[:, None, :] + options.use[first:last]).reshape(cost.size, limit.size)
        kept = ((use <= rooms[k]).all(axis=1) & (cost <= left[k])).nonzero()[0]
        if kept.size > _MANY_STATES:
            kept = kept[_cheapest(cost[kept], use[kept])]
        cost, use = cost[kept], use[kept]
        made.append((kept // num_options, first + kept % num_options))
    return States(options=options, cost=cost, use=use, made=made)


def raised(limit: FloatVector, slack: float) -> FloatVector:
    """Limits (m,) of rows, with so much slack relative to them."""
    return limit + slack * np.maximum(1.0, np.abs(limit))


def best_of_core(
    problem: ChoiceProblem, core: Core, reduced: ReducedCosts, beyond: float
) -> tuple[IntVector, ...] | None:
    """Counts (n,) of the best point of the core whose reduced costs are at most `beyond`, of equal ones the first, or
    nothing where it has no such point; None where there are too many to look at, or a class has copies."""
    classes = np.unique(problem.class_of[core.columns])
    if classes.size > _MOST_CLASSES or (problem.copies[classes] > 1).any():
        return None
    optional = classes[~problem.required[classes]]
    block = np.append(problem.class_of[core.columns], optional)
    order = np.argsort(block, kind="stable")
    nothing = np.zeros((optional.size, problem.limit.size))
    options = Options(
        column=np.append(core.columns, np.full(optional.size, NOTHING))[order],
        block=block[order],
        cost=np.append(reduced.columns[core.columns], reduced.nothing[optional])[order],
        use=np.vstack([problem.coupling[core.columns].toarray(), nothing])[order],
    )
    limit = raised(problem.limit, _ROUNDING) - problem.coupling.T @ core.fixed
    states = states_of(options, limit, beyond, _MOST)
    if states is None:
        return None
    if not states.cost.size:
        return ()
    chosen = states.chosen(np.arange(states.cost.size))
    best = chosen[int(np.append(problem.cost, 0.0)[chosen].sum(axis=1).argmin())]
    counts = core.fixed.copy()
    counts[best[best != NOTHING]] += 1
    return (counts,)


def _cheapest(cost: FloatVector, use: FloatMatrix) -> IntVector:
    """Of the states that use the same, the cheapest, the first of those."""
    keys: list[NDArray[Any]] = [cost, *use.T]
    order = np.lexsort(keys)
    is_first = np.ones(order.size, dtype=np.bool_)
    is_first[1:] = (use[order[1:]] != use[order[:-1]]).any(axis=1)
    return np.sort(order[is_first])

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
    """What all blocks together may come to. cost (s,); use (s, m); made: of each block its first option, how many it
    has, and by the state behind it which of all pairs of a state before it and an option that is."""

    options: Options
    cost: FloatVector
    use: FloatMatrix
    made: list[tuple[int, int, IntVector]]

    def chosen(self, state: IntVector) -> IntMatrix:
        """Columns (t, K) of the states (t,), one of each block, `NOTHING` for none."""
        chosen = np.empty((state.size, len(self.made)), dtype=np.int64)
        for k in reversed(range(len(self.made))):
            first, num_options, pair = self.made[k]
            state, option = np.divmod(pair[state], num_options)
            chosen[:, k] = self.options.column[first + option]
        return chosen


def states_of(options: Options, limit: FloatVector, beyond: float, most: int) -> States | None:
    """Choices that keep `limit` (m,) and cost at most `beyond`; None where there are more than `most` states times
    options at any block."""
    block = options.block
    heads = [0, *((block[1:] != block[:-1]).nonzero()[0] + 1).tolist(), block.size]
    # Cost and rows as one array, a line each: of few states the calls take the time, of many the length of lines.
    taken = np.vstack([options.cost, options.use.T])
    least = np.minimum.reduceat(taken, heads[:-1], axis=1)
    # What is left for each block and those before it, of what those behind it cost and take at least.
    left = np.concatenate([[beyond], limit])[:, None] - (least.sum(axis=1, keepdims=True) - least.cumsum(axis=1))
    states = np.zeros((len(left), 1))
    made = []
    for k, (first, last) in enumerate(pairwise(heads)):
        num_pairs = states.shape[1] * (last - first)
        if num_pairs > most:
            return None
        states = (states[:, :, None] + taken[:, None, first:last]).reshape(len(left), num_pairs)
        kept = (states <= left[:, k, None]).all(axis=0).nonzero()[0]
        if kept.size > _MANY_STATES:
            kept = kept[_cheapest(states[0, kept], states[1:, kept].T)]
        states = states.take(kept, axis=1)
        made.append((first, last - first, kept))
    return States(options=options, cost=states[0], use=states[1:].T, made=made)


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
    block = np.concatenate([problem.class_of[core.columns], optional])
    order = np.argsort(block, kind="stable")
    nothing = np.zeros((optional.size, problem.limit.size))
    options = Options(
        column=np.concatenate([core.columns, np.full(optional.size, NOTHING)])[order],
        block=block[order],
        cost=np.concatenate([reduced.columns[core.columns], reduced.nothing[optional]])[order],
        use=np.vstack([problem.usage_of(core.columns), nothing])[order],
    )
    limit = raised(problem.limit, _ROUNDING) - problem.used_by(core.fixed)
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

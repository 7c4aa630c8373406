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
from stowplan.arrays import FloatMatrix, FloatVector, IntVector

NOTHING = -1
# States of a core times options of a block; and classes, each of which is a few calls.
_MOST = 20_000
_MOST_CLASSES = 40
# So many are made of the next block before any go; states that use the same are looked for from here on.
_FEW_PAIRS = 128
_MANY_STATES = 256
_ROUNDING = 1e-9
# Relative: sums of the same numbers in another order differ by less.
_SAME = 1e-11


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """What K blocks may choose, one option of each, block by block. column (o,): `NOTHING` for none. heads: where each
    block begins, and o. taken (1 + m + e, o): what each costs, what it uses of the m rows, and what else is to be
    summed."""

    column: IntVector
    heads: list[int]
    taken: FloatMatrix


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """What all blocks together may come to. taken (1 + m + e, s); made: of each block its first option, how many it
    has, and by the state behind it which of all pairs of a state before it and an option that is."""

    options: Options
    taken: FloatMatrix
    made: list[tuple[int, int, IntVector]]

    def chosen(self, state: int) -> list[int]:
        """Columns of a state, one of each block, `NOTHING` for none."""
        chosen = []
        for first, num_options, pair in reversed(self.made):
            state, option = divmod(int(pair[state]), num_options)
            chosen.append(int(self.options.column[first + option]))
        return chosen[::-1]


def states_of(options: Options, limit: FloatVector, beyond: float, most: int) -> States | None:
    """Choices that keep `limit` (m,) and cost at most `beyond`; None where there are more than `most` states times
    options at any block."""
    heads, taken, num_limited = options.heads, options.taken, 1 + limit.size
    # Cost and rows as one array, a line each: of few states the calls take the time, of many the length of lines.
    least = np.minimum.reduceat(taken[:num_limited], heads[:-1], axis=1)
    # What is left for each block and those before it, of what those behind it cost and take at least.
    behind = least.sum(axis=1, keepdims=True) - least.cumsum(axis=1)
    left = np.concatenate([[beyond], limit])[:, None] - behind
    states = np.zeros((len(taken), 1))
    made = []
    sizes = [last - first for first, last in pairwise(heads)]
    for k, (first, last) in enumerate(pairwise(heads)):
        num_pairs = states.shape[1] * sizes[k]
        if num_pairs > most:
            return None
        states = (states[:, :, None] + taken[:, None, first:last]).reshape(len(taken), num_pairs)
        # What goes here goes behind the next block, too.
        if k + 1 < len(sizes) and num_pairs * sizes[k + 1] <= _FEW_PAIRS:
            made.append((first, sizes[k], np.arange(num_pairs)))
            continue
        kept = np.logical_and.reduce(states[:num_limited] <= left[:, k, None]).nonzero()[0]
        if kept.size > _MANY_STATES:
            kept = kept[_cheapest(states[0, kept], states[1:num_limited, kept].T)]
        states = states.take(kept, axis=1)
        made.append((first, sizes[k], kept))
    return States(options=options, taken=states, made=made)


def heads_of(block: IntVector) -> list[int]:
    """Where each of the blocks (o,), which ascend, begins, and o."""
    return [0, *((block[1:] != block[:-1]).nonzero()[0] + 1).tolist(), block.size]


def raised(limit: FloatVector, slack: float) -> FloatVector:
    """Limits (m,) of rows, with so much slack relative to them."""
    return limit + slack * np.maximum(1.0, np.abs(limit))


def best_of_core(
    problem: ChoiceProblem, core: Core, reduced: ReducedCosts, beyond: float
) -> tuple[IntVector, ...] | None:
    """Counts (n,) of the best point of the core whose reduced costs are at most `beyond`, of equal ones the first, or
    nothing where it has no such point; None where there are too many to look at, or a class has copies."""
    class_of = problem.class_of[core.columns]
    heads = heads_of(class_of)
    classes = class_of[heads[:-1]]
    if classes.size > _MOST_CLASSES or (problem.has_copies and (problem.copies[classes] > 1).any()):
        return None
    options = Options(column=core.columns, heads=heads, taken=_taken(problem, core.columns, reduced))
    optional = classes[core.nothing[classes]]
    if optional.size:
        options = _with_nothing(options, class_of, optional, reduced.nothing[optional])
    limit = raised(problem.limit, _ROUNDING) - problem.used_by(core.fixed)
    states = states_of(options, limit, beyond, _MOST)
    if states is None:
        return None
    costs = states.taken[-1]
    if not costs.size:
        return ()
    least = costs.min()
    near = (costs <= least + _SAME * max(1.0, abs(least))).nonzero()[0].tolist()
    chosen = [states.chosen(state) for state in near]
    best = chosen[0]
    if len(chosen) > 1:
        best = chosen[int(np.append(problem.cost, 0.0)[chosen].sum(axis=1).argmin())]
    counts = core.fixed.copy()
    counts[[column for column in best if column != NOTHING]] += 1
    return (counts,)


def _taken(problem: ChoiceProblem, columns: IntVector, reduced: ReducedCosts) -> FloatMatrix:
    """Reduced costs of columns (c,), what they use of the rows, and costs: (2 + m, c)."""
    taken = np.empty((2 + problem.limit.size, columns.size))
    taken[0], taken[1:-1], taken[-1] = reduced.columns[columns], problem.usage_of(columns).T, problem.cost[columns]
    return taken


def _with_nothing(options: Options, class_of: IntVector, optional: IntVector, cost: FloatVector) -> Options:
    """The options, which are of `class_of` (c,), and behind those of the classes `optional` (q,) to choose nothing, at
    reduced costs (q,)."""
    nothing = np.zeros((len(options.taken), optional.size))
    nothing[0] = cost
    block = np.concatenate([class_of, optional])
    order = block.argsort(kind="stable")
    column = np.concatenate([options.column, np.full(optional.size, NOTHING)])
    taken = np.concatenate([options.taken, nothing], axis=1)
    return Options(column=column[order], heads=heads_of(block[order]), taken=taken.take(order, axis=1))


def _cheapest(cost: FloatVector, use: FloatMatrix) -> IntVector:
    """Of the states that use the same, the cheapest, the first of those."""
    keys: list[NDArray[Any]] = [cost, *use.T]
    order = np.lexsort(keys)
    is_first = np.ones(order.size, dtype=np.bool_)
    is_first[1:] = (use[order[1:]] != use[order[:-1]]).any(axis=1)
    return np.sort(order[is_first])

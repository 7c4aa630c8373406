"""Choice problems so small that all that can matter is written down: dynamic programming over what blocks use.

A *block* is the columns of a choice row, of which at most one (or exactly one) is 1, or a column in none. Blocks choose
one after another; a state is what they have used together of the other rows. Of the states that use the same the
cheapest stays. States go that break a row which no later block relieves, or that cost more than a point that is known
even where all later blocks choose their best. What is left at the end has the optimum.

Rows are kept here by the tolerance of points. Where that alone makes a better point than rows that are kept but for
rounding, or any at all, HiGHS decides, whose tolerance is another one.

On a problem of tens of columns this takes a tenth of the time that HiGHS needs before it begins to search.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.backends.base import NativeOutcome
from solver.feasibility import FEASIBILITY_TOLERANCE
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

# States times options of a block, at any block: some tenths of a millisecond. Beyond it, HiGHS is asked.
_MOST_STATES = 1024
# Coupling rows, all of which are looked at for every state.
_MOST_ROWS = 64
# States that use the same are looked for from here on.
_MANY_STATES = 256
# Relative: sums of coefficients may be rounded.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """What a block may choose: a column for each option, -1 for none (o,), its cost (o,) and its use of rows (o, m)."""

    column: IntVector
    cost: FloatVector
    use: FloatMatrix


def solve_by_table(problem: MatrixProblem, start: FloatVector | None) -> NativeOutcome | None:
    """The optimum of a small choice problem, or the proof that there is none; None where it is not that.

    start: a feasible point (n,) of the problem, whose value the optimum need not exceed.
    """
    is_binary = problem.integrality & (problem.lower >= 0) & (problem.upper <= 1)
    if not is_binary.all() or 2 * problem.num_columns > _MOST_STATES:
        return None
    # Choice rows have no column in common.
    if problem.num_rows > problem.num_columns + _MOST_ROWS:
        return None
    matrix = _dense(problem)
    choice = _choice_rows(problem, matrix)
    is_coupling = np.ones(problem.num_rows, dtype=np.bool_)
    is_coupling[choice] = False
    coupling = matrix[is_coupling]
    if len(coupling) > _MOST_ROWS:
        return None
    blocks = _blocks(problem, matrix[choice], choice, coupling)
    if blocks is None:
        return None
    cutoff = np.inf if start is None else problem.sense.sign * float(problem.objective @ start)
    never_relieved: Mask = np.asarray((coupling >= 0).all(axis=1))
    limits = problem.row_lower[is_coupling], problem.row_upper[is_coupling]
    chosen = _best_choice(blocks, *limits, never_relieved, cutoff)
    # A point that is known may keep rows by a tolerance alone, and be better than all that keep them.
    if chosen is None or (not chosen.size and start is not None):
        return None
    if not chosen.size:
        return NativeOutcome(ending=TerminationReason.INFEASIBLE, message="no choice keeps all rows")
    point = np.zeros(problem.num_columns)
    point[chosen[chosen >= 0]] = 1.0
    message = f"{len(blocks)} blocks, {len(coupling)} coupling rows; all choices that can matter are known"
    return NativeOutcome(ending=TerminationReason.OPTIMAL, point=point, bound=problem.value(point), message=message)


def _dense(problem: MatrixProblem) -> FloatMatrix:
    matrix = problem.matrix
    dense = np.zeros(matrix.shape)
    dense[matrix.indices, np.repeat(np.arange(problem.num_columns), np.diff(matrix.indptr))] = matrix.data
    return dense


def _choice_rows(problem: MatrixProblem, matrix: FloatMatrix) -> IntVector:
    """Rows of ones of which at most, or exactly, one may be chosen, and that have no column in common."""
    is_used = matrix != 0
    is_choice = (matrix == is_used).all(axis=1) & is_used.any(axis=1) & (problem.row_upper == 1)
    is_choice &= (problem.row_lower <= 0) | (problem.row_lower == 1)
    taken = np.zeros(problem.num_columns, dtype=np.bool_)
    rows = []
    for row in np.flatnonzero(is_choice).tolist():
        if not taken[is_used[row]].any():
            taken |= is_used[row]
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def _blocks(
    problem: MatrixProblem, choosing: FloatMatrix, choice: IntVector, coupling: FloatMatrix
) -> list[_Block] | None:
    """Blocks with what they may choose; None where bounds leave one nothing, or want two of its columns.

    choosing, coupling: coefficients (k, n) of the rows `choice`, and (m, n) of all others.
    """
    alone = np.flatnonzero((choosing == 0).all(axis=0))
    members = [*map(np.flatnonzero, choosing), *alone.reshape(-1, 1)]
    must_choose = [*(problem.row_lower[choice] > 0).tolist(), *[False] * alone.size]
    cost, use = problem.sense.sign * problem.objective, coupling.T
    nothing, no_cost, no_use = np.array([-1]), np.zeros(1), np.zeros((1, coupling.shape[0]))
    blocks = []
    for columns, required in zip(members, must_choose, strict=True):
        wanted = columns[problem.lower[columns] > 0]
        if wanted.size > 1:
            return None
        open_ = wanted if wanted.size else columns[problem.upper[columns] > 0]
        if required or wanted.size:
            blocks.append(_Block(column=open_, cost=cost[open_], use=use[open_]))
        else:
            column = np.concatenate((nothing, open_))
            block_cost = np.concatenate((no_cost, cost[open_]))
            blocks.append(_Block(column=column, cost=block_cost, use=np.concatenate((no_use, use[open_]))))
    return blocks if all(block.column.size for block in blocks) else None


def _best_choice(
    blocks: list[_Block], lower: FloatVector, upper: FloatVector, never_relieved: Mask, cutoff: float
) -> IntVector | None:
    """The cheapest choice (K,): a column of each block, -1 for none; empty where no choice keeps the rows within their
    tolerance, None where there are too many states or the tolerance decides.

    lower, upper (m,): limits of the rows, of which those that are never relieved (m,) have no coefficient below 0.
    """
    capped = np.where(never_relieved, _raised(upper, FEASIBILITY_TOLERANCE), np.inf)
    least = [float(block.cost.min()) for block in blocks]
    rest = sum(least)
    if math.isfinite(cutoff):
        cutoff += _SLACK * max(1.0, abs(cutoff), sum(map(abs, least)))
    cost, use = np.zeros(1), np.zeros((1, upper.size))
    made: list[tuple[IntVector, IntVector]] = []
    for k, block in enumerate(blocks):
        num_options = block.column.size
        if cost.size * num_options > _MOST_STATES:
            return None
        cost = (cost[:, None] + block.cost).reshape(-1)
        use = (use[:, None, :] + block.use).reshape(cost.size, upper.size)
        rest -= least[k]
        kept = np.flatnonzero((use <= capped).all(axis=1) & (cost <= cutoff - rest))
        if kept.size > _MANY_STATES:
            kept = kept[_cheapest(cost[kept], use[kept])]
        cost, use = cost[kept], use[kept]
        made.append((kept // num_options, kept % num_options))
    kept, sure = (np.flatnonzero(_within(use, lower, upper, slack)) for slack in (FEASIBILITY_TOLERANCE, _SLACK))
    if not kept.size:
        return np.zeros(0, dtype=np.int64)
    if not sure.size or cost[sure].min() > cost[kept].min():
        return None
    state = int(sure[np.argmin(cost[sure])])
    chosen = np.zeros(len(blocks), dtype=np.int64)
    for k in reversed(range(len(blocks))):
        before, option = made[k]
        chosen[k] = blocks[k].column[option[state]]
        state = int(before[state])
    return chosen


def _within(use: FloatMatrix, lower: FloatVector, upper: FloatVector, slack: float) -> Mask:
    """Which states (s,) keep all rows, with so much slack of their limits."""
    is_within: Mask = np.asarray(((-_raised(-lower, slack) <= use) & (use <= _raised(upper, slack))).all(axis=1))
    return is_within


def _raised(limit: FloatVector, slack: float) -> FloatVector:
    return limit + slack * np.maximum(1.0, np.abs(limit))


def _cheapest(cost: FloatVector, use: FloatMatrix) -> IntVector:
    """Of the states that use the same, the cheapest, the first of those."""
    keys: list[NDArray[Any]] = [cost, *use.T]
    order = np.lexsort(keys)
    is_first: Mask = np.ones(order.size, dtype=np.bool_)
    is_first[1:] = (use[order[1:]] != use[order[:-1]]).any(axis=1)
    return np.sort(order[is_first])

"""Choice problems so small that all that can matter is written down (`solver.decomposition.enumeration`).

A *block* is the columns of a choice row, of which at most one (or exactly one) is 1, or a column in none. What is left
of their choices at the end has the optimum.

Rows are kept here by the tolerance of points. Where that alone makes a better point than rows that are kept but for
rounding, or any at all, HiGHS decides, whose tolerance is another one.

On a problem of tens of columns this takes a tenth of the time that HiGHS needs before it begins to search.
"""

import numpy as np

from solver.backends.base import NativeOutcome
from solver.decomposition.blocks import Blocks, find_blocks
from solver.decomposition.enumeration import NOTHING, Options, States, heads_of, raised, states_of
from solver.feasibility import FEASIBILITY_TOLERANCE
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from stowplan.arrays import FloatMatrix, FloatVector, Mask

# States times options of a block, at any block: some tenths of a millisecond. Beyond it, HiGHS is asked.
_MOST_STATES = 1024
# Coupling rows, all of which are looked at for every state.
_MOST_ROWS = 64
# Relative: sums of coefficients may be rounded.
_SLACK = 1e-9


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
    blocks = find_blocks(problem)
    if blocks is None:
        return None
    is_coupling = np.ones(problem.num_rows, dtype=np.bool_)
    is_coupling[blocks.rows] = False
    coupling = problem.matrix.toarray()[is_coupling]
    if len(coupling) > _MOST_ROWS:
        return None
    options = _options(problem, blocks, coupling)
    beyond = np.inf
    if start is not None:
        beyond = problem.sense.sign * float(problem.objective @ start)
        beyond += _SLACK * max(1.0, abs(beyond), float(np.abs(problem.objective).sum()))
    lower, upper = problem.row_lower[is_coupling], problem.row_upper[is_coupling]
    states = states_of(options, raised(upper, FEASIBILITY_TOLERANCE), beyond, _MOST_STATES)
    if states is None:
        return None
    kept, sure = (_cheapest_within(states, lower, upper, slack) for slack in (FEASIBILITY_TOLERANCE, _SLACK))
    if kept is None and start is None:
        return NativeOutcome(ending=TerminationReason.INFEASIBLE, message="no choice keeps all rows")
    # A point that is known may keep rows by a tolerance alone, and be better than all that keep them.
    if kept is None or sure is None or states.taken[0, sure] > states.taken[0, kept]:
        return None
    point = np.zeros(problem.num_columns)
    chosen = states.chosen(sure)
    point[[column for column in chosen if column != NOTHING]] = 1.0
    message = f"{len(chosen)} blocks, {len(coupling)} coupling rows; all choices that can matter are known"
    return NativeOutcome(ending=TerminationReason.OPTIMAL, point=point, bound=problem.value(point), message=message)


def _options(problem: MatrixProblem, blocks: Blocks, coupling: FloatMatrix) -> Options:
    """What blocks may choose, nothing before all else; coupling (m, n): coefficients of the rows that do not choose."""
    optional = np.flatnonzero(~blocks.required)
    block = np.append(optional, blocks.block[blocks.columns])
    order = np.argsort(block, kind="stable")
    column = np.append(np.full(optional.size, NOTHING), blocks.columns)[order]
    # What stands behind the last column is taken for nothing.
    cost = np.append(problem.sense.sign * problem.objective, 0.0)[column]
    use = np.column_stack([coupling, np.zeros(len(coupling))])[:, column]
    return Options(column=column, heads=heads_of(block[order]), taken=np.vstack([cost, use]))


def _cheapest_within(states: States, lower: FloatVector, upper: FloatVector, slack: float) -> int | None:
    """The cheapest state that keeps all rows, with so much slack of their limits (m,); None without one."""
    use = states.taken[1:].T
    is_within = (-raised(-lower, slack) <= use) & (use <= raised(upper, slack))
    keeps: Mask = np.asarray(is_within.all(axis=1))
    return int(np.where(keeps, states.taken[0], np.inf).argmin()) if keeps.any() else None

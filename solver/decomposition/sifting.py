"""Linear programs of few rows and very many columns: solve few columns, price the others, take in those that pay.

Every column lies in [0, 1] and in one group, and of each group at most one unit is taken in sum. Then prices u (m,) of
the rows prove, minimising,

    L(u) = offset - limit u + sum_groups min(0, min_j (cost_j + matrix_j u))

with u of any sign on equalities and >= 0 on others (limit: the upper one). HiGHS keeps its basis from one round to the
next, so that a round costs a few pivots. Ends when the objective of the columns that are in is within `tolerance` of L,
or when it must stop; L holds in any case.
"""

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np

from solver.backends.highs import load
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector, Mask

_MOST_ROUNDS = 100
# Of the objective: below this a reduced cost is rounding.
_LEAST_REDUCED = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sifted:
    """point (n,) of the relaxation, its objective, None where the columns that were taken in have none; prices (m,);
    reduced (n,) costs at these prices, less the best of the column's group where that is below 0; bound: L; taken:
    columns that were taken in."""

    point: FloatVector
    objective: float | None
    prices: FloatVector
    reduced: FloatVector
    bound: float
    taken: Mask
    num_rounds: int


def sift(
    problem: MatrixProblem,
    group: IntVector,
    part: IntVector,
    start: Mask,
    tolerance: float,
    stop: Callable[[], bool] = lambda: False,
) -> Sifted:
    """Solve the relaxation of a minimisation.

    Parameters
    ----------
    problem
        Rows are equalities, or have an upper limit alone; columns lie in [0, 1].
    group
        (n,) the group of each column, ascending; see above.
    part
        (n,) parts of groups, ascending, from each of which a column may be taken in in every round.
    start
        (n,) columns that make the rows feasible.
    tolerance
        Absolute.
    stop
        Whether the time is over; asked before every round and, since a round may take long, at every pivot.
    """
    heads = np.flatnonzero(np.diff(group, prepend=-1))
    transposed = problem.matrix.T.tocsr()
    taken = start.copy()
    best_prices, reduced = np.zeros(problem.num_rows), problem.objective
    best_bound = _bound(problem, best_prices, reduced, heads)
    taken[_cheapest(reduced, part)] = True
    highs, columns = _loaded(problem, taken, stop), np.flatnonzero(taken)
    point, objective, num_rounds = np.zeros(problem.num_columns), None, 0
    while num_rounds < _MOST_ROUNDS and not stop():
        num_rounds += 1
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            break
        solution = highs.getSolution()
        found = -np.array(solution.row_dual)
        # Rounding may have given a price the wrong sign, which proves nothing.
        found = np.where(problem.row_lower == problem.row_upper, found, np.maximum(found, 0.0))
        objective = float(highs.getInfo().objective_function_value)
        point = np.zeros(problem.num_columns)
        point[columns] = solution.col_value
        reduced = problem.objective + transposed @ found
        bound = _bound(problem, found, reduced, heads)
        if bound > best_bound:
            best_bound, best_prices = bound, found
        if objective - best_bound <= tolerance:
            break
        more = _cheapest(reduced, part)
        more = more[(reduced[more] < -_LEAST_REDUCED * max(1.0, abs(objective))) & ~taken[more]]
        if not more.size:
            break
        _add(highs, problem, more)
        taken[more] = True
        columns = np.concatenate([columns, more])
    reduced = problem.objective + transposed @ best_prices
    least = np.minimum(np.minimum.reduceat(reduced, heads), 0.0)
    return Sifted(
        point=point,
        objective=objective,
        prices=best_prices,
        reduced=reduced - np.repeat(least, np.diff(np.append(heads, group.size))),
        bound=best_bound,
        taken=taken,
        num_rounds=num_rounds,
    )


def _bound(problem: MatrixProblem, prices: FloatVector, reduced: FloatVector, heads: IntVector) -> float:
    """L at prices of the right sign, and the reduced costs at these."""
    best = np.minimum(np.minimum.reduceat(reduced, heads), 0.0)
    return problem.offset - float(problem.row_upper @ prices) + float(best.sum())


def _cheapest(reduced: FloatVector, part: IntVector) -> IntVector:
    """The first of the cheapest columns of each part."""
    heads = np.flatnonzero(np.diff(part, prepend=-1))
    least = np.repeat(np.minimum.reduceat(reduced, heads), np.diff(np.append(heads, part.size)))
    cheapest = np.flatnonzero(reduced <= least)
    return cheapest[np.flatnonzero(np.diff(part[cheapest], prepend=-1))]


def _loaded(problem: MatrixProblem, taken: Mask, stop: Callable[[], bool]) -> highspy.Highs:
    """HiGHS with the columns that are taken in; simplex, and no presolve, which would lose the basis."""
    columns = np.flatnonzero(taken)
    highs = load(
        MatrixProblem(
            name=problem.name,
            sense=problem.sense,
            objective=problem.objective[columns],
            offset=problem.offset,
            matrix=problem.matrix[:, columns],
            row_lower=problem.row_lower,
            row_upper=problem.row_upper,
            lower=np.zeros(columns.size),
            upper=np.full(columns.size, np.inf),
            integrality=np.zeros(columns.size, dtype=np.bool_),
        )
    )
    highs.setOptionValue("presolve", "off")
    highs.setOptionValue("threads", 1)
    highs.cbSimplexInterrupt.subscribe(lambda event: event.interrupt() if stop() else None)
    highspy.Highs.resetGlobalScheduler(True)
    return highs


def _add(highs: highspy.Highs, problem: MatrixProblem, columns: IntVector) -> None:
    part = problem.matrix[:, columns]
    highs.addCols(
        columns.size,
        problem.objective[columns],
        np.zeros(columns.size),
        np.full(columns.size, np.inf),
        part.nnz,
        part.indptr[:-1].astype(np.int32),
        part.indices.astype(np.int32),
        part.data,
    )
